#!/usr/bin/env python3
"""Writes the golden models of tests/data/golden: for each a GGUF file in F32, the same weights as a Hugging Face folder
in BF16 (every weight is exact in both), and the float64 logits of all positions, rounded once to float32.

    make_golden.py [FOLDER]        the default folder is tests/data/golden

tests/golden_test.cpp holds the engine to them; tests/golden/check_reference.py holds them to this program.
"""
import json
import struct
import sys
from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np

from golden import qwen35

FOLDER = Path(__file__).resolve().parent.parent / "data" / "golden"
CONTEXT = 256
MODELS = {
    "qwen35": qwen35.Config(mtp_num_hidden_layers=1),
    "qwen35moe": qwen35.Config(num_hidden_layers=3, full_attention_interval=3, num_experts=6),
}
TOKENS = [int(b) % 64 for b in qwen35.hashed_bytes("tokens", 48)]


def write_gguf(path, arch, c, tensors):
    out = gguf.GGUFWriter(str(path), arch)
    out.add_name("golden " + arch)
    out.add_block_count(c.num_hidden_layers + c.mtp_num_hidden_layers)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(c.hidden_size)
    out.add_vocab_size(c.vocab_size)
    out.add_head_count(c.num_attention_heads)
    out.add_head_count_kv(c.num_key_value_heads)
    out.add_key_length(c.head_dim)
    out.add_value_length(c.head_dim)
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    out.add_rope_freq_base(c.rope_theta)
    out.add_rope_dimension_count(c.rotary_dim)
    out.add_rope_dimension_sections([*c.mrope_section, 0])
    out.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    out.add_ssm_state_size(c.linear_key_head_dim)
    out.add_ssm_group_count(c.linear_num_key_heads)
    out.add_ssm_time_step_rank(c.linear_num_value_heads)
    out.add_ssm_inner_size(c.value_dim)
    out.add_uint32(f"{arch}.full_attention_interval", c.full_attention_interval)
    if c.mtp_num_hidden_layers:
        out.add_uint32(f"{arch}.nextn_predict_layers", c.mtp_num_hidden_layers)
    if c.num_experts:
        out.add_expert_count(c.num_experts)
        out.add_expert_used_count(c.num_experts_per_tok)
        out.add_expert_feed_forward_length(c.moe_intermediate_size)
        out.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    else:
        out.add_feed_forward_length(c.intermediate_size)
    out.add_tokenizer_model("none")
    for name, values in tensors.items():
        out.add_tensor(name, np.ascontiguousarray(values, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not np.any(bits & 0xFFFF), "a weight is not exact in BF16"
    return (bits >> 16).astype("<u2").tobytes()


def write_folder(folder, arch, c, weights):
    """A checkpoint as published: nested config, one safetensors file."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {k: v for k, v in asdict(c).items() if k not in ("rope_theta", "partial_rotary_factor", "mrope_section")}
    kind = "qwen3_5_moe" if c.num_experts else "qwen3_5"
    text |= {"model_type": kind + "_text", "hidden_act": "silu", "max_position_embeddings": CONTEXT,
             "tie_word_embeddings": False, "attn_output_gate": True, "layer_types": c.layer_types,
             "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta, "mrope_interleaved": True,
                                 "partial_rotary_factor": c.partial_rotary_factor, "mrope_section": list(c.mrope_section)}}
    if not c.num_experts:
        text = {k: v for k, v in text.items() if "expert" not in k and k != "moe_intermediate_size"}
    name = "Qwen3_5MoeForConditionalGeneration" if c.num_experts else "Qwen3_5ForConditionalGeneration"
    config = {"architectures": [name], "model_type": kind, "tie_word_embeddings": False, "text_config": text}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    header, data = {}, b""
    for tensor, values in sorted(weights.items()):
        b = bf16(values)
        header[tensor] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for arch, c in MODELS.items():
        weights = qwen35.tiny_weights(c)
        logits = qwen35.Sequence(c, weights).logits(TOKENS)
        write_gguf(folder / f"{arch}.gguf", arch, c, qwen35.hf_to_gguf(c, weights))
        write_folder(folder / f"{arch}-hf", arch, c, weights)
        (folder / f"{arch}.logits.f32").write_bytes(logits.astype("<f4").tobytes())
    (folder / "tokens.json").write_text(json.dumps(TOKENS) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
