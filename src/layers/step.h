// What one pass works on: rows of one or more sequences, and the device that computes them.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "state/state.h"

namespace invar {

struct Slice {  // consecutive rows of one sequence
  SequenceState* state;
  Span span;
};

struct Batch {
  std::vector<Token> tokens;       // one per row
  std::vector<int64_t> positions;  // one per row
  std::vector<Slice> slices;       // ascending first_row, no gaps
  std::vector<int> logit_rows;     // rows whose logits are wanted

  // Adds the next rows of a sequence; it must have reserved them.  A null state is a row of a plan, never
  // computed.
  void add(SequenceState* state, int64_t position, std::span<const Token> more) {
    slices.push_back({state, {int64_t(tokens.size()), int64_t(more.size()), position}});
    for (Token t : more) {
      tokens.push_back(t);
      positions.push_back(position++);
    }
  }
  void clear() { tokens.clear(), positions.clear(), slices.clear(), logit_rows.clear(); }
};

class Step {
 public:
  Step(Device& device, const Batch& batch)
      : device(device), batch(batch), pages_(batch.slices.size()), fixed_(pages_.size()) {
    for (const Slice& s : batch.slices) spans_.push_back(s.span);
  }

  Device& device;
  const Batch& batch;

  int64_t rows() const { return int64_t(batch.tokens.size()); }
  std::span<const Span> spans() const { return spans_; }

  // Views of one layer's state, a sequence each; valid until the next call.
  std::span<const PageView> pages(size_t spec, KvFormat format) {
    for (size_t i = 0; i < pages_.size(); ++i)
      if (SequenceState* s = batch.slices[i].state) pages_[i] = {s->pages(), s->page_offset(spec), format};
    return pages_;
  }
  std::span<const FixedView> fixed(size_t recurrent, size_t conv) {
    for (size_t i = 0; i < fixed_.size(); ++i)
      if (SequenceState* s = batch.slices[i].state)
        fixed_[i] = {reinterpret_cast<float*>(s->fixed(recurrent)), reinterpret_cast<float*>(s->fixed(conv))};
    return fixed_;
  }

 private:
  std::vector<Span> spans_;
  std::vector<PageView> pages_;
  std::vector<FixedView> fixed_;
};

}  // namespace invar
