"""Makes calls with the official OpenAI SDK, without retries, and prints what a program sees of each.

The one argument is a JSON object: base_url, key, and stories, each with its operation, its model, and whether the
answer is a stream. Prints a JSON array with an object for each story: the text; the finish reason; the tokens of the
prompt and of the answer, or null; the error as its class, status and code, or null. What came before an error counts.
"""

import json
import sys

import openai

setup = json.loads(sys.argv[1])
client = openai.OpenAI(api_key=setup["key"], base_url=setup["base_url"], max_retries=0, timeout=30)

# The classes that programs catch; newer versions of the SDK may raise narrower ones.
CLASSES = (openai.BadRequestError, openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError,
           openai.RateLimitError, openai.InternalServerError, openai.APIStatusError, openai.APIConnectionError,
           openai.APIError)


def options(story):
    return {"stream_options": {"include_usage": True}} if story["stream"] else {}


def parts(story, answer):
    return answer if story["stream"] else [answer]


def count(seen, usage):
    if usage:
        seen["tokens"] = [usage.prompt_tokens, usage.completion_tokens]


def chat(story, seen):
    hello = [{"role": "user", "content": "hi there"}]
    answer = client.chat.completions.create(model=story["model"], messages=hello, max_tokens=16, temperature=0,
                                            stream=story["stream"], **options(story))
    for part in parts(story, answer):
        for choice in part.choices:
            said = choice.delta if story["stream"] else choice.message
            seen["text"] += said.content or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
        count(seen, part.usage)


def completions(story, seen):
    answer = client.completions.create(model=story["model"], prompt="hi there", max_tokens=16, temperature=0,
                                       stream=story["stream"], **options(story))
    for part in parts(story, answer):
        for choice in part.choices:
            seen["text"] += choice.text or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
        count(seen, part.usage)


def responses(story, seen):
    def end(response):
        seen["finish"] = response.status
        if response.usage:
            seen["tokens"] = [response.usage.input_tokens, response.usage.output_tokens]

    answer = client.responses.create(model=story["model"], input="hi there", max_output_tokens=16, temperature=0,
                                     stream=story["stream"])
    if not story["stream"]:
        seen["text"] = answer.output_text
        return end(answer)
    for event in answer:
        if event.type == "response.output_text.delta":
            seen["text"] += event.delta
        elif event.type in ("response.completed", "response.incomplete"):
            end(event.response)


def tell(story):
    seen = {"text": "", "finish": None, "tokens": None, "error": None}
    try:
        OPERATIONS[story["operation"]](story, seen)
    except Exception as error:
        kind = next((kind for kind in CLASSES if isinstance(error, kind)), type(error))
        seen["error"] = [kind.__name__, getattr(error, "status_code", None), getattr(error, "code", None)]
    return seen


OPERATIONS = {"chat": chat, "completions": completions, "responses": responses}

print(json.dumps([tell(story) for story in setup["stories"]]))
