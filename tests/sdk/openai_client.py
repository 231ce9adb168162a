"""Calls a server with the official OpenAI SDK and checks what a program would see.

The one argument is a JSON object: base_url, and the bearers to use. Prints "all good" and the number of requests that
were sent, or fails.
"""

import json
import sys

import httpx
import openai

setup = json.loads(sys.argv[1])

# The status of every answer, in order.
statuses = []
counting = httpx.Client(event_hooks={"response": [lambda response: statuses.append(response.status_code)]}, timeout=30)


def client(bearer, **options):
    # Uses the SDK's default number of retries, unless another one is given. The answer must indicate that a retry is
    # useless.
    return openai.OpenAI(api_key=bearer, base_url=setup["base_url"], http_client=counting, **options)


def refused(kind, status, code, error_type, call, param=None):
    """Calls, and checks that this typed error is raised with all its fields, after one request."""
    before = len(statuses)
    try:
        answer = call()
    except openai.APIStatusError as error:
        assert type(error) is kind, f"expected {kind.__name__}, got {error!r}"
        found = (error.status_code, error.code, error.type, error.param)
        assert found == (status, code, error_type, param), found
        assert error.request_id and error.request_id.startswith("req_"), error.request_id
        assert error.request_id == error.response.headers["x-request-id"]
        assert error.body["message"] in error.message and isinstance(error.body["details"], list), error.body
        assert statuses[before:] == [status], statuses[before:]
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}")


for bearer in (setup["key"], setup["access_token"]):
    models = client(bearer).models.list()
    assert models.object == "list" and [model.id for model in models.data] == setup["models"], models
    assert len(list(models)) == len(setup["models"]), "there is one page"
    for listed in models:
        assert listed.object == "model" and listed.id and listed.owned_by and listed.created > 0, listed
        model = client(bearer).models.retrieve(listed.id)
        assert (model.id, model.created, model.owned_by) == (listed.id, listed.created, listed.owned_by), model
        assert model.limits["max_tokens"] > 0 and model.capabilities == listed.capabilities, model
    assert client(bearer).models.with_raw_response.list().headers["x-request-id"].startswith("req_")

one_model = client(setup["one_model_key"])
assert [model.id for model in one_model.models.list()] == ["svc-1"]
assert one_model.models.retrieve("svc-1").id == "svc-1"

authentication, permission = "authentication_error", "permission_error"
for bad in ("tk_nobody", setup["key"][:-1] + "!", setup["key"] + "x"):
    refused(openai.AuthenticationError, 401, "invalid_api_key", authentication, client(bad).models.list)
refused(openai.AuthenticationError, 401, "invalid_access_token", authentication, client("nonsense").models.list)
no_models = client(setup["no_models_key"])
refused(openai.PermissionDeniedError, 403, "missing_permission", permission, no_models.models.list)
other = "svc-embedding-1"
refused(openai.PermissionDeniedError, 403, "model_not_allowed", permission, lambda: one_model.models.retrieve(other))
for unknown in ("gpt-none", "some/where/else"):
    call = lambda: client(setup["key"]).models.retrieve(unknown)
    refused(openai.NotFoundError, 404, "model_not_found", "invalid_request_error", call)

# Other operations with the same client: a conflict, and a wrong field.
def create(body):
    return lambda: client(setup["access_token"]).post("/organizations", cast_to=object, body=body)


invalid = "invalid_request_error"
refused(openai.ConflictError, 409, "name_taken", invalid, create({"name": "Acme"}), "name")
refused(openai.BadRequestError, 400, "invalid_request", invalid, create({}), "name")

# An exhausted rate. It refills with time, so on a slow machine the second client may be too late to be refused.
once, again = client(setup["slow_key"], max_retries=0), client(setup["slow_key"])
while True:
    try:
        while True:
            # Lists of models don't count against the key's rate.
            once.get("/billing/pricing", cast_to=object)
    except openai.RateLimitError as error:
        assert (error.code, error.type, error.param) == ("rate_limited", "rate_limit_error", None), error
        assert error.request_id.startswith("req_"), error
        headers = error.response.headers
        assert 1 <= int(headers["retry-after"]) <= 60 and 0 < int(headers["retry-after-ms"]) <= 1_000, headers
    before = len(statuses)
    again.get("/billing/pricing", cast_to=object)
    if len(statuses) - before > 1:
        assert statuses[before:] == [429, 200], "the client retried after the requested time, and not before"
        break

# Chats with the demo, whose tokens are words.
hello = [{"role": "user", "content": "Say hello to me."}]
key = client(setup["key"])
chat = key.chat.completions.create(model="svc-1", messages=hello)
text = chat.choices[0].message.content
assert text.startswith("This is the demo model") and text.endswith("a real model."), chat
assert (chat.model, chat.object, chat.choices[0].finish_reason) == ("svc-1", "chat.completion", "stop"), chat
counts = (chat.usage.prompt_tokens, chat.usage.completion_tokens, chat.usage.total_tokens)
assert counts == (4, 42, 46), chat.usage
person = client(setup["access_token"], organization=setup["organization"], project=setup["project"])
short = person.chat.completions.create(model="svc-1", messages=hello, max_completion_tokens=4)
assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("This is the demo", "length"), short
raw = key.chat.completions.with_raw_response.create(model="svc-1", messages=hello, max_tokens=1)
assert raw.headers["x-tollkeeper-demo"] == "true" and raw.headers["x-tollkeeper-call-id"].startswith("call_"), raw.headers
assert raw.parse().usage.completion_tokens == 1

