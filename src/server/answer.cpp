#include "server/answer.h"

#include <algorithm>

#include "server/http.h"

namespace invar::server {
namespace {

// Of the block that comes next: the token that ended the one before may have begun it, too.
size_t first_token(const Choice& choice, Block::Kind kind) {
  if (choice.blocks.empty()) return 0;
  const size_t first = choice.blocks.back().last_token;
  const bool shared = first > 0 && first == choice.tokens.size() && choice.tokens.back().part == kind;
  return first - size_t(shared);
}

}  // namespace

bool Choice::has_calls() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const Block& b) { return b.kind == Block::Kind::Call && b.complete; });
}

std::string Choice::joined(Block::Kind kind) const {
  std::string out;
  for (const Block& b : blocks)
    if (b.kind == kind) out += b.text;
  return out;
}

Usage Answer::usage() const {
  Usage u;
  for (const Prompt& p : prompts) u.prompt += int64_t(p.tokens.size()), u.cached += p.cached_tokens;
  for (const Choice& c : choices) u.answer += c.token_count, u.thought += c.thought_tokens;
  return u;
}

void Gatherer::begin() {
  if (std::exchange(begun_, true)) return;
  last_.resize(answer_.choices.size());
  if (writer_) writer_->begin(answer_, write_);
}

void Gatherer::open(size_t choice, Block block) {
  begin();
  close(choice);
  block.id = random_id("");
  auto& blocks = answer_.choices[choice].blocks;
  block.first_token = first_token(answer_.choices[choice], block.kind);
  blocks.push_back(std::move(block));
  last_[choice] = {true, 0};
  if (writer_) writer_->open(answer_, choice, blocks.back(), write_);
}

// Tells what was held back while the stream was busy.
void Gatherer::flush(size_t choice) {
  Last& last = last_[choice];
  const Block& block = answer_.choices[choice].blocks.back();
  const std::string_view more = std::string_view(block.text).substr(last.told);
  last.told = block.text.size();
  if (writer_ && !more.empty()) writer_->add(answer_, choice, block, more, write_);
}

void Gatherer::close(size_t choice) {
  if (!last_[choice].open) return;
  flush(choice);
  last_[choice].open = false;
  answer_.choices[choice].blocks.back().last_token = answer_.choices[choice].tokens.size();
  if (writer_) writer_->close(answer_, choice, answer_.choices[choice].blocks.back(), write_);
}

void Gatherer::extend(size_t choice, std::string_view text) {
  answer_.choices[choice].blocks.back().text += text;
  if (!busy_ || !busy_()) flush(choice);
}

void Gatherer::add(size_t choice, Block::Kind kind, std::string_view text) {
  if (text.empty()) return;
  begin();
  const auto& blocks = answer_.choices[choice].blocks;
  if (!last_[choice].open || blocks.back().kind != kind) open(choice, Block{kind, {}, {}});
  extend(choice, text);
}

void Gatherer::call(size_t choice, std::string name) {
  open(choice, Block{Block::Kind::Call, {}, {}, std::move(name)});
}

void Gatherer::arguments(size_t choice, std::string_view json) {
  if (!json.empty()) extend(choice, json);
}

void Gatherer::call_complete(size_t choice) {
  answer_.choices[choice].blocks.back().complete = true;
  close(choice);
}

void Gatherer::end_choice(size_t choice, Ending ending) {
  begin();
  answer_.choices[choice].ending = ending;
  close(choice);
  if (writer_) writer_->end_choice(answer_, choice, write_);
}

void Gatherer::end() {
  if (writer_) writer_->end(answer_, write_);
}

void Gatherer::heartbeat() {
  if (writer_) writer_->heartbeat(answer_, begun_, write_);
}

bool Gatherer::fail(const ApiError& error) { return writer_ && writer_->fail(answer_, error, write_); }

}  // namespace invar::server
