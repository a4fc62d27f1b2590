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

}  // namespace

int64_t available_memory() {
  int64_t free_bytes = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string key, unit; info >> key;) {
    int64_t n = 0;
    if (!(info >> n)) break;
    if (key == "MemAvailable:") free_bytes = n * 1024;
    std::getline(info, unit);
  }
  std::ifstream self("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(self, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  while (true) {
    const std::string group = "/sys/fs/cgroup" + path;
    int64_t most = number_in(group + "/memory.max"), used = number_in(group + "/memory.current");
    if (most >= 0 && used >= 0) free_bytes = std::min(free_bytes, std::max<int64_t>(0, most - used));
    if (path.empty() || path == "/") return free_bytes;
    path = path.substr(0, path.rfind('/'));
  }
}

}  // namespace invar
