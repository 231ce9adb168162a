"""Writes the tiny models that record.py serves. Their weights are random, but the same each time.

    make_models.py vllm|transformers|llamacpp FOLDER

vLLM and transformers get FOLDER/tiny: a llama of 2 layers and 512 tokens, with a tokenizer and a chat template.
Its words are syllables. It ends and closes its reasoning by itself only when a request's `logit_bias` makes it,
so record.py decides when. llama.cpp gets FOLDER/tiny.gguf by tests/llamacpp/make_gguf.py.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np

VOCABULARY, CONTEXT = 512, 4096
WIDTH, FEED_FORWARD, HEADS, LAYERS = 256, 512, 4, 2

# record.py refers to some of these by position.
SPECIAL = ["<s>", "</s>", "<pad>", "<think>", "</think>", "<tool_call>", "</tool_call>"]

TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""


def byte_letters():
    """Returns the letter that represents each byte in a byte-level tokenizer, as defined by GPT-2."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, spare = {}, 0
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + spare)
            spare += 1
    return letters


def vocabulary():
    """Returns all tokens, the merges, and the positions of the tokens that the model generates most often."""
    letters = byte_letters()
    blank = letters[0x20]
    tokens = SPECIAL + [letters[byte] for byte in range(256)]
    merges, liked = [], [len(SPECIAL) + byte for byte in b".,?!"]
    for consonant in "bdfgklmnprstvz":
        for vowel in "aeiou":
            merges.append((consonant, vowel))
    for consonant in "bdfgklmnprstvz":
        for vowel in "aeiou":
            merges.append((blank, consonant + vowel))
    for first, second in merges:
        liked.append(len(tokens))
        tokens.append(first + second)
    tokens += [f"<unused{number}>" for number in range(VOCABULARY - len(tokens))]
    return tokens, merges, liked


def write_tokenizer(folder, tokens, merges):
    added = [
        {
            "id": place,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            # The parsers for reasoning and tools look for markers in the text, so the markers must stay in it.
            "special": token in SPECIAL[:3],
        }
        for place, token in enumerate(tokens[: len(SPECIAL)])
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: place for place, token in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration, indent=1))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def write_weights(folder, liked):
    from safetensors.numpy import save_file

    random = np.random.default_rng(7)

    def weights(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    head = np.zeros((VOCABULARY, WIDTH), np.float32)
    # The other tokens have the score zero, and are almost never chosen.
    head[liked] = 4 * weights(len(liked), WIDTH)
    tensors = {
        "model.embed_tokens.weight": weights(VOCABULARY, WIDTH) * 16,
        "model.norm.weight": ones,
        "lm_head.weight": head,
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{at}.self_attn.{name}.weight"] = weights(WIDTH, WIDTH)
        for name in ("gate_proj", "up_proj"):
            tensors[f"{at}.mlp.{name}.weight"] = weights(FEED_FORWARD, WIDTH)
        tensors[f"{at}.mlp.down_proj.weight"] = weights(WIDTH, FEED_FORWARD)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{name}.weight"] = ones
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_configuration(folder):
    configuration = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }
    generation = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "do_sample": True}
    (folder / "config.json").write_text(json.dumps(configuration, indent=1))
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1))


def main():
    server, models = sys.argv[1], pathlib.Path(sys.argv[2])
    if server == "llamacpp":
        script = pathlib.Path(__file__).parent.parent / "llamacpp" / "make_gguf.py"
        subprocess.run([sys.executable, str(script), str(models / "tiny.gguf"), "2"], check=True)
        return
    folder = models / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    tokens, merges, liked = vocabulary()
    write_tokenizer(folder, tokens, merges)
    write_weights(folder, liked)
    write_configuration(folder)


main()
