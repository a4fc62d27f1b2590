#include "text/answer_parser.h"

#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "text/byte_vocabulary.h"

namespace invar {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer made = byte_tokenizer();  // the control token is one that no format knows
  return made;
}

AnswerFormat format_of(const Json& item) {
  const std::string name = item["format"];
  return answer_format("", name, name == "none" ? "none" : "think").take();
}

std::string unhex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) out += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

std::string text_of(const Json& item) {
  return item.contains("hex") ? unhex(item["hex"]) : item["text"].get<std::string>();
}

AnswerOptions options_of(const Json& item) {
  AnswerOptions options;
  options.starts_in_thought = item.value("in_thought", false);
  options.calls_in_thought = item.value("calls_in_thought", false);
  options.keep_stop = item.value("keep_stop", false);
  if (item.contains("stops")) options.stops = item["stops"].get<std::vector<std::string>>();
  return options;
}

std::vector<AnswerPiece> parse(const Json& item, const std::vector<std::string>& parts) {
  AnswerParser parser(tokenizer(), format_of(item), item["tools"], options_of(item));
  std::vector<AnswerPiece> out;
  for (const std::string& part : parts) parser.push(part, out);
  parser.finish(item.value("cut", false), out);
  EXPECT_EQ(parser.stop().value_or(""), item.value("stop", ""));
  return merged(std::move(out));
}

Json fixtures() {
  std::ifstream in(INVAR_TEST_DATA "/answers.json");
  std::stringstream text;
  text << in.rdbuf();
  Result<Json> parsed = parse_ordered_json(text.str(), "answers.json");
  EXPECT_TRUE(parsed);
  return parsed ? parsed.take() : Json::array();
}

std::string shown(const std::vector<AnswerPiece>& pieces) {
  static const char* const kNames[] = {"thought", "text", "begin", "arguments", "end"};
  std::string out;
  for (const AnswerPiece& p : pieces)
    out += std::string(kNames[int(p.kind)]) + " " + std::to_string(p.call) + " " + json_text(p.text) + "\n";
  return out;
}

// What the pieces say, in the form of a fixture.
Json summary(const std::vector<AnswerPiece>& pieces) {
  Json out = {{"thought", ""}, {"content", ""}, {"calls", Json::array()}};
  Json open;
  for (const AnswerPiece& p : pieces) {
    switch (p.kind) {
      case AnswerPiece::Kind::Thought:
        out["thought"] = out["thought"].get<std::string>() + p.text;
        break;
      case AnswerPiece::Kind::Text:
        out["content"] = out["content"].get<std::string>() + p.text;
        break;
      case AnswerPiece::Kind::CallBegin:
        open = {{"name", p.text}, {"arguments", ""}};
        break;
      case AnswerPiece::Kind::CallArguments:
        open["arguments"] = open["arguments"].get<std::string>() + p.text;
        break;
      case AnswerPiece::Kind::CallEnd: {
        const Result<Json> arguments = parse_ordered_json(open["arguments"].get<std::string>(), "arguments");
        EXPECT_TRUE(arguments) << open["arguments"];
        if (arguments) open["arguments"] = *arguments;
        out["calls"].push_back(open);
        open = Json();
      }
    }
  }
  if (!open.is_null()) out["open"] = open;
  return out;
}

TEST(AnswerParser, Fixtures) {
  for (const Json& item : fixtures()) {
    const std::vector<AnswerPiece> pieces = parse(item, {text_of(item)});
    Json expected = {{"thought", item["thought"]}, {"content", item["content"]}, {"calls", item["calls"]}};
    if (item.contains("open")) expected["open"] = item["open"];
    EXPECT_EQ(summary(pieces), expected) << item["name"] << "\n" << shown(pieces);
  }
}

TEST(AnswerParser, HoweverItIsCut) {
  for (const Json& item : fixtures()) {
    const std::string text = text_of(item);
    const std::vector<AnswerPiece> whole = parse(item, {text});
    const auto check = [&](const std::vector<std::string>& parts) {
      const std::vector<AnswerPiece> pieces = parse(item, parts);
      if (pieces == whole) return true;
      std::string cuts;
      for (const std::string& part : parts) cuts += json_text(part) + " ";
      ADD_FAILURE() << item["name"] << "\n"
                    << cuts << "\n"
                    << shown(pieces) << "instead of\n"
                    << shown(whole);
      return false;
    };
    std::vector<std::string> bytes;
    for (char c : text) bytes.push_back({c});
    bool ok = check(bytes);
    for (size_t i = 0; ok && i <= text.size(); i++) {
      ok = check({text.substr(0, i), text.substr(i)});
      // All pairs of a short text; of a long one those that are near, where markers are cut twice.
      const size_t last = text.size() < 100 ? text.size() : std::min(text.size(), i + 14);
      for (size_t j = i + 1; ok && j <= last; j++)
        ok = check({text.substr(0, i), text.substr(i, j - i), text.substr(j)});
    }
    std::mt19937 random(7);
    for (int round = 0; ok && round < 50; round++) {
      std::vector<std::string> parts;
      for (size_t at = 0; at < text.size();) {
        const size_t size = 1 + random() % (1 + round);
        parts.push_back(text.substr(at, size));
        at += size;
      }
      ok = check(parts);
    }
  }
}

