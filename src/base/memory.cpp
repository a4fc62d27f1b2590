#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace invar {
namespace {

int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t n = -1;
  return file >> n ? n : -1;  // "max" is no number
}

// Of the files that a control group has in memory; v2 memory.stat.
int64_t file_bytes(const std::string& group) {
  std::ifstream stat(group + "/memory.stat");
  int64_t sum = 0, n = 0;
  for (std::string key; stat >> key >> n;)
    if (key == "active_file" || key == "inactive_file") sum += n;
  return sum;
}

}  // namespace

int64_t available_memory(const std::string& root) {
  int64_t free_bytes = 0;
  std::ifstream info(root + "/proc/meminfo");
  for (std::string key, unit; info >> key;) {
    int64_t n = 0;
    if (!(info >> n)) break;
    if (key == "MemAvailable:") free_bytes = n * 1024;
    std::getline(info, unit);
  }
  std::ifstream self(root + "/proc/self/cgroup");
  std::string line, path;
  while (std::getline(self, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  while (true) {
    const std::string group = root + "/sys/fs/cgroup" + path;
    int64_t most = number_in(group + "/memory.max"), used = number_in(group + "/memory.current");
    if (most >= 0 && used >= 0)
      free_bytes = std::clamp<int64_t>(most - std::max<int64_t>(0, used - file_bytes(group)), 0, free_bytes);
    if (path.empty() || path == "/") return free_bytes;
    path = path.substr(0, path.rfind('/'));
  }
}

}  // namespace invar
