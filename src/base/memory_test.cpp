// What counts as free, read from made-up /proc and /sys.
#include "base/memory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace invar {
namespace {

class AvailableMemory : public testing::Test {
 protected:
  ~AvailableMemory() override { std::filesystem::remove_all(root_); }

  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }

  std::string root_ = testing::TempDir() + "memory_test_" + std::to_string(getpid());
};

TEST_F(AvailableMemory, IsWhatTheMachineHas) {
  file("/proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\nHugePages_Total: 0\n");
  EXPECT_EQ(available_memory(root_), 1000 << 10);
}

TEST_F(AvailableMemory, IsBoundByEachGroup) {
  file("/proc/meminfo", "MemAvailable: 1000 kB\n");
  file("/proc/self/cgroup", "0::/outer/inner\n");
  file("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  file("/sys/fs/cgroup/outer/inner/memory.current", "400000\n");
  file("/sys/fs/cgroup/outer/memory.max", "500000\n");
  file("/sys/fs/cgroup/outer/memory.current", "400000\n");
  EXPECT_EQ(available_memory(root_), 100000);
  // A model that was read lies in the group's file cache: that is no use of it.
  file("/sys/fs/cgroup/outer/memory.stat",
       "anon 50000\nfile 350000\ninactive_file 200000\nactive_file 150000\n");
  EXPECT_EQ(available_memory(root_), 450000);
  file("/sys/fs/cgroup/outer/memory.current", "600000\n");  // above its bound for a moment
  file("/sys/fs/cgroup/outer/memory.stat", "anon 600000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

}  // namespace
}  // namespace invar
