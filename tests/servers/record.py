#!/usr/bin/env python3
"""Records the answers of a real inference server, with the tokens that the gateway must charge for each.

    record.py vllm|transformers|llamacpp FOLDER [--into STREAMS] [--only WORD]

FOLDER is where install.sh has installed the server. The server listens on 127.0.0.1 only, and ends with this script.
Each answer is written to STREAMS (by default `streams` next to this script) as NAME.sse or NAME.body, byte for byte,
except that random ids are replaced by numbers of the same length. NAME.json says what was asked, and what it costs.
The cost is checked against the server's own counters before it is written, where the server has any.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CONTEXT = 4096

# Positions in the vocabulary of make_models.py.
END, END_OF_THINKING = "1", "4"

# The fields that the gateway adds to a streamed call, by kind of upstream.
ADDED = {
    "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "llamacpp": {"stream_options": {"include_usage": True}, "timings_per_token": True},
    "openai": {"stream_options": {"include_usage": True}},
}

PATHS = {
    operation: "/v1/" + operation
    for operation in ("chat/completions", "completions", "responses", "messages", "embeddings")
}


class Server:
    """A server process of this script, and its URL."""

    def __init__(self, command, folder, port, ready="/health", stdin=None):
        self.port = port
        self.log = open(folder / "server.log", "wb")
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(folder / "libraries"),
            "PATH": f"{folder / 'python' / 'bin'}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "2",
        }
        self.process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder / "models",
            env=environment,
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE if port is None else self.log,
            stderr=self.log,
            start_new_session=True,
        )
        try:
            if port is None:
                self.port = int(self.process.stdout.readline().decode().strip().rsplit(":", 1)[1])
            self.wait(ready)
        except BaseException:
            self.stop()
            raise

    def wait(self, ready):
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"The server ended unexpectedly: see {self.log.name}.")
            try:
                if self.call("GET", ready)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.5)
        raise SystemExit(f"The server isn't ready after 5 minutes: see {self.log.name}.")

    def call(self, method, path, body=None):
        """Returns the status and the whole body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        headers = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def counters(self, names):
        """Returns the server's own counters, by their names in /metrics."""
        sums = dict.fromkeys(names, 0)
        for line in self.call("GET", "/metrics")[1].decode().splitlines():
            match = re.fullmatch(r"([a-z_:]+)(?:\{.*\})? ([0-9.e+]+)", line)
            if match and match[1] in sums:
                sums[match[1]] += round(float(match[2]))
        return sums

    def stop(self):
        """Stops the processes that this script started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.log.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


ID = re.compile(rb'"(?:id|item_id|call_id|tool_call_id|tool_use_id|response_id|request_id|signature)": ?"([^"]+)"')


def without_ids(body):
    """Replaces random ids with numbers of the same length. The same id always gets the same number."""
    found = []
    for name in ID.findall(body):
        random = re.sub(rb"^(?:[a-z]+[-_])*", b"", name)
        if len(random) >= 6 and re.search(rb"[0-9A-Z]", random) and random not in found:
            found.append(random)
    for number, random in enumerate(found, 1):
        zeros = re.sub(rb"[0-9A-Za-z+/=]", b"0", random)
        digits = b"%d" % number
        body = body.replace(random, zeros[: -len(digits)] + digits)
    return body


def events(body):
    """Returns the JSON of each event of a stream."""
    found = []
    for block in re.split(rb"\r?\n\r?\n", body):
        lines = [line[5:].strip() for line in block.splitlines() if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data and data != b"[DONE]":
            found.append(json.loads(data))
    return found


def cached_of(details):
    return (details or {}).get("cached_tokens")


def of_usage(usage):
    """Returns the prompt, completion and cached tokens of a usage in any format."""
    if "prompt_tokens" in usage:
        cached = cached_of(usage.get("prompt_tokens_details"))
        return usage["prompt_tokens"], usage.get("completion_tokens", 0), cached
    if "total_tokens" in usage:
        return usage["input_tokens"], usage["output_tokens"], cached_of(usage.get("input_tokens_details"))
    read, made = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    return usage["input_tokens"] + (read or 0) + (made or 0), usage["output_tokens"], read


def counts(operation, is_stream, body):
    """Returns the prompt, completion and cached tokens that the whole answer reports."""
    if not is_stream:
        return of_usage(json.loads(body)["usage"])
    found = events(body)
    if operation == "responses":
        return of_usage(found[-1]["response"]["usage"])
    if operation == "messages":
        start = next(event["message"]["usage"] for event in found if event["type"] == "message_start")
        last = next(event["usage"] for event in reversed(found) if event["type"] == "message_delta")
        # The first event reports the counts that the last usage omits.
        return of_usage(start | {name: value for name, value in last.items() if value is not None})
    with_usage = [event for event in found if event.get("usage")]
    totals = [event for event in with_usage if not event["choices"]] or with_usage[-1:]
    # llama.cpp sends a usage for each choice.
    usages = [of_usage(event["usage"]) for event in totals]
    return usages[0][0], sum(usage[1] for usage in usages), usages[0][2]


def running(kind, found):
    """Returns prompt and completion tokens, and the cached ones if known, from the counts next to the text.

    They are None where no event has counts, or where text came after the last of them.
    """
    prompts, completions, cached = {}, {}, None
    for event in found:
        if kind == "llamacpp" and event.get("timings"):
            # The chunk with a choice's usage has no index. It repeats the counts of the choice's last text.
            timings, choices = event["timings"], event.get("choices", [{}])
            prompts[0] = timings["cache_n"] + timings["prompt_n"]
            cached = timings["cache_n"]
            if choices:
                completions[choices[0].get("index", 0)] = timings["predicted_n"]
        elif event.get("usage") and event.get("choices"):
            index = event["choices"][0]["index"]
            prompts[index] = event["usage"]["prompt_tokens"]
            completions[index] = event["usage"]["completion_tokens"]
    return prompts, completions, cached


class Recorder:
    """Sends calls to one server, and writes the answers."""

    def __init__(self, server, kind, source, how, into, only):
        self.server, self.kind, self.source, self.how = server, kind, source, how
        self.into, self.only = into, only

    def check(self, before, expected):
        """Stops if the server's own counters don't match the reported usage."""
        names = list(before)
        for _ in range(50):
            after = self.server.counters(names)
            grown = {name: after[name] - before[name] for name in names}
            if grown == expected:
                return
            time.sleep(0.1)
        raise SystemExit(f"The counters increased by {grown}, expected {expected}.")

    def record(self, name, operation, request, *, stream=False, n=1, because=""):
        """Sends one call that requests `n` answers to each prompt."""
        if self.only and self.only not in name:
            return None
        request = {"model": "tiny", **request}
        sent = dict(request)
        if stream:
            request["stream"] = sent["stream"] = True
            added = {} if operation == "messages" else dict(ADDED[self.kind])
            if operation == "responses":
                added.pop("stream_options", None)
            sent |= added
        names = {
            "vllm": ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"],
            "llamacpp": ["llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"],
        }.get(self.kind, [])
        before = self.server.counters(names) if names else {}
        status, body = self.server.call("POST", PATHS[operation], sent)
        if status != 200:
            raise SystemExit(f"{name}: status {status}: {body.decode()[:500]}")
        prompt, completion, cached = counts(operation, stream, body)
        why = f"The server's own usage: {prompt} and {completion}."
        if self.kind == "vllm":
            # vLLM counts a prompt once per answer.
            self.check(before, dict(zip(names, (prompt * n, completion), strict=True)))
            why += f" Its counter of generated tokens grew by {completion}, that of prompt tokens by {prompt * n}"
            why += f" ({n} answers to each prompt)." if n > 1 else "."
        elif self.kind == "llamacpp" and operation != "embeddings":
            # llama.cpp's counter of prompt tokens excludes cached tokens.
            after = self.server.counters(names)
            why += f" Its counter of generated tokens grew by {after[names[1]] - before[names[1]]}"
            why += f", that of prompt tokens (without cached ones) by {after[names[0]] - before[names[0]]}."
        body = without_ids(body)
        charged = charge(prompt, completion, cached)
        self.write(name, operation, request, body, stream, "complete", charged, (why + " " + because).strip())
        return body

    def write(self, name, operation, request, body, stream, end, charged, because, near=None):
        (self.into / f"{name}.{'sse' if stream else 'body'}").write_bytes(body)
        about = {
            "source": self.source,
            "how": self.how if end == "complete" else self.how + ", then cut between two events",
            "kind": self.kind,
            "operation": operation,
            "request": request,
            "stream": stream,
            "context": CONTEXT,
            "end": end,
            "charged": charged,
            **({"near": near} if near else {}),
            "because": because,
        }
        (self.into / f"{name}.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")
        print(f"{name}: {charged}", flush=True)

    def cut(self, name, part=0.5, after=None, suffix="cut"):
        """Writes the first events of a recorded stream as a stream that was cut: a part of them, or all up to the first
        that holds some bytes."""
        if self.only and self.only not in name:
            return
        about = json.loads((self.into / f"{name}.json").read_text())
        body = (self.into / f"{name}.sse").read_bytes()
        separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
        blocks = body.split(separator)[:-1]
        kept = max(2, round(len(blocks) * part))
        if after:
            kept = 1 + next(place for place, block in enumerate(blocks) if after in block)
        body = b"".join(block + separator for block in blocks[:kept])
        prompt = completion = cached = None
        found = events(body)
        if about["operation"] != "messages":
            prompts, completions, cached = running(self.kind, found)
            if completions:
                choices = about["request"].get("n", 1)
                prompt = sum({index // choices: tokens for index, tokens in prompts.items()}.values())
                completion = sum(completions.values())
        else:
            start = next(event["message"]["usage"] for event in found if event["type"] == "message_start")
            prompt, _, cached = of_usage(start)
        if completion is None:
            because = "Cut while no count of the answer had come: its tokens are estimated by its text."
        else:
            because = f"Cut after the running counts {prompt} and {completion}."
            if self.kind == "vllm":
                because += " Cached tokens come in the last chunk only, so they are unknown."
        estimated = completion is None or self.kind == "vllm"
        charged = charge(prompt, completion, cached, estimated)
        right = {
            "prompt_tokens": words(about["request"]) + 3,
            "completion_tokens": sum(has_text(event) for event in found),
        }
        near = {member: right[member] for member in right if charged[member] is None}
        operation, request = about["operation"], about["request"]
        self.write(f"{name}_{suffix}", operation, request, body, True, "cut", charged, because, near)


def words(request):
    """Returns the number of words in a request's prompt. Each word is a token of the tiny models."""
    text = request.get("input") or request.get("prompt") or request["messages"][0]["content"]
    return len(text.split())


