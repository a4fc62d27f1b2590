// The program from outside: exit statuses, errors, JSON, streams.
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

#include "alphabet_model.h"
#include "base/sha256.h"
#include "cli/command.h"

namespace invar {
namespace {

using nlohmann::json;

struct Outcome {
  int status = -1;  // 1000 + the signal that ended it
  std::string out, err;
  json parsed() const {
    json value = json::parse(out, nullptr, false);
    EXPECT_TRUE(value.is_object()) << out << err;
    return value;
  }
};

std::string scratch_path(const std::string& name) {
  return testing::TempDir() + "cli-" + std::to_string(getpid()) + "-" + name;
}

rlimit file_size_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  return limit;
}

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// `plain_user`: without the superuser's right to read any file.
pid_t start(const std::vector<std::string>& arguments, int in, int out, int err, bool plain_user = false) {
  pid_t child = fork();
  if (child != 0) return child;
  dup2(in, 0), dup2(out, 1), dup2(err, 2);
  if (plain_user && geteuid() == 0) {
    for (int capability : {1, 2})
      prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);  // DAC_OVERRIDE, DAC_READ_SEARCH
  }
  std::vector<char*> pointers = {const_cast<char*>(INVAR_BINARY)};
  for (const std::string& a : arguments) pointers.push_back(const_cast<char*>(a.c_str()));
  pointers.push_back(nullptr);
  execv(INVAR_BINARY, pointers.data());
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

Outcome invar(const std::vector<std::string>& arguments, const std::string& input = "",
              const char* out_path = nullptr, bool plain_user = false) {
  std::string in = scratch_path("in"), out = out_path ? out_path : scratch_path("out"),
              err = scratch_path("err");
  std::ofstream(in) << input;
  int fds[3] = {open(in.c_str(), O_RDONLY), open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
                open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600)};
  Outcome o;
  o.status = wait_for(start(arguments, fds[0], fds[1], fds[2], plain_user));
  for (int fd : fds) close(fd);
  if (!out_path) o.out = contents(out), std::remove(out.c_str());
  o.err = contents(err);
  std::remove(in.c_str()), std::remove(err.c_str());
  return o;
}

const std::string& model() {
  static const std::string path = [] {
    std::string made = write_alphabet_model();
    std::atexit([] { std::remove(model().c_str()); });
    return made;
  }();
  return path;
}

// One line that begins with "error: " and holds every word; nothing on standard output.
void expect_refused(const Outcome& o, int status, const std::vector<std::string>& words) {
  EXPECT_EQ(o.status, status) << o.err;
  EXPECT_EQ(o.err.rfind("error: ", 0), 0u) << o.err;
  EXPECT_EQ(o.out, "");
  for (const std::string& word : words)
    EXPECT_NE(o.err.find(word), std::string::npos) << word << " in " << o.err;
}

std::vector<std::string> logits_of(const std::string& path, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"logits", path, "--tokens", "97,98"});
  return more;
}

