// Where text meets tokens: the tokenizer, chat template, end tokens and recommended sampling of one model
// file; messages to the tokens of a prompt, tokens of an answer to text.  Runs no model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "files/model_file.h"
#include "text/chat_template.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace invar {

class Chat {
 public:
  static Result<Chat> make(const ModelFile& file);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_template() const { return template_.has_value(); }
  const SamplingParams& recommended() const { return recommended_; }  // neutral where the file says nothing
  const std::vector<Token>& stop() const { return stop_; }            // each of them ends an answer

  // One bit per token: off for ids that stand for nothing.  Empty if all of `vocab` are on.
  std::vector<uint64_t> allowed(int64_t vocab) const;

  // Behind each token that ends a turn: where another conversation, or a later turn of this one, may differ.
  std::vector<int64_t> marks(std::span<const Token> prompt) const;

  // Text to continue: the token that begins a text if the model has one, and no control tokens from the text.
  Result<std::vector<Token>> raw_prompt(std::string_view text) const;

  // The rendered prompt, and its tokens.  Control tokens come from the template alone; in the request's own
  // strings they stay text.
  Result<std::string> prompt_text(const ChatInput& input) const;
  Result<std::vector<Token>> prompt(const ChatInput& input) const;
  // Both at once, with an opening of the answer behind them.
  struct Rendered {
    std::string text;  // with marks around what must not become a control token
    std::vector<Token> tokens;
  };
  Result<Rendered> rendered(const ChatInput& input, std::string_view opening = {}) const;
  // What follows the tokens of an answer, as the template has it: the end of its turn, the next question, and
  // the beginning of the answer to that.
  Result<std::vector<Token>> next_turn(std::string_view question) const;

 private:
  Chat(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Result<std::string> render(const ChatInput& input, bool mark) const;

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<Token> stop_;
  SamplingParams recommended_;
};

// The text of one answer as it grows: whole characters, nothing of a stop string.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops, bool from_start = false)
      : stream_(tokenizer, from_start), stops_(std::move(stops)) {}

  std::string push(Token token) { return keep(stops_.push(stream_.push(token))); }  // what may be shown now
  std::string finish();                                                             // the rest
  bool stopped() const { return stops_.matched().has_value(); }
  const std::string& text() const { return text_; }  // all that was shown

 private:
  std::string keep(std::string shown) {
    text_ += shown;
    return shown;
  }

  TextStream stream_;
  StopStrings stops_;
  std::string text_;
};

// Messages of a conversation in a terminal or a single question.
Json message(const char* role, std::string_view text);

}  // namespace invar
