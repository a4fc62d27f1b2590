#include "cli/output.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "base/options.h"

namespace invar::cli {
namespace {

constexpr int kInterrupted = 130;
constexpr size_t kMostFaults = 20;

std::atomic<bool> interrupted = false;
std::atomic<int> listening = 0;

void on_interrupt(int) {
  if (listening == 0 || interrupted.exchange(true)) _exit(kInterrupted);
}

// Keys, names and paths come from outside: none of them may move the cursor or fake a line.
std::string printable(std::string_view text) {
  std::string out;
  for (char c : text) {
    char hex[8];
    if (uint8_t(c) >= 32 && c != 127) {
      out += c;
    } else {
      std::snprintf(hex, sizeof hex, "\\x%02x", uint8_t(c));
      out += hex;
    }
  }
  return out;
}

std::string line_of(const Error& error) {
  return (error.where.empty() ? "" : printable(error.where) + ": ") + printable(error.message);
}

Json fault_json(const Error& error) {
  return {{"code", word_of(error.code)}, {"message", error.message}, {"where", error.where}};
}

}  // namespace

int status_of(Code code) {
  switch (code) {
    case Code::Usage:
      return 2;
    case Code::BadFile:
    case Code::BadRequest:
    case Code::NotFound:
      return 3;
    case Code::NoRoom:
      return 4;
    case Code::Unsupported:
      return 5;
    case Code::Io:
      return 6;
    case Code::Cancelled:
      return kInterrupted;
  }
  return 1;
}

const char* word_of(Code code) {
  switch (code) {
    case Code::Usage:
      return "usage";
    case Code::BadFile:
      return "bad_file";
    case Code::BadRequest:
      return "bad_request";
    case Code::NotFound:
      return "not_found";
    case Code::NoRoom:
      return "no_room";
    case Code::Unsupported:
      return "unsupported";
    case Code::Io:
      return "io";
    case Code::Cancelled:
      return "cancelled";
  }
  return "internal";
}

Status say(std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{Code::Io, "standard output",
                   std::string("expected to write, found: ") + std::strerror(errno)};
    text.remove_prefix(size_t(n));
  }
  return Ok{};
}

Status say_json(const Json& value) {
  return say(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void note(std::string_view line) { std::fprintf(stderr, "%s\n", printable(line).c_str()); }

void report(const Error& error) {
  const char* label = colours_wanted(STDERR_FILENO) ? "\033[1;31merror:\033[0m" : "error:";
  std::fprintf(stderr, "%s %s\n", label, line_of(error).c_str());
  size_t shown = std::min(error.more.size(), kMostFaults - 1);
  for (size_t i = 0; i < shown; ++i) std::fprintf(stderr, "%s %s\n", label, line_of(error.more[i]).c_str());
  if (error.more.size() > shown) std::fprintf(stderr, "%s and %zu more\n", label, error.more.size() - shown);
}

Json json_of(const Error& error) {
  Json fault = fault_json(error);
  for (const Error& more : error.more) fault["more"].push_back(fault_json(more));
  return {{"error", fault}};
}

Progress::Progress(const char* what, const Voice& voice)
    : what_(what), on_(!voice.quiet && isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (shown_ >= 0) std::fprintf(stderr, "\r\033[K");
}

void Progress::set(double share) {
  int percent = int(std::clamp(share, 0.0, 1.0) * 100);
  if (!on_ || percent == shown_) return;
  shown_ = percent;
  std::string bar(size_t(percent) / 4, '#');
  std::fprintf(stderr, "\r%s [%-25s] %3d %%", what_, bar.c_str(), percent);
}

Interrupt::Interrupt() {
  clear();
  ++listening;
}
Interrupt::~Interrupt() { --listening; }
const std::atomic<bool>& Interrupt::flag() { return interrupted; }
void Interrupt::clear() { interrupted = false; }

void set_signals() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // a limit on file sizes is told like a full disk
}

}  // namespace invar::cli
