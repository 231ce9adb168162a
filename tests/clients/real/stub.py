"""An inference server that answers in the formats of OpenAI and Anthropic, and counts its answers.

The answer is TEXT by default. If a user asks for the note, and the call offers a tool that can read files, the stub
calls this tool once, and then repeats the word in the result. An answer with the word shows that the tool ran and that
its result was sent.
"""

import collections
import http.server
import itertools
import json
import re
import sys
import threading

TEXT = "Hello from the tollbooth."
NOTE = "note.txt"
ASKED = f"read the file {NOTE}"
# The word in the note. The harness writes it, and the stub knows only its format.
WORD = re.compile(r"word-[0-9a-f]{8}")
# The names of tools that run a command, read a file, or belong to the programs here, in order of preference.
TOOLS = ("exec_command", "shell_command", "shell", "Bash", "bash", "run_shell_command", "read_note", "Note", "Read",
         "read", "read_file")
VECTOR = [0.25, -0.5, 0.75, 1.0]

Tokens = collections.namedtuple("Tokens", "prompt completion")
# A call: its operation and model, the maximum length of the answer, whether a tool was called, and its tokens.
Call = collections.namedtuple("Call", "operation model limit asked_tool tokens")


class Server(http.server.ThreadingHTTPServer):
    """A server on an unused port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *about):
        # Clients may close connections at any time.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*about)

    def stop(self):
        self.shutdown()
        self.server_close()


class Stub:
    """A server, and the calls that it has answered."""

    def __init__(self):
        self.calls, self.numbers, self.lock = [], itertools.count(1), threading.Lock()
        self.server = Server(type("Handler", (Handler,), {"stub": self}))
        self.url, self.stop = f"http://127.0.0.1:{self.server.server_port}/v1", self.server.stop

    def begin(self, call):
        """Records a call, and returns its number."""
        with self.lock:
            self.calls.append(call)
            return next(self.numbers)

    def total(self):
        """Returns the number of answered calls, and the sum of their tokens."""
        with self.lock:
            calls = list(self.calls)
        return len(calls), Tokens(sum(one.tokens.prompt for one in calls), sum(one.tokens.completion for one in calls))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_json({"object": "list", "data": [{"id": "stub", "object": "model", "max_model_len": 200_000}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        operation = self.path.split("?")[0].removeprefix("/v1/")
        answer = ANSWERS.get(operation)
        if not answer:
            self.send_json({"error": {"message": "There is no such path.", "code": 404}}, 404)
            return
        plan = Plan(operation, body)
        number = self.stub.begin(Call(operation, body.get("model"), plan.limit, bool(plan.tool), plan.tokens))
        whole, events = answer(plan, number)
        if body.get("stream"):
            self.send_events(events, operation)
        else:
            self.send_json(whole)

    def send_json(self, value, status=200):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def send_events(self, events, operation):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            name = f"event: {event['type']}\n" if operation in ("responses", "messages") else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if operation == "chat/completions":
            self.wfile.write(b"data: [DONE]\n\n")


class Plan:
    """The answer to a request: a text or a tool call, and the tokens."""

    def __init__(self, operation, body):
        self.body, self.operation = body, operation
        self.model = body.get("model")
        self.limit = next((body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
                           if body.get(name) is not None), None)
        self.tool = self.arguments = None
        self.text = TEXT
        if operation != "embeddings":
            self.decide(body.get("messages") or body.get("input"))
        said = json.dumps(self.arguments) if self.tool else self.text
        # The counts of the stub: a prompt token for every four bytes of the body, and a completion token for each word
        # of the answer.
        prompt = len(json.dumps(body)) // 4
        self.tokens = Tokens(prompt, 0 if operation == "embeddings" else len(said.split()))

    def decide(self, turns):
        if isinstance(turns, str):
            turns = [{"role": "user", "content": turns}]
        last_words = max((at for at, turn in enumerate(turns) if ASKED in words_of(turn)), default=None)
        result = max((at for at, turn in enumerate(turns) if is_result(turn)), default=-1)
        if last_words is None:
            return
        if result > last_words:
            found = WORD.search(json.dumps(turns[result]))
            self.text = f"The note says {found[0] if found else 'nothing'}."
            return
        offered = dict(tools_of(self.body.get("tools") or []))
        self.tool = next((name for name in TOOLS if name in offered), None)
        if self.tool:
            self.arguments = arguments_for(offered[self.tool])


def words_of(turn):
    """Returns the text of the user in this turn."""
    if turn.get("role") != "user":
        return ""
    content = turn.get("content")
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def is_result(turn):
    if turn.get("role") == "tool" or turn.get("type") == "function_call_output":
        return True
    content = turn.get("content")
    return isinstance(content, list) and any(part.get("type") == "tool_result" for part in content)


def tools_of(tools):
    """Yields the name and the schema of each tool, in any of the three formats."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from tools_of(tool.get("tools", []))
        elif "function" in tool:
            yield tool["function"]["name"], tool["function"].get("parameters", {})
        elif "name" in tool:
            yield tool["name"], tool.get("parameters") or tool.get("input_schema") or {}


