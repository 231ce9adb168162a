#!/bin/sh
# sglang-router in front of one worker. PEERS is the folder in which it is installed.
metrics=$(($1 + 1))
echo serve
exec "$PEERS/sglang-router/bin/python" -m sglang_router.launch_router --host 127.0.0.1 --port "$1" \
    --prometheus-port "$metrics" --worker-urls "$2" --policy round_robin --log-level error \
    --max-concurrent-requests 4096 --disable-health-check >/dev/null 2>&1
