// What the fuzz targets of the text layer do with one input; as targets.h, which has those of files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/answer_parser.h"
#include "text/byte_vocabulary.h"
#include "text/call_grammar.h"
#include "text/grammar.h"
#include "text/normalize.h"

namespace invar {

inline const Tokenizer& fuzz_tokenizer() {
  static const Tokenizer made = byte_tokenizer();
  return made;
}

inline Json fuzz_tools() {
  return Json::parse(R"([
      {"type":"function","function":{"name":"save","parameters":{"type":"object","properties":{
        "path":{"type":"string"},"body":{"type":"string"}},"required":["path"]}}},
      {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{
        "a":{"type":"integer"},"b":{"type":["number","null"]},"c":{"type":"array"},"d":{"type":"boolean"}}}}},
      {"type":"function","function":{"name":"now"}}])");
}

// The first byte is the dialect and options, the second the size of the pieces; the rest is the answer.  The
// pieces must not change what is said, and complete calls have JSON objects.  True: there was a call.
inline bool fuzz_answer(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return false;
  const unsigned flags = unsigned(bytes[0]);
  const size_t size = 1 + unsigned(bytes[1]) % 32;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 2, bytes.size() - 2);
  const std::span<const AnswerFormat> formats = answer_formats();
  const AnswerFormat format = answer_format("", formats[flags % formats.size()].name, "think").take();
  AnswerOptions options;
  options.starts_in_thought = (flags & 32) != 0;
  options.calls_in_thought = (flags & 64) != 0;
  options.stops = {"STOP"};
  const bool cut = (flags & 128) != 0;
  int calls = 0;
  const auto parse = [&](size_t step) {
    AnswerParser parser(fuzz_tokenizer(), format, fuzz_tools(), options);
    std::vector<AnswerPiece> out;
    for (size_t at = 0; at < text.size(); at += step) parser.push(text.substr(at, step), out);
    parser.finish(cut, out);
    calls = parser.calls();
    return merged(std::move(out));
  };
  const std::vector<AnswerPiece> whole = parse(text.size() + 1), pieces = parse(size);
  CHECK(whole == pieces);
  std::string arguments;
  for (const AnswerPiece& p : whole) {
    if (p.kind == AnswerPiece::Kind::CallBegin) arguments.clear();
    if (p.kind == AnswerPiece::Kind::CallArguments) arguments += p.text;
    if (p.kind != AnswerPiece::Kind::CallEnd) continue;
    const Result<Json> parsed = parse_ordered_json(arguments, "arguments");
    CHECK(parsed && parsed->is_object());
  }
  return calls > 0;
}

// The first byte is the kind; the rest a schema, a regex, a grammar, tools, messages or structural tags.
// True: it was taken.
inline bool fuzz_grammar(std::span<const std::byte> bytes) {
  if (bytes.empty()) return false;
  static const GrammarCompiler compiler =
      GrammarCompiler::make(fuzz_tokenizer(), fuzz_tokenizer().eos()).take();
  const unsigned kind = unsigned(bytes[0]) % 8;
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  GrammarSpec spec;
  spec.text = text;
  spec.kind = kind == 1   ? GrammarSpec::Kind::Regex
              : kind == 6 ? GrammarSpec::Kind::Gbnf
                          : GrammarSpec::Kind::Lark;
  if (kind != 1 && kind != 2 && kind != 6) {
    const Result<Json> json = parse_ordered_json(text, "input");
    if (!json) return false;
    if (kind == 3) {
      const Result<Json> messages = normalize_messages(*json);
      CHECK(messages || !messages.error().where.empty());
      if (messages) CHECK(normalize_messages(*messages));
      return bool(messages);
    }
    if (kind == 4 || kind == 5) {
      const Result<Json> tools = normalize_tools(*json);
      if (!tools || tools->is_null()) return false;
      CallRules rules;
      rules.tools = *tools;
      const AnswerFormat format = answer_format("", kind == 4 ? "qwen_xml" : "hermes").take();
      Result<GrammarSpec> made = call_grammar(rules, format, fuzz_tokenizer());
      if (!made) return false;
      spec = made.take();
    } else {
      spec.kind = kind == 7 ? GrammarSpec::Kind::Tags : GrammarSpec::Kind::JsonSchema;
      spec.schema = *json;
    }
  }
  const Result<Grammar> grammar = compiler.compile(spec);
  if (!grammar) {
    CHECK(!grammar.error().message.empty() && !grammar.error().where.empty());
    return false;
  }
  const std::unique_ptr<Matcher> matcher = grammar->start();
  std::vector<uint64_t> bits(5, ~uint64_t(0));
  return bool(matcher->mask(bits));
}

}  // namespace invar
