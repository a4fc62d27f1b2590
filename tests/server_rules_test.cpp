// What requests may ask an answer to be, in every form that clients write it in, whole and streamed.
#include <chrono>
#include <gtest/gtest.h>

#include "serving.h"

namespace invar {
namespace {

const std::string kChat = "/v1/chat/completions";

// The answer, equal both ways.
Json said(Site& site, Json body) {
  const HttpAnswer whole = site.post(kChat, body);
  EXPECT_EQ(whole.status, 200) << whole.body;
  body["stream"] = true;
  const HttpAnswer stream = site.post(kChat, body);
  EXPECT_EQ(stream.status, 200) << stream.body;
  if (whole.status != 200 || stream.status != 200) return {};
  const Json one = said_by_chat(whole.json());
  EXPECT_EQ(sorted(said_by_chat(assembled_chat(stream.body))), sorted(one));
  return one;
}

class Asked : public ServedModels {
 protected:
  static Json body(const Json& more) {
    Json b = {{"model", "m"}, {"messages", user("x")}, {"temperature", 0}, {"max_tokens", 80}};
    b.update(more);
    return b;
  }
  static Json saving(const Json& parameters, bool strict) {
    return Json::array({{{"type", "function"},
                         {"function", {{"name", "save"}, {"parameters", parameters}, {"strict", strict}}}}});
  }
};

const Json kFlag = {{"type", "object"},
                    {"properties", {{"a", {{"type", "boolean"}}}}},
                    {"required", {"a"}},
                    {"additionalProperties", false}};

Json tags(const char* trigger) {
  return {{"type", "structural_tag"},
          {"format",
           {{"type", "triggered_tags"},
            {"triggers", {trigger}},
            {"at_least_one", true},
            {"stop_after_first", true},
            {"tags", Json::array({{{"type", "tag"},
                                   {"begin", "<f=on>"},
                                   {"content", {{"type", "json_schema"}, {"json_schema", kFlag}}},
                                   {"end", "</f>"}}})}}}};
}

// The model says the next letter, or the lowest of those that are allowed.
TEST_F(Asked, FormsOfStructures) {
  Site site(*plain_, Site::engine(*plain_));
  const std::string gbnf = "root ::= [0-9]{3} \"z\"?";
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"grammar", gbnf}}, "012z"},
      {{{"structured_outputs", {{"grammar", gbnf}}}}, "012z"},
      {{{"guided_grammar", "start: /[0-9]{3}/"}}, "012"},
      {{{"structured_outputs", {{"regex", "m[no]+"}}}, {"max_tokens", 3}}, "mno"},
      {{{"guided_choice", {"mno", "azx"}}}, "azx"},
      {{{"guided_json", json_text(kFlag)}}, "{\"a\":false}"},
      {{{"json_schema", kFlag}}, "{\"a\":false}"},
      {{{"response_format", {{"type", "json_object"}, {"schema", kFlag}}}}, "{\"a\":false}"},
      {{{"response_format", by_schema(kFlag)}}, "{\"a\":false}"},
      {{{"structured_outputs", {{"json", kFlag}, {"whitespace_pattern", "\\n"}}}}, "{\n\"a\"\n:\nfalse\n}"},
      {{{"response_format", tags("<f=")}}, "<f=on>{\"a\":false}</f>"},
      {{{"structured_outputs", {{"structural_tag", json_text(tags("<f="))}}}}, "<f=on>{\"a\":false}</f>"}};
  for (const auto& [more, wanted] : cases) {
    SCOPED_TRACE(json_text(more));
    EXPECT_EQ(said(site, body(more))["content"], wanted);
  }
}

TEST_F(Asked, WhatCannotBeHonouredIsRefusedByName) {
  Site site(*xml_, script_line("ok"));
  const Json open = {{"type", "object"}, {"properties", {{"a", {{"not", {{"type", "null"}}}}}}}};
  const Json odd = {{"type", "object"},
                    {"properties", {{"a", {{"type", "array"}, {"items", {{"type", "odd"}}}}}}}};
  struct Case {
    Json more;
    std::string param, code, says;
  };
  const std::vector<Case> cases = {
      {{{"grammar", "root ::= missing"}}, "grammar", "invalid_schema", "'missing'"},
      {{{"grammar", "root ::= \"a\""}, {"json_schema", kFlag}}, "json_schema", "", "found also grammar"},
      {{{"grammar", "root ::= \"a\""}, {"grammar_lazy", true}}, "grammar_lazy", "unsupported_parameter", ""},
      {{{"response_format", tags("<g=")}}, "response_format", "invalid_schema", "/format/tags/0/begin"},
      {{{"response_format", {{"type", "xml"}}}}, "response_format.type", "", "structural_tag"},
      {{{"structured_outputs", {{"structural_tag", "{"}}}},
       "structured_outputs.structural_tag",
       "invalid_schema",
       ""},
      {{{"tools", saving(open, true)}},
       "/tools/0/function/parameters/properties/a/not",
       "invalid_schema",
       "strict"},
      {{{"tools", saving(odd, false)}, {"tool_choice", "required"}},
       "tools",
       "invalid_schema",
       "/properties/a/items"}};
  for (const Case& c : cases) {
    const HttpAnswer refused = site.post(kChat, body(c.more));
    ASSERT_EQ(refused.status, 400) << json_text(c.more) << refused.body;
    const Json error = refused.json()["error"];
    EXPECT_EQ(error["param"], c.param) << refused.body;
    if (!c.code.empty()) { EXPECT_EQ(error["code"], c.code) << refused.body; }
    EXPECT_NE(error["message"].get<std::string>().find(c.says), std::string::npos) << refused.body;
  }
}

