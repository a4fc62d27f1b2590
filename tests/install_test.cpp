// What `cmake --install` gives: a C program is built with it by pkg-config and by CMake, and answers.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "alphabet_model.h"

namespace invar {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the archives then want what only our own build links
#else
constexpr bool kSanitized = false;
#endif

class Install : public testing::Test {
 protected:
  Install() : folder_(testing::TempDir() + "install-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Install() override { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitized library";
    need("cmake");
    need("cc");
    need("pkg-config");
  }

  void need(const std::string& tool) {
    if (std::system(("command -v " + tool + " > /dev/null").c_str()) != 0) GTEST_SKIP() << "no " << tool;
  }
  // What it says on both streams.
  std::string run(const std::string& command) {
    FILE* pipe = popen(("cd '" + folder_ + "' && (" + command + ") 2>&1").c_str(), "r");
    std::string out;
    char block[4096];
    while (const size_t n = fread(block, 1, sizeof block, pipe)) out.append(block, n);
    EXPECT_EQ(pclose(pipe), 0) << command << "\n" << out;
    return out;
  }
  void expect_answer(const std::string& program) {
    const std::string model = write_alphabet_model();
    EXPECT_EQ(run(program + " '" + model + "' w"), "xyz\n1 prompt tokens, 3 answer tokens, finish 1\n");
    std::remove(model.c_str());
  }

  std::string folder_;
};

TEST_F(Install, AProgramInCIsBuiltByPkgConfigAndByCMake) {
  run("cmake --install '" INVAR_BUILD "' --prefix \"$PWD/first\" && mv first moved");
  EXPECT_EQ(run("moved/bin/invar --version").rfind("invar ", 0), 0u);
  const std::string example = INVAR_EXAMPLES "/answer.c";
  run("export PKG_CONFIG_PATH=$(dirname $(find \"$PWD/moved\" -name invar.pc)); "
      "cc -std=c11 -Wall -Werror -o by_pkg_config '" +
      example + "' $(pkg-config --cflags --libs invar)");
  expect_answer("./by_pkg_config");
  std::ofstream(folder_ + "/CMakeLists.txt")
      << "cmake_minimum_required(VERSION 3.25)\nproject(answer LANGUAGES C)\n"
         "find_package(invar 0.1 REQUIRED)\nadd_executable(answer \""
      << example << "\")\ntarget_link_libraries(answer invar::invar)\n";
  run("cmake -S . -B out -DCMAKE_PREFIX_PATH=\"$PWD/moved\" && cmake --build out");
  expect_answer("out/answer");
}

}  // namespace
}  // namespace invar
