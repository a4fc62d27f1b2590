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

  // x, y: (rows, hidden)
  void run(Step& s, Tensor x, Tensor y, Held held) const {
    Device& d = s.device;
    Scope scope(d);
    Tensor inner = d.scratch(x.rows, width_);
    d.matmul(x, {{{&gate_, inner}, {&up_, inner, Held::Gate}}});
    d.matmul(inner, {{{&down_, y, held}}});
  }

 private:
  int64_t width_ = 0;
  Linear gate_, up_, down_;
};

}  // namespace invar
