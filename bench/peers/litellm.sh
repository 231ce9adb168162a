#!/bin/sh
# LiteLLM's proxy with one worker and without a database. PEERS is the folder in which it is installed.
set -e
config=$(mktemp).yaml
cat >"$config" <<CONFIG
model_list:
  - model_name: stub-1
    litellm_params: {model: openai/stub-1, api_base: $2/v1, api_key: none}
CONFIG
echo serve
export LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR
# No master key, because the other gateways don't check keys either.
export LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true
exec "$PEERS/litellm/bin/litellm" --host 127.0.0.1 --port "$1" --config "$config" --num_workers 1 >/dev/null 2>&1
