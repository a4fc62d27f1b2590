// Files that are no models, or broken ones: every command, the server among them, ends at once and in
// little memory with an error that names the file and what is wrong with it.  data/malformed.json has the
// files.
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "base/sha256.h"
#include "files/model_file.h"
#include "text/json.h"

namespace invar {
namespace {

constexpr double kMostSeconds = 1;
constexpr int64_t kMostKib = 64 << 10;

struct Ended {
  int status = 0;
  double seconds = 0;
  int64_t peak_kib = 0;  // of memory, as far as it was seen while it ran
  std::string said;      // on standard output and error
};

// What a process has had in memory at most; the kernel counts anew from when it became the program.
int64_t peak_kib(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(line.find_first_of("0123456789")));
  return 0;
}

Ended run(const std::vector<std::string>& arguments, const std::string& log) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int in = open("/dev/null", O_RDONLY), out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0), dup2(out, 1), dup2(out, 2);
    std::vector<char*> pointers = {const_cast<char*>(INVAR_BINARY)};
    for (const std::string& a : arguments) pointers.push_back(const_cast<char*>(a.c_str()));
    pointers.push_back(nullptr);
    execv(INVAR_BINARY, pointers.data());
    _exit(127);
  }
  Ended ended;
  std::error_code gone;
  const std::string program = std::filesystem::canonical(INVAR_BINARY);
  const std::filesystem::path link = "/proc/" + std::to_string(child) + "/exe";
  while (waitpid(child, &ended.status, WNOHANG) == 0) {
    const bool begun = std::filesystem::read_symlink(link, gone) == program;
    if (begun) ended.peak_kib = std::max(ended.peak_kib, peak_kib(child));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ended.said = read_file(log, 1 << 20).take();
  return ended;
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(Malformed, EveryCommandRefusesByName) {
  const std::string source = std::string(INVAR_TEST_DATA) + "/malformed.json";
  const Json cases = parse_ordered_json(*read_file(source, 1 << 20), source).take();
  ASSERT_EQ(cases.size(), 12u);
  const std::string folder = testing::TempDir() + "malformed-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  int64_t seen_kib = 0;
  for (const Json& one : cases) {
    const std::string name = one["name"], says = one["says"], bytes = unhex(one["hex"]);
    ASSERT_EQ(hex(sha256(std::as_bytes(std::span(bytes)))), one["sha256"]) << name;
    const std::string path = folder + "/" + name + ".gguf", log = folder + "/log";
    std::ofstream(path, std::ios::binary) << bytes;
    const auto file = ModelFile::open(path);
    if (!file) {
      EXPECT_NE((file.error().where + ": " + file.error().message).find(path), std::string::npos) << name;
    }
    std::vector<std::vector<std::string>> commands = {{"serve", path, "--port", "0"},
                                                      {"run", path, "-p", "x"}};
    if (!file) commands.push_back({"inspect", path});  // shows what it can, of an unknown architecture too
    for (const auto& command : commands) {
      SCOPED_TRACE(command[0] + " " + name);
      Ended ended = run(command, log);
      for (int again = 0; again < 3 && ended.seconds >= kMostSeconds; ++again)
        ended = run(command, log);  // the machine was busy
      EXPECT_TRUE(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) != 0) << ended.status << ended.said;
      EXPECT_NE(ended.said.find(path), std::string::npos) << ended.said;
      EXPECT_NE(ended.said.find(says), std::string::npos) << ended.said;
      EXPECT_LT(ended.seconds, kMostSeconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they take more
      EXPECT_LT(ended.peak_kib, kMostKib);
#endif
      seen_kib = std::max(seen_kib, ended.peak_kib);
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2) << "nothing is left behind";
    std::filesystem::remove(path);
  }
  EXPECT_GT(seen_kib, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace invar
