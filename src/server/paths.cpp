// What the transport knows of requests without a socket: headers, paths, keys, ids.
#include <algorithm>
#include <array>
#include <random>

#include "base/sha256.h"
#include "server/http.h"

namespace invar::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }

// Paths that are served with and without "/v1" in front.
constexpr std::array<std::string_view, 4> kOpenAiPaths = {"/completions", "/chat/completions", "/responses",
                                                          "/models"};

bool is_below(std::string_view path, std::string_view top) {
  return path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/');
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const Header& h : headers)
    if (std::equal(h.name.begin(), h.name.end(), name.begin(), name.end(),
                   [](char a, char b) { return lower(a) == lower(b); }))
      return h.value;
  return {};
}

std::string normal_path(std::string_view path) {
  std::string out;
  for (char c : path)
    if (c != '/' || !out.ends_with('/')) out += c;
  if (out.size() > 1 && out.ends_with('/')) out.pop_back();
  size_t doubled = 0;  // bytes at the front; erased at once, a path may be long
  while (is_below(std::string_view(out).substr(doubled), "/v1/v1")) doubled += 3;
  out.erase(0, doubled);
  for (std::string_view top : kOpenAiPaths)
    if (is_below(out, top)) return "/v1" + out;
  return out.empty() ? "/" : out;
}

std::string percent_decoded(std::string_view text) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += char(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool same_key(std::string_view given, std::string_view key) {
  const Digest a = sha256(std::as_bytes(std::span(given))), b = sha256(std::as_bytes(std::span(key)));
  volatile uint8_t differs = 0;  // the whole of both is looked at, whatever they hold
  for (size_t i = 0; i < a.size(); ++i) differs = uint8_t(differs | uint8_t(a[i] ^ b[i]));
  return differs == 0;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string random_id(std::string_view prefix, size_t length) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random{(uint64_t(std::random_device{}()) << 32) ^ std::random_device{}()};
  std::string id(prefix);
  for (size_t i = 0; i < length; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

}  // namespace invar::server
