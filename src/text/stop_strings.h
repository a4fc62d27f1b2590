// Finds stop strings in text that comes in pieces, however it is cut.  Text that may begin a stop
// string is held back; of a stop string that was found nothing is given out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // empty ones are ignored

  std::string push(std::string_view text);  // what may be shown now; nothing after a match
  std::string finish();                     // what was held back, at the end of the text

  // The stop string that was completed first; of several at one place the longest.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  size_t held_size() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace invar