def arguments_for(schema):
    """Returns arguments that read the note. Other required arguments get the simplest value of their type."""
    arguments = {}
    properties = schema.get("properties", {})
    for name, one in properties.items():
        if name in ("command", "cmd"):
            arguments[name] = f"cat {NOTE}" if one.get("type") != "array" else ["cat", NOTE]
        elif name in ("path", "file_path", "filePath", "filepath"):
            arguments[name] = NOTE
        elif name in schema.get("required", []):
            arguments[name] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}.get(
                one.get("type"), "Read the note")
    return arguments


def pieces(text):
    return re.findall(r"\s*\S+", text)


def chat(plan, number):
    base = {"id": f"chatcmpl-{number}", "created": 1700000000, "model": plan.model}
    usage = {"prompt_tokens": plan.tokens.prompt, "completion_tokens": plan.tokens.completion,
             "total_tokens": sum(plan.tokens), "prompt_tokens_details": {"cached_tokens": 0}}
    message = {"role": "assistant", "content": plan.text}
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces(plan.text))]
    end = "stop"
    if plan.tool:
        call = {"id": f"call_{number}", "type": "function",
                "function": {"name": plan.tool, "arguments": json.dumps(plan.arguments)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        deltas = [{"role": "assistant", "content": None}, {"tool_calls": [{"index": 0, **call}]}]
        end = "tool_calls"
    whole = {**base, "object": "chat.completion", "usage": usage,
             "choices": [{"index": 0, "message": message, "finish_reason": end, "logprobs": None}]}
    part = {**base, "object": "chat.completion.chunk"}
    events = [{**part, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**part, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
    if (plan.body.get("stream_options") or {}).get("include_usage"):
        events.append({**part, "choices": [], "usage": usage})
    return whole, events


def completion(plan, number):
    usage = {"prompt_tokens": plan.tokens.prompt, "completion_tokens": plan.tokens.completion,
             "total_tokens": sum(plan.tokens)}
    part = {"id": f"cmpl-{number}", "object": "text_completion", "created": 1700000000, "model": plan.model}
    whole = {**part, "choices": [{"index": 0, "text": plan.text, "finish_reason": "stop"}], "usage": usage}
    return whole, [whole]


def response(plan, number):
    usage = {"input_tokens": plan.tokens.prompt, "input_tokens_details": {"cached_tokens": 0},
             "output_tokens": plan.tokens.completion, "output_tokens_details": {"reasoning_tokens": 0},
             "total_tokens": sum(plan.tokens)}
    if plan.tool:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": plan.tool,
                "arguments": json.dumps(plan.arguments), "status": "completed"}
        empty = {**item, "arguments": "", "status": "in_progress"}
        place = {"item_id": item["id"], "output_index": 0}
        middle = [
            {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", **place, "name": plan.tool,
             "arguments": item["arguments"]},
        ]
    else:
        part = {"type": "output_text", "text": plan.text, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
        empty = {**item, "status": "in_progress", "content": []}
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        middle = [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
              for piece in pieces(plan.text)),
            {"type": "response.output_text.done", **place, "text": plan.text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    whole = {"id": f"resp_{number}", "object": "response", "created_at": 1700000000, "status": "completed",
             "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "model": plan.model,
             "output": [item], "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [],
             "top_p": 1.0, "usage": usage}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
        *middle,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [{**event, "sequence_number": at} for at, event in enumerate(events)]


def message(plan, number):
    usage = {"input_tokens": plan.tokens.prompt, "output_tokens": plan.tokens.completion}
    base = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": plan.model}
    if plan.tool:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": plan.tool, "input": plan.arguments}
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(plan.arguments)}]
        end = "tool_use"
    else:
        block = {"type": "text", "text": plan.text}
        empty = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(plan.text)]
        end = "end_turn"
    whole = {**base, "content": [block], "stop_reason": end, "stop_sequence": None, "usage": usage}
    begun = {**base, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 0}}
    events = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": end, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return whole, events


def embeddings(plan, _number):
    given = plan.body["input"]
    several = isinstance(given, list) and not (given and isinstance(given[0], int))
    vectors = [{"object": "embedding", "index": at, "embedding": VECTOR} for at in range(len(given) if several else 1)]
    usage = {"prompt_tokens": plan.tokens.prompt, "total_tokens": plan.tokens.prompt}
    return {"object": "list", "model": plan.model, "data": vectors, "usage": usage}, []


ANSWERS = {"chat/completions": chat, "completions": completion, "responses": response, "messages": message,
           "embeddings": embeddings}
