#include "server/body.h"

#include <cmath>

namespace invar::server {
namespace {

const Json kNothing = Json::object();

}  // namespace

Json content_of(const std::string& role, const std::vector<std::string>& parts) {
  if (parts.size() > 1 && (role == "system" || role == "developer")) return parts;
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return json_text(value).substr(0, 40);
  }
}

Body::Body(const Json& value, std::optional<ApiError>& fault, std::string path)
    : value_(&value), fault_(&fault), path_(std::move(path)) {}

const Json* Body::any(const char* name) const {
  if (!value_->is_object()) return nullptr;
  const auto at = value_->find(name);
  return at == value_->end() || at->is_null() ? nullptr : &*at;
}

void Body::wrong(const std::string& name, std::string message, std::string code) {
  if (*fault_) return;
  ApiError error;
  error.param = path_of(name);
  error.message = error.param + ": " + std::move(message);
  error.code = std::move(code);
  *fault_ = std::move(error);
}

void Body::unsupported(const std::string& name, const std::string& why) {
  wrong(name, "not supported: " + why, "unsupported_parameter");
}

// The value if it has the type.
const Json* Body::typed(const char* name, bool fits, const char* expected) {
  const Json* value = any(name);
  if (!value || fits) return value;
  wrong(name, std::string("expected ") + expected + ", found " + kind_of(*value));
  return nullptr;
}

std::optional<std::string> Body::text(const char* name) {
  const Json* v = any(name);
  v = typed(name, v && v->is_string(), "a string");
  return v ? std::optional(v->get<std::string>()) : std::nullopt;
}

std::string Body::needed_text(const char* name) {
  if (!any(name)) wrong(name, "expected a string, found none");
  return text(name).value_or("");
}

std::optional<double> Body::number(const char* name) {
  const Json* v = any(name);
  v = typed(name, v && v->is_number() && std::isfinite(v->get<double>()), "a number");
  return v ? std::optional(v->get<double>()) : std::nullopt;
}

std::optional<int64_t> Body::integer(const char* name, int64_t least, int64_t most) {
  const Json* v = any(name);
  if (!v) return {};
  std::optional<int64_t> n;
  if (v->is_number_unsigned() && v->get<uint64_t>() <= uint64_t(INT64_MAX)) n = int64_t(v->get<uint64_t>());
  else if (v->is_number_integer() && !v->is_number_unsigned()) n = v->get<int64_t>();
  else if (v->is_number_float() && std::fabs(v->get<double>()) < 0x1p53 &&
           v->get<double>() == std::floor(v->get<double>()))
    n = int64_t(v->get<double>());
  if (n && *n >= least && *n <= most) return n;
  std::string expected = "an integer";
  if (least > INT64_MIN) expected += " of at least " + std::to_string(least);
  if (most < INT64_MAX)
    expected += (least > INT64_MIN ? " and at most " : " of at most ") + std::to_string(most);
  typed(name, false, expected.c_str());
  return {};
}

std::optional<bool> Body::flag(const char* name) {
  const Json* v = any(name);
  v = typed(name, v && v->is_boolean(), "true or false");
  return v ? std::optional(v->get<bool>()) : std::nullopt;
}

std::vector<std::string> Body::texts(const char* name) {
  const Json* v = any(name);
  if (!v) return {};
  if (v->is_string()) return {v->get<std::string>()};
  v = typed(name, v->is_array(), "a string or a list of strings");
  if (!v) return {};
  std::vector<std::string> out;
  for (const Json& item : *v) {
    if (!item.is_string()) {
      wrong(name, "expected strings only, found " + kind_of(item));
      return {};
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

const Json* Body::list(const char* name) {
  const Json* v = any(name);
  return typed(name, v && v->is_array(), "a list");
}

const Json* Body::object(const char* name) {
  const Json* v = any(name);
  return typed(name, v && v->is_object(), "an object");
}

Body Body::inside(const char* name) {
  const Json* v = object(name);
  return Body(v ? *v : kNothing, *fault_, path_of(name));
}

Body Body::item(const Json& list, const char* name, size_t i) {
  const Json& value = list[i];
  const std::string place = std::string(name) + "[" + std::to_string(i) + "]";
  if (!value.is_object()) wrong(place, "expected an object, found " + kind_of(value));
  return Body(value, *fault_, path_of(place));
}

}  // namespace invar::server
