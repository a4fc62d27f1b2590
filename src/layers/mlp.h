// SwiGLU: down(silu(gate(x)) * up(x)).
#pragma once

#include "layers/loader.h"
#include "layers/step.h"

namespace invar {

class Mlp {
 public:
  // BLOCKffn_gateSUFFIX and so on.
  void load(Loader& loader, const std::string& block, int64_t hidden, int64_t width,
            const std::string& suffix = "") {
    width_ = width;
    gate_ = loader.linear(block + "ffn_gate" + suffix, width, hidden);
    up_ = loader.linear(block + "ffn_up" + suffix, width, hidden);
    down_ = loader.linear(block + "ffn_down" + suffix, hidden, width);
  }

  // x, y: (rows, hidden); y = or, if `add`, y += the result
  void run(Step& s, Tensor x, Tensor y, bool add) const {
    Device& d = s.device;
    Scope scope(d);
    Tensor gate = d.scratch(x.rows, width_), up = d.scratch(x.rows, width_);
    d.matmul(x, {{{&gate_, gate}, {&up_, up}}});
    d.swiglu(gate, up, gate);
    d.matmul(gate, {{{&down_, y, add}}});
  }

 private:
  int64_t width_ = 0;
  Linear gate_, up_, down_;
};

}  // namespace invar
