#!/usr/bin/env python3
"""Makes random calls, and compares the tokens that the gateway charges with those that a real vLLM counts.

    random_calls.py FOLDER TOLLKEEPER [--calls 2000] [--seed N] [--step-ms 20] [--only OPERATION] [--each] [--log FILE]

FOLDER is the folder in which install.sh has installed vLLM, and TOLLKEEPER is the program. This script starts both on
127.0.0.1, and stops them at its end. It uses two vLLM servers: one separates reasoning from text and reports cached tokens,
and the other one does neither. A batch has concurrent calls of one operation at one server. After each batch, the script
compares the charged tokens with the increase of the counters in /metrics:

* Completed calls, and plain calls whose client disconnected: both are equal. vLLM counts a prompt once per answer.
* Streams whose client disconnected: 98 % to 100 % of the generated tokens are charged.

The tiny model generates a token in 3 ms. A busy machine needs longer to close a connection, so dozens of tokens would be
generated without a client. Therefore each step is delayed by 20 ms, which is closer to a real model.

If completed calls differ, they are repeated one by one, and the first calls that differ are printed. At the end, the usage
report of the organization must have the same sums and the matching price.
"""

import argparse
import collections
import concurrent.futures
import decimal
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

import record

WORKERS = 8
LEAST_OF_LEFT = decimal.Decimal("0.98")
SERVICE_TOKEN = "svc_of-the-random-calls"
PASSWORD = "Analytical-Engine-1843"

CHAT, COMPLETIONS, RESPONSES, MESSAGES = OPERATIONS = ("chat/completions", "completions", "responses", "messages")
# The share of each operation, and the share of streams, in percent.
WEIGHTS = (40, 26, 17, 17)
STREAMS = 60
# Clients abandon one in this number of streams and of plain calls.
STREAMS_LEFT, PLAIN_LEFT = 3, 10

PROMPT_TOKENS, GENERATED_TOKENS = NAMES = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")

SERVERS = {
    "plain": [],
    "reasoning": ["--reasoning-parser", "deepseek_r1", "--enable-prompt-tokens-details"],
}
# The model's maximum number of tokens per answer for calls without a limit: the whole context, or few.
LENGTHS = {"whole": record.CONTEXT, "short": 60}
PRICES = {"prompt_tokens": "0.000002", "completion_tokens": "0.000006"}
CACHED_PRICE = "0.0000005"

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
ENDS_BY_ITSELF = 7
ENDS_REASONING = 7.5

# Delays each step of the model.
SLOW_STEPS = """
import os
import time

from vllm.v1.sample.logits_processor import LogitsProcessor


class SlowSteps(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.seconds = int(os.environ["STEP_MS"]) / 1000

    def apply(self, logits):
        time.sleep(self.seconds)
        return logits

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass
"""

Call = collections.namedtuple("Call", "operation server body answers stream leave")
Charged = collections.namedtuple("Charged", "call_id model prompt cached completion estimated ended")


def model_name(server, length, answers):
    """Returns a name with the number of requested answers. The log has the model of every call, even of an abandoned one."""
    return f"{server}-{length}-{answers}"


def answers_of(model):
    return int(model.rsplit("-", 1)[1])


