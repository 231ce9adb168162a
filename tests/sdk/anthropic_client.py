"""Calls a server with the official Anthropic SDK and checks what a program would see.

The one argument is a JSON object: base_url, and the bearers to use. Prints "all good" and the number of requests that
were sent, or fails.
"""

import json
import sys

import anthropic

setup = json.loads(sys.argv[1])

# The status of every answer, in order.
statuses = []
hooks = {"response": [lambda response: statuses.append(response.status_code)]}
counting = anthropic.DefaultHttpxClient(event_hooks=hooks, timeout=30)
# The SDK adds `/v1` itself.
base_url = setup["base_url"].removesuffix("/v1")


def client(**options):
    return anthropic.Anthropic(base_url=base_url, http_client=counting, **options)


def refused(kind, status, code, error_type, call):
    """Calls, and checks that this typed error is raised with all its fields, after one request."""
    before = len(statuses)
    try:
        answer = call()
    except anthropic.APIStatusError as error:
        assert type(error) is kind, f"expected {kind.__name__}, got {error!r}"
        assert error.status_code == status and error.body["type"] == "error", error.body
        found = (error.body["error"]["code"], error.body["error"]["type"])
        assert found == (code, error_type), found
        assert error.body["error"]["message"] in error.message, error.message
        assert error.response.headers["x-request-id"].startswith("req_")
        assert statuses[before:] == [status], statuses[before:]
        return
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}")


hello = [{"role": "user", "content": [{"type": "text", "text": "Say hello to me."}]}]
key = client(api_key=setup["key"])
message = key.messages.create(model="svc-1", messages=hello, max_tokens=100)
text = message.content[0].text
assert text.startswith("This is the demo model") and text.endswith("a real model."), message
assert (message.model, message.role, message.stop_reason) == ("svc-1", "assistant", "end_turn"), message
assert (message.usage.input_tokens, message.usage.output_tokens) == (4, 42), message.usage
# A bearer token works too, as for the other operations.
bearer = client(auth_token=setup["key"])
short = bearer.messages.create(model="svc-1", messages=hello, max_tokens=2)
assert (short.content[0].text, short.stop_reason) == ("This is", "max_tokens"), short

with key.messages.stream(model="svc-1", messages=hello, max_tokens=3) as stream:
    pieces = list(stream.text_stream)
    final = stream.get_final_message()
assert pieces == ["This ", "is ", "the"], pieces
assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("max_tokens", 4, 3), final

wrong = client(api_key="tk_nobody")
refused(anthropic.AuthenticationError, 401, "invalid_api_key", "authentication_error",
        lambda: wrong.messages.create(model="svc-1", messages=hello, max_tokens=1))
no_chat = client(api_key=setup["no_chat_key"])
refused(anthropic.PermissionDeniedError, 403, "missing_permission", "permission_error",
        lambda: no_chat.messages.create(model="svc-1", messages=hello, max_tokens=1))
refused(anthropic.NotFoundError, 404, "model_not_found", "not_found_error",
        lambda: key.messages.create(model="claude-none", messages=hello, max_tokens=1))
lowered = key.messages.with_raw_response.create(model="svc-1", messages=hello, max_tokens=5_000)
assert lowered.headers["x-tollkeeper-max-tokens"] == "4096", lowered.headers

# Without money: an immediate error of the SDK's own class.
poor = client(api_key=setup["poor_key"])
for stream in (False, True):
    refused(anthropic.PaymentRequiredError, 402, "insufficient_quota", "billing_error",
            lambda: poor.messages.create(model="svc-1", messages=hello, max_tokens=100, stream=stream))

# The list of models, complete and in pages.
models = key.models.list()
assert [model.id for model in models] == setup["models"] and not models.has_more, models
first = models.data[0]
assert (first.id, first.type, first.display_name, first.created_at.year) == ("svc-1", "model", "svc-1", 2024), first
paged = key.models.list(limit=3)
assert len(paged.data) == 3 and paged.has_more and [model.id for model in paged] == setup["models"], paged
assert key.models.retrieve("svc-1").display_name == "svc-1"

# The demo counts no prompts, so the count is an estimate. It costs nothing, so it needs no money.
counted = poor.messages.with_raw_response.count_tokens(model="svc-1", messages=hello)
assert counted.headers["x-tollkeeper-estimated"] == "true", counted.headers
assert 4 <= counted.parse().input_tokens <= 20, counted.parse()
refused(anthropic.NotFoundError, 404, "model_not_found", "not_found_error",
        lambda: key.messages.count_tokens(model="claude-none", messages=hello))
# Betas have a path of their own.
beta = key.beta.messages.create(model="svc-1", messages=hello, max_tokens=2, betas=["interleaved-thinking-2025-05-14"])
assert beta.content[0].text == "This is", beta

# A stream that its server cuts off raises an error instead of ending normally.
words = []
try:
    for event in key.messages.create(model="acme/chat/v2:latest", messages=hello, max_tokens=9, stream=True):
        words.append(event.delta.text)
    raise AssertionError(f"the stream ended normally: {words}")
except anthropic.APIStatusError as error:
    assert error.body["error"]["code"] == "upstream_cut", error.body
    assert words == ["Hello"], words

print("all good", len(statuses))
