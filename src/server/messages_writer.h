// Answers of /v1/messages, whole and as events.
#pragma once

#include <string>

#include "server/answer.h"
#include "text/json.h"

namespace invar::server {

class MessagesWriter : public Writer {
 public:
  // `request_id`: what errors in the stream carry.  `hide_thoughts`: their blocks come without text.
  explicit MessagesWriter(std::string request_id, bool hide_thoughts = false)
      : request_id_(std::move(request_id)), hide_thoughts_(hide_thoughts) {}

  std::string whole(const Answer& answer) override;
  void begin(const Answer& answer, const Write& write) override;
  void open(const Answer& answer, size_t choice, const Block& block, const Write& write) override;
  void add(const Answer& answer, size_t choice, const Block& block, std::string_view text,
           const Write& write) override;
  void close(const Answer& answer, size_t choice, const Block& block, const Write& write) override;
  void end(const Answer& answer, const Write& write) override;
  void heartbeat(const Answer& answer, bool begun, const Write& write) override;
  bool fail(const Answer& answer, const ApiError& error, const Write& write) override;

 private:
  Json block_json(const Block& block) const;

  const std::string request_id_;
  const bool hide_thoughts_;
  int index_ = 0;  // of the block that is open
};

}  // namespace invar::server
