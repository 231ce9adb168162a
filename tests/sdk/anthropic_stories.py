"""Makes calls with the official Anthropic SDK, without retries, and prints what a program sees of each.

The argument and what is printed are those of openai_stories.py; the one operation is `messages`. Tokens from a cache
are part of the prompt.
"""

import json
import sys

import anthropic

setup = json.loads(sys.argv[1])
# The SDK adds `/v1` itself.
base_url = setup["base_url"].removesuffix("/v1")
client = anthropic.Anthropic(api_key=setup["key"], base_url=base_url, max_retries=0, timeout=30)

# The classes that programs catch; newer versions of the SDK may raise narrower ones.
CLASSES = (anthropic.BadRequestError, anthropic.AuthenticationError, anthropic.PermissionDeniedError,
           anthropic.NotFoundError, anthropic.RateLimitError, anthropic.InternalServerError, anthropic.APIStatusError,
           anthropic.APIConnectionError, anthropic.APIError)


def prompt_tokens(usage):
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def messages(story, seen):
    hello = [{"role": "user", "content": "hi there"}]
    # Not every version of the SDK has `temperature`.
    answer = client.messages.create(model=story["model"], messages=hello, max_tokens=16, stream=story["stream"],
                                    extra_body={"temperature": 0})
    if not story["stream"]:
        seen["text"] = "".join(block.text for block in answer.content)
        seen["finish"] = answer.stop_reason
        seen["tokens"] = [prompt_tokens(answer.usage), answer.usage.output_tokens]
        return
    prompt = None
    for event in answer:
        if event.type == "message_start":
            prompt = prompt_tokens(event.message.usage)
        elif event.type == "content_block_delta":
            seen["text"] += event.delta.text
        elif event.type == "message_delta":
            seen["finish"] = event.delta.stop_reason
            seen["tokens"] = [prompt, event.usage.output_tokens]


def code(error):
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    return inner.get("code") if isinstance(inner, dict) else None


def tell(story):
    seen = {"text": "", "finish": None, "tokens": None, "error": None}
    try:
        OPERATIONS[story["operation"]](story, seen)
    except Exception as error:
        kind = next((kind for kind in CLASSES if isinstance(error, kind)), type(error))
        seen["error"] = [kind.__name__, getattr(error, "status_code", None), code(error)]
    return seen


OPERATIONS = {"messages": messages}

print(json.dumps([tell(story) for story in setup["stories"]]))
