"""qwen35 and qwen35moe in float64 numpy: an independent reference for tiny models, written to be read.

Weights are a dict {Hugging Face tensor name: array}; shapes are in the comments, T is the number of tokens of a call.
`hf_to_gguf` gives the tensors as GGUF names and orders them.  The MTP block has weights here but is not computed.
Formulas: Gated DeltaNet (arXiv 2412.06464), Qwen3-Next's gated attention, as in the published checkpoints' code.
"""
from dataclasses import dataclass

import numpy as np

TRUNK = "model.language_model."


@dataclass
class Config:
    vocab_size: int = 64
    hidden_size: int = 32
    num_hidden_layers: int = 4
    full_attention_interval: int = 4
    rms_norm_eps: float = 2e-4
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 32
    partial_rotary_factor: float = 0.25
    rope_theta: float = 3e5
    mrope_section: tuple = (2, 1, 1)   # for text all three are the position
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 6    # three per key head: a wrong head map shows
    linear_key_head_dim: int = 16
    linear_value_head_dim: int = 16
    linear_conv_kernel_dim: int = 4
    intermediate_size: int = 24
    num_experts: int = 0               # above 0: every layer has experts instead
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 16
    shared_expert_intermediate_size: int = 16
    mtp_num_hidden_layers: int = 0

    @property
    def layer_types(self):
        n = self.full_attention_interval
        return ["linear_attention" if (i + 1) % n else "full_attention" for i in range(self.num_hidden_layers)]

    @property
    def rotary_dim(self):
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def key_dim(self):
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self):
        return self.linear_num_value_heads * self.linear_value_head_dim


# ------------------------------------------------------------------------------------------------ small functions
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def linear(x, w):
    return x @ w.T


