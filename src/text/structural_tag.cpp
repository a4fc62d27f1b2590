#include "text/structural_tag.h"

#include <algorithm>
#include <utility>

#include "text/gbnf.h"
#include "text/lark.h"
#include "text/schema.h"

namespace invar {

namespace {

constexpr int kMaxNesting = 64;
const std::string kAnyText = "/(?s:.*)/";

Error bad(std::string where, std::string message) {
  return Error{Code::BadRequest, std::move(where), std::move(message)};
}

class Tags {
 public:
  Result<GrammarSpec> build(const Json& tag) {
    const bool older = tag.is_object() && tag.contains("structures");
    const Json format = older                                       ? TRY(triggered(tag))
                        : tag.is_object() && tag.contains("format") ? tag["format"]
                                                                    : tag;
    const std::string start = TRY(rule({format, older || !tag.contains("format") ? "" : "/format", true, 0}));
    out_.kind = GrammarSpec::Kind::Lark;
    out_.text = "start: " + start + "\n" + text_;
    return std::move(out_);
  }

 private:
  struct At {
    const Json& format;
    std::string where;
    bool last;  // nothing of the answer follows
    int depth;

    At inside(const Json& part, const std::string& name, bool is_last = false) const {
      return {part, where + "/" + name, is_last, depth + 1};
    }
  };
  using Writer = Result<std::string> (Tags::*)(const At&);

  // The body of a rule for each type of format.
  static Writer writer(std::string_view type) {
    constexpr std::pair<std::string_view, Writer> kWriters[] = {
        {"const_string", &Tags::const_string},
        {"json_schema", &Tags::json_schema},
        {"regex", &Tags::regex},
        {"grammar", &Tags::grammar},
        {"any_text", &Tags::any_text},
        {"sequence", &Tags::sequence},
        {"or", &Tags::either},
        {"tag", &Tags::tag},
        {"triggered_tags", &Tags::triggered_tags},
        {"tags_with_separator", &Tags::separated_tags},
    };
    for (const auto& [name, write] : kWriters)
      if (name == type) return write;
    return nullptr;
  }

  // The name of a rule for the format.
  Result<std::string> rule(const At& at) {
    if (at.depth > kMaxNesting) return bad(at.where, "nested too deep");
    if (!at.format.is_object()) return bad(at.where, "expected a format, an object");
    const std::string type = TRY(text(at, "type"));
    const Writer write = writer(type);
    if (!write) return bad(at.where + "/type", "not supported: '" + type + "'");
    return named(TRY((this->*write)(at)));
  }
  std::string named(const std::string& body, const char* attribute = "") {
    std::string name = "t" + std::to_string(count_++);
    text_ += name + attribute + ": " + body + "\n";
    return name;
  }

  static Result<std::string> text(const At& at, const char* name) {
    const auto value = at.format.find(name);
    if (value == at.format.end() || !value->is_string()) return bad(at.where + "/" + name, "expected a text");
    return value->get<std::string>();
  }
  static Result<std::vector<std::string>> texts(const At& at, const char* name) {
    const auto value = at.format.find(name);
    std::vector<std::string> list;
    if (value != at.format.end() && value->is_string()) list.push_back(value->get<std::string>());
    else if (value != at.format.end() && value->is_array())
      for (const Json& one : *value) list.push_back(one.is_string() ? one.get<std::string>() : "");
    if (list.empty()) return bad(at.where + "/" + name, "expected texts");
    return list;
  }
  static Result<const Json*> list(const At& at, const char* name) {
    const auto value = at.format.find(name);
    if (value == at.format.end() || !value->is_array() || value->empty())
      return bad(at.where + "/" + name, "expected a list");
    return &*value;
  }
  static bool flag(const At& at, const char* name) { return at.format.value(name, Json()) == true; }

  Result<std::string> const_string(const At& at) { return lark_text(TRY(text(at, "value"))); }
  Result<std::string> regex(const At& at) { return lark_regex(TRY(text(at, "pattern"))); }
  Result<std::string> grammar(const At& at) {
    Result<std::string> lark = lark_of_gbnf(TRY(text(at, "grammar")));
    if (!lark) return bad(at.where + "/grammar", lark.error().message);
    return lark_nested(*lark);
  }
  Result<std::string> json_schema(const At& at) {
    const std::string style = at.format.value("style", Json("json")).dump();
    if (style != "\"json\"") return bad(at.where + "/style", "not supported: " + style);
    return schema(at.format.value("json_schema", Json()), at.where + "/json_schema");
  }
  Result<std::string> schema(const Json& schema, const std::string& where) {
    if (!schema.is_object() && !schema.is_boolean()) return bad(where, "expected a JSON schema");
    std::vector<std::string> ignored;
    Json kept = enforceable(schema, ignored);
    for (const std::string& place : ignored) out_.ignored.push_back(where + place);
    out_.parts.push_back({where, kept});
    return lark_json(std::move(kept));
  }
  Result<std::string> any_text(const At& at) {
    if (!at.last) return bad(at.where, "any_text is supported at the end of the answer, or alone in a tag");
    return kAnyText;
  }