# The same as streams.
for options in ({}, {"stream_options": {"include_usage": True}}):
    chunks = list(key.chat.completions.create(model="svc-1", messages=hello, stream=True, **options))
    if options:
        last = chunks.pop()
        assert last.choices == [] and last.usage == chat.usage, last
    assert all(chunk.model == "svc-1" and chunk.usage is None for chunk in chunks), chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text, chunks
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"], chunks
with key.chat.completions.with_streaming_response.create(model="svc-1", messages=hello, stream=True) as raw:
    assert raw.headers["x-tollkeeper-demo"] == "true", raw.headers
    assert raw.headers["content-type"] == "text/event-stream", raw.headers

# The other operations, plain and as streams.
completion = key.completions.create(model="svc-1", prompt=["Once upon", "a time"], max_tokens=3)
assert [choice.text for choice in completion.choices] == ["This is the"] * 2, completion
assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (4, 6), completion
pieces = key.completions.create(model="svc-1", prompt="Once", max_tokens=3, stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == "This is the"

# The SDK asks for base64, unless a format is named, and reads it.
vectors = key.embeddings.create(model="svc-embedding-1", input=["one", "two"], dimensions=3)
assert [len(vector.embedding) for vector in vectors.data] == [3, 3] and vectors.model == "svc-embedding-1", vectors
assert (vectors.usage.prompt_tokens, vectors.usage.total_tokens) == (2, 2), vectors
named = key.embeddings.create(model="svc-embedding-1", input=["one", "two"], dimensions=3, encoding_format="float")
for read, sent in zip(vectors.data, named.data):
    assert all(abs(a - b) < 1e-6 for a, b in zip(read.embedding, sent.embedding)), (read, sent)

response = key.responses.create(model="svc-1", input="Say hello to me.")
assert (response.output_text, response.status, response.model) == (text, "completed", "svc-1"), response
assert (response.usage.input_tokens, response.usage.output_tokens) == (4, 42), response.usage
with key.responses.stream(model="svc-1", input="Say hello to me.") as stream:
    deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    final = stream.get_final_response()
assert ("".join(deltas), final.output_text, final.usage.output_tokens) == (text, text, 42), final
*_, last = key.responses.create(model="svc-1", input="Say hello to me.", max_output_tokens=4, stream=True)
assert (last.type, last.response.output_text, last.response.usage.output_tokens) == ("response.incomplete", "This is the demo", 4), last
refused(openai.BadRequestError, 400, "unsupported_parameter", invalid,
        lambda: key.responses.create(model="svc-1", input="Go on.", previous_response_id="resp_1"), "previous_response_id")
refused(openai.NotFoundError, 404, "model_not_found", invalid,
        lambda: key.embeddings.create(model="svc-1", input="one"), "model")

# Errors before an answer begins have the class of their status, regardless of whether a stream was requested.
no_chat, once = client(setup["no_chat_key"]), client(setup["key"], max_retries=0)
for stream in (False, True):
    def ask(bearer, model, **options):
        return lambda: bearer.chat.completions.create(model=model, messages=hello, stream=stream, **options)

    refused(openai.PermissionDeniedError, 403, "missing_permission", permission, ask(no_chat, "svc-1"))
    refused(openai.PermissionDeniedError, 403, "model_not_allowed", permission, ask(one_model, "svc-1-turbo"))
    refused(openai.NotFoundError, 404, "model_not_found", invalid, ask(key, "gpt-none"), "model")
    # The SDK would retry, because a server may be added to the model.
    refused(openai.InternalServerError, 503, "model_not_served", "api_error", ask(once, "svc-1-turbo"))

# Without money: an immediate error. The SDK has no class for 402.
poor, quota = client(setup["poor_key"]), "insufficient_quota"
for ask in (
    lambda: poor.chat.completions.create(model="svc-1", messages=hello),
    lambda: poor.chat.completions.create(model="svc-1", messages=hello, stream=True),
    lambda: poor.completions.create(model="svc-1", prompt="Once"),
    lambda: poor.embeddings.create(model="svc-embedding-1", input="one"),
    lambda: poor.responses.create(model="svc-1", input="Hello"),
):
    refused(openai.APIStatusError, 402, quota, quota, ask)

# A limit above the model's is lowered. OpenAI organizations from the environment are ignored, because the key decides.
elsewhere = client(setup["key"], organization="org-elsewhere", project="proj_elsewhere")
raw = elsewhere.chat.completions.with_raw_response.create(model="svc-1", messages=hello, max_tokens=128_000)
assert raw.headers["x-tollkeeper-max-tokens"] == "4096" and raw.parse().choices[0].message.content == text, raw.headers
raw = elsewhere.responses.with_raw_response.create(model="svc-1", input="Hello", max_output_tokens=128_000)
assert raw.headers["x-tollkeeper-max-tokens"] == "4096" and raw.parse().output_text == text, raw.headers
assert [model.id for model in elsewhere.models.list()] == setup["models"]

# A stream that its server cuts off raises an error instead of ending normally.
for ask, word in [
    (lambda model: key.chat.completions.create(model=model, messages=hello, stream=True), lambda chunk: chunk.choices[0].delta.content),
    (lambda model: key.completions.create(model=model, prompt="Once", stream=True), lambda chunk: chunk.choices[0].text),
    (lambda model: key.responses.create(model=model, input="Hello", stream=True), lambda event: event.delta),
]:
    words = []
    try:
        for chunk in ask("acme/chat/v2:latest"):
            words.append(word(chunk))
        raise AssertionError(f"the stream ended normally: {words}")
    except openai.APIError as error:
        assert type(error) is openai.APIError, repr(error)
        assert (error.code, error.type, error.param, words) == ("upstream_cut", "api_error", None, ["Hello"]), repr(error)

print("all good", len(statuses))
