"""Turns the SmolLM2 GGUF into a Hugging Face folder that vLLM loads offline: gguf_to_hf.py MODEL.gguf FOLDER

Needs gguf, numpy and tokenizers; no torch. Weights are dequantised and rounded to bfloat16."""

import json
import os
import struct
import sys

import gguf
import numpy
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

source, folder = sys.argv[1:3]
os.makedirs(folder, exist_ok=True)
reader = gguf.GGUFReader(source)


def field(name):
    return reader.fields[name].contents()


def model_field(name):
    return field("llama." + name)


def save_json(name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, indent=1)


BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
heads, kv_heads = model_field("attention.head_count"), model_field("attention.head_count_kv")


def half_rotation(weight, count):
    """llama.cpp interleaves the two halves that rotary embedding pairs; Hugging Face keeps them apart."""
    rows, columns = weight.shape
    return weight.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def bfloat16(weight):
    bits = numpy.ascontiguousarray(weight, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


tensors = {}
for tensor in reader.tensors:
    parts = tensor.name.split(".")
    weight = dequantize(tensor.data, tensor.tensor_type)
    if parts[0] == "blk":
        if parts[2] in ("attn_q", "attn_k"):
            weight = half_rotation(weight, heads if parts[2] == "attn_q" else kv_heads)
        name = f"model.layers.{parts[1]}.{BLOCK[parts[2]]}.weight"
    else:
        name = OUTER[parts[0]] + ".weight"
    tensors[name] = bfloat16(weight)

header, offset = {}, 0
for name, weight in tensors.items():
    header[name] = {"dtype": "BF16", "shape": weight.shape, "data_offsets": [offset, offset + weight.nbytes]}
    offset += weight.nbytes
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
with open(os.path.join(folder, "model.safetensors"), "wb") as file:
    file.write(struct.pack("<Q", len(head)) + head)
    for weight in tensors.values():
        file.write(weight.tobytes())

tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
tokenizer = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)
tokenizer.decoder = decoders.ByteLevel()
CONTROL = 3
tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == CONTROL])
tokenizer.save(os.path.join(folder, "tokenizer.json"))

begin, end = field("tokenizer.ggml.bos_token_id"), field("tokenizer.ggml.eos_token_id")
context = model_field("context_length")
save_json(
    "tokenizer_config.json",
    {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[begin],
        "eos_token": tokens[end],
        "pad_token": tokens[end],
        "unk_token": tokens[0],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": field("tokenizer.chat_template"),
    },
)
special = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
save_json("generation_config.json", special)
save_json(
    "config.json",
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": model_field("embedding_length"),
        "intermediate_size": model_field("feed_forward_length"),
        "num_hidden_layers": model_field("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": model_field("embedding_length") // heads,
        "max_position_embeddings": context,
        "rms_norm_eps": round(float(model_field("attention.layer_norm_rms_epsilon")), 8),
        "rope_theta": float(model_field("rope.freq_base")),
        "vocab_size": model_field("vocab_size"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        **special,
    },
)
