#include "server/requests.h"

#include <algorithm>

namespace invar::server {

uint64_t Requests::enter(const std::string& id, int key, int64_t most, std::weak_ptr<Tracked> request) {
  std::lock_guard lock(mutex_);
  if (key >= 0 && most > 0 && of_key_[key] >= most) return 0;
  ++of_key_[key];
  running_[++last_] = {{id, key}, std::move(request), true};
  return last_;
}

uint64_t Requests::announce(const std::string& id, int key, std::weak_ptr<Tracked> request) {
  std::lock_guard lock(mutex_);
  running_[++last_] = {{id, key}, std::move(request), false};
  return last_;
}

void Requests::leave(uint64_t number, Json state) {
  constexpr size_t kRemembered = 256;
  std::lock_guard lock(mutex_);
  auto node = running_.extract(number);
  if (node.empty()) return;
  if (node.mapped().counts) --of_key_[node.mapped().name.key];
  if (state.is_null()) return;
  ended_.emplace_front(std::move(node.mapped().name), std::move(state));
  if (ended_.size() > kRemembered) ended_.pop_back();
}

std::shared_ptr<Tracked> Requests::find(const std::string& id, std::optional<int> key) const {
  std::lock_guard lock(mutex_);
  for (auto at = running_.rbegin(); at != running_.rend(); ++at)  // the latest
    if (at->second.name.is(id, key)) return at->second.request.lock();
  return nullptr;
}

Json Requests::ended(const std::string& id, std::optional<int> key) const {
  std::lock_guard lock(mutex_);
  const auto at =
      std::find_if(ended_.begin(), ended_.end(), [&](const auto& e) { return e.first.is(id, key); });
  return at == ended_.end() ? Json() : at->second;
}

}  // namespace invar::server
