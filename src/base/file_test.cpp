#include "base/file.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace invar {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() { fs::create_directories(folder_); }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string at(const char* name) const { return folder_ + "/" + name; }
  void write(const char* name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
  }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_ = testing::TempDir() + "file_test" + std::to_string(getpid());
};

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST_F(FileTest, ReadsAnyRange) {
  write("a", "0123456789");
  const Result<File> file = File::open(at("a"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 10u);
  char out[4] = {};
  ASSERT_TRUE(file->read_at(6, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(std::string(out, 4), "6789");
  EXPECT_TRUE(file->read_at(10, {}));
  for (const uint64_t offset : {uint64_t{7}, uint64_t{11}, UINT64_MAX}) {
    const Status read = file->read_at(offset, std::as_writable_bytes(std::span(out)));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::Io);
  }
}

TEST_F(FileTest, AFileThatShrinksIsAnError) {
  write("a", std::string(1 << 16, 'x'));
  const Result<File> file = File::open(at("a"));
  ASSERT_TRUE(file);
  fs::resize_file(at("a"), 100);
  std::vector<std::byte> out(1 << 16);
  const Status read = file->read_at(0, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::Io);
  EXPECT_NE(read.error().message.find("shorter"), std::string::npos);
}

TEST_F(FileTest, OnlyRegularFilesOpen) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  struct Row {
    std::string path;
    Code code;
    const char* says;
  };
  for (const Row& row : {Row{at("missing"), Code::NotFound, "No such file"},
                         {folder_, Code::BadFile, "a directory"},
                         {at("pipe"), Code::BadFile, "a pipe"},
                         {"/dev/null", Code::BadFile, "a device"},
                         {std::string("a\0b", 3), Code::NotFound, "NUL"}}) {
    const Result<File> file = File::open(row.path);
    ASSERT_FALSE(file) << row.path;
    EXPECT_EQ(file.error().code, row.code) << row.path;
    EXPECT_NE(file.error().message.find(row.says), std::string::npos) << file.error().message;
  }
}

TEST_F(FileTest, AWholeFileHasALimit) {
  write("a", "0123");
  EXPECT_EQ(*read_file(at("a"), 4), "0123");
  const Result<std::string> text = read_file(at("a"), 3);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::BadFile);
}

TEST_F(FileTest, ANewFileAppearsWhenItIsComplete) {
  write("a", "old");
  const std::string text(3 << 20, 'n');
  {
    Result<NewFile> file = NewFile::create(at("a"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(bytes_of(text)));
    EXPECT_EQ(*read_file(at("a"), 10), "old");
    ASSERT_TRUE(file->finish());
  }
  EXPECT_EQ(*read_file(at("a"), 4 << 20), text);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, AnAbandonedFileLeavesNothing) {
  {
    Result<NewFile> file = NewFile::create(at("a"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(bytes_of("part")));
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_EQ(entries(), 0u);
}

// What a killed process left is removed; what is being written is not, by another process or by this one.
TEST_F(FileTest, OnlyWhatADeadProcessLeftIsRemoved) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Result<NewFile> file = NewFile::create(at("a"));
    if (!file || ::write(told[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  for (int fd : told) close(fd);
  const auto part = [&] {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".part") return entry.path().string();
    return std::string();
  };
  ASSERT_FALSE(part().empty());
  EXPECT_FALSE(remove_abandoned(part()));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(remove_abandoned(part()));
  EXPECT_EQ(entries(), 0u);
  Result<NewFile> one = NewFile::create(at("a")), two = NewFile::create(at("a"));
  ASSERT_TRUE(one && two) << "two of the same name";
  EXPECT_EQ(entries(), 2u);
  EXPECT_FALSE(remove_abandoned(part()));
  EXPECT_TRUE(one->finish() && two->finish());
  for (const char* name : {"notes.part", ".part", "7.part", "a.x7.part", "a.7.txt"}) {
    write(name, "not ours");
    EXPECT_FALSE(remove_abandoned(at(name))) << name;
  }
  EXPECT_FALSE(remove_abandoned(at("nothing.7.part")));
}

// Others remove what is abandoned at any moment, between creating and locking too.
TEST_F(FileTest, WhatIsWrittenGetsItsNameBesideOneWhoSweeps) {
  std::atomic<bool> done = false;
  std::thread sweeper([&] {
    std::error_code gone;
    while (!done)
      for (const auto& entry : fs::directory_iterator(folder_, gone)) remove_abandoned(entry.path());
  });
  for (int i = 0; i < 400; ++i) {
    Result<NewFile> file = NewFile::create(at("a"));
    ASSERT_TRUE(file && file->write(bytes_of("text")));
    if (Status s = file->finish(); !s) ADD_FAILURE() << i << ": " << s.error().message;
  }
  done = true;
  sweeper.join();
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, NewFilesThatCannotBe) {
  for (const std::string& path : {std::string("/dev/full"), folder_}) {
    const Result<NewFile> file = NewFile::create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, Code::Io);
  }
  const Result<NewFile> nowhere = NewFile::create(at("no/such/folder"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::NotFound);
}

}  // namespace
}  // namespace invar