class Calls:
    """Generates random calls."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # Shared prefixes, which are longer than a block of the cache.
        self.long = [self.text(120 + 90 * number) for number in range(4)]

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def text(self, syllables):
        words = [self.random.choice(SYLLABLES) for _ in range(syllables)]
        return "".join(word + self.random.choice(["", " ", " ", ", "]) for word in words)

    def prompt(self):
        own = self.text(self.random.randint(1, 40))
        if self.chance(35):
            return self.random.choice(self.long) + own
        return own

    def turns(self):
        """Returns the messages of a conversation."""
        turns = [{"role": "user", "content": self.prompt()}]
        while self.chance(25):
            turns += [{"role": "assistant", "content": self.text(8)}, {"role": "user", "content": self.text(8)}]
        return turns

    def call(self, operation, server, stream, is_left):
        limit = self.random.randint(1, 120 if self.chance(15) else 40) if self.chance(75) else None
        if limit and is_left:
            # The answer is long enough to be abandoned.
            limit = 5 * limit
        body, answers, ends = getattr(self, {
            CHAT: "chat", COMPLETIONS: "completion", RESPONSES: "response", MESSAGES: "message"
        }[operation])(server, limit)
        if self.chance(30):
            # vLLM refuses several answers at temperature 0.
            body["temperature"] = self.random.choice([0.0 if answers == 1 else 0.2, 0.5, 1.3])
        # At temperature 0, an answer without a limit would fill the whole context, because the likeliest token never
        # ends it.
        ends = ends and body.get("temperature", 1) >= 0.5 and body.get("tool_choice", "auto") == "auto"
        length = "whole" if limit or ends and self.chance(70) else "short"
        body = {"model": model_name(server, length, answers), **body}
        if operation == MESSAGES and not stream and "tool_choice" in body:
            # With another tool choice, vLLM 0.32 refuses some of these calls with 400 after it has generated the whole
            # answer.
            body["tool_choice"] = {"type": "auto"}
        if stream:
            body["stream"] = True
            if operation in (CHAT, COMPLETIONS) and self.chance(50):
                options = {"include_usage": self.chance(70), "continuous_usage_stats": self.chance(30)}
                body["stream_options"] = {name: True for name, wanted in options.items() if wanted}
        return Call(operation, server, body, answers, stream, None)

    def chat(self, server, limit):
        answers = self.random.choice([1, 1, 1, 2, 3])
        body = {"messages": self.turns(), "seed": self.random.randrange(10**6)}
        if answers > 1 or self.chance(20):
            body["n"] = answers
        bias = {}
        if self.chance(50):
            bias[record.END] = ENDS_BY_ITSELF
        if server == "reasoning" and self.chance(70):
            bias[record.END_OF_THINKING] = ENDS_REASONING
        if server == "reasoning" and self.chance(35):
            body["include_reasoning"] = False
        if limit:
            body[self.random.choice(["max_tokens", "max_completion_tokens"])] = limit
        if self.chance(25):
            body["stop"] = self.random.sample(SYLLABLES, self.random.randint(1, 3))
        if self.chance(25):
            body["tools"] = [record.TOOL]
            body["tool_choice"] = self.random.choice(["auto", "auto", "required", record.NAMED])
        elif self.chance(10):
            schema = {"name": "weather", "schema": record.WEATHER["parameters"]}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.chance(15):
            body |= {"logprobs": True, "top_logprobs": 2}
        if bias:
            body["logit_bias"] = bias
        return body, answers, record.END in bias

    def completion(self, server, limit):
        answers = self.random.choice([1, 1, 1, 2, 3])
        form = self.random.choice(["text", "text", "texts", "texts", "tokens", "lists"])
        numbers = [[self.random.randint(270, 330) for _ in range(self.random.randint(1, 30))] for _ in range(3)]
        body = {
            "prompt": {
                "text": self.prompt(),
                "texts": [self.prompt() for _ in range(self.random.randint(1, 4))],
                "tokens": numbers[0],
                "lists": numbers,
            }[form],
            "seed": self.random.randrange(10**6),
        }
        if answers > 1 or self.chance(20):
            body["n"] = answers
        if limit:
            body["max_tokens"] = limit
        ends = self.chance(50)
        if ends:
            body["logit_bias"] = {record.END: ENDS_BY_ITSELF}
        if self.chance(25):
            body["stop"] = self.random.sample(SYLLABLES, self.random.randint(1, 3))
            body["include_stop_str_in_output"] = self.chance(50)
        # With both, vLLM 0.32 ends some streams with an error 500.
        extra = self.random.randrange(100)
        if extra < 15:
            body["echo"] = True
        elif extra < 30:
            body["logprobs"] = 2
        return body, answers, ends

    def response(self, server, limit):
        body = {"input": self.prompt() if self.chance(60) else self.turns()}
        if limit:
            body["max_output_tokens"] = limit
        if self.chance(20):
            body["instructions"] = self.text(10)
        bias = {}
        if self.chance(50):
            bias[record.END] = ENDS_BY_ITSELF
        if server == "reasoning" and self.chance(70):
            bias[record.END_OF_THINKING] = ENDS_REASONING
        if server == "reasoning" and self.chance(30):
            body["include_reasoning"] = False
        if self.chance(25):
            body["tools"] = [{"type": "function", **record.WEATHER}]
            named = {"type": "function", "name": record.WEATHER["name"]}
            body["tool_choice"] = self.random.choice(["auto", "auto", "required", named])
        if bias:
            body["logit_bias"] = bias
        return body, 1, record.END in bias

    def message(self, server, limit):
        body = {"messages": self.turns()}
        if limit:
            body["max_tokens"] = limit
        if self.chance(20):
            body["system"] = self.text(10)
        if self.chance(25):
            body["stop_sequences"] = self.random.sample(SYLLABLES, self.random.randint(1, 3))
        if self.chance(25):
            body["tools"] = [record.MESSAGE_TOOL]
            named = {"type": "tool", "name": record.WEATHER["name"]}
            body["tool_choice"] = self.random.choice([{"type": "auto"}, {"type": "any"}, named])
        return body, 1, False

    def leaving(self, call_bytes):
        """Returns when and how the client disconnects: after which number of bytes of the answer, or after which time."""
        first = self.random.randrange(100)
        if first < 10:
            # The client disconnects before the status arrives.
            return {"bytes": None, "after_ms": self.random.choice([0, 0, 1, 5, 20, 100]), "reset": self.chance(50)}
        after = 0 if first < 18 else self.random.randint(1, max(1, call_bytes))
        return {"bytes": after, "reset": self.chance(50), "slow": self.chance(20)}


class Tollkeeper:
    """A tollkeeper process of this script."""

    def __init__(self, program, folder, urls, log):
        self.program, self.folder, self.log_path = str(program), folder, log
        self.write_catalog(urls)
        public, service = record.free_port(), record.free_port()
        self.port, self.service_port = public, service
        self.environment = {
            "PATH": os.environ["PATH"],
            "TOLLKEEPER_DATA_DIR": str(folder / "data"),
            "TOLLKEEPER_LISTEN": f"127.0.0.1:{public}",
            "TOLLKEEPER_SERVICE_LISTEN": f"127.0.0.1:{service}",
            "TOLLKEEPER_SERVICE_TOKEN": SERVICE_TOKEN,
            "TOLLKEEPER_CATALOG_FILE": str(folder / "catalog.toml"),
            "TOLLKEEPER_LIMITS__ENABLED": "false",
            "TOLLKEEPER_LOG__FORMAT": "json",
            "TOLLKEEPER_LOG__ACCESS": "false",
        }
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [self.program, "serve"], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )
        try:
            self.read = open(log, encoding="utf-8")
            self.wait()
            self.sign_up()
        except BaseException:
            self.stop()
            raise

    def write_catalog(self, urls):
        text = 'currency = "USD"\n'
        for server, url in urls.items():
            text += f'\n[[upstreams]]\nid = "{server}"\nkind = "vllm"\nurl = "{url}"\n'
            prices = PRICES | ({"cached_prompt_tokens": CACHED_PRICE} if server == "reasoning" else {})
            price = ", ".join(f'{name} = "{amount}"' for name, amount in prices.items())
            for (length, most), answers in itertools.product(LENGTHS.items(), (1, 2, 3)):
                text += f"""
