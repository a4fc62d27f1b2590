// A service seen from outside: what the server asked of it, and what it said.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/service.h"

namespace invar {

class Watched : public Service {
 public:
  struct Heard {
    size_t prompt = 0;  // tokens of it; those of the answer follow
    std::vector<Token> tokens;
    TokenUsage usage;
  };

  explicit Watched(std::unique_ptr<Service> inner) : inner_(std::move(inner)) {}

  Result<uint64_t> submit(Request request) override {
    auto heard = std::make_shared<Heard>(Heard{request.prompt.size(), request.prompt, {}});
    {
      const std::lock_guard lock(mutex_);
      heard_.push_back(heard);
    }
    request.on_event = [this, heard, tell = std::move(request.on_event)](const Event& e) {
      {
        const std::lock_guard lock(mutex_);
        heard->tokens.insert(heard->tokens.end(), e.tokens.begin(), e.tokens.end());
        heard->usage = e.usage;
      }
      return tell(e);
    };
    return inner_->submit(std::move(request));
  }
  void cancel(uint64_t id) override { inner_->cancel(id); }
  Statistics statistics() const override { return inner_->statistics(); }
  int64_t context() const override { return inner_->context(); }
  int64_t vocab() const override { return inner_->vocab(); }

  std::vector<Heard> heard() const {
    const std::lock_guard lock(mutex_);
    std::vector<Heard> all;
    for (const auto& one : heard_) all.push_back(*one);
    return all;
  }

 private:
  const std::unique_ptr<Service> inner_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Heard>> heard_;
};

}  // namespace invar