  Result<std::string> sequence(const At& at) {
    std::string out;
    const Json& elements = *TRY(list(at, "elements"));
    for (size_t i = 0; i < elements.size(); i++)
      out += (i ? " " : "") + TRY(rule(at.inside(elements[i], "elements/" + std::to_string(i),
                                                 at.last && i + 1 == elements.size())));
    return out;
  }
  Result<std::string> either(const At& at) {
    std::string out;
    const Json& elements = *TRY(list(at, "elements"));
    for (size_t i = 0; i < elements.size(); i++)
      add_alternative(out, TRY(rule(at.inside(elements[i], "elements/" + std::to_string(i), at.last))));
    return out;
  }

  Result<std::string> tag(const At& at) {
    const std::string begin = TRY(text(at, "begin"));
    return lark_text(begin) + " " + TRY(rest_of_tag(at));
  }
  // What follows its beginning.
  Result<std::string> rest_of_tag(const At& at) {
    const std::vector<std::string> ends = TRY(texts(at, "end"));
    const Json content = at.format.value("content", Json());
    std::string written, in_regex;
    for (const std::string& end : ends) {
      add_alternative(written, lark_text(end));
      in_regex += (in_regex.empty() ? "" : "|") + regex_literal(end);
    }
    if (!content.is_object() || content.value("type", Json()) != "any_text")
      return TRY(rule(at.inside(content, "content"))) + " (" + written + ")";
    if (std::find(ends.begin(), ends.end(), "") != ends.end())
      return bad(at.where + "/end", "expected a text that ends any_text");
    return named("/(?s:.*)(" + in_regex + ")/", "[lazy]");
  }

  // Text in which a trigger begins one of the tags.
  Result<std::string> triggered_tags(const At& at) {
    if (!at.last) return bad(at.where, "triggered_tags are supported at the end of the answer");
    const std::vector<std::string> triggers = TRY(texts(at, "triggers"));
    const Json& tags = *TRY(list(at, "tags"));
    std::vector<std::string> rests(triggers.size());
    std::string whole;
    for (size_t i = 0; i < tags.size(); i++) {
      const At one = at.inside(tags[i], "tags/" + std::to_string(i));
      const std::string begin = TRY(text(one, "begin")), rest = named(TRY(rest_of_tag(one)));
      const auto trigger = std::find_if(triggers.begin(), triggers.end(), [&](const std::string& t) {
        return !t.empty() && begin.starts_with(t);
      });
      if (trigger == triggers.end())
        return bad(one.where + "/begin", "expected one of the triggers in front");
      add_alternative(rests[size_t(trigger - triggers.begin())],
                      lark_text(begin.substr(trigger->size())) + " " + rest);
      add_alternative(whole, lark_text(begin) + " " + rest);
    }
    std::string later;
    for (size_t i = 0; i < triggers.size(); i++)
      if (!rests[i].empty())
        add_alternative(
            later, named("/(?s:.*)" + regex_literal(triggers[i]) + "/", "[lazy]") + " (" + rests[i] + ")");
    const std::string free = " " + kAnyText;
    const bool first = flag(at, "at_least_one"), only = flag(at, "stop_after_first");
    if (first) return "(" + whole + ")" + (only ? "" : " (" + later + ")*" + free);
    return only ? later + " |" + free : "(" + later + ")*" + free;
  }

  Result<std::string> separated_tags(const At& at) {
    const std::string separator = lark_text(TRY(text(at, "separator")));
    const Json& tags = *TRY(list(at, "tags"));
    std::string any;
    for (size_t i = 0; i < tags.size(); i++) {
      const At one = at.inside(tags[i], "tags/" + std::to_string(i));
      add_alternative(any, named(TRY(tag(one))));
    }
    any = named(any);
    const std::string all = flag(at, "stop_after_first") ? any : any + " (" + separator + " " + any + ")*";
    return flag(at, "at_least_one") ? all : "(" + all + ")?";
  }

  // The older form as the newer one.
  static Result<Json> triggered(const Json& tag) {
    Json tags = Json::array();
    if (!tag["structures"].is_array()) return bad("/structures", "expected a list");
    for (const Json& one : tag["structures"]) {
      if (!one.is_object()) return bad("/structures", "expected objects with begin, schema and end");
      tags.push_back({{"type", "tag"},
                      {"begin", one.value("begin", Json())},
                      {"content", {{"type", "json_schema"}, {"json_schema", one.value("schema", Json())}}},
                      {"end", one.value("end", Json())}});
    }
    return Json{
        {"type", "triggered_tags"}, {"triggers", tag.value("triggers", Json())}, {"tags", std::move(tags)}};
  }

  GrammarSpec out_;
  std::string text_;
  int count_ = 0;
};

}  // namespace

Result<GrammarSpec> structural_grammar(const Json& tag) {
  if (!tag.is_object()) return bad("structural_tag", "expected an object");
  return Tags().build(tag);
}

}  // namespace invar