[[models]]
id = "{model_name(server, length, answers)}"
kind = "chat"
description = "Random weights"
owned_by = "tests"
created = 1704067200
context_length = {record.CONTEXT}
max_tokens = {most}
max_requests_per_min = 1000000
max_concurrent_requests = 1000
prices = [{{ effective_at = "2024-01-01T00:00:00Z", {price} }}]
routes = [{{ upstream = "{server}", model = "tiny" }}]
"""
        (self.folder / "catalog.toml").write_text(text)

    def request(self, method, path, body=None, token=None, port=None):
        """Returns the status, the headers and the whole body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=300)
        headers = {"content-type": "application/json"} if body is not None else {}
        if token:
            headers["authorization"] = f"Bearer {token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def data(self, method, path, body=None, token=None):
        status, _, content = self.request(method, path, body, token)
        if status not in (200, 201):
            raise SystemExit(f"{method} {path}: status {status}: {content.decode()[:500]}")
        return json.loads(content, parse_float=decimal.Decimal)["data"]

    def wait(self):
        for _ in range(300):
            if self.process.poll() is not None:
                raise SystemExit(f"tollkeeper ended unexpectedly: see {self.log_path}.")
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"tollkeeper isn't ready after 30 s: see {self.log_path}.")

    def sign_up(self):
        """Creates an organization with credit, and a key."""
        email = "ada@example.com"
        account = {"email": email, "password": PASSWORD}
        self.data("POST", "/v1/auth/register", account | {"username": "ada"})
        self.data("POST", "/v1/auth/verify-email", {"token": self.mailed_token()})
        self.token = self.data("POST", "/v1/auth/login", account)["access_token"]
        self.organization = self.data("POST", "/v1/organizations", {"name": "Acme"}, self.token)["id"]
        projects = f"/v1/organizations/{self.organization}/projects"
        project = self.data("POST", projects, {"name": "Shop"}, self.token)["id"]
        self.key = self.data("POST", f"{projects}/{project}/api-keys", {"name": "Checkout"}, self.token)["key"]
        command = [self.program, "credit", "add", "--organization", self.organization, "--amount", "1000000"]
        ended = subprocess.run(
            [*command, "--reference", "random calls"], cwd=self.folder, env=self.environment, capture_output=True,
            text=True, check=False,
        )
        if ended.returncode:
            raise SystemExit(f"The credit wasn't added: {ended.stderr}")

    def mailed_token(self):
        for _ in range(100):
            for mail in (self.folder / "data" / "mail").glob("*.eml"):
                found = re.search(r"^[A-Za-z0-9_-]{43}$", mail.read_text(), re.MULTILINE)
                if found:
                    return found[0]
            time.sleep(0.1)
        raise SystemExit("The mail to confirm the address didn't come.")

    def open_calls(self):
        metrics = self.request("GET", "/metrics", token=SERVICE_TOKEN, port=self.service_port)[2].decode()
        found = re.search(r"^tollkeeper_gateway_calls_open ([0-9.]+)$", metrics, re.MULTILINE)
        # The metric is missing before the first call.
        return int(float(found[1])) if found else 0

    def new_calls(self):
        """Returns the log entries of the calls that have ended since the last time."""
        found = []
        while True:
            at = self.read.tell()
            line = self.read.readline()
            if not line.endswith("\n"):
                self.read.seek(at)
                return found
            if '"model call"' in line:
                fields = json.loads(line)
                fields = fields.get("fields", fields)
                found.append(Charged(
                    fields["call_id"], fields["model"],
                    fields["prompt_tokens"], fields.get("cached_prompt_tokens") or 0, fields["completion_tokens"],
                    fields["estimated"], fields["ended"],
                ))

    def usage(self):
        """Returns the rows of the organization's usage, by model."""
        path = f"/v1/organizations/{self.organization}/billing/usage?group_by=month,model"
        return self.data("GET", path, token=self.token)["usage"]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def make(gateway, call):
    """Makes one call. Returns its status, its id and the received bytes of the body, as far as they are known."""
    path = record.PATHS[call.operation]
    if call.leave is None:
        status, headers, body = gateway.request("POST", path, call.body, gateway.key)
        return status, headers.get("x-tollkeeper-call-id"), body
    body = json.dumps(call.body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
        f"authorization: Bearer {gateway.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=300) as connection:
        if call.leave["reset"]:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(head.encode() + body)
        if call.leave["bytes"] is None:
            time.sleep(call.leave["after_ms"] / 1000)
            return None, None, b""
        return read_until(connection, call.leave["bytes"], call.leave["slow"])


def read_until(connection, most, is_slow):
    """Reads the head of an answer, and this many bytes of its body."""
    read = b""
    while b"\r\n\r\n" not in read:
        # Reads byte by byte, so that nothing of the body is consumed.
        piece = connection.recv(1)
        if not piece:
            return None, None, b""
        read += piece
    status = int(read.split(b" ", 2)[1])
    call_id = re.search(rb"(?i)^x-tollkeeper-call-id: (\S+)", read, re.MULTILINE)
    body = b""
    while len(body) < most:
        piece = connection.recv(min(2048, most - len(body)))
        if not piece:
            break
        body += piece
        if is_slow:
            time.sleep(0.003)
    return status, call_id and call_id[1].decode(), body


Row = collections.namedtuple("Row", "phase server operation calls refused charged counted")


class Comparison:
    """Makes calls, and compares their tokens."""

    def __init__(self, gateway, servers, each):
        self.gateway, self.servers, self.each = gateway, servers, each
        self.charged, self.rows, self.refusals = [], [], collections.Counter()
        self.bytes_per_token = collections.defaultdict(lambda: 200)
        self.pool = concurrent.futures.ThreadPoolExecutor(1 if each else WORKERS)

    def settled(self, server):
        """Waits until nothing is in progress. Returns the calls that ended in the meantime, and the server's counters."""
        found, quiet, before = [], 0, None
        end = time.monotonic() + 120
        while True:
            now = self.servers[server].counters(NAMES + BUSY)
            ended = self.gateway.new_calls()
            found += ended
            is_quiet = not ended and now == before and not any(now[name] for name in BUSY)
            quiet = quiet + 1 if is_quiet and not self.gateway.open_calls() else 0
            if quiet >= (2 if self.each else 4):
                return found, {name: now[name] for name in NAMES}
            if time.monotonic() > end:
                raise SystemExit(f"Calls have been in progress for 2 minutes: {now}, {self.gateway.open_calls()} calls.")
            before = now
            time.sleep(0.1)

    def batch(self, server, calls):
        """Makes calls to one server. Returns the answers, the charges, and the increase of the counters."""
        late, before = self.settled(server)
        if late:
            raise SystemExit(f"Calls ended late: {late}")
        answers = list(self.pool.map(lambda call: make(self.gateway, call), calls))
        charged, after = self.settled(server)
        self.charged += charged
        return answers, charged, {name: after[name] - before[name] for name in NAMES}

    def measure(self, operation, answers, charged):
        """Records the number of bytes per token."""
        tokens = sum(one.completion for one in charged)
        if tokens:
            self.bytes_per_token[operation] = sum(len(body) for _, _, body in answers) / tokens

    def compare(self, phase, server, operation, calls):
        answers, charged, counted = self.batch(server, calls)
        refused = 0
        for call, (status, _, body) in zip(calls, answers, strict=True):
            if status not in (None, 200):
                refused += 1
                self.refusals[f"{operation} {status} {message_of(body)}"] += 1
            elif call.leave is None and call.stream:
                check_stream(call, body)
        if phase == "completed" and calls[0].stream:
            self.measure(operation, answers, charged)
        row = Row(phase, server, operation, calls, refused, charged, counted)
        self.rows.append(row)
        return row, answers

    def find(self, row):
        """Repeats calls one by one, and prints the first ones that differ."""
        found = 0
        for call in row.calls:
            answers, charged, counted = self.batch(call.server, [call])
            again = row._replace(calls=[call], charged=charged, counted=counted)
            if differs(again):
                found += 1
                print_call(again, answers[0])
            if found == 3:
                return
        if not found:
            print("Repeated one by one, none of these calls differs.", flush=True)


def message_of(body):
    found = re.search(rb'"message": ?"((?:[^"\\]|\\.)*)"', body)
    return re.sub(r"\d+", "N", found[1].decode()[:160]) if found else body[:160].decode("utf-8", "replace")


def check_stream(call, body):
    last = record.events(body)[-1] if body else {}
    if "error" in last or last.get("type") == "error":
        raise SystemExit(f"A stream ended with an error: {json.dumps(last)}: {json.dumps(call.body)}")


def sums(rows):
    """Returns the charged and the counted tokens of prompts and of answers."""
    charged = [one for row in rows for one in row.charged]
    prompt = sum(one.prompt * answers_of(one.model) for one in charged)
    counted = [sum(row.counted[name] for row in rows) for name in NAMES]
    return (prompt, sum(one.completion for one in charged)), tuple(counted)


def differs(row):
    charged, counted = sums([row])
    return charged != counted


def print_call(row, answer):
    charged, counted = sums([row])
    status, call_id, body = answer
    call = row.calls[0]
    came = f"status {status}, {len(body)} bytes, {call_id}"
    print(f"{row.phase}, {row.server}: charged {charged}, counted {counted}: {came}")
    print(f"  {[tuple(one) for one in row.charged]}, leaves {call.leave}")
    print(f"  POST {record.PATHS[call.operation]} {json.dumps(call.body)}")
    print(f"  … {body[-700:].decode('utf-8', 'replace')!r}", flush=True)


def ratio(charged, counted):
    if not counted:
        return "–" if not charged else "∞"
    return f"{decimal.Decimal(charged) / counted:.5f}"


HEAD = ("phase", "server", "operation", "calls", "refused", "whole", "estim.",
        "prompt charged", "counted", "ratio", "answer charged", "counted", "ratio")


def line_of(phase, server, operation, rows):
    (prompt, completion), (counted_prompt, counted_completion) = sums(rows)
    charged = [one for row in rows for one in row.charged]
    return (
        phase, server, operation, sum(len(row.calls) for row in rows), sum(row.refused for row in rows),
        sum(one.ended == "completed" for one in charged), sum(one.estimated for one in charged),
        prompt, counted_prompt, ratio(prompt, counted_prompt),
        completion, counted_completion, ratio(completion, counted_completion),
    )


def print_table(rows):
    lines = [HEAD]
    for phase in dict.fromkeys(row.phase for row in rows):
        of_phase = [row for row in rows if row.phase == phase]
        for server, operation in itertools.product(SERVERS, OPERATIONS):
            some = [row for row in of_phase if (row.server, row.operation) == (server, operation)]
            if some:
                lines.append(line_of(phase, server, operation, some))
        lines.append(line_of(phase, "both", "all", of_phase))
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(HEAD))]
    for line in lines:
        cells = (str(cell).ljust(width) if column < 3 else str(cell).rjust(width)
                 for column, (cell, width) in enumerate(zip(line, widths, strict=True)))
        print("  ".join(cells).rstrip())


