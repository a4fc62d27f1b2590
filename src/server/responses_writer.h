// Answers of /v1/responses, whole and as events.
#pragma once

#include <map>
#include <string>

#include "server/answer.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace invar::server {

struct ResponsesForm {
  Json echo = Json::object();  // fields of the request that the response repeats
  bool encrypted = false;      // thoughts also as encrypted_content
  int logprobs = -1;
  struct Tool {  // where the name that the model sees is not the client's
    std::string name, space;
    bool custom = false;  // free text in place of arguments
  };
  std::map<std::string, Tool> tools;
};

class ResponsesWriter : public Writer {
 public:
  ResponsesWriter(ResponsesForm form, const Tokenizer& tokenizer)
      : form_(std::move(form)), tokenizer_(tokenizer) {}

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
  void send(const char* type, Json fields, const Write& write);
  void send_of(const char* type, const Block& block, Json fields, const Write& write);
  Json response(const Answer& answer, const char* status) const;
  Json item(const Choice& choice, const Block& block, const char* status) const;
  Json part(const Choice& choice, const Block& block) const;
  Json logprobs(std::span<const Said> said) const;
  const ResponsesForm::Tool* tool(const Block& block) const;
  bool is_custom(const Block& block) const;
  std::string item_id(const Block& block) const;
  std::string name_of(const Block& block) const;

  const ResponsesForm form_;
  const Tokenizer& tokenizer_;
  int64_t sequence_ = 0;
  int output_ = 0;        // index of the item that is open
  size_t said_ = 0;       // tokens whose log-probabilities were sent
  bool started_ = false;  // the first two events are out
};

// Text as base64 and back; nothing if it is none.
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace invar::server
