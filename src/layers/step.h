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
  void reserve(size_t rows, size_t sequences) {
    tokens.reserve(rows), positions.reserve(rows), logit_rows.reserve(rows);
    slices.reserve(sequences);
  }
};

struct StepViews {  // the memory of a step's views, kept for the next one
  std::vector<Span> spans;
  std::vector<PageView> pages;
  std::vector<FixedView> fixed;

  void resize(size_t sequences) { spans.resize(sequences), pages.resize(sequences), fixed.resize(sequences); }
};

class Step {
 public:
  Step(Device& device, const Batch& batch, StepViews& views) : device(device), batch(batch), views_(views) {
    views_.resize(batch.slices.size());
    for (size_t i = 0; i < batch.slices.size(); ++i) views_.spans[i] = batch.slices[i].span;
  }

  Device& device;
  const Batch& batch;

  int64_t rows() const { return int64_t(batch.tokens.size()); }
  std::span<const Span> spans() const { return views_.spans; }

  // Views of one layer's state, a sequence each; valid until the next call.
  std::span<const PageView> pages(size_t spec, KvFormat format) {
    for (size_t i = 0; i < batch.slices.size(); ++i)
      if (SequenceState* s = batch.slices[i].state)
        views_.pages[i] = {s->pages(), s->page_offset(spec), format};
    return views_.pages;
  }
  std::span<const FixedView> fixed(size_t recurrent, size_t conv) {
    for (size_t i = 0; i < batch.slices.size(); ++i)
      if (SequenceState* s = batch.slices[i].state)
        views_.fixed[i] = {reinterpret_cast<float*>(s->fixed(recurrent)),
                           reinterpret_cast<float*>(s->fixed(conv))};
    return views_.fixed;
  }

 private:
  StepViews& views_;
};

}  // namespace invar