TEST(AnswerParser, WhatIsCertainComesAtOnce) {
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"save","parameters":{
      "type":"object","properties":{"body":{"type":"string"}}}}}])");
  AnswerParser parser(tokenizer(), answer_format("", "qwen_xml", "think").take(), tools, {});
  std::vector<AnswerPiece> out;
  const auto push = [&](std::string_view text) {
    out.clear();
    parser.push(text, out);
    return shown(merged(out));
  };
  EXPECT_EQ(push("Hello <b> you <tool_"), "text -1 \"Hello <b> you\"\n");
  EXPECT_EQ(push("x"), "text -1 \" <tool_x\"\n");
  EXPECT_EQ(push("\n<tool_call>\n<function=save>\n"), "");
  EXPECT_EQ(push("<parameter=body>\nfirst"), "begin 0 \"save\"\narguments 0 \"{\\\"body\\\":\\\"first\"\n");
  EXPECT_EQ(push("\n"), "");
  EXPECT_EQ(push("second </par"), "arguments 0 \"\\\\nsecond \"\n");
  EXPECT_EQ(push("is>\n</parameter>"), "arguments 0 \"</paris>\\\"\"\n");
  EXPECT_EQ(push("\n</function>"), "arguments 0 \"}\"\nend 0 \"\"\n");
  EXPECT_EQ(parser.calls(), 1);
}

TEST(AnswerParser, MarkersThatAreTokens) {
  const Tokenizer kit = byte_tokenizer({{"<|end|>"}, {"</think>"}, {"<tool_call>"}, {"</tool_call>"}});
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"now"}}])");
  AnswerParser parser(kit, answer_format("", "glm", "think").take(), tools, {.starts_in_thought = true});
  std::vector<AnswerPiece> out;
  for (Token t : {Token('h'), 257, 258, Token('n'), Token('o'), Token('w'), 259, 256}) parser.push(t, out);
  parser.finish(false, out);
  EXPECT_EQ(shown(merged(out)), "thought -1 \"h\"\nbegin 0 \"now\"\narguments 0 \"{}\"\nend 0 \"\"\n");
  EXPECT_EQ(parser.thought_tokens(), 2);
}

TEST(AnswerParser, TokensOfAThoughtAreCountedWithItsMarkers) {
  const Tokenizer kit = byte_tokenizer({{"<|end|>"}, {"<think>"}, {"</think>"}});
  const auto counted = [&](const std::vector<Token>& tokens) {
    AnswerParser parser(kit, answer_format("", "none", "think").take(), Json(), {});
    std::vector<AnswerPiece> out;
    for (Token t : tokens) parser.push(t, out);
    return parser.thought_tokens();
  };
  const auto bytes = [](std::string_view text) { return std::vector<Token>(text.begin(), text.end()); };
  EXPECT_EQ(counted({'\n', 257, 'h', 'm', 258, 'o'}), 4);
  EXPECT_EQ(counted({257, 'h', 258, '\n', 257, 'm', 258, 'o'}), 6);
  EXPECT_EQ(counted(bytes("\n <think>hm</think>ok")), 17);
  EXPECT_EQ(counted(bytes("<thin air>")), 0);
  EXPECT_EQ(counted({'o', 'k'}), 0);
}

TEST(AnswerFormats, AreFoundInTheTemplate) {
  const auto name = [](std::string_view source) { return std::string(answer_format(source)->name); };
  EXPECT_EQ(name("<tool_call>\n<function=example>"), "qwen_xml");
  EXPECT_EQ(name("<tool_call>{name}<arg_key>"), "glm");
  EXPECT_EQ(name("<tool_call>\n{\"name\": <function-name>}"), "hermes");
  EXPECT_EQ(name("<|python_tag|>"), "llama3");
  EXPECT_EQ(name("{{ messages }}"), "none");
  EXPECT_FALSE(answer_format("")->thinks());
  const AnswerFormat thinks = answer_format("x</think>y").take();
  EXPECT_TRUE(opens_thought(thinks, "<|assistant|>\n<think>\n"));
  EXPECT_FALSE(opens_thought(thinks, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(answer_format("", "other"));
}

}  // namespace
}  // namespace invar
