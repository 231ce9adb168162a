#!/usr/bin/env bash
# llama.cpp's server (xllamacpp 2026.10.11549): `cache_prompt: false` works in chats, but is ignored in messages.
#
# A chat with `cache_prompt: false` reads its whole prompt again: `cached_tokens` is always 0. In `POST /v1/messages`,
# the same field has no effect: the second call reads all tokens except the last one from the cache.
#
# Expected: a field of the server's own works in all of its APIs. The server converts `/v1/messages` to a chat
# internally, and passes on `seed`. A benchmark or a test that disables the cache still measures it.
#
# Output seen on 2026-11-29:
#
#     xllamacpp 2026.10.11549
#     /v1/chat/completions cached: 0
#     /v1/messages cached: 172
set -euo pipefail

folder=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap finish EXIT

# Finds Python 3.12; PYTHON312 can be its path.
for python in "${PYTHON312:-}" python3.12 "$HOME/.pyenv/versions/3.12.1/bin/python3.12" ""; do
    [ -n "$python" ] && "$python" -c "" 2>/dev/null && break
done
[ -n "$python" ] || { echo "Python 3.12 is missing: set PYTHON312 to its path." >&2; exit 2; }
"$python" -m venv "$folder/python"
python=$folder/python/bin/python
install() {
    "$python" -m pip install --quiet --no-input --no-compile --disable-pip-version-check "$@" 2> "$folder/pip" \
        || { cat "$folder/pip" >&2; return 1; }
}

install xllamacpp==2026.10.11549 gguf==0.19.0
# A model with random weights. Its tokens are bytes and letters.
"$python" - "$folder/tiny.gguf" <<'PYTHON'
import sys

import gguf
import numpy as np

width, heads, vocabulary = 256, 4, 320
kinds = gguf.TokenType
tokens = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
tokens += [(b"<0x%02X>" % byte, kinds.BYTE) for byte in range(256)]
tokens += [(bytes([letter]), kinds.NORMAL) for letter in b"abcdefghijklmnopqrstuvwxyz"]
tokens += [(b"<unused%d>" % number, kinds.UNUSED) for number in range(vocabulary - len(tokens))]
random = np.random.default_rng(7)
weights = lambda *shape: (random.standard_normal(shape) / 4).astype(np.float32)
head = np.zeros((vocabulary, width), np.float32)
head[259:285] = weights(26, width)
writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_context_length(1024)
writer.add_vocab_size(vocabulary)
writer.add_embedding_length(width)
writer.add_feed_forward_length(512)
writer.add_block_count(1)
writer.add_head_count(heads)
writer.add_head_count_kv(heads)
writer.add_rope_dimension_count(width // heads)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_file_type(gguf.LlamaFileType.ALL_F32)
writer.add_tokenizer_model("llama")
writer.add_tokenizer_pre("default")
writer.add_token_list([token for token, _ in tokens])
writer.add_token_types([kind for _, kind in tokens])
writer.add_token_scores([-float(place) for place in range(vocabulary)])
writer.add_unk_token_id(0)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_chat_template("{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}")
tensors = {"token_embd": weights(vocabulary, width), "output": head, "output_norm": np.ones(width, np.float32)}
for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
    tensors[f"blk.0.{name}"] = weights(width, width)
for name in ("ffn_gate", "ffn_up"):
    tensors[f"blk.0.{name}"] = weights(512, width)
tensors["blk.0.ffn_down"] = weights(width, 512)
for name in ("attn_norm", "ffn_norm"):
    tensors[f"blk.0.{name}"] = np.ones(width, np.float32)
for name, tensor in tensors.items():
    writer.add_tensor(name + ".weight", tensor)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
PYTHON

cat > "$folder/serve.py" <<'PYTHON'
import sys
import time

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"tiny"}
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(sys.argv[2])
parameters.n_parallel, parameters.n_ctx, parameters.n_gpu_layers = 2, 2048, 0
parameters.use_jinja = parameters.endpoint_metrics = True
parameters.warmup = False
server = xllamacpp.Server(parameters)
time.sleep(600)
PYTHON

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$python" "$folder/serve.py" "$folder/tiny.gguf" "$port" > "$folder/log" 2>&1 &
server=$!
for _ in $(seq 300); do
    "$python" -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null && break
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$folder/log" >&2; exit 2; }
    sleep 1
done

"$python" - "$port" <<'PYTHON'
import http.client
import json
import sys
from importlib.metadata import version


def call(path, body=None):
    """Returns the status and the text of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=300)
    headers = {"content-type": "application/json"}
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def events(text):
    """Returns the JSON of each event of a stream, but not [DONE]."""
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def expect(holds, what):
    if not holds:
        sys.exit(f"The behaviour has changed: {what}.")


print("xllamacpp", version("xllamacpp"))
body = {"model": "tiny", "messages": [{"role": "user", "content": "hello " * 20}], "max_tokens": 2}
body["cache_prompt"] = False
for path in ("/v1/chat/completions", "/v1/messages"):
    for _ in range(3):
        usage = json.loads(call(path, body)[1])["usage"]
    cached = usage.get("cache_read_input_tokens", usage.get("prompt_tokens_details", {}).get("cached_tokens"))
    print(path, "cached:", cached)
    expect((cached == 0) == (path == "/v1/chat/completions"), f"{path} has {cached} cached tokens")
PYTHON
