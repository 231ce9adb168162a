"""Checks the properties of the gateway's answers that clients rely on, without a client."""

import json

from gateway import MODEL

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
LARGE = 1_000_000


def check(gateway):
    """Returns the errors, as sentences."""
    wrong = []

    def expect(what, answer, status, code=None, **headers):
        got_status, got_headers, body = answer
        try:
            got_code = json.loads(body)["error"]["code"]
        except (ValueError, KeyError, TypeError):
            got_code = None
        if (got_status, got_code) != (status, code):
            wrong.append(f"{what}: {got_status} {got_code}, not {status} {code}")
        for name, value in headers.items():
            name = name.replace("_", "-")
            got = got_headers.get(name)
            if got is None or value is not None and got != value:
                wrong.append(f"{what}: the header {name} is {got}, not {value or 'there'}")

    def post(path, key, **more):
        return gateway.request("POST", path, {**CHAT, **more}, key)

    for path in ("/v1/chat/completions", "/v1/messages"):
        expect(f"{path} with a large limit", post(path, gateway.key, max_tokens=LARGE), 200,
               x_tollkeeper_max_tokens=None)
        expect(f"{path} without money", post(path, gateway.poor_key), 402, "insufficient_quota", x_should_retry="false")
        expect(f"{path} with a wrong key", post(path, gateway.key[:-8] + "AAAAAAAA"), 401, "invalid_api_key",
               x_should_retry="false")
        expect(f"{path} for an unknown model", post(path, gateway.key, model="no-such-model"), 404, "model_not_found",
               x_should_retry="false")
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
               "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    status = gateway.request("GET", "/v1/responses", token=gateway.key, headers=upgrade)[0]
    if status != 426:
        wrong.append(f"A WebSocket at /v1/responses: {status}, not 426")
    by_header = {"x-api-key": gateway.key}
    expect("/v1/models with x-api-key", gateway.request("GET", "/v1/models", headers=by_header), 200)
    expect("A chat with x-api-key", gateway.request("POST", "/v1/chat/completions", CHAT, headers=by_header), 200)
    # A client with OPENAI_ORG_ID in its environment sends this header with every call.
    elsewhere = {"openai-organization": "org-of-another-service", "openai-project": "proj_of-another-service"}
    expect("A chat with another organization's header",
           gateway.request("POST", "/v1/chat/completions", CHAT, gateway.key, elsewhere), 200)
    expect("/v1/messages/count_tokens", post("/v1/messages/count_tokens", gateway.key), 200)
    expect("HEAD /api/hello", gateway.request("HEAD", "/api/hello"), 200)
    return wrong