TEST_F(Asked, ASchemaThatWouldTakeLongIsRefusedAtOnce) {
  Site site(*xml_, script_line("ok"));
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 5000; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  const Json deep = {{"type", "object"}, {"properties", {{"a", {{"type", "array"}, {"items", wide}}}}}};
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", deep}};
  const Json message = {{"messages", user("x")}, {"max_tokens", 9}, {"output_config", {{"format", format}}}};
  struct Case {
    const char* path;
    Json body;
    std::string where;
  };
  const std::vector<Case> cases = {
      {"/v1/chat/completions", body({{"response_format", by_schema(wide)}}), "schema: "},
      {"/v1/chat/completions", body({{"response_format", by_schema(deep)}}), "/properties/a/items: "},
      {"/v1/completions", {{"prompt", "x"}, {"guided_json", deep}}, "/properties/a/items: "},
      {"/v1/responses", {{"input", "x"}, {"text", {{"format", format}}}}, "/properties/a/items: "},
      {"/v1/messages", message, "/properties/a/items: "}};
  for (const Case& c : cases)
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(c.path);
      Json asked = c.body;
      asked["stream"] = stream;
      const auto began = std::chrono::steady_clock::now();
      const HttpAnswer refused = site.post(c.path, asked);
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
      ASSERT_EQ(refused.status, 400) << refused.body;
      const std::string why = refused.json()["error"]["message"];
      EXPECT_NE(why.find(c.where + "expected at most"), std::string::npos) << why;
      EXPECT_NE(why.find("found 5000"), std::string::npos) << why;
    }
}

TEST_F(Asked, WhatIsNotEnforcedIsToldInAHeader) {
  Site site(*xml_, Site::engine(*xml_));
  Json parameters = kFlag;
  parameters["properties"]["a"]["not"] = Json::object();
  Json asked = body({{"tools", saving(parameters, false)},
                     {"tool_choice", "required"},
                     {"chat_template_kwargs", {{"enable_thinking", false}}}});
  for (const bool stream : {false, true}) {
    asked["stream"] = stream;
    const HttpAnswer got = site.post(kChat, asked);
    EXPECT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(got.header("x-schema-ignored"), "/tools/0/function/parameters/properties/a/not");
  }
}

TEST_F(Asked, ArgumentsObeyTheirSchemaIfTheToolOrTheServerIsStrict) {
  const std::string call =
      "hm\n</think>\n\n<tool_call>\n<function=save>\n<parameter=a>\nmaybe\n</parameter>\n</function>\n</"
      "tool_call>";
  for (const bool server : {false, true})
    for (const bool tool : {false, true}) {
      server::ApiOptions options;
      options.constrain_tools = server;
      Site site(*xml_, script_line(call), options);  // a script that breaks the rule ends the request
      const HttpAnswer got = site.post(kChat, body({{"tools", saving(kFlag, tool)}}));
      EXPECT_EQ(got.status, server || tool ? 400 : 200) << got.body;
    }
}

TEST_F(Asked, CallsInAThoughtThatNeverEndsIfTheServerIsToldSo) {
  const std::string thought =
      "hm <tool_call>\n<function=save>\n<parameter=a>\ntrue\n</parameter>\n</function>\n</tool_call>";
  for (const bool wanted : {false, true}) {
    server::ApiOptions options;
    options.calls_in_thought = wanted;
    Site site(*xml_, script_line(thought), options);
    const Json answer = said(site, body({{"tools", saving(kFlag, false)}, {"max_tokens", 200}}));
    EXPECT_EQ(answer["calls"].size(), wanted ? 1u : 0u) << answer;
    EXPECT_EQ(answer["finish"], wanted ? "tool_calls" : "stop");
  }
}

}  // namespace
}  // namespace invar