TEST(Cli, WrongUsageIsStatus2AndSaysWhat) {
  const std::string m = model();
  struct {
    std::vector<std::string> arguments, words;
  } cases[] = {
      {{}, {"--help"}},
      {{"lgoits", m}, {"lgoits", "did you mean logits?"}},
      {logits_of(m, {"--thraeds", "2"}), {"--thraeds", "--threads"}},
      {logits_of(m, {"--threads", "two"}), {"--threads", "'two'"}},
      {logits_of(m, {"--threads", "-3"}), {"--threads", "-3"}},
      {logits_of(m, {"--threads", "0"}), {"--threads"}},
      {logits_of(m, {"--chunk", "0"}), {"--chunk"}},
      {logits_of(m, {"--isa", "sse9"}), {"--isa", "avx2"}},
      {logits_of(m, {"--memory", "much"}), {"--memory", "8GiB"}},
      {logits_of(m, {"--kv", "q4"}), {"--kv", "bf16"}},
      {{"logits"}, {"MODEL"}},
      {{"logits", m}, {"--tokens"}},
      {{"logits", m, "--tokens", "1,x"}, {"--tokens", "'x'"}},
      {{"logits", m, "--tokens", ","}, {"--tokens", "empty"}},
      {{"logits", m, "--tokens", "1,4000000"}, {"4000000", "259"}},
      {{"logits", m, "--tokens", "1", "-p", "x"}, {"--tokens", "--prompt"}},
      {{"detokenize", m, "260"}, {"260", "259"}},
      {{"run", m, "--raw", "-p", ""}, {"empty"}},
      {{"run", m, "-p", ""}, {"empty"}},
      {{"run", m, "-p", "x", "-f", m}, {"--file"}},
      {{"run", m, "-p", "x", "--temperature", "-1"}, {"--temperature"}},
      {{"run", m, "-p", "x", "--temperature", "nan"}, {"--temperature"}},
      {{"run", m, "-p", "x", "--logit-bias", "260:1"}, {"--logit-bias", "260"}},
      {{"run", m, "-p", "x", "--logit-bias", "5"}, {"--logit-bias", "ID:VALUE"}},
      {{"run", m, "-p", "x", "--raw", "--system", "y"}, {"--system"}},
      {{"run", m, "-p", "x", "--config", "/nowhere/at/all.toml"}, {"--config"}},
      {{"run", m, "-p", "x", "--save-as", "y"}, {"--save-as", "--cache-dir"}},
      {{"run", m, "-p", "x", "--from", "../y", "--cache-dir", "/nowhere"}, {"--from", "name"}},
      {{"run", m, "-p", "x", "--from", "y", "--cache-dir", "/nowhere", "--system", "z"}, {"--system"}},
      {{"states"}, {"--cache-dir"}},
      {{"template", m}, {"--messages"}},
      {{"inspect", m, "more"}, {"more"}},
  };
  for (auto& c : cases) {
    Outcome o = invar(c.arguments);
    expect_refused(o, c.words[0] == "--config" ? 6 : 2, c.words);
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST(Cli, BadFilesAreStatus3Or6AndNamed) {
  const std::string whole = contents(model());
  std::string missing = scratch_path("missing.gguf"), folder = scratch_path("folder"),
              fifo = scratch_path("fifo"), magic = scratch_path("magic.gguf"), cut = scratch_path("cut.gguf"),
              empty = scratch_path("empty.gguf");
  mkdir(folder.c_str(), 0700);
  mkfifo(fifo.c_str(), 0600);
  std::ofstream(magic, std::ios::binary) << "GGUX" << whole.substr(4);
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.size() / 2);
  std::ofstream(empty, std::ios::binary).flush();
  for (const std::string& path : {missing, folder, fifo, magic, cut, empty}) {
    for (std::vector<std::string> command :
         {logits_of(path), {"run", path, "-p", "x", "-n", "1"}, {"tokenize", path}}) {
      if (path == cut && command[0] == "tokenize") continue;  // its keys are whole
      Outcome o = invar(command);
      EXPECT_TRUE(o.status == 3 || o.status == 6) << o.status << o.err;
      EXPECT_EQ(o.err.rfind("error: ", 0), 0u) << o.err;
      EXPECT_NE(o.err.find(path), std::string::npos) << path << " in " << o.err;
      command.push_back("--json");
      o = invar(command);
      json fault = o.parsed()["error"];
      EXPECT_TRUE(fault["code"].is_string() && fault["message"].is_string() && fault["where"].is_string())
          << o.out;
    }
  }
  rmdir(folder.c_str());
  for (const std::string& path : {fifo, magic, cut, empty}) std::remove(path.c_str());
}

TEST(Cli, AFileWithoutPermissionIsNamed) {
  std::string path = scratch_path("closed.gguf");
  std::ofstream(path, std::ios::binary) << contents(model());
  chmod(path.c_str(), 0);
  Outcome o = invar(logits_of(path), "", nullptr, true);
  expect_refused(o, o.status == 3 ? 3 : 6, {path});
  std::remove(path.c_str());
}

TEST(Cli, WhatDoesNotFitIsStatus4WithBothNumbers) {
  expect_refused(invar(logits_of(model(), {"--context", "1"})), 4, {"2", "1"});
  Outcome o = invar({"run", model(), "--raw", "-p", std::string(5000, 'x'), "-n", "1"});
  expect_refused(o, 4, {"5000", "4096"});
  o = invar({"run", model(), "--raw", "-p", std::string(5000, 'x'), "--json"});
  EXPECT_EQ(o.status, 4);
  EXPECT_NE(o.parsed()["error"]["message"].get<std::string>().find("5000"), std::string::npos);
  expect_refused(invar({"run", model(), "--raw", "-p", "x", "--memory", "100000"}), 4, {"100000"});
}

TEST(Cli, AnUnknownArchitectureIsStatus5BeforeAnythingElse) {
  std::string path = write_alphabet_model("", 4096, [](Metadata& keys) {
    keys.set("general.architecture", Value::text("frobnicator9"));
    keys.set("tokenizer.ggml.model", Value::text("frob"));
  });
  expect_refused(invar(logits_of(path)), 5, {"frobnicator9", "llama", path});
  EXPECT_EQ(invar({"inspect", path}).status, 0) << "it can be described";
  std::remove(path.c_str());
}

TEST(Cli, ErrorsKeepControlCharactersOut) {
  Outcome o = invar({"inspect", "no\nerror: fake\x1b[2J"});
  EXPECT_EQ(o.status, 3) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_EQ(o.err.find('\x1b'), std::string::npos);
}

TEST(Cli, OutputThatCannotBeWrittenIsStatus6) {
  for (std::vector<std::string> command : {logits_of(model(), {"--json"}),
                                           logits_of(model()),
                                           {"run", model(), "--raw", "-p", "a", "-n", "3"},
                                           {"inspect", model()},
                                           {"run", "--help"},
                                           {"models", "--json"}}) {
    Outcome o = invar(command, "", "/dev/full");
    EXPECT_EQ(o.status, 6) << command[0] << o.err;
    EXPECT_NE(o.err.find("standard output"), std::string::npos) << o.err;
  }
  expect_refused(invar(logits_of(model(), {"-o", "/dev/full"})), 6, {"/dev/full"});
}

TEST(Cli, AFullDiskIsStatus6AndLeavesNoFile) {
  const std::string folder = scratch_path("disk"), path = folder + "/new.gguf";
  std::filesystem::create_directory(folder);
  const rlimit before = file_size_limit(), small = {1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  Outcome o = invar({"synth", "llama:tiny", "-o", path});
  setrlimit(RLIMIT_FSIZE, &before);
  expect_refused(o, 6, {"new.gguf"});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(Cli, AClosedPipeIsStatus6AndNoSignal) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  close(pipes[0]);
  int null = open("/dev/null", O_RDWR);
  EXPECT_EQ(wait_for(start({"run", model(), "--raw", "-p", "a"}, null, pipes[1], null)), 6);
  close(pipes[1]);
  close(null);
}

TEST(Cli, RunAnswersFromFlagFileAndInput) {
  std::string file = scratch_path("prompt.txt");
  std::ofstream(file) << "a";
  std::vector<std::string> base = {"run", model(), "--raw", "--temperature", "0"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Outcome o = invar(with({"-p", "a"}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out, "bcdefghijklmnopqrstuvwxyz\n");
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  for (const char* word :
       {"prompt 1 tokens", "answer 25 tokens", "tok/s", "GB/s", "peak memory", "logits sha256"})
    EXPECT_NE(o.err.find(word), std::string::npos) << o.err;
  EXPECT_EQ(invar(with({"-f", file})).out, o.out);
  EXPECT_EQ(invar(base, "a").out, o.out);
  EXPECT_EQ(invar(with({"-p", "a", "-q"})).err, "");
  std::remove(file.c_str());
}

TEST(Cli, RunTellsAllInJson) {
  Outcome o = invar({"run", model(), "--raw", "-p", "w", "--json", "--temperature", "0.1", "--seed", "7",
                     "--threads", "2", "--chunk", "9", "--isa", "scalar"});
  ASSERT_EQ(o.status, 0) << o.err;
  json j = o.parsed();
  EXPECT_EQ(j["model"],
            (json{{"path", model()}, {"arch", "llama"}, {"name", "alphabet"}, {"fingerprint", nullptr}}));
  EXPECT_EQ(j["output"]["text"], "xyz");
  EXPECT_EQ(j["output"]["token_ids"], (json{'x', 'y', 'z'}));
  EXPECT_EQ(j["output"]["tokens"], 3);
  EXPECT_EQ(j["output"]["finish"], "stop");
  EXPECT_EQ(j["prompt"]["tokens"], 1);
  EXPECT_EQ(j["prompt"]["tokens_sha256"], hex(sha256(std::as_bytes(std::span("w\0\0\0", 4)))));
  EXPECT_EQ(j["draft"], nullptr);
  EXPECT_EQ(j["numerics"], 1);
  EXPECT_GT(j["memory"]["peak_rss_bytes"], 1000000);
  EXPECT_GT(j["memory"]["weights_bytes"], 100000);
  json s = j["settings"];
  EXPECT_EQ(s["threads"], 2);
  EXPECT_EQ(s["chunk"], 9);
  EXPECT_EQ(s["isa"], "scalar");
  EXPECT_EQ(s["kv"], "f16");
  EXPECT_EQ(s["seed"], 7);
  EXPECT_EQ(s["temperature"], 0.1);

  // The digest is that of one pass over the same tokens.
  o = invar({"logits", model(), "-p", "wxyz", "--json", "--top", "1"});
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.parsed()["logits_sha256"], j["logits_sha256"]);
  EXPECT_EQ(o.parsed()["top"][1][0]["id"], 'y');
}

TEST(Cli, RunEndsWhereItShould) {
  auto output = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"run", model(), "--raw", "--temperature", "0", "--json", "-p", "a"};
    all.insert(all.end(), more.begin(), more.end());
    return invar(all).parsed()["output"];
  };
  json o = output({"-n", "3"});
  EXPECT_EQ(o["text"], "bcd");
  EXPECT_EQ(o["finish"], "length");
  o = output({"--stop", "xx", "--stop", "fgh"});
  EXPECT_EQ(o["text"], "bcde");
  EXPECT_EQ(o["finish"], "stop_string");
  o = output({"--context", "5"});
  EXPECT_EQ(o["text"], "bcde");
  EXPECT_EQ(o["finish"], "length");
}

TEST(Cli, RunWritesWholeCharactersAsTheyCome) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  int null = open("/dev/null", O_RDWR);
  pid_t child = start({"run", model(), "--raw", "-p", "A", "--temperature", "0"}, null, sockets[1], null);
  close(sockets[1]);
  std::vector<std::string> parts;
  char part[256];
  for (ssize_t n; (n = read(sockets[0], part, sizeof part)) > 0;)
    parts.push_back(std::string(part, size_t(n)));
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(parts, (std::vector<std::string>{"\xC3\xA9", "z", "\n"}));
  close(sockets[0]);
  close(null);
}