def normalized(x, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def unit(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


# --------------------------------------------------------------------------------------------------------- layers
class DeltaState:
    """What a recurrent layer keeps: the last K - 1 inputs of its convolution, and S [value head, key, value]."""

    def __init__(self, c):
        self.inputs = np.zeros((c.linear_conv_kernel_dim - 1, 2 * c.key_dim + c.value_dim))
        self.S = np.zeros((c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim))


def delta_net(c, w, x, state):
    """x [T, H], normalized -> [T, H].  The checkpoint's order: value head v belongs to key head v // (Hv / Hk)."""
    T, Hk, Hv, Dk = len(x), c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim
    z = linear(x, w["in_proj_z.weight"]).reshape(T, Hv, -1)
    beta = sigmoid(linear(x, w["in_proj_b.weight"]))                                              # [T, Hv]
    g = -np.exp(w["A_log"]) * softplus(linear(x, w["in_proj_a.weight"]) + w["dt_bias"])           # [T, Hv]

    window = np.concatenate([state.inputs, linear(x, w["in_proj_qkv.weight"])])                   # [K - 1 + T, channels]
    taps = w["conv1d.weight"].reshape(window.shape[1], -1)                                        # [channels, K]
    mixed = silu(sum(window[j:j + T] * taps[:, j] for j in range(taps.shape[1])))                 # last tap: this token
    state.inputs = window[T:]

    q, k, v = np.split(mixed, [c.key_dim, 2 * c.key_dim], axis=1)
    q, k, v = unit(q.reshape(T, Hk, Dk)) / np.sqrt(Dk), unit(k.reshape(T, Hk, Dk)), v.reshape(T, Hv, -1)
    out = np.empty_like(v)
    for t in range(T):
        for h in range(Hv):
            key, query = k[t, h // (Hv // Hk)], q[t, h // (Hv // Hk)]
            S = state.S[h] * np.exp(g[t, h])
            S = S + np.outer(key, beta[t, h] * (v[t, h] - key @ S))
            state.S[h], out[t, h] = S, query @ S
    gated = normalized(out, c.rms_norm_eps) * w["norm.weight"] * silu(z)
    return linear(gated.reshape(T, -1), w["out_proj.weight"])


class KeysValues:
    def __init__(self, c):
        self.k = self.v = np.zeros((0, c.num_key_value_heads, c.head_dim))


def rope(c, x, positions):
    """x [T, heads, D]: pairs (i, i + rotary / 2) of the first `rotary` features turn by position * theta^(-2i / rotary)."""
    half = c.rotary_dim // 2
    angle = np.outer(positions, c.rope_theta ** (-np.arange(half) / half))[:, None]
    a, b, rest = np.split(x, [half, 2 * half], axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def attention(c, w, x, state):
    """x [T, H], normalized -> [T, H].  Each head of q_proj is [query | gate]."""
    T, Hq, Hkv, D, past = len(x), c.num_attention_heads, c.num_key_value_heads, c.head_dim, len(state.k)
    q, gate = np.split(linear(x, w["q_proj.weight"]).reshape(T, Hq, 2 * D), 2, axis=-1)
    k = linear(x, w["k_proj.weight"]).reshape(T, Hkv, D)
    positions = past + np.arange(T)
    q = rope(c, normalized(q, c.rms_norm_eps) * (1 + w["q_norm.weight"]), positions)
    k = rope(c, normalized(k, c.rms_norm_eps) * (1 + w["k_norm.weight"]), positions)
    state.k = np.concatenate([state.k, k])
    state.v = np.concatenate([state.v, linear(x, w["v_proj.weight"]).reshape(T, Hkv, D)])
    seen = np.arange(len(state.k)) <= positions[:, None]
    out = np.empty_like(q)
    for h in range(Hq):
        group = h // (Hq // Hkv)
        scores = np.where(seen, q[:, h] @ state.k[:, group].T / np.sqrt(D), -np.inf)
        out[:, h] = softmax(scores) @ state.v[:, group]
    return linear((out * sigmoid(gate)).reshape(T, -1), w["o_proj.weight"])


def mlp(x, gate, up, down):
    return linear(silu(linear(x, gate)) * linear(x, up), down)


def experts(c, w, x):
    """Softmax over all experts, the best k (equal: lower id), weights divided by their sum; the shared expert last."""
    p = softmax(linear(x, w["gate.weight"]))
    best = np.argsort(-p, axis=-1, kind="stable")[:, :c.num_experts_per_tok]
    y = np.zeros_like(x)
    for t in range(len(x)):
        for e in best[t]:
            gate, up = np.split(w["experts.gate_up_proj"][e], 2)
            y[t] += p[t, e] / p[t, best[t]].sum() * mlp(x[t], gate, up, w["experts.down_proj"][e])
    shared = mlp(x, *(w[f"shared_expert.{n}_proj.weight"] for n in ("gate", "up", "down")))
    return y + sigmoid(linear(x, w["shared_expert_gate.weight"])) * shared


class Sequence:
    """One sequence of a model: `logits(tokens)` appends them and gives [T, V]."""

    def __init__(self, c, weights):
        self.c, self.w = c, {n: np.asarray(a, np.float64) for n, a in weights.items()}
        self.states = [DeltaState(c) if kind == "linear_attention" else KeysValues(c) for kind in c.layer_types]

    def part(self, prefix):
        return {n[len(prefix):]: a for n, a in self.w.items() if n.startswith(prefix)}

    def logits(self, tokens):
        c = self.c
        h = self.w[TRUNK + "embed_tokens.weight"][np.asarray(tokens)]
        for i, (kind, state) in enumerate(zip(c.layer_types, self.states)):
            w = self.part(f"{TRUNK}layers.{i}.")
            x = normalized(h, c.rms_norm_eps) * (1 + w["input_layernorm.weight"])
            if kind == "linear_attention":
                h = h + delta_net(c, self.part(f"{TRUNK}layers.{i}.linear_attn."), x, state)
            else:
                h = h + attention(c, self.part(f"{TRUNK}layers.{i}.self_attn."), x, state)
            x = normalized(h, c.rms_norm_eps) * (1 + w["post_attention_layernorm.weight"])
            if c.num_experts:
                h = h + experts(c, self.part(f"{TRUNK}layers.{i}.mlp."), x)
            else:
                h = h + mlp(x, *(w[f"mlp.{n}_proj.weight"] for n in ("gate", "up", "down")))
        return linear(normalized(h, c.rms_norm_eps) * (1 + self.w[TRUNK + "norm.weight"]), self.w["lm_head.weight"])


# ------------------------------------------------------------------------------------------------------- weights
def tensor_shapes(c):
    """Every tensor of a checkpoint with this config."""
    H, D = c.hidden_size, c.head_dim
    s = {TRUNK + "embed_tokens.weight": (c.vocab_size, H), TRUNK + "norm.weight": (H,), "lm_head.weight": (c.vocab_size, H)}

    def gated_mlp(prefix, width):
        s.update({prefix + "gate_proj.weight": (width, H), prefix + "up_proj.weight": (width, H), prefix + "down_proj.weight": (H, width)})

    def layer(p, kind):
        s.update({p + "input_layernorm.weight": (H,), p + "post_attention_layernorm.weight": (H,)})
        if kind == "linear_attention":
            a, Hv, channels = p + "linear_attn.", c.linear_num_value_heads, 2 * c.key_dim + c.value_dim
            s.update({a + "in_proj_qkv.weight": (channels, H), a + "in_proj_z.weight": (c.value_dim, H),
                      a + "in_proj_b.weight": (Hv, H), a + "in_proj_a.weight": (Hv, H),
                      a + "conv1d.weight": (channels, 1, c.linear_conv_kernel_dim), a + "A_log": (Hv,), a + "dt_bias": (Hv,),
                      a + "norm.weight": (c.linear_value_head_dim,), a + "out_proj.weight": (H, c.value_dim)})
        else:
            a, q, kv = p + "self_attn.", c.num_attention_heads * D, c.num_key_value_heads * D
            s.update({a + "q_proj.weight": (2 * q, H), a + "k_proj.weight": (kv, H), a + "v_proj.weight": (kv, H),
                      a + "o_proj.weight": (H, q), a + "q_norm.weight": (D,), a + "k_norm.weight": (D,)})
        if c.num_experts:
            E, I = c.num_experts, c.moe_intermediate_size
            s.update({p + "mlp.gate.weight": (E, H), p + "mlp.experts.gate_up_proj": (E, 2 * I, H),
                      p + "mlp.experts.down_proj": (E, H, I), p + "mlp.shared_expert_gate.weight": (1, H)})
            gated_mlp(p + "mlp.shared_expert.", c.shared_expert_intermediate_size)
        else:
            gated_mlp(p + "mlp.", c.intermediate_size)

    for i, kind in enumerate(c.layer_types):
        layer(f"{TRUNK}layers.{i}.", kind)
    for i in range(c.mtp_num_hidden_layers):
        layer(f"mtp.layers.{i}.", "full_attention")
        s.update({"mtp.fc.weight": (H, 2 * H), "mtp.norm.weight": (H,),
                  "mtp.pre_fc_norm_embedding.weight": (H,), "mtp.pre_fc_norm_hidden.weight": (H,)})
    return s


def hashed_bytes(name, n):
    """n bytes that depend on (name, index) alone: FNV-1a of the name, then splitmix64's finalizer; its top byte."""
    seed = 0xCBF29CE484222325
    for b in name.encode():
        seed = ((seed ^ b) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, n + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(56)).astype(np.int64)


def tiny_weights(c):
    """k * 2^-e with k in [-128, 127]: exact in BF16.  Residual branches are small, as in a trained model: at full gain
    a random stack multiplies rounding errors, and no useful bound would exist."""
    weights = {}
    for name, shape in tensor_shapes(c).items():
        k = (hashed_bytes(name, int(np.prod(shape))) - 128).astype(np.float64).reshape(shape)
        if name.endswith("linear_attn.norm.weight"):
            weights[name] = 1 + np.round(k / 4) / 64
        elif "norm" in name:
            weights[name] = k / 512                # the gain is 1 + w
        elif name.endswith(("A_log", "dt_bias", "embed_tokens.weight", "lm_head.weight")):
            weights[name] = k / 64
        elif "conv1d" in name:
            weights[name] = k / 128
        else:
            weights[name] = k / 128 / 2 ** max(0, round(np.log2(shape[-1]) / 2 - 1))
        if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight", "down_proj")):
            weights[name] /= 4
        elif name.endswith("mlp.gate.weight"):
            weights[name] *= 4
    return weights


def hf_to_gguf(c, w):
    """Names, orders and values that a GGUF file holds: norms 1 + w, -exp(A_log), value heads tiled over key heads."""
    Hk, r, Dv = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads, c.linear_value_head_dim
    head = np.array([k * r + j for j in range(r) for k in range(Hk)])        # GGUF's value head t is the checkpoint's head[t]
    row = (head[:, None] * Dv + np.arange(Dv)).reshape(-1)
    channel = np.concatenate([np.arange(2 * c.key_dim), 2 * c.key_dim + row])
    out = {"token_embd.weight": w[TRUNK + "embed_tokens.weight"], "output_norm.weight": w[TRUNK + "norm.weight"] + 1,
           "output.weight": w["lm_head.weight"]}

    def block(source, n, kind):
        b = f"blk.{n}."
        out[b + "attn_norm.weight"] = w[source + "input_layernorm.weight"] + 1
        out[b + "post_attention_norm.weight"] = w[source + "post_attention_layernorm.weight"] + 1
        if kind == "linear_attention":
            a = source + "linear_attn."
            out[b + "attn_qkv.weight"] = w[a + "in_proj_qkv.weight"][channel]
            out[b + "attn_gate.weight"] = w[a + "in_proj_z.weight"][row]
            out[b + "ssm_beta.weight"] = w[a + "in_proj_b.weight"][head]
            out[b + "ssm_alpha.weight"] = w[a + "in_proj_a.weight"][head]
            out[b + "ssm_conv1d.weight"] = w[a + "conv1d.weight"][channel, 0]
            out[b + "ssm_a"] = -np.exp(w[a + "A_log"])[head]
            out[b + "ssm_dt.bias"] = w[a + "dt_bias"][head]
            out[b + "ssm_norm.weight"] = w[a + "norm.weight"]
            out[b + "ssm_out.weight"] = w[a + "out_proj.weight"][:, row]
        else:
            a = source + "self_attn."
            for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
                out[f"{b}{ours}.weight"] = w[f"{a}{theirs}_proj.weight"]
            out[b + "attn_q_norm.weight"] = w[a + "q_norm.weight"] + 1
            out[b + "attn_k_norm.weight"] = w[a + "k_norm.weight"] + 1
        m = source + "mlp."
        if c.num_experts:
            out[b + "ffn_gate_inp.weight"] = w[m + "gate.weight"]
            out[b + "ffn_gate_exps.weight"], out[b + "ffn_up_exps.weight"] = np.split(w[m + "experts.gate_up_proj"], 2, axis=1)
            out[b + "ffn_down_exps.weight"] = w[m + "experts.down_proj"]
            out[b + "ffn_gate_inp_shexp.weight"] = w[m + "shared_expert_gate.weight"].reshape(-1)
        for n_ in ("gate", "up", "down"):
            name, source_name = ("_shexp", "shared_expert.") if c.num_experts else ("", "")
            out[f"{b}ffn_{n_}{name}.weight"] = w[f"{m}{source_name}{n_}_proj.weight"]

    for i, kind in enumerate(c.layer_types):
        block(f"{TRUNK}layers.{i}.", i, kind)
    last = c.num_hidden_layers
    for i in range(c.mtp_num_hidden_layers):
        block(f"mtp.layers.{i}.", last + i, "full_attention")
        out[f"blk.{last}.nextn.eh_proj.weight"] = w["mtp.fc.weight"]
        out[f"blk.{last}.nextn.enorm.weight"] = w["mtp.pre_fc_norm_embedding.weight"] + 1
        out[f"blk.{last}.nextn.hnorm.weight"] = w["mtp.pre_fc_norm_hidden.weight"] + 1
        out[f"blk.{last}.nextn.shared_head_norm.weight"] = w["mtp.norm.weight"] + 1
    return out
