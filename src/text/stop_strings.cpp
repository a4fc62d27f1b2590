#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace invar {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopStrings::push(std::string_view text) {
  if (matched_) return {};
  held_ += text;
  size_t end = std::string::npos;  // of the match
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    if (at + stop.size() == end && stop.size() <= matched_->size()) continue;
    end = at + stop.size();
    matched_ = stop;
  }
  const size_t shown = matched_ ? end - matched_->size() : held_.size() - held_size();
  std::string out = held_.substr(0, shown);
  held_.erase(0, matched_ ? held_.size() : shown);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

// Bytes of the longest end of the text that a stop string begins with.
size_t StopStrings::held_size() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; n--) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

}  // namespace invar
