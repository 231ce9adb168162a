#!/usr/bin/env bash
# llama.cpp's server (xllamacpp 2026.10.11549): with `n: 2`, the usage counts only one answer.
#
# A plain chat with `n: 2` and `max_tokens: 6` returns two answers, and `completion_tokens: 6`. The server's own
# counter of generated tokens increases by 12. In a stream, each answer ends with a separate usage chunk, and neither
# chunk has choices.
#
# Expected: the usage counts all answers, as at OpenAI, and a stream ends with a single usage chunk. A gateway that
# trusts the plain usage or the last usage chunk doesn't charge for one of the two answers.
#
# Output seen on 2026-11-29:
#
#     xllamacpp 2026.10.11549
#     plain: 2 answers, completion_tokens 6 - generated 12
#     streamed: completion_tokens of the usage chunks [6, 6]
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


import time

print("xllamacpp", version("xllamacpp"))


def generated():
    lines = call("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("llamacpp:tokens_predicted_total "))


before = generated()
chat = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "n": 2, "seed": 1}
answer = json.loads(call("/v1/chat/completions", chat)[1])
time.sleep(1)
grown = round(generated() - before)
counted = answer["usage"]["completion_tokens"]
print("plain:", len(answer["choices"]), "answers, completion_tokens", counted, "- generated", grown)
_, text = call("/v1/chat/completions", chat | {"stream": True, "stream_options": {"include_usage": True}})
usages = [event["usage"]["completion_tokens"] for event in events(text) if event.get("usage")]
print("streamed: completion_tokens of the usage chunks", usages)
expect(len(answer["choices"]) == 2 and counted == 6, "the plain usage isn't that of one answer")
expect(grown == 12, "the counter hasn't grown by both answers")
expect(usages == [6, 6], "there isn't a usage chunk for each answer")
PYTHON
