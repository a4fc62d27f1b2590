// What the program says: results on standard output, all else on standard error.  One write for each piece,
// so that a reader never sees half of a character; a write that fails is an Error.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"

namespace invar::cli {

struct Voice {  // the flags of every command
  bool json = false, quiet = false, verbose = false;
};

int status_of(Code code);        // the exit status
const char* word_of(Code code);  // as JSON names it

Status say(std::string_view text);  // to standard output, whole
Status say_json(const Json& value);
void note(std::string_view line);  // to standard error; control characters are escaped

// `error: WHERE: ...`, one line for each fault, at most 20 and then a count.
void report(const Error& error);
Json json_of(const Error& error);

// A bar on standard error, if that is a terminal and not quiet; gone when the object is.
class Progress {
 public:
  Progress(const char* what, const Voice& voice);
  ~Progress();
  Progress(const Progress&) = delete;
  void set(double share);  // 0..1

 private:
  const char* what_;
  bool on_;
  int shown_ = -1;  // per cent
};

// While one exists, Ctrl-C sets flag() and a second one ends the program with status 130; otherwise the first
// does.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  static const std::atomic<bool>& flag();
  static void clear();
};

void set_signals();  // at the start: Ctrl-C as above, a closed pipe is an error of the write

}  // namespace invar::cli
