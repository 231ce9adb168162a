"""The transcript of a walk. It shows every exchange with words that are the same in each run of the same binary.

Ids, tokens and secrets are replaced by numbered names, in order of appearance. Times are replaced by their distance
from now. Times at the start of a day stay unchanged, because the clock of the walk starts at a fixed date.
"""

import datetime
import hashlib
import json
import re
import sys
import time

ID = re.compile(r"(?<![0-9a-z])(credit_note|[a-z]+)_([0-7][0-9a-hjkmnp-tv-z]{25})(?![0-9a-z])", re.I)
TOKEN = re.compile(r"eyJ[\w-]{10,}\.[\w-]+\.[\w-]+")
# Entity tags.
TAG = re.compile(r'(?<=")[0-9a-f]{32}(?=")')
SECRET = re.compile(r"\btk_[0-9A-Za-z]{49}\b")
# Secrets of webhooks.
WEBHOOK_SECRET = re.compile(r"\bwhsec_[\w+/]{43}=")
# Fields of a webhook that change with each delivery attempt, which may be in progress.
ATTEMPT = re.compile(r'("(?:attempts|duration_ms|last_attempt_at|next_attempt_at|outcome|failing_since)": ?)("[^"]*"|null|\d+)')
# Secrets of authenticator apps, which also appear in links, recovery codes, and codes of an app.
SEED = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{32}(?![A-Z2-7])")
RECOVERY_CODE = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{6}(?:-[A-Z2-7]{6}){3}(?![A-Z2-7])")
APP_CODE = re.compile(r'("(?:code|one_time_code)": ?")\d{6}(?=")')
# Values that a passkey has created or signed, and the ceremony for which they are valid.
SIGNED = re.compile(r'("(?:ceremony|clientDataJSON|attestationObject|authenticatorData|signature)": ?")[\w-]{60,}(?=")')
# Tokens in e-mails, and the public keys and names of signing keys.
OPAQUE = re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])")
TIME = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")
STYLE = re.compile(r"<style>.*?</style>", re.S)
SCHEMA = re.compile(r'(\bschema"?:? ?|"(?:from|to)": )\d+')
# Values that depend on the time between two requests.
PASSING = re.compile(r'("(?:remaining_requests|reset_requests_ms|retry_after_ms)": )\d+')
# The time of an answer by the demo. Models were created before 2040.
CREATED = re.compile(r'("created": ?)22\d{8}')
LAST_USE = re.compile(r'("(?:last_used_at|last_used_ip)": )("[^"]*"|null)')
SIZE = re.compile(r'("size_bytes": ?|, )\d{6,}(?=\n| bytes|,)')
# The names of signing keys.
KEY_NAME = re.compile(r'("kid": ?")([\w-]{16})(?=")')
# Ids that no exchange refers to again.
UNNUMBERED = {"req": "<request>", "audit": "<entry>", "mail": "<mail>", "ltx": "<transaction>", "sess": "<session>"}
# Headers that the HTTP library sets or that depend on the time.
OMITTED_HEADERS = {"date", "content-length", "connection"}
PASSING_HEADERS = {
    "retry-after": "<seconds>",
    "retry-after-ms": "<ms>",
    "x-ratelimit-reset-requests": "<reset>",
    "x-ratelimit-remaining-requests": "<remaining>",
}
STEP_S = 600


class Number(str):
    """A number in a JSON text, exactly as written."""


def parse(text):
    """Parses JSON, and keeps the notation of numbers, the order of members, and duplicate members."""
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Members)


class Members(list):
    """An object in a JSON text."""


def pretty(value, indent=""):
    deeper = indent + " "
    if isinstance(value, Members):
        if not value:
            return "{}"
        lines = [f"{deeper}{json.dumps(name)}: {pretty(item, deeper)}" for name, item in value]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        if not value:
            return "[]"
        return "[\n" + ",\n".join(deeper + pretty(item, deeper) for item in value) + f"\n{indent}]"
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


class Words:
    """Replaces values that differ between runs."""

    def __init__(self, clock):
        self.clock = clock
        self.names = {}
        self.counts = {}
        # Known texts and their replacements, such as folders and ports.
        self.known = {}
        # The names of signing keys, which also appear outside of key sets.
        self.key_names = {}

    def name(self, kind, text):
        if text not in self.names:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.names[text] = f"<{kind}_{self.counts[kind]}>"
        return self.names[text]

    def tell(self, text, last_use=False):
        for _, name in KEY_NAME.findall(text):
            self.key_names.setdefault(name, self.name("signing_key", name))
        known = {**self.known, **self.key_names}
        for word in sorted(known, key=len, reverse=True):
            text = text.replace(word, known[word])
        text = TOKEN.sub(lambda found: self.name("token", found[0]), text)
        text = TAG.sub(lambda found: self.name("tag", found[0]), text)
        text = SECRET.sub(lambda found: self.name("secret", found[0]), text)
        text = WEBHOOK_SECRET.sub(lambda found: self.name("webhook_secret", found[0]), text)
        text = SEED.sub(lambda found: self.name("seed", found[0]), text)
        text = RECOVERY_CODE.sub(lambda found: self.name("recovery_code", found[0]), text)
        text = APP_CODE.sub(r"\1<code>", text)
        text = SIGNED.sub(r"\1<signed>", text)
        text = ID.sub(self.id, text)
        text = OPAQUE.sub(lambda found: self.name("opaque", found[0]), text)
        text = TIME.sub(self.time, text)
        text = PASSING.sub(r"\1<passing>", text)
        text = ATTEMPT.sub(r"\1<attempt>", text)
        text = CREATED.sub(r"\1<passing>", text)
        text = SIZE.sub(r"\1<size>", text)
        if not last_use:
            text = LAST_USE.sub(r"\1<last use>", text)
        return SCHEMA.sub(r"\1<schema>", text)

    def id(self, found):
        return UNNUMBERED.get(found[1]) or self.name(found[1], found[0])

    def time(self, found):
        if found[1].endswith("T00:00:00") and int(found[2] or 0) == 0:
            return found[0]
        at = datetime.datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
        # A whole walk takes less than half a step, so a code from its beginning is still valid at the end.
        steps = round((at - self.clock.now()).total_seconds() / STEP_S)
        if steps == 0:
            return "<now>"
        minutes = abs(steps) * STEP_S // 60
        days, hours, minutes = minutes // 1440, minutes % 1440 // 60, minutes % 60
        parts = [f"{days}d" * bool(days), f"{hours}h" * bool(hours), f"{minutes}m" * bool(minutes)]
        return f"<now{'+' if steps > 0 else '-'}{''.join(parts)}>"


