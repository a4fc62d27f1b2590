#include "base/options.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace invar {
namespace {

struct Settings {
  int threads = 0;
  std::optional<float> temperature;
  std::optional<std::string> prompt;
  std::string isa = "auto", model, folder;
  std::vector<std::string> stop;
  int64_t memory = 0;
  uint64_t seed = 0;
  bool quiet = false;

  Options options{"run MODEL [options]", "Answers.", {"invar run a", "invar run b"}};

  Settings() {
    Options& o = options;
    o.text("MODEL", model, "MODEL", "the model");
    o.integer("-t,--threads", threads, 1, 64, "threads");
    o.real("--temperature", temperature, 0, 100, "temperature");
    o.text("-p,--prompt", prompt, "TEXT", "prompt");
    o.choice("--isa", isa, {"auto", "scalar"}, "instructions");
    o.texts("--stop", stop, "TEXT", "stop");
    o.text_or("--folder", folder, "usual", "[DIR]", "folder");
    o.bytes("--memory", memory, "budget");
    o.seed("--seed", seed, "seed");
    o.flag("-q,--quiet", quiet, "quiet");
  }
};

Status parse(Settings& s, std::vector<std::string> arguments) { return s.options.parse(arguments); }

TEST(Options, ValuesArrive) {
  Settings s;
  ASSERT_TRUE(parse(s, {"m.gguf", "-t", "3", "--temperature=0.5", "-p", "", "--stop", "[a,b]", "--stop", "-x",
                        "-q", "--memory", "2KiB", "--seed", "18446744073709551615", "--isa", "scalar"}));
  EXPECT_EQ(s.model, "m.gguf");
  EXPECT_EQ(s.threads, 3);
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.prompt, "");
  EXPECT_EQ(s.stop, (std::vector<std::string>{"[a,b]", "-x"}));
  EXPECT_EQ(s.memory, 2048);
  EXPECT_EQ(s.seed, ~0ull);
  EXPECT_EQ(s.isa, "scalar");
  EXPECT_TRUE(s.quiet);
}

TEST(Options, AValueMayBeLeftOut) {
  struct {
    std::vector<std::string> arguments;
    const char* folder;
  } const rows[] = {{{"m"}, ""},
                    {{"m", "--folder"}, "usual"},
                    {{"m", "--folder", "here"}, "here"},
                    {{"m", "--folder=here"}, "here"},
                    {{"m", "--folder", "--seed", "7"}, "usual"}};
  for (const auto& row : rows) {
    Settings s;
    ASSERT_TRUE(parse(s, row.arguments));
    EXPECT_EQ(s.folder, row.folder) << row.arguments.size();
    EXPECT_EQ(s.model, "m");
  }
}

TEST(Options, FaultsNameTheFlagAndTheNearestOne) {
  struct {
    std::vector<std::string> arguments;
    const char *where, *message;
  } cases[] = {
      {{"m", "--threads", "two"}, "--threads", "from 1 to 64, found 'two'"},
      {{"m", "--threads", "-3"}, "--threads", "found '-3'"},
      {{"m", "--threads", "0"}, "--threads", "found '0'"},
      {{"m", "--threads", "3x"}, "--threads", "found '3x'"},
      {{"m", "--threads", "99999999999999999999"}, "--threads", "found"},
      {{"m", "--temperature", "nan"}, "--temperature", "from 0 to 100"},
      {{"m", "--temperature", "-1"}, "--temperature", "found '-1'"},
      {{"m", "--isa", "sse9"}, "--isa", "auto|scalar, found 'sse9'"},
      {{"m", "--seed", "-1"}, "--seed", "found '-1'"},
      {{"m", "--thraeds", "2"}, "--thraeds", "did you mean --threads?"},
      {{"m", "--zzzzzzzzzz"}, "--zzzzzzzzzz", "--help"},
      {{"m", "n"}, "n", "invar run MODEL"},
      {{}, "MODEL", "not given"},
  };
  for (auto& c : cases) {
    Settings s;
    Status status = parse(s, c.arguments);
    ASSERT_FALSE(status) << c.where;
    EXPECT_EQ(status.error().code, Code::Usage);
    EXPECT_EQ(status.error().where, c.where);
    EXPECT_NE(status.error().message.find(c.message), std::string::npos) << status.error().message;
  }
}

TEST(Options, FlagWithoutValueIsUsage) {
  Settings s;
  Status status = parse(s, {"m", "--threads"});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--threads"), std::string::npos) << status.error().message;
}

TEST(Options, TheCommandLineWinsOverTheFile) {
  std::string path = testing::TempDir() + "options_" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << "threads = 3\nprompt = \"a b\"\nquiet = true\nstop = [\"x\", \"y\"]\n";
  Settings s;
  Status status = parse(s, {"m", "--config", path, "--threads", "5"});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(s.threads, 5);
  EXPECT_EQ(s.prompt, "a b");
  EXPECT_EQ(s.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(s.quiet);

  std::ofstream(path) << "thraeds = 3\n";
  Settings t;
  status = parse(t, {"m", "--config", path});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("thraeds"), std::string::npos) << status.error().message;
  std::remove(path.c_str());

  Settings u;
  status = parse(u, {"m", "--config", path});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::Io);
}

TEST(Options, PrintedConfigurationIsReadBack) {
  std::string path = testing::TempDir() + "printed_" + std::to_string(getpid()) + ".toml";
  Settings s;
  Options& options = s.options;
  std::vector<std::string> arguments = {"--print-config", "--threads", "7",        "-p", "say \"hi\"",
                                        "--stop",         "a",         "--memory", "1GB"};
  ASSERT_TRUE(options.parse(arguments));
  EXPECT_TRUE(options.wants_config());
  std::ofstream(path) << options.config();
  Settings t;
  Status status = parse(t, {"m", "--config", path});
  ASSERT_TRUE(status) << status.error().message << options.config();
  EXPECT_EQ(t.threads, 7);
  EXPECT_EQ(t.prompt, "say \"hi\"");
  EXPECT_EQ(t.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(t.memory, 1000000000);
  EXPECT_FALSE(t.temperature);
  std::remove(path.c_str());
}

TEST(Options, HelpShowsFlagsAndExamples) {
  Settings s;
  Options& options = s.options;
  std::vector<std::string> arguments = {"--help"};
  ASSERT_TRUE(options.parse(arguments));
  EXPECT_TRUE(options.wants_help());
  for (const char* part :
       {"Usage: invar run MODEL", "--threads N", "invar run a", "--config FILE", "auto|scalar"})
    EXPECT_NE(options.help().find(part), std::string::npos) << part << "\n" << options.help();
}

TEST(Options, Bytes) {
  struct {
    const char* text;
    int64_t bytes;
  } good[] = {
      {"1", 1},         {"100000", 100000}, {"500MB", 500000000}, {"8GiB", 8ll << 30}, {"1.5 GiB", 3ll << 29},
      {"2g", 2ll << 30}};
  for (auto& g : good) EXPECT_EQ(*parse_bytes(g.text), g.bytes) << g.text;
  for (const char* bad : {"", "0", "-1", "GiB", "8 gibi", "1e3", "1.2.3", "99999999999TB", "nan"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(Options, Nearest) {
  std::vector<std::string> words = {"run", "logits", "inspect"};
  EXPECT_EQ(nearest("lgoits", words), "logits");
  EXPECT_EQ(nearest("inspct", words), "inspect");
  EXPECT_EQ(nearest("photograph", words), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), words), "");
}

}  // namespace
}  // namespace invar
