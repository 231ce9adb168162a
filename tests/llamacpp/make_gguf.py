"""Writes a small and fast language model for llama.cpp that generates nonsense.

    make_gguf.py FILE LAYERS

It is a llama with random weights, the same ones each time. Its words are syllables, so its text is always whole UTF-8,
and it never ends by itself: an answer has as many tokens as `max_tokens` allows. Each layer makes it slower.
"""

import sys

import gguf
import numpy as np

VOCABULARY, CONTEXT = 512, 4096
WIDTH, FEED_FORWARD, HEADS = 256, 512, 4
# Special tokens and bytes, which precede the words.
SPECIAL, BYTES = 3, 256

TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant:"""


def vocabulary():
    """Returns the tokens with their types, and the number of words among them."""
    kinds = gguf.TokenType
    tokens = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
    tokens += [(b"<0x%02X>" % byte, kinds.BYTE) for byte in range(BYTES)]
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    # U+2581 is a space.
    words = ["\u2581", *"abcdefghijklmnopqrstuvwxyz", *("\u2581" + s for s in syllables), *syllables, *".,?!\n"]
    tokens += [(word.encode(), kinds.NORMAL) for word in words]
    tokens += [(b"<unused%d>" % number, kinds.UNUSED) for number in range(VOCABULARY - len(tokens))]
    return tokens, len(words)


def tensors(words, layers):
    """Yields the weights by name."""
    random = np.random.default_rng(7)

    def weights(*shape):
        return (random.standard_normal(shape) / 4).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    yield "token_embd", weights(VOCABULARY, WIDTH)
    # Tokens that aren't words have the score zero, which is never among the highest.
    head = weights(VOCABULARY, WIDTH)
    head[: SPECIAL + BYTES] = 0
    head[SPECIAL + BYTES + words :] = 0
    yield "output", head
    yield "output_norm", ones
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}", weights(WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}", weights(FEED_FORWARD, WIDTH)
        yield f"blk.{layer}.ffn_down", weights(WIDTH, FEED_FORWARD)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}", ones


def write(path, layers):
    tokens, words = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(CONTEXT)
    writer.add_vocab_size(VOCABULARY)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(layers)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    # The tokenizer prefers a word to its letters, and the earlier one of two words.
    writer.add_token_scores([-float(place) for place in range(len(tokens))])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors(words, layers):
        writer.add_tensor(name + ".weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


write(sys.argv[1], int(sys.argv[2]))