class Transcript:
    """Writes exchanges, and records which operations and codes they cover."""

    def __init__(self, words, out=sys.stdout):
        self.words = words
        self.out = out
        self.began = time.monotonic()
        self.exchanges = 0
        # The listener, the method, the path and the status of each answer.
        self.answers = []
        self.codes = set()

    def line(self, text=""):
        print(text, file=self.out)

    def chapter(self, title):
        print(f"walk: {time.monotonic() - self.began:4.0f} s: {title}", file=sys.stderr)
        self.line(f"\n==== {title}\n")

    def exchange(self, listener, method, target, headers, body, answer, note="", last_use=False):
        """Writes an HTTP request and its answer. `body` is text, bytes, or None."""
        self.exchanges += 1
        tell = self.words.tell
        self.line(f"#### {method} {shorten(tell(target))}" + (f"    ({note})" if note else ""))
        if listener == "service":
            self.line("> to the service listener")
        for name, value in headers:
            self.line(f"> {name.lower()}: {shorten(tell(value))}")
        if body is not None:
            text = body if isinstance(body, str) else body.decode("utf-8", "replace")
            self.line(f"> {shorten(tell(text))}")
        self.answer(answer, last_use)
        self.answers.append((listener, method, target.split("?")[0], answer.status))
        self.line()

    def answer(self, answer, last_use=False):
        self.line(f"< {answer.status}")
        for name, value in sorted((name.lower(), value) for name, value in answer.headers):
            if name not in OMITTED_HEADERS:
                self.line(f"< {name}: {PASSING_HEADERS.get(name) or self.words.tell(value)}")
        if answer.text:
            self.line(self.words.tell(self.body(answer), last_use))

    def body(self, answer):
        if answer.is_json():
            value = parse(answer.text)
            self.collect(value)
            return pretty(value)
        if answer.header("content-type").startswith("text/html"):
            return plain_style(answer.text)
        if answer.header("content-type") == "text/event-stream":
            for line in answer.text.splitlines():
                if line.startswith("data: {"):
                    self.collect(parse(line.removeprefix("data: ")))
        return answer.text.rstrip("\n")

    def collect(self, value):
        """Records every code in an answer: of errors, of their details, and of refused events and decisions."""
        if isinstance(value, Members):
            for name, item in value:
                if name == "code" and isinstance(item, str):
                    self.codes.add(item)
                self.collect(item)
        elif isinstance(value, list):
            for item in value:
                self.collect(item)

    def command(self, arguments, ended, sort=False):
        self.exchanges += 1
        self.line(f"$ tollkeeper {' '.join(map(self.words.tell, map(quoted, arguments)))}")
        if sort:
            # The order of entries with the same millisecond is undefined.
            out = "\n".join(sorted(self.words.tell(ended.stdout).splitlines()))
        else:
            out = self.words.tell(format_output(ended.stdout))
        if out:
            self.line(out.rstrip("\n"))
        for line in ended.log.splitlines():
            self.line(f"! {self.words.tell(line)}")
        self.line(f"= {ended.code}\n")

    def mail(self, sender, to, subject, text):
        self.exchanges += 1
        self.line(f"@@@@ from {sender} to {to}: {self.words.tell(subject)}")
        self.line(self.words.tell(text).rstrip("\n") + "\n")

    def document(self, title, text):
        self.exchanges += 1
        self.line(f"#### {title}\n{self.words.tell(pretty(parse(text)))}\n")


def format_output(text):
    """Formats the output of a command. Lines of JSON are indented."""
    lines = []
    for line in text.splitlines():
        if line.startswith("{") and line.endswith("}"):
            line = pretty(parse(line)) if len(line) > 100 else line.replace('":', '": ').replace(",", ", ")
        lines.append(line)
    return plain_style("\n".join(lines))


def plain_style(text):
    style = lambda found: f"<style {hashlib.sha256(found[0].encode()).hexdigest()[:16]}>"
    return STYLE.sub(style, text).rstrip("\n")


def shorten(text):
    """Shortens long values."""
    if len(text) <= 5_000:
        return text
    return f"{text[:60]}… {len(text)} characters {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def quoted(argument):
    return argument if re.fullmatch(r"[\w.:/@<>=+-]+", argument) else f"'{argument}'"
