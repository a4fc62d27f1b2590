// The gated delta net (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2412.06464), as Qwen3.5 uses it: a
// short convolution over q, k and v, unit-length q and k, a decay and a step size per value head, and a gated
// norm before the output. Rows go one after the other (docs/numbers.md, N5).  Value heads are in tiled order:
// head h reads key head h mod key_heads.
#pragma once

#include <cmath>

#include "layers/loader.h"
#include "layers/step.h"

namespace invar {

struct DeltaNetShape {
  int64_t hidden, key_heads, value_heads, key_dim, value_dim;  // dims of one head
  int64_t taps;
  float eps;  // of the gated norm
};

class DeltaNet {
 public:
  void load(Loader& loader, const std::string& block, const DeltaNetShape& shape) {
    shape_ = shape;
    const auto& n = shape_;
    qkv_ = loader.linear(block + "attn_qkv", channels(), n.hidden);
    z_ = loader.linear(block + "attn_gate", values(), n.hidden);
    beta_ = loader.linear(block + "ssm_beta", n.value_heads, n.hidden);
    alpha_ = loader.linear(block + "ssm_alpha", n.value_heads, n.hidden);
    conv_ = loader.transposed(block + "ssm_conv1d.weight", channels(), n.taps);
    a_ = loader.vector(block + "ssm_a", n.value_heads);
    dt_ = loader.vector(block + "ssm_dt.bias", n.value_heads);
    norm_ = loader.vector(block + "ssm_norm.weight", n.value_dim);
    out_ = loader.linear(block + "ssm_out", n.hidden, values());
    recurrent_spec_ =
        loader.state(StateSpec::Fixed, n.value_heads * n.key_dim * n.value_dim * int64_t(sizeof(float)));
    conv_spec_ = loader.state(StateSpec::Fixed, (n.taps - 1) * channels() * int64_t(sizeof(float)));
  }

  // x, y: (rows, hidden); y += the result
  void run(Step& s, Tensor x, Tensor y) const {
    Device& d = s.device;
    Scope scope(d);
    const auto& n = shape_;
    Tensor qkv = d.scratch(x.rows, channels()), mixed = d.scratch(x.rows, channels());
    Tensor z = d.scratch(x.rows, values()), o = d.scratch(x.rows, values());
    Tensor alpha = d.scratch(x.rows, n.value_heads), beta = d.scratch(x.rows, n.value_heads);
    d.matmul(x, {{{&qkv_, qkv}, {&z_, z}, {&alpha_, alpha}, {&beta_, beta}}});
    auto state = s.fixed(recurrent_spec_, conv_spec_);
    d.conv(qkv, conv_, n.taps, s.spans(), state, mixed);
    Tensor q = mixed.columns(0, keys()), k = mixed.columns(keys(), keys()),
           v = mixed.columns(2 * keys(), values());
    constexpr float kLengthEps = 1e-6f;  // inside the root; a constant of the architecture
    d.l2_norm(q, n.key_heads, kLengthEps, float(1 / std::sqrt(double(n.key_dim))));
    d.l2_norm(k, n.key_heads, kLengthEps, 1);
    d.delta_gates(alpha, beta, a_, dt_);
    d.delta(q, k, v, alpha, beta, n.key_heads, s.spans(), state, o);
    Tensor heads = o.heads(n.value_heads, n.value_dim, n.value_dim);
    d.gated_rms_norm(heads, z.heads(n.value_heads, n.value_dim, n.value_dim), norm_, n.eps, heads);
    d.matmul(o, {{{&out_, y, Held::Added}}});
  }

 private:
  int64_t keys() const { return shape_.key_heads * shape_.key_dim; }
  int64_t values() const { return shape_.value_heads * shape_.value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }

  DeltaNetShape shape_{};
  Linear qkv_, z_, beta_, alpha_, out_;
  const float *conv_ = nullptr, *a_ = nullptr, *dt_ = nullptr, *norm_ = nullptr;
  size_t recurrent_spec_ = 0, conv_spec_ = 0;
};

}  // namespace invar
