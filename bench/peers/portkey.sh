#!/bin/sh
# Portkey's gateway. PEERS is the folder in which it is installed.
echo "header x-portkey-provider: openai"
echo "header x-portkey-custom-host: $2/v1"
echo serve
cd "$PEERS/portkey/node_modules/@portkey-ai/gateway" || exit
exec node build/start-server.js --port="$1" --headless >/dev/null 2>&1