def plan(calls, count, only):
    """Yields batches: the phase, whether calls are streams, the server, the operation, and the number of calls."""
    operations = [only] if only else OPERATIONS
    weights = [100] if only else WEIGHTS
    numbers = collections.Counter()
    for number in range(count):
        operation = calls.random.choices(operations, weights)[0]
        server = calls.random.choice(list(SERVERS))
        stream = calls.chance(STREAMS)
        is_left = number % (STREAMS_LEFT if stream else PLAIN_LEFT) == 0
        phase = ("left" if stream else "left, plain") if is_left else "completed"
        numbers[phase, stream, server, operation] += 1
    # Completed streams come first, because they show the number of bytes per token.
    order = {"completed": 0, "left, plain": 1, "left": 2}
    return sorted(numbers.items(), key=lambda item: (order[item[0][0]], *map(str, item[0])))


def run(comparison, calls, count, only):
    differing = []
    for (phase, stream, server, operation), number in plan(calls, count, only):
        batch = []
        for _ in range(number):
            call = calls.call(operation, server, stream, phase == "left")
            if phase != "completed":
                limits = (call.body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
                tokens = next(filter(None, limits), 60) * call.answers if stream else 0
                call = call._replace(leave=calls.leaving(int(0.6 * tokens * comparison.bytes_per_token[operation])))
            batch.append(call)
        for part in ([one] for one in batch) if comparison.each else [batch]:
            row, answers = comparison.compare(phase, server, operation, part)
            if phase != "left" and differs(row):
                differing.append(row)
            if comparison.each and differs(row):
                print_call(row, answers[0])
        print(f"{phase}, {'streams' if stream else 'plain'}, {server}, {operation}: {number} calls", flush=True)
    return differing


def check_report(comparison):
    """Compares the organization's usage report and its amounts with the log. Returns the differences."""
    expected = {}
    for one in comparison.charged:
        has_cached_price = one.model.startswith("reasoning")
        cached = one.cached if has_cached_price else 0
        amount = (
            (one.prompt - cached) * decimal.Decimal(PRICES["prompt_tokens"]) + cached * decimal.Decimal(CACHED_PRICE)
            + one.completion * decimal.Decimal(PRICES["completion_tokens"])
        )
        sum_of = expected.setdefault(one.model, [0, 0, decimal.Decimal(0)])
        sum_of[0] += one.prompt
        sum_of[1] += one.completion
        sum_of[2] += amount
    reported = {}
    for row in comparison.gateway.usage():
        chat = row["chat"]
        sum_of = reported.setdefault(row["model"], [0, 0, decimal.Decimal(0)])
        sum_of[0] += chat["tokens"]["prompt"]
        sum_of[1] += chat["tokens"]["completion"]
        sum_of[2] += decimal.Decimal(chat["amount"])
    expected = {model: sum_of for model, sum_of in expected.items() if any(sum_of)}
    return [f"The report for {model} has {reported.get(model)}, but the log has {expected.get(model)}."
            for model in sorted(expected | reported) if expected.get(model) != reported.get(model)]


def start_vllm(folder, scratch, name, options, step_ms):
    """Starts a vLLM server with its own log."""
    own = scratch / name
    own.mkdir()
    for part in ("python", "libraries", "models"):
        (own / part).symlink_to(folder / part)
    port = record.free_port()
    (own / "slow_steps.py").write_text(SLOW_STEPS)
    # Two servers with more threads than processors would slow each other down.
    command = ["env", "OMP_NUM_THREADS=1", f"PYTHONPATH={own}", f"STEP_MS={step_ms}", own / "python" / "bin" / "vllm"]
    command += ["serve", "tiny", "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port]
    command += ["--max-model-len", record.CONTEXT, "--enforce-eager", "--dtype", "float32", "--max-num-seqs", 16]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", *options]
    if step_ms:
        command += ["--logits-processors", "slow_steps:SlowSteps"]
    return record.Server(command, own, port)


def verdict(comparison, differing):
    """Returns the errors, as sentences."""
    wrong = [f"{row.phase} calls of {row.operation} at the server \"{row.server}\" differ." for row in differing]
    (_, charged), (_, counted) = sums([row for row in comparison.rows if row.phase == "left"])
    if counted and not LEAST_OF_LEFT <= decimal.Decimal(charged) / counted <= 1:
        wrong.append(f"Abandoned streams are charged for {ratio(charged, counted)} of the generated tokens.")
    return wrong + check_report(comparison)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("tollkeeper", type=pathlib.Path)
    arguments.add_argument("--calls", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments.add_argument("--step-ms", type=int, default=20, help="delay of each step of the model")
    arguments.add_argument("--only", choices=OPERATIONS, help="call this operation only")
    arguments.add_argument("--each", action="store_true", help="compare after each call, and print those that differ")
    arguments.add_argument("--log", type=pathlib.Path, help="keep tollkeeper's log in this file")
    given = arguments.parse_args()
    print(f"seed {given.seed}", flush=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-random-"))
    servers, gateway = {}, None
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            started = {
                name: pool.submit(start_vllm, given.folder.resolve(), scratch, name, options, given.step_ms)
                for name, options in SERVERS.items()
            }
            # Waits for all of them, so that every started server is stopped at the end.
            concurrent.futures.wait(started.values())
            servers = {name: one.result() for name, one in started.items() if not one.exception()}
        for one in started.values():
            one.result()
        urls = {name: f"http://127.0.0.1:{server.port}/v1" for name, server in servers.items()}
        log = given.log.resolve() if given.log else scratch / "tollkeeper.log"
        gateway = Tollkeeper(given.tollkeeper.resolve(), scratch, urls, log)
        comparison = Comparison(gateway, servers, given.each)
        started = time.monotonic()
        differing = run(comparison, Calls(given.seed), given.calls, given.only)
        print(f"{time.monotonic() - started:.0f} s\n")
        print_table(comparison.rows)
        for refusal, times in comparison.refusals.most_common():
            print(f"refused {times} times: {refusal}")
        wrong = verdict(comparison, differing)
        print("\n".join(wrong or ["The charged tokens match the counted tokens."]), flush=True)
        if not given.each:
            for row in differing:
                comparison.find(row)
        return 1 if wrong else 0
    finally:
        if gateway:
            gateway.stop()
        for server in servers.values():
            server.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
