#!/bin/sh
# crabllm without keys, limits and usage. PEERS is the folder in which it is installed.
set -e
config=$(mktemp)
cat >"$config" <<CONFIG
listen = "127.0.0.1:$1"
openapi = false
[providers.stub]
kind = "openai"
base_url = "$2/v1"
api_key = "none"
models = ["stub-1"]
CONFIG
echo serve
exec "$PEERS/crabllm/bin/crabllm" serve --config "$config" >/dev/null 2>&1
