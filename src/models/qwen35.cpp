// qwen35 and qwen35moe: the hybrids of Qwen3.5, 3.6 and 3.8.  Three of four layers are gated delta nets, the
// fourth is gated attention with a rotation of a quarter of each head; then SwiGLU, or experts.  The
// draft block behind the trunk (`nextn`) is known and left out.
#include <algorithm>

#include "layers/attention.h"
#include "layers/delta_net.h"
#include "layers/moe.h"
#include "models/model.h"

namespace invar {
namespace {

struct Config {
  int64_t layers, blocks, hidden, width, vocab, context;  // blocks: layers and draft blocks
  AttentionShape attention;
  DeltaNetShape delta;
  MoeShape moe;
  double rope_base;
  int64_t rope_dims;
  float eps;
  std::vector<bool> recurrent;  // of each layer
};

Result<DeltaNetShape> read_delta(const Loader& loader, int64_t hidden, float eps) {
  const Metadata& keys = loader.keys();
  auto key = [&](const char* rest) { return loader.file().arch_key(rest); };
  DeltaNetShape n{};
  n.hidden = hidden;
  n.eps = eps;
  n.taps = TRY(keys.integer(key("ssm.conv_kernel"), 2, 16));
  n.key_dim = TRY(keys.integer(key("ssm.state_size"), 1, kMaxHeadDim));
  n.key_heads = TRY(keys.integer(key("ssm.group_count"), 1, kMaxHeads));
  n.value_heads = TRY(keys.integer(key("ssm.time_step_rank"), 1, kMaxHeads));
  int64_t inner = TRY(keys.integer(key("ssm.inner_size"), 1, kMaxWidth));
  if (n.value_heads % n.key_heads != 0)
    return keys.error(key("ssm.time_step_rank"), "expected a multiple of ssm.group_count, " +
                                                     std::to_string(n.key_heads) + ", found " +
                                                     std::to_string(n.value_heads));
  if (inner % n.value_heads != 0)
    return keys.error(key("ssm.inner_size"), "expected a multiple of ssm.time_step_rank, " +
                                                 std::to_string(n.value_heads) + ", found " +
                                                 std::to_string(inner));
  n.value_dim = inner / n.value_heads;
  if (n.value_dim % kLanes != 0)
    return Error{Code::Unsupported, key("ssm.inner_size"),
                 "expected value heads of a multiple of 16, found " + std::to_string(n.value_dim)};
  return n;
}

Result<AttentionShape> read_attention(const Loader& loader, int64_t hidden, float eps) {
  const Metadata& keys = loader.keys();
  auto key = [&](const char* rest) { return loader.file().arch_key(rest); };
  AttentionShape a{};
  a.hidden = hidden;
  a.eps = eps;
  a.gated = a.qk_norm = true;
  a.heads = TRY(keys.integer(key("attention.head_count"), 1, kMaxHeads));
  // Some writers store a value per layer, 0 on recurrent ones.
  auto kv = TRY(keys.integers(key("attention.head_count_kv"), 0, kMaxHeads));
  a.kv_heads = kv.empty() ? 0 : *std::max_element(kv.begin(), kv.end());
  if (a.kv_heads == 0 || a.heads % a.kv_heads != 0)
    return keys.error(key("attention.head_count_kv"), "expected a divisor of attention.head_count, " +
                                                          std::to_string(a.heads) + ", found " +
                                                          std::to_string(a.kv_heads));
  a.dim = TRY(keys.integer(key("attention.key_length"), 1, kMaxHeadDim));
  if (TRY(keys.integer(key("attention.value_length"))) != a.dim || a.dim % kLanes != 0)
    return Error{Code::Unsupported, key("attention.key_length"),
                 "expected equal key and value lengths, a multiple of 16"};
  return a;
}

Result<Config> read_config(const Loader& loader, bool moe) {
  const Metadata& keys = loader.keys();
  auto key = [&](const char* rest) { return loader.file().arch_key(rest); };
  Config c{};
  TableShape table = TRY(table_shape(loader));
  c.vocab = table.vocab;
  c.hidden = table.hidden;
  c.blocks = TRY(keys.integer(key("block_count"), 1, kMaxLayers));
  c.layers = c.blocks - TRY(keys.integer_or(key("nextn_predict_layers"), 0, 0, c.blocks - 1));
  c.context = TRY(keys.integer(key("context_length"), 1, kMaxContext));
  c.eps = float(TRY(keys.real(key("attention.layer_norm_rms_epsilon"))));
  c.attention = TRY(read_attention(loader, c.hidden, c.eps));
  c.delta = TRY(read_delta(loader, c.hidden, c.eps));
  c.rope_base = TRY(keys.real(key("rope.freq_base")));
  if (!(c.rope_base > 0))
    return keys.error(key("rope.freq_base"),
                      "expected a positive number, found " + std::to_string(c.rope_base));
  c.rope_dims = TRY(keys.integer(key("rope.dimension_count"), 2, c.attention.dim));
  if (c.rope_dims % 2 != 0)
    return keys.error(key("rope.dimension_count"),
                      "expected an even number, found " + std::to_string(c.rope_dims));
  if (moe) {
    c.moe.hidden = c.hidden;
    c.moe.experts = TRY(keys.integer(key("expert_count"), 1, kMaxExperts));
    c.moe.used = TRY(keys.integer(key("expert_used_count"), 1, c.moe.experts));
    c.moe.width = TRY(keys.integer(key("expert_feed_forward_length"), 1, kMaxWidth));
    c.moe.shared_width = TRY(keys.integer(key("expert_shared_feed_forward_length"), 1, kMaxWidth));
  } else {
    c.width = TRY(keys.integer(key("feed_forward_length"), 1, kMaxWidth));
  }
  int64_t interval = TRY(keys.integer_or(key("full_attention_interval"), 4, 1, kMaxLayers));
  for (int64_t i = 0; i < c.layers; ++i) c.recurrent.push_back((i + 1) % interval != 0);
  if (keys.has(key("attention.recurrent_layers"))) {
    auto given = TRY(keys.booleans(key("attention.recurrent_layers")));
    if (int64_t(given.size()) < c.layers)
      return keys.error(
          key("attention.recurrent_layers"),
          "expected " + std::to_string(c.layers) + " values, found " + std::to_string(given.size()));
    std::copy_n(given.begin(), c.layers, c.recurrent.begin());
  }
  return c;
}

struct Layer {
  bool recurrent;
  const float *attn_norm, *ffn_norm;
  DeltaNet delta;
  Attention attention;
  Mlp mlp;
  Moe moe;
};

class Qwen35 final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(Loader& loader, bool moe) {
    auto m = std::make_unique<Qwen35>();
    Config& c = m->c_ = TRY(read_config(loader, moe));
    m->moe_ = moe;
    m->rope_ = TRY(Rope::make(c.rope_base, c.rope_dims, true));
    m->vocabulary_.load(loader, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      Layer& l = m->layers_.emplace_back();
      l.recurrent = c.recurrent[size_t(i)];
      l.attn_norm = loader.vector(block + "attn_norm.weight", c.hidden);
      if (l.recurrent) l.delta.load(loader, block, c.delta);
      else l.attention.load(loader, block, c.attention);
      l.ffn_norm = loader.vector(block + "post_attention_norm.weight", c.hidden);
      if (moe) l.moe.load(loader, block, c.moe);
      else l.mlp.load(loader, block, c.hidden, c.width);
    }
    for (const TensorEntry& t : loader.file().tensors())
      if (t.layer >= c.layers && t.layer < c.blocks) loader.skip(t.name);
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
      if (l.recurrent) l.delta.run(s, h, x);
      else l.attention.run(s, h, rope_, angles, x);
      d.rms_norm(x, l.ffn_norm, c_.eps, h);
      if (moe_) l.moe.run(s, h, x);
      else l.mlp.run(s, h, x, Held::Added);
    }
    d.rms_norm(x, vocabulary_.norm, c_.eps, h);
    return h;
  }

  Tensor logits(Step& s, Tensor hidden, std::span<const int> rows) override {
    return vocabulary_.logits(s, hidden, rows);
  }

 private:
  Config c_{};
  bool moe_ = false;
  Vocabulary vocabulary_;
  Rope rope_;
  std::vector<Layer> layers_;
};

}  // namespace

extern const ModelDef kQwen35, kQwen35Moe;
const ModelDef kQwen35{"qwen35", [](Loader& l) { return Qwen35::load(l, false); }};
const ModelDef kQwen35Moe{"qwen35moe", [](Loader& l) { return Qwen35::load(l, true); }};

}  // namespace invar
