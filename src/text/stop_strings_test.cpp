#include "text/stop_strings.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

struct Case {
  std::vector<std::string> stops;
  std::string text, shown;
  std::optional<std::string> matched;
};

const Case kCases[] = {
    {{"beta gamma"}, "alpha beta gamma delta", "alpha ", "beta gamma"},
    {{"\nUser:"}, "line one\nUsers are many\nUse it", "line one\nUsers are many\nUse it", std::nullopt},
    {{"cd", "bcde"}, "abcdef", "ab", "cd"},          // what is complete first counts
    {{"cd", "bcd"}, "abcdef", "a", "bcd"},           // at one place the longest
    {{"aab"}, "aaab tail", "a", "aab"},              // begins inside of a false start
    {{"END!"}, "the END", "the END", std::nullopt},  // held back until the end
    {{"\xE3\x80\x82\xE7\xB5\x82"},
     "\xE3\x81\xAF\xE3\x80\x82\xE7\xB5\x82!",
     "\xE3\x81\xAF",
     "\xE3\x80\x82\xE7\xB5\x82"},
    {{""}, "text", "text", std::nullopt},
    {{}, "text", "text", std::nullopt},
    {{"x"}, "x", "", "x"},
};

TEST(StopStrings, DoNotDependOnHowTheTextIsCut) {
  for (const Case& c : kCases) {
    for (size_t size = 1; size <= c.text.size(); size++) {
      StopStrings stops(c.stops);
      std::string shown;
      for (size_t at = 0; at < c.text.size(); at += size) shown += stops.push(c.text.substr(at, size));
      shown += stops.finish();
      EXPECT_EQ(shown, c.shown) << c.text << " in pieces of " << size;
      EXPECT_EQ(stops.matched(), c.matched) << c.text << " in pieces of " << size;
    }
  }
}

TEST(StopStrings, HoldBackNoMoreThanTheyMust) {
  StopStrings stops({"abcd"});
  EXPECT_EQ(stops.push("xxabc"), "xx");
  EXPECT_EQ(stops.push("x"), "abcx");
  EXPECT_EQ(stops.push("ab"), "");
  EXPECT_EQ(stops.push("cd more"), "");
  EXPECT_EQ(stops.push("after the match"), "");
  EXPECT_EQ(stops.finish(), "");
}

}  // namespace
}  // namespace invar
