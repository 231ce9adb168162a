#!/bin/sh
# TensorZero without its database. It chooses its own port. PEERS is the folder in which it is installed.
set -e
config=$(mktemp)
cat >"$config" <<CONFIG
[gateway]
observability.enabled = false
[models.stub]
routing = ["stub"]
[models.stub.providers.stub]
type = "openai"
model_name = "stub-1"
api_base = "$2/v1/"
api_key_location = "none"
CONFIG
# TensorZero writes its log to stdout, so the lines for the benchmark use descriptor 3.
exec 3>&1
exec "$PEERS/tensorzero/bin/python" - "$config" <<'PROGRAM' >/dev/null 2>&1
import os, sys, threading
import tensorzero

gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
with os.fdopen(3, "w") as told:
    print("port", gateway.base_url.rstrip("/").split(":")[2].split("/")[0], file=told)
    print("path /openai/v1/chat/completions", file=told)
    print("model tensorzero::model_name::stub", file=told)
    print("serve", file=told)
threading.Event().wait()
PROGRAM
