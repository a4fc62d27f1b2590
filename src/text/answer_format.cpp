#include "text/answer_format.h"

#include <algorithm>
#include <array>

namespace invar {

namespace {

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";

using Calls = AnswerFormat::Calls;

// The first whose text is in the template is its dialect, so the rarer texts come first.
constexpr std::array<AnswerFormat, 5> kFormats = {{
    {.name = "qwen_xml",
     .detect = "<function=",
     .calls = Calls::Tags,
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .bare = true,
     .tags = {.name_begin = "<function=",
              .name_end = ">",
              .call_close = "</function>",
              .key_begin = "<parameter=",
              .key_end = ">",
              .value_begin = "",
              .value_end = "</parameter>",
              .newlines = true}},
    {.name = "glm",
     .detect = "<arg_key>",
     .calls = Calls::Tags,
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .tags = {.name_begin = "",
              .name_end = "",
              .call_close = "",
              .key_begin = "<arg_key>",
              .key_end = "</arg_key>",
              .value_begin = "<arg_value>",
              .value_end = "</arg_value>",
              .newlines = false}},
    {.name = "llama3",
     .detect = "<|python_tag|>",
     .calls = Calls::Json,
     .call_begin = "<|python_tag|>",
     .call_end = "",
     .bare = true,
     .arguments_key = "parameters"},
    {.name = "hermes",
     .detect = "<tool_call>",
     .calls = Calls::Json,
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .arguments_key = "arguments"},
    {.name = "none", .detect = "", .call_begin = "", .call_end = ""},
}};

std::string_view trimmed_end(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == text.npos ? 0 : end + 1);
}

Error unknown(const char* where, std::string_view name, const std::string& names) {
  return Error{Code::Usage, where, "expected " + names + ", found '" + std::string(name) + "'"};
}

}  // namespace

std::span<const AnswerFormat> answer_formats() { return kFormats; }

Result<AnswerFormat> answer_format(std::string_view chat_template, std::string_view tools,
                                   std::string_view thoughts) {
  const auto chosen = [&](const AnswerFormat& f) {
    return tools == "auto" ? chat_template.find(f.detect) != chat_template.npos : f.name == tools;
  };
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(), chosen);
  if (found == kFormats.end()) {
    std::string names = "auto";
    for (const AnswerFormat& f : kFormats) names += ", " + std::string(f.name);
    return unknown("--tool-parser", tools, "one of " + names);
  }
  if (thoughts != "auto" && thoughts != "think" && thoughts != "none") {
    return unknown("--reasoning-parser", thoughts, "one of auto, think, none");
  }
  AnswerFormat format = *found;
  const bool written = chat_template.find(kThinkClose) != chat_template.npos;
  if (thoughts == "think" || (thoughts == "auto" && written)) {
    format.think_open = kThinkOpen;
    format.think_close = kThinkClose;
  }
  return format;
}

bool opens_thought(const AnswerFormat& format, std::string_view prompt_text) {
  return format.thinks() && trimmed_end(prompt_text).ends_with(format.think_open);
}

}  // namespace invar
