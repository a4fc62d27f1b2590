// Dense llama-like models: llama, qwen2, qwen3.  One forward pass; what differs is data (layers as in Touvron
// et al., 2302.13971, and the Qwen2 and Qwen3 reports).
#include "layers/attention.h"
#include "layers/mlp.h"
#include "models/model.h"

namespace invar {
namespace {

struct Config {
  int64_t layers, hidden, width, vocab, context;
  AttentionShape attention;
  double rope_base, rope_linear;
  int64_t rope_dims;
  float eps;
};

Result<Config> read_config(const Loader& loader, bool qk_norm) {
  const Metadata& keys = loader.keys();
  auto key = [&](const char* rest) { return loader.file().arch_key(rest); };
  Config c{};
  TableShape table = TRY(table_shape(loader));
  c.vocab = table.vocab;
  c.hidden = table.hidden;
  c.layers = TRY(keys.integer(key("block_count"), 1, kMaxLayers));
  c.width = TRY(keys.integer(key("feed_forward_length"), 1, kMaxWidth));
  c.context = TRY(keys.integer(key("context_length"), 1, kMaxContext));
  c.eps = float(TRY(keys.real(key("attention.layer_norm_rms_epsilon"))));
  AttentionShape& a = c.attention;
  a.hidden = c.hidden;
  a.heads = TRY(keys.integer(key("attention.head_count"), 1, kMaxHeads));
  a.kv_heads = TRY(keys.integer_or(key("attention.head_count_kv"), a.heads, 1, kMaxHeads));
  if (a.heads % a.kv_heads != 0)
    return keys.error(key("attention.head_count_kv"), "expected a divisor of attention.head_count, " +
                                                          std::to_string(a.heads) + ", found " +
                                                          std::to_string(a.kv_heads));
  a.dim = TRY(keys.integer_or(key("attention.key_length"), c.hidden / a.heads, 1, kMaxHeadDim));
  int64_t value_dim = TRY(keys.integer_or(key("attention.value_length"), c.hidden / a.heads));
  if (a.dim != value_dim || a.dim % kLanes != 0)
    return Error{Code::Unsupported, key("attention.key_length"),
                 "expected equal key and value lengths, a multiple of 16, found " + std::to_string(a.dim) +
                     " and " + std::to_string(value_dim)};
  a.qk_norm = qk_norm;
  a.eps = c.eps;
  c.rope_base = TRY(keys.real_or(key("rope.freq_base"), 10000));
  if (!(c.rope_base > 0))
    return keys.error(key("rope.freq_base"),
                      "expected a positive number, found " + std::to_string(c.rope_base));
  c.rope_dims = TRY(keys.integer_or(key("rope.dimension_count"), a.dim, 2, a.dim));
  if (c.rope_dims % 2 != 0)
    return keys.error(key("rope.dimension_count"),
                      "expected an even number, found " + std::to_string(c.rope_dims));
  std::string scaling = TRY(keys.text_or(key("rope.scaling.type"), "none"));
  c.rope_linear = scaling == "linear" ? TRY(keys.real(key("rope.scaling.factor"))) : 1;
  if (!(c.rope_linear > 0)) return keys.error(key("rope.scaling.factor"), "expected a positive number");
  if (scaling != "none" && scaling != "linear")
    return Error{Code::Unsupported, key("rope.scaling.type"), "expected none or linear, found " + scaling};
  if (TRY(keys.integer_or(key("expert_count"), 0)) > 0)
    return Error{Code::Unsupported, key("expert_count"),
                 "a mixture of experts is not supported in this architecture"};
  int64_t window = TRY(keys.integer_or(key("attention.sliding_window"), 0));
  if (window > 0 && window < c.context)
    return Error{Code::Unsupported, key("attention.sliding_window"),
                 "a sliding window is not supported, found " + std::to_string(window)};
  return c;
}

struct Layer {
  const float *attn_norm, *ffn_norm;
  Attention attention;
  Mlp mlp;
};

class Llama final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Loader& loader, bool halves, bool qk_norm) {
    auto m = std::make_unique<Llama>();
    Config& c = m->c_ = TRY(read_config(loader, qk_norm));
    m->vocabulary_.load(loader, c.vocab, c.hidden);
    std::vector<float> divisors;
    if (loader.has("rope_freqs.weight")) divisors = loader.values("rope_freqs.weight", c.rope_dims / 2);
    m->rope_ = TRY(Rope::make(c.rope_base, c.rope_dims, halves, divisors, c.rope_linear));
    for (int64_t i = 0; i < c.layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      Layer& l = m->layers_.emplace_back();
      l.attn_norm = loader.vector(block + "attn_norm.weight", c.hidden);
      l.attention.load(loader, block, c.attention);
      l.ffn_norm = loader.vector(block + "ffn_norm.weight", c.hidden);
      l.mlp.load(loader, block, c.hidden, c.width);
    }
    return std::unique_ptr<Model>(std::move(m));
  }

  int64_t vocab() const override { return c_.vocab; }
  int64_t context_length() const override { return c_.context; }

  Tensor forward(Step& s) override {
    Device& d = s.device;
    Tensor x = vocabulary_.embed(s, c_.hidden), h = d.scratch(s.rows(), c_.hidden);
    Tensor angles = rope_.angles(s);
    for (const Layer& l : layers_) {
      d.rms_norm(x, l.attn_norm, c_.eps, h);
      l.attention.run(s, h, rope_, angles, x);
      d.rms_norm(x, l.ffn_norm, c_.eps, h);
      l.mlp.run(s, h, x, Held::Added);
    }
    d.rms_norm(x, vocabulary_.norm, c_.eps, h);
    return h;
  }

  Tensor logits(Step& s, Tensor hidden, std::span<const int> rows) override {
    return vocabulary_.logits(s, hidden, rows);
  }

 private:
  Config c_{};
  Vocabulary vocabulary_;
  Rope rope_;
  std::vector<Layer> layers_;
};

}  // namespace

extern const ModelDef kLlama, kQwen2, kQwen3;
const ModelDef kLlama{"llama", [](Loader& l) { return Llama::load(l, false, false); }};
const ModelDef kQwen2{"qwen2", [](Loader& l) { return Llama::load(l, true, false); }};
const ModelDef kQwen3{"qwen3", [](Loader& l) { return Llama::load(l, true, true); }};

}  // namespace invar
