#!/usr/bin/env bash
# transformers 5.19.0: streams of `transformers serve` end without `[DONE]`, and contain a usage that wasn't
# requested.
#
# A streamed chat ends with the chunk that has the finish reason. This chunk also has the usage, although the request
# has no `stream_options`. Then the body ends normally. `/v1/responses` without the field `stream` is streamed.
#
# Expected: a server with OpenAI's API ends a stream with `[DONE]`, and sends the usage in a separate chunk, and only
# on request. A client that treats a missing `[DONE]` as a broken connection loses every answer of this server.
#
# Output seen on 2026-11-29:
#
#     transformers 5.19.0
#     last chunk: {"choices": 1, "usage": {"completion_tokens": 4, "prompt_tokens": 12, "total_tokens": 16}}
#     [DONE]: False
#     response without `stream`: a stream
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

# The package index has torch only for CUDA. It starts without a GPU if its libraries exist, so small stubs replace
# them. Each function of a stub returns "no device" (100).
install --no-deps torch==2.13.0
install filelock typing_extensions sympy networkx jinja2 fsspec "setuptools<81" numpy
libraries=$folder/libraries
mkdir "$libraries"
ldd_torch() {
    find "$folder/python" -path '*/torch/lib/*.so*' | while read -r library; do
        LD_LIBRARY_PATH="$libraries" ldd $1 "$library" 2>&1 || true
    done
}
gcc -shared -o "$libraries/libnothing.so" -x c /dev/null
for _ in 1 2 3 4; do
    for name in $(ldd_torch "" | sed -n 's/^[[:space:]]*\([^ ]*\) => not found$/\1/p' | sort -u); do
        gcc -shared -o "$libraries/$name" -Wl,-soname,"$name" -x c /dev/null \
            -Wl,--no-as-needed -L "$libraries" -l:libnothing.so
    done
done
ldd_torch -r | sed -n 's/^undefined symbol: \([A-Za-z0-9_]*\).*/\1/p' | sort -u | grep -v -e '^_\?Py' -e '^_Z' \
    | sed -e 's/^\(.*GetError.*\)$/const char *\1(void) { return ""; }/' -e t \
        -e 's/^\(.*\)$/int \1(void) { return 100; }/' > "$libraries/nothing.c"
gcc -shared -fPIC -w -fno-builtin -o "$libraries/libnothing.so" "$libraries/nothing.c"
export LD_LIBRARY_PATH=$libraries

install transformers==5.19.0 requests fastapi uvicorn "openai>=2.25" pydantic rich python-multipart psutil packaging \
    pyyaml safetensors huggingface_hub
install --no-deps accelerate

# A model with random weights. Its tokens are bytes.
(cd "$folder" && "$python" - <<'PYTHON'
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
special = ["<s>", "</s>", "<think>", "</think>"]
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocabulary = {token: place for place, token in enumerate(special + letters)}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_tokens(special[2:])
template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=template
).save_pretrained("tiny")
torch.manual_seed(7)
LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=256, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
    )
).save_pretrained("tiny")
PYTHON
)

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export HF_HUB_OFFLINE=1
export PATH=$folder/python/bin:$PATH
(cd "$folder" && exec transformers serve tiny --host 127.0.0.1 --port "$port" --device cpu > "$folder/log" 2>&1) &
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


print("transformers", version("transformers"))
chat = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
_, text = call("/v1/chat/completions", chat)
last = events(text)[-1]
print("last chunk:", json.dumps({"choices": len(last["choices"]), "usage": last.get("usage")}))
print("[DONE]:", "[DONE]" in text)
_, response = call("/v1/responses", {"model": "tiny", "input": "hello", "max_output_tokens": 4})
print("response without `stream`:", "a stream" if response.startswith(("data:", "event:")) else "JSON")
expect("[DONE]" not in text, "there is a [DONE]")
expect(last["choices"][0]["finish_reason"] and last["usage"]["prompt_tokens"] > 0, "the last chunk has no usage")
expect(response.startswith(("data:", "event:")), "a response isn't streamed unasked")
PYTHON