TEST(Cli, AnAnswerCutInACharacterShowsOneMark) {
  json o = invar({"run", model(), "--raw", "-p", "A", "--temperature", "0", "-n", "1", "--json"})
               .parsed()["output"];
  EXPECT_EQ(o["text"], "\xEF\xBF\xBD");
  EXPECT_EQ(o["token_ids"], json{0xC3});
}

TEST(Cli, CtrlCPrintsWhatThereIs) {
  std::string endless = write_alphabet_model(kChatMl, 1 << 20), path = scratch_path("interrupted");
  for (bool as_json : {false, true}) {
    std::vector<std::string> arguments = {"run", endless,         "--raw",    "-p",
                                          "a",   "--temperature", "0",        "--threads",
                                          "1",   "--logit-bias",  "257:-1000"};
    if (as_json) arguments.push_back("--json");
    std::string text;
    for (int wait_ms = 200; text.size() < 8 && wait_ms < 20000; wait_ms *= 3) {  // it may still be loading
      int null = open("/dev/null", O_RDWR), out = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      pid_t child = start(arguments, null, out, null);
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      kill(child, SIGINT);
      EXPECT_EQ(wait_for(child), 130);
      close(null), close(out);
      text = contents(path);
      if (!as_json || text.empty()) continue;
      json o = json::parse(text, nullptr, false)["output"];
      EXPECT_EQ(o["finish"], "interrupt");
      EXPECT_EQ(o["tokens"], o["token_ids"].size());
      text = o["text"];
    }
    EXPECT_EQ(text.rfind("bcdefgh", 0), 0u) << text;
  }
  std::remove(path.c_str()), std::remove(endless.c_str());
}

