// A mixture of experts with a gated shared expert: the router's k best by softmax, weights renormalized,
// results added in the router's order, the shared expert last (docs/numbers.md, N6).
#pragma once

#include "layers/mlp.h"

namespace invar {

struct MoeShape {
  int64_t hidden, experts, used, width, shared_width;
};

class Moe {
 public:
  void load(Loader& loader, const std::string& block, const MoeShape& shape) {
    shape_ = shape;
    const auto& m = shape_;
    router_ = loader.linear(block + "ffn_gate_inp", m.experts, m.hidden);
    gate_ = loader.experts(block + "ffn_gate_exps", m.experts, m.width, m.hidden, m.used);
    up_ = loader.experts(block + "ffn_up_exps", m.experts, m.width, m.hidden, m.used);
    down_ = loader.experts(block + "ffn_down_exps", m.experts, m.hidden, m.width, m.used);
    shared_gate_ = loader.linear(block + "ffn_gate_inp_shexp", 1, m.hidden);
    shared_.load(loader, block, m.hidden, m.shared_width, "_shexp");
  }

  // x, y: (rows, hidden); y += the result
  void run(Step& s, Tensor x, Tensor y) const {
    Device& d = s.device;
    Scope scope(d);
    const auto& m = shape_;
    Tensor scores = d.scratch(x.rows, m.experts), shared_gate = d.scratch(x.rows, 1);
    d.matmul(x, {{{&router_, scores}, {&shared_gate_, shared_gate}}});
    Routing routing = d.routing(x.rows, m.used);
    d.route(scores, routing);
    Tensor inner = d.scratch(x.rows * m.used, m.width);
    Tensor out = d.scratch(x.rows * m.used, m.hidden), shared = d.scratch(x.rows, m.hidden);
    d.matmul_experts(x, routing, {{{&gate_, inner}, {&up_, inner, Held::Gate}}});
    d.matmul_experts(inner, routing, {{{&down_, out}}});
    shared_.run(s, x, shared, Held::Ignored);
    Tensor sum = d.scratch(x.rows, m.hidden);
    d.combine(out, routing, shared, shared_gate, sum);
    d.add(sum, y);
  }

 private:
  MoeShape shape_{};
  Linear router_, shared_gate_;
  Experts gate_, up_, down_;
  Mlp shared_;
};

}  // namespace invar
