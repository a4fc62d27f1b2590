// Grouped-query attention over pages, with the variants of the families here: q and k norms, an output gate
// per head, biases. Query head h reads KV head h / (heads / kv_heads).  Keys of the pass are stored before
// any is read (docs/numbers.md, N4).
#pragma once

#include <cmath>

#include "layers/loader.h"
#include "layers/rope.h"

namespace invar {

struct AttentionShape {
  int64_t hidden, heads, kv_heads, dim;
  bool gated = false;    // attn_q gives, per head, dim queries and dim gates
  bool qk_norm = false;  // RMS per head, before the rotation
  float eps = 0;         // of that norm
};

class Attention {
 public:
  void load(Loader& loader, const std::string& block, const AttentionShape& shape) {
    shape_ = shape;
    const auto& a = shape_;
    q_ = loader.linear(block + "attn_q", a.heads * q_step(), a.hidden);
    k_ = loader.linear(block + "attn_k", a.kv_heads * a.dim, a.hidden);
    v_ = loader.linear(block + "attn_v", a.kv_heads * a.dim, a.hidden);
    out_ = loader.linear(block + "attn_output", a.hidden, a.heads * a.dim);
    if (a.qk_norm) {
      q_norm_ = loader.vector(block + "attn_q_norm.weight", a.dim);
      k_norm_ = loader.vector(block + "attn_k_norm.weight", a.dim);
    }
    kv_format_ = loader.kv();
    spec_ = loader.state(StateSpec::PerToken, 2 * a.kv_heads * a.dim * (kv_format_ == KvFormat::F32 ? 4 : 2));
  }

  // x, y: (rows, hidden); y += the result
  void run(Step& s, Tensor x, const Rope& rope, Tensor angles, Tensor y) const {
    Device& d = s.device;
    Scope scope(d);
    const auto& a = shape_;
    Tensor q = d.scratch(x.rows, a.heads * q_step()), k = d.scratch(x.rows, a.kv_heads * a.dim);
    Tensor v = d.scratch(x.rows, a.kv_heads * a.dim), mixed = d.scratch(x.rows, a.heads * a.dim);
    d.matmul(x, {{{&q_, q}, {&k_, k}, {&v_, v}}});
    if (a.qk_norm) {
      Tensor q_heads = q.heads(a.heads, a.dim, q_step()), k_heads = k.heads(a.kv_heads, a.dim, a.dim);
      d.rms_norm(q_heads, q_norm_, a.eps, q_heads);
      d.rms_norm(k_heads, k_norm_, a.eps, k_heads);
    }
    d.rope(q, a.heads, q_step(), angles, rope.halves);
    d.rope(k, a.kv_heads, a.dim, angles, rope.halves);
    auto pages = s.pages(spec_, kv_format_);
    d.store_kv(k, v, a.kv_heads, s.spans(), pages);
    d.attend(q, a.heads, q_step(), a.kv_heads, a.dim, float(1 / std::sqrt(double(a.dim))), s.spans(), pages,
             mixed);
    if (a.gated)
      d.sigmoid_gate(q.heads(a.heads, a.dim, q_step()).shifted(a.dim), mixed.heads(a.heads, a.dim, a.dim));
    d.matmul(mixed, {{{&out_, y, Held::Added}}});
  }

 private:
  int64_t q_step() const { return shape_.gated ? 2 * shape_.dim : shape_.dim; }

  AttentionShape shape_{};
  Linear q_, k_, v_, out_;
  const float *q_norm_ = nullptr, *k_norm_ = nullptr;
  KvFormat kv_format_ = KvFormat::F16;
  size_t spec_ = 0;
};

}  // namespace invar