TEST(Cli, AChatPromptTakesControlTokensFromTheTemplateAlone) {
  Outcome o = invar({"run", model(), "-p", "hi<|im_end|>", "-n", "2", "--temperature", "0", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  // <|im_start|> user \n hi < | i m _ e n d | > <|im_end|> \n <|im_start|> assistant \n
  EXPECT_EQ(o.parsed()["prompt"]["tokens"], 1 + 5 + 2 + 10 + 1 + 1 + 1 + 10);
  EXPECT_EQ(o.parsed()["output"]["text"], "bc");
}

TEST(Cli, AModelWithoutATemplateNeedsRaw) {
  std::string path = write_alphabet_model("");
  expect_refused(invar({"run", path, "-p", "x"}), 5, {"chat_template", "--raw"});
  EXPECT_EQ(invar({"run", path, "-p", "x", "--raw", "--temperature", "0"}).out, "yz\n");
  std::remove(path.c_str());
}

TEST(Cli, LogitsStreamToAnArray) {
  std::string path = scratch_path("logits.npy");
  Outcome o = invar(logits_of(model(), {"-o", path, "--json", "--top", "2"}));
  ASSERT_EQ(o.status, 0) << o.err;
  json j = o.parsed();
  std::string npy = contents(path);
  ASSERT_EQ(npy.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  size_t header = 10 + uint8_t(npy[8]) + 256 * uint8_t(npy[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_NE(npy.find("'shape': (2, 260)"), std::string::npos);
  std::string rows = npy.substr(header);
  EXPECT_EQ(rows.size(), 2u * 260 * 4);
  EXPECT_EQ(j["logits_sha256"], hex(sha256(std::as_bytes(std::span(rows)))));
  EXPECT_EQ(j["rows"], 2);
  EXPECT_EQ(j["vocab"], 260);
  EXPECT_EQ(j["tokens"], 2);
  ASSERT_EQ(j["top"].size(), 2u);
  EXPECT_EQ(j["top"][0][0]["id"], 'b');
  EXPECT_EQ(j["top"][0][1]["id"], 0) << "the lower id first among equals";

  o = invar(logits_of(model(), {"-o", path, "--json", "--rows", "last"}));
  EXPECT_EQ(contents(path).substr(header), rows.substr(260 * 4));
  EXPECT_EQ(o.parsed()["logits_sha256"], hex(sha256(std::as_bytes(std::span(rows).subspan(260 * 4)))));
  std::remove(path.c_str());
  expect_refused(invar(logits_of(model(), {"-o", "/nowhere/at/all.npy"})), 6, {"/nowhere/at/all.npy"});
}

TEST(Cli, TokensComeFromFlagOrFile) {
  std::string path = scratch_path("ids.txt");
  std::ofstream(path) << "97\n 98,\t99\n";
  json a = invar({"logits", model(), "--token-file", path, "--json"}).parsed();
  EXPECT_EQ(a["tokens"], 3);
  EXPECT_EQ(a["logits_sha256"],
            invar({"logits", model(), "--tokens", "97 98 99", "--json"}).parsed()["logits_sha256"]);
  std::ofstream(path) << "97 ninety";
  expect_refused(invar({"logits", model(), "--token-file", path}), 2, {path, "'ninety'"});
  std::remove(path.c_str());
}

TEST(Cli, AConversationIsSavedAndGoesOnInAnotherProcess) {
  const std::string folder = scratch_path("states");
  auto turn = [&](const std::string& question, std::vector<std::string> more, int status = 0) {
    more.insert(more.begin(), {"run", model(), "-p", question, "--temperature", "0", "--json", "-q",
                               "--cache-dir", folder});
    const Outcome o = invar(more);
    EXPECT_EQ(o.status, status) << o.err;
    return o.parsed();
  };
  json first = turn("x", {"--save-as", "trip", "-n", "3"});
  EXPECT_EQ(first["output"]["text"], "bcd");
  const int64_t saved = first["prompt"]["tokens"].get<int64_t>() + 3;
  EXPECT_EQ(first["saved"]["tokens"], saved);
  EXPECT_EQ(first["from"], nullptr);
  json second = turn("yy", {"--from", "trip", "--save-as", "trip2", "-n", "2"});
  EXPECT_EQ(second["prompt"]["cached_tokens"], saved);
  // <|im_end|> \n <|im_start|> user \n yy <|im_end|> \n <|im_start|> assistant \n
  EXPECT_EQ(second["prompt"]["tokens"], saved + 1 + 1 + 1 + 4 + 1 + 2 + 1 + 1 + 1 + 9 + 1);
  EXPECT_EQ(second["output"]["text"], "bc");
  json raw = turn("w", {"--from", "trip2", "--raw", "-n", "2"});
  EXPECT_EQ(raw["prompt"]["tokens"], second["saved"]["tokens"].get<int64_t>() + 1);
  EXPECT_EQ(raw["output"]["text"], "xy");

  std::filesystem::resize_file(folder + "/saved/trip.saved", 300);
  json list = invar({"states", "--cache-dir", folder, "--json"}).parsed()["states"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["name"], "trip");
  EXPECT_TRUE(list[0].contains("error"));
  EXPECT_EQ(list[1]["name"], "trip2");
  EXPECT_EQ(list[1]["tokens"], second["saved"]["tokens"]);
  EXPECT_EQ(list[1]["fingerprint"].get<std::string>().size(), 64u);
  EXPECT_EQ(list[1]["saved_at"].get<std::string>().substr(0, 2), "20");
  EXPECT_EQ(turn("x", {"--from", "trip"}, 3)["error"]["code"], "bad_file");
  EXPECT_EQ(invar({"states", "--cache-dir", folder, "--forget", "trip"}).status, 0);
  const Outcome gone = invar({"states", "--cache-dir", folder, "--forget", "trip"});
  expect_refused(gone, 3, {"trip", "none"});
  turn("x", {"--from", "trip"}, 3);
  const Outcome table = invar({"states", "--cache-dir", folder});
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 1) << table.out;
  EXPECT_EQ(table.out.rfind("trip2  ", 0), 0u) << table.out;
  std::filesystem::remove_all(folder);
}

// On a terminal: what is typed, and what comes back.
std::string chat_of(std::vector<std::string> more, const std::string& typed) {
  int terminal = -1, own = -1;
  EXPECT_EQ(openpty(&terminal, &own, nullptr, nullptr, nullptr), 0);
  more.insert(more.begin(), {"run", model(), "--temperature", "0", "-n", "3"});
  const std::string err = scratch_path("chat");
  const int err_file = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const pid_t child = start(more, own, own, err_file);
  close(own);
  EXPECT_EQ(write(terminal, typed.data(), typed.size()), ssize_t(typed.size()));
  char buffer[4096];
  while (read(terminal, buffer, sizeof buffer) > 0) {}  // an error at the end: nobody has it open
  EXPECT_EQ(wait_for(child), 0);
  close(terminal);
  close(err_file);
  const std::string told = contents(err);
  std::remove(err.c_str());
  return told;
}

TEST(Cli, AChatIsSavedAndGoesOn) {
  const std::string folder = scratch_path("chats");
  setenv("XDG_STATE_HOME", folder.c_str(), 1);
  auto saved = [&](const std::string& name) -> int64_t {
    const json list = invar({"states", "--cache-dir", folder, "--json"}).parsed()["states"];
    for (const json& s : list)
      if (s["name"] == name) return s["tokens"];
    return -1;
  };
  chat_of({"--cache-dir", folder, "--save-as", "one"}, "x\ny\n/quit\n");
  const int64_t first = saved("one");
  // <|im_start|> user \n x <|im_end|> \n <|im_start|> assistant \n, three tokens; the same again
  EXPECT_EQ(first, 2 * (1 + 4 + 1 + 1 + 1 + 1 + 1 + 9 + 1 + 3) + 2);
  const std::string told =
      chat_of({"--cache-dir", folder, "--from", "one", "--save-as", "two"}, "z\n/quit\n");
  EXPECT_NE(told.find("prompt " + std::to_string(first + 22) + " tokens"), std::string::npos) << told;
  EXPECT_EQ(saved("two"), first + 22 + 3);
  EXPECT_EQ(saved("one"), first);
  unsetenv("XDG_STATE_HOME");
  std::filesystem::remove_all(folder);
}

TEST(Cli, TokenizeAndBack) {
  json j = invar({"tokenize", model(), "-p", "a <|im_end|>", "--json"}).parsed();
  EXPECT_EQ(j["ids"].size(), 12u) << "control tokens in a text are text";
  EXPECT_EQ(j["pieces"][1], "20");
  j = invar({"tokenize", model(), "--special", "--json"}, "a<|im_end|>").parsed();
  EXPECT_EQ(j["ids"], (json{97, 257}));
  EXPECT_EQ(invar({"tokenize", model(), "--json"}).parsed()["ids"], json::array());
  EXPECT_EQ(invar({"tokenize", model(), "-p", "ab"}).out, "97 61\n98 62\n");
  EXPECT_EQ(invar({"detokenize", model(), "195,169 257"}).out, "\xC3\xA9<|im_end|>");
}

TEST(Cli, TemplatePrintsThePrompt) {
  std::string path = scratch_path("messages.json");
  std::ofstream(path) << R"({"messages": [{"role": "user", "content": "hi"}], "tools": null})";
  EXPECT_EQ(invar({"template", model(), "--messages", path}).out,
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(invar({"template", model(), "--messages", path, "--no-generation-prompt", "--json"}).parsed(),
            (json{{"prompt", "<|im_start|>user\nhi<|im_end|>\n"}}));
  std::string other = write_alphabet_model(
      "{% if effort %}{{ effort.level }}{{ plain }}{% endif %}{% if x %}{{ raise_exception('no x') }}{% "
      "endif %}");
  EXPECT_EQ(invar({"template", other, "--messages", path, "--var", R"(effort={"level": "high"})", "--var",
                   "plain=3"})
                .out,
            "high3");
  expect_refused(invar({"template", other, "--messages", path, "--var", "x=1"}), 3, {"no x"});
  expect_refused(invar({"template", other, "--messages", path, "--var", "x={"}), 2, {"--var"});
  expect_refused(invar({"template", other, "--messages", path, "--var", "x"}), 2, {"--var", "NAME=JSON"});
  std::ofstream(path) << "{";
  expect_refused(invar({"template", model(), "--messages", path}), 3, {path});
  std::ofstream(path) << R"({"message": []})";
  expect_refused(invar({"template", model(), "--messages", path}), 3, {path, "messages"});
  std::remove(other.c_str());
  std::remove(path.c_str());
}

TEST(Cli, InspectSumsUp) {
  json j = invar({"inspect", model(), "--json", "--fingerprint"}).parsed();
  EXPECT_EQ(j["arch"], "llama");
  EXPECT_EQ(j["name"], "alphabet");
  EXPECT_EQ(j["metadata"]["llama.block_count"], 1);
  EXPECT_EQ(j["metadata"]["tokenizer.ggml.tokens"]["count"], 260);
  EXPECT_EQ(j["metadata"]["tokenizer.ggml.merges"], json::array());
  EXPECT_EQ(j["fingerprint"].get<std::string>().size(), 64u);
  int64_t parameters = 0, bytes = 0;
  for (const json& t : j["tensors"]) {
    int64_t n = 1;
    for (const json& d : t["shape"]) n *= d.get<int64_t>();
    parameters += n;
    bytes += t["bytes"].get<int64_t>();
    EXPECT_EQ(t["format"], "F32");
    EXPECT_EQ(t["layer"].is_null(), t["name"].get<std::string>().rfind("blk.", 0) != 0);
    EXPECT_EQ(t["used"], true);
  }
  EXPECT_EQ(j["parameters"], parameters);
  EXPECT_EQ(j["bytes"], bytes);
  EXPECT_EQ(j["bits_per_weight"], 32.0);
  EXPECT_EQ(j["by_format"]["F32"]["bytes"], bytes);
  EXPECT_NE(invar({"inspect", model()}).out.find("embedding"), std::string::npos);
}

TEST(Cli, SettingsComeFromAFile) {
  std::string path = scratch_path("settings.toml");
  std::ofstream(path) << "threads = 3\nchunk = 7\n";
  json s = invar(logits_of(model(), {"--json", "--config", path, "--chunk", "9"})).parsed()["settings"];
  EXPECT_EQ(s["threads"], 3);
  EXPECT_EQ(s["chunk"], 9);
  Outcome o = invar({"run", "--config", path, "--print-config"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("threads = 3\n"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("# temperature =\n"), std::string::npos) << o.out;
  std::ofstream(path) << "thraeds = 3\n";
  expect_refused(invar(logits_of(model(), {"--config", path})), 2, {"--config", "thraeds"});
  std::remove(path.c_str());
}

TEST(Cli, EveryCommandHelpsWithExamples) {
  Outcome all = invar({"--help"});
  EXPECT_EQ(all.status, 0);
#define INVAR_NAME(name) #name,
  for (const char* command : {INVAR_COMMANDS(INVAR_NAME)}) {
#undef INVAR_NAME
    EXPECT_NE(all.out.find(std::string("  ") + command + " "), std::string::npos) << command;
    Outcome o = invar({command, "--help"});
    EXPECT_EQ(o.status, 0) << o.err;
    std::string name = std::string("invar ") + command;
    size_t examples = o.out.find("Examples:"), first = o.out.find(name, examples);
    ASSERT_NE(first, std::string::npos) << o.out;
    EXPECT_NE(o.out.find(name, first + 1), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("--json"), std::string::npos) << o.out;
  }
}

}  // namespace
}  // namespace invar