def has_text(event):
    """Returns whether an event has text, which is then one token."""
    kind = event.get("type", "")
    if kind == "content_block_delta" or kind.endswith(".delta"):
        return True
    choices = event.get("choices") or []
    return any(text for choice in choices for name, text in (choice.get("delta") or {}).items() if name != "role")


def charge(prompt, completion, cached, estimated=False):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cached_prompt_tokens": cached,
        "estimated": estimated,
    }


def user(text):
    return [{"role": "user", "content": text}]


WEATHER = {
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}, "days": {"enum": [1, 2, 3]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TOOL = {"type": "function", "function": WEATHER}
MESSAGE_TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
# Longer than a block of the cache.
LONG = "ba be bi bo bu da de di do du fa fe fi fo fu ga ge gi go gu " * 12


def record_vllm(folder, into, only):
    common = ["vllm", "serve", "tiny", "--served-model-name", "tiny", "--host", "127.0.0.1"]
    common += ["--max-model-len", CONTEXT, "--enforce-eager", "--dtype", "float32", "--max-num-seqs", 8]
    version = subprocess.run(
        [folder / "python" / "bin" / "python", "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()

    def serve(*options):
        port = free_port()
        command = [folder / "python" / "bin" / common[0], *common[1:], "--port", port, *options]
        return Server(command, folder, port)

    def recorder(server):
        return Recorder(server, "vllm", f"vLLM {version}", "recorded by tests/servers/record.py vllm", into, only)

    server = serve("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    try:
        record_vllm_plainly(recorder(server))
    finally:
        server.stop()
    server = serve("--reasoning-parser", "deepseek_r1", "--enable-prompt-tokens-details")
    try:
        record_vllm_reasoning(recorder(server))
    finally:
        server.stop()
    server = serve("--runner", "pooling", "--convert", "embed")
    try:
        record = recorder(server).record
        record("vllm_embeddings", "embeddings", {"input": "bo la ki"})
        record("vllm_embeddings_list", "embeddings", {"input": ["bo la ki", "de fa"]})
        record("vllm_embeddings_tokens", "embeddings", {"input": [[270, 271, 272], [280, 281]]})
    finally:
        server.stop()


def record_vllm_plainly(to):
    record = to.record
    hello = user("bo la ki")
    for stream, end in ((False, "plain"), (True, "stream")):
        record(f"vllm_chat_{end}", "chat/completions", {"messages": hello, "max_tokens": 16, "seed": 1}, stream=stream)
        record(
            f"vllm_chat_n2_{end}",
            "chat/completions",
            {"messages": hello, "n": 2, "max_tokens": 12, "seed": 2},
            stream=stream,
            n=2,
        )
        record(
            f"vllm_chat_stop_text_{end}",
            "chat/completions",
            {"messages": hello, "stop": ["zo", "to"], "max_tokens": 200, "seed": 3},
            stream=stream,
            because="The token of the stop text counts, though it isn't sent.",
        )
        record(
            f"vllm_chat_end_{end}",
            "chat/completions",
            {"messages": hello, "logit_bias": {END: 7}, "max_tokens": 200, "seed": 4},
            stream=stream,
            because="The token that ends the answer counts, though it isn't sent.",
        )
        record(
            f"vllm_chat_tool_named_{end}",
            "chat/completions",
            {"messages": hello, "tools": [TOOL], "tool_choice": NAMED, "max_tokens": 100, "seed": 5},
            stream=stream,
        )
        record(
            f"vllm_chat_tool_required_{end}",
            "chat/completions",
            {"messages": hello, "tools": [TOOL], "tool_choice": "required", "max_tokens": 100, "seed": 6},
            stream=stream,
        )
        record(
            f"vllm_completions_{end}", "completions", {"prompt": "bo la ki", "max_tokens": 16, "seed": 1}, stream=stream
        )
        record(
            f"vllm_completions_list_n2_{end}",
            "completions",
            {"prompt": ["bo la ki", "de"], "n": 2, "max_tokens": 5, "seed": 1},
            stream=stream,
            n=2,
            because="Each prompt counts once, each answer for itself.",
        )
        record(f"vllm_responses_{end}", "responses", {"input": "bo la ki", "max_output_tokens": 12}, stream=stream)
        record(f"vllm_messages_{end}", "messages", {"messages": hello, "max_tokens": 14}, stream=stream)
    record(
        "vllm_chat_one_token_stream", "chat/completions", {"messages": hello, "max_tokens": 1, "seed": 1}, stream=True
    )
    record(
        "vllm_chat_logprobs_stream",
        "chat/completions",
        {"messages": hello, "logprobs": True, "top_logprobs": 2, "max_tokens": 6, "seed": 1},
        stream=True,
    )
    record(
        "vllm_chat_schema_stream",
        "chat/completions",
        {
            "messages": hello,
            "max_tokens": 60,
            "seed": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER["parameters"]}},
        },
        stream=True,
    )
    record(
        "vllm_completions_tokens_stream", "completions", {"prompt": [270, 271, 272, 273], "max_tokens": 8}, stream=True
    )
    record("vllm_completions_echo_plain", "completions", {"prompt": "bo la ki", "echo": True, "max_tokens": 3})
    record(
        "vllm_completions_echo_stream",
        "completions",
        {"prompt": "bo la ki", "echo": True, "max_tokens": 6},
        stream=True,
        because="The text of the prompt, which is echoed, is no completion.",
    )
    for name in ("chat", "chat_n2", "completions", "completions_list_n2", "messages", "responses", "chat_tool_named"):
        to.cut(f"vllm_{name}_stream")


def record_vllm_reasoning(to):
    record = to.record
    hello = user("bo la ki")
    reasoning = {"messages": hello, "logit_bias": {END_OF_THINKING: 7.5}, "max_tokens": 30, "seed": 3}
    for stream, end in ((False, "plain"), (True, "stream")):
        record(f"vllm_chat_reasoning_{end}", "chat/completions", reasoning, stream=stream)
        record(
            f"vllm_chat_reasoning_hidden_{end}",
            "chat/completions",
            reasoning | {"include_reasoning": False, "logit_bias": {END_OF_THINKING: 4.7}, "max_tokens": 150},
            stream=stream,
            because="The hidden reasoning is generated, so it counts.",
        )
        record(
            f"vllm_responses_reasoning_{end}",
            "responses",
            {"input": "bo la ki", "max_output_tokens": 30, "logit_bias": {END_OF_THINKING: 7.5}},
            stream=stream,
        )
    record(
        "vllm_chat_reasoning_only_stream",
        "chat/completions",
        {"messages": hello, "max_tokens": 16, "seed": 1},
        stream=True,
        because="The limit ended the answer within its reasoning.",
    )
    record("vllm_messages_thinking_stream", "messages", {"messages": hello, "max_tokens": 24}, stream=True)
    long = user(LONG)
    # The first call fills the cache.
    record("vllm_chat_cache_filled_plain", "chat/completions", {"messages": long, "max_tokens": 2})
    for stream, end in ((False, "plain"), (True, "stream")):
        record(
            f"vllm_chat_cached_{end}",
            "chat/completions",
            {"messages": long, "max_tokens": 12, "seed": 1},
            stream=stream,
        )
        record(f"vllm_messages_cached_{end}", "messages", {"messages": long, "max_tokens": 10}, stream=stream)
        record(f"vllm_responses_cached_{end}", "responses", {"input": LONG, "max_output_tokens": 10}, stream=stream)
    record(
        "vllm_chat_cached_n2_stream",
        "chat/completions",
        {"messages": long, "n": 2, "max_tokens": 5, "seed": 1},
        stream=True,
        n=2,
    )
    for name in ("chat_reasoning", "chat_cached", "messages_cached"):
        to.cut(f"vllm_{name}_stream")
    to.cut("vllm_chat_reasoning_hidden_stream", after=b'"content":" ')


def record_transformers(folder, into, only):
    python = folder / "python" / "bin" / "python"
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('transformers'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    port = free_port()
    command = [
        folder / "python" / "bin" / "transformers",
        "serve",
        "tiny",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--device",
        "cpu",
    ]
    server = Server(command, folder, port)
    how = "recorded by tests/servers/record.py transformers"
    to = Recorder(server, "openai", f"transformers {version}", how, into, only)
    hello = user("bo la ki")
    try:
        for stream, end in ((False, "plain"), (True, "stream")):
            to.record(
                f"transformers_chat_{end}",
                "chat/completions",
                {"messages": hello, "max_tokens": 16, "stream": stream},
                stream=stream,
            )
            to.record(
                f"transformers_completions_{end}",
                "completions",
                {"prompt": "bo la ki", "max_tokens": 10, "stream": stream},
                stream=stream,
            )
            to.record(
                f"transformers_responses_{end}",
                "responses",
                {"input": "bo la ki", "max_output_tokens": 10, "stream": stream},
                stream=stream,
            )
        to.cut("transformers_chat_stream")
    finally:
        server.stop()


def record_llamacpp(folder, into, only):
    python = folder / "python" / "bin" / "python"
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('xllamacpp'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()

    def serve(*options):
        command = [python, HERE.parent / "llamacpp" / "serve.py", "tiny.gguf", *options]
        return Server(command, folder, None, stdin=subprocess.PIPE)

    def recorder(server):
        how = "recorded by tests/servers/record.py llamacpp"
        return Recorder(server, "llamacpp", f"llama.cpp (xllamacpp {version})", how, into, only)

    server = serve()
    try:
        record_llamacpp_texts(recorder(server))
    finally:
        server.stop()
    server = serve("--embeddings")
    try:
        record = recorder(server).record
        record("llamacpp_embeddings", "embeddings", {"input": "bo la ki"})
        record("llamacpp_embeddings_list", "embeddings", {"input": ["bo la ki", "de fa"]})
    finally:
        server.stop()


def record_llamacpp_texts(to):
    record = to.record
    hello = user("bo la ki")
    for stream, end in ((False, "plain"), (True, "stream")):
        fresh = {"cache_prompt": False}
        record(
            f"llamacpp_chat_{end}",
            "chat/completions",
            {"messages": hello, "max_tokens": 16, "seed": 1} | fresh,
            stream=stream,
        )
        record(
            f"llamacpp_chat_stop_text_{end}",
            "chat/completions",
            {"messages": hello, "stop": [" zi", " mo", "do"], "max_tokens": 200, "seed": 3} | fresh,
            stream=stream,
        )
        record(
            f"llamacpp_chat_tool_required_{end}",
            "chat/completions",
            {"messages": hello, "tools": [TOOL], "tool_choice": "required", "max_tokens": 60, "seed": 6} | fresh,
            stream=stream,
        )
        record(
            f"llamacpp_completions_{end}",
            "completions",
            {"prompt": "bo la ki", "max_tokens": 12, "seed": 1} | fresh,
            stream=stream,
        )
        record(
            f"llamacpp_messages_{end}",
            "messages",
            {"messages": hello, "max_tokens": 12, "seed": 1} | fresh,
            stream=stream,
        )
        record(
            f"llamacpp_responses_{end}",
            "responses",
            {"input": "bo la ki", "max_output_tokens": 12, "seed": 1} | fresh,
            stream=stream,
        )
    long = user(LONG)
    to.server.call("POST", "/v1/chat/completions", {"model": "tiny", "messages": long, "max_tokens": 2})
    for stream, end in ((False, "plain"), (True, "stream")):
        record(
            f"llamacpp_chat_cached_{end}",
            "chat/completions",
            {"messages": long, "max_tokens": 10, "seed": 1},
            stream=stream,
        )
        record(
            f"llamacpp_messages_cached_{end}",
            "messages",
            {"messages": long, "max_tokens": 10, "seed": 1},
            stream=stream,
        )
    for name in ("chat", "chat_cached", "completions", "messages", "responses"):
        to.cut(f"llamacpp_{name}_stream")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("server", choices=("vllm", "transformers", "llamacpp"))
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--into", type=pathlib.Path, default=HERE / "streams")
    arguments.add_argument("--only", help="record only what has this word in its name")
    given = arguments.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    record = {"vllm": record_vllm, "transformers": record_transformers, "llamacpp": record_llamacpp}[given.server]
    record(given.folder.resolve(), given.into.resolve(), given.only)


if __name__ == "__main__":
    sys.exit(main())
