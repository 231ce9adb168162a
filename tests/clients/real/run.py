#!/usr/bin/env python3
"""Runs real AI clients through tollkeeper, configured only with a base URL, a key, and the id of a model.

    run.py TOLLKEEPER FOLDER [--only NAME ...] [--scenes SCENE ...] [--untimed]

TOLLKEEPER is the program, and FOLDER is the folder in which install.py has installed the clients. Each client is
configured with its blocks of docs/tools.md. Two servers are started, one after the other: one with the built-in demo,
and one with a stub that calls a tool and counts its answers. All processes listen only on 127.0.0.1, and end with this
script.

The script prints a table with the results of each client. It compares the tokens and the amounts that tollkeeper has
recorded with the stub's own counts. The exit status is 1 if a client fails, if a refusal isn't shown in time, or if a
count differs.
"""

import argparse
import decimal
import pathlib
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import answers
import clients
import install
import page
from gateway import MAX_TOKENS, MODEL, PRICES, Tollkeeper
from proxies import Outside, Recorder
from start import Start
from stub import ASKED, TEXT, Stub

DEMO_TEXT = "This is the demo model inside tollkeeper."
TOOL_PROMPT = f"Use a tool to {ASKED}, and say the word in it."
# The timeouts of a scene, in seconds.
WORK_SECONDS, REFUSAL_SECONDS = 120, 30
# All clients must show a refusal within the first number of seconds, and at least `MOST` clients within the second.
SHOWN_BY_ALL, SHOWN_BY_MOST, MOST = 10, 2, 15

FIRST, TOOL, MONEY, KEY, UNKNOWN, RATE = SCENES = (
    "first word", "tool call", "no money", "wrong key", "unknown model", "rate",
)
CODES = {MONEY: "insufficient_quota", KEY: "invalid_api_key", UNKNOWN: "model_not_found", RATE: "rate_limited"}
MUST_SHOW = (MONEY, KEY, UNKNOWN)
# The names of the mistakes in docs/tools.md.
WRONG = {MONEY: "money", KEY: "key", UNKNOWN: "model"}


class Setting:
    """A tollkeeper with the scenes that clients run on it."""

    def __init__(self, given, outside, scratch, stub):
        self.given, self.outside, self.scratch, self.stub = given, outside, scratch, stub
        self.name = "stub" if stub else "demo"
        folder = scratch / self.name
        folder.mkdir()
        self.gateway = Tollkeeper(given.tollkeeper.resolve(), folder, stub)
        self.wrong, self.numbers = [], 0

    def play(self, client, scene):
        """Starts a client for a scene, and returns the finished run."""
        self.numbers += 1
        root = self.scratch / f"{self.name}-{self.numbers}"
        word = f"word-{secrets.token_hex(4)}"
        place = clients.Place(root, word if scene == TOOL else None)
        key = {MONEY: self.gateway.poor_key, KEY: wrong_key(self.gateway.key)}.get(scene, self.gateway.key)
        if scene == RATE:
            key = self.used_up_key()
        prompt = TOOL_PROMPT if scene == TOOL else "hi"
        model = "no-such-model" if scene == UNKNOWN else MODEL
        expected = {FIRST: TEXT if self.stub else DEMO_TEXT, TOOL: word}.get(scene)
        recorder = Recorder(self.gateway.port)
        try:
            url = f"http://127.0.0.1:{recorder.port}"
            command, environment = clients.prepare(client, self.given.folder.resolve(), place, url, key, model, prompt,
                                                   self.outside)
            seconds = WORK_SECONDS if scene in (FIRST, TOOL) else REFUSAL_SECONDS
            run = Start(command, environment, place.work, recorder, seconds, expected, client.own_words.get(scene))
        finally:
            recorder.stop()
        if self.given.keep:
            (self.given.keep / f"{self.name} {client.name} {scene}.txt".replace(" ", "-")).write_text(
                "\n".join(map(str, run.requests())) + "\n\n" + run.output)
        shutil.rmtree(root, ignore_errors=True)
        self.judge(client, scene, run)
        return run

    def used_up_key(self):
        """Creates a key whose only call of this minute is used up."""
        key = self.gateway.make_key(f"Slow {self.numbers}", rate_limit=1)
        call = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
        status = self.gateway.request("POST", "/v1/chat/completions", call, key)[0]
        if status != 200:
            raise SystemExit(f"The first call of a key with a rate of 1 is {status}.")
        return key

    def judge(self, client, scene, run):
        """Records the errors of a scene."""
        where = f"{client.name}, {self.name}, {scene}"
        if scene in (FIRST, TOOL):
            if run.shown_at is None:
                last = run.output.strip().splitlines()[-3:]
                self.wrong.append(f"{where}: doesn't work: {' / '.join(last)[-300:]}")
            elif not run.by_itself:
                self.wrong.append(f"{where}: didn't end within {WORK_SECONDS} s")
            return
        if CODES[scene] not in run.codes():
            self.wrong.append(f"{where}: no call was refused with {CODES[scene]}, but {sorted(run.codes())}")
        elif scene in MUST_SHOW and (run.after_refusal() is None or run.after_refusal() > self.shown_by_all()):
            self.wrong.append(f"{where}: wasn't shown within {self.shown_by_all()} s: {len(run.refusals())} calls")
        elif client.library and scene in WRONG:
            # The block of the page doesn't handle exceptions, so the language prints it.
            name = page.exceptions()[client.library][WRONG[scene]]
            if not re.search(rf"\b{name}\b", run.output):
                self.wrong.append(f"{where}: {name}, which docs/tools.md names, isn't raised")

    def shown_by_all(self):
        """Returns the number of seconds within which a refusal must be shown."""
        return REFUSAL_SECONDS if self.given.untimed else SHOWN_BY_ALL

    def compare(self, name, before, counted_before):
        """Compares the usage that tollkeeper has recorded since then with the counts of the stub. Returns a table
        cell."""
        deadline = time.monotonic() + 15
        while True:
            recorded = tuple(now - then for now, then in zip(self.gateway.usage(), before, strict=True))
            calls, tokens = self.stub.total()
            counted = (calls - counted_before[0], tokens.prompt - counted_before[1].prompt,
                       tokens.completion - counted_before[1].completion)
            price = decimal.Decimal(PRICES["prompt"]) * counted[1] + decimal.Decimal(PRICES["completion"]) * counted[2]
            if recorded == (*counted, price):
                return as_text(recorded)
            if time.monotonic() > deadline:
                self.wrong.append(f"{name}: tollkeeper has recorded {as_text(recorded)}, and the stub has counted "
                                  f"{as_text((*counted, price))}")
                return "differs"
            time.sleep(0.2)

    def end(self):
        """Checks the books."""
        try:
            print(self.gateway.command("audit").strip().splitlines()[-1])
        except SystemExit as error:
            self.wrong.append(str(error))


def as_text(usage):
    calls, prompt, completion, amount = usage
    return f"{calls}: {prompt} + {completion} = {amount.normalize():f}"


def wrong_key(key):
    """Returns a well-formed key that doesn't exist."""
    middle = len(key) // 2
    return key[:middle] + ("A" if key[middle] != "A" else "B") + key[middle + 1:]


def cell(scene, run):
    """Returns a table cell: requests, seconds until the text was shown, and seconds since the first refusal."""
    if run is None:
        return "–"
    requests = len(run.requests())
    if run.shown_at is None:
        return f"{requests}, not shown" + ("" if run.by_itself else f" in {run.seconds:.0f} s")
    shown = f"{requests}, {run.shown_at - run.began:.1f} s"
    if scene in (FIRST, TOOL):
        return shown
    after = run.after_refusal()
    shown += "" if after is None else f" (+{after:.1f})"
    if run.says_it_in_own_words():
        shown += ", own words"
    return shown if run.by_itself else f"{shown}, goes on"


def table(head, rows):
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def run_setting(given, outside, scratch, stub, chosen):
    """Runs the scenes of all clients with one tollkeeper. Returns the errors."""
    setting = Setting(given, outside, scratch, stub)
    scenes = [scene for scene in (SCENES if stub else (FIRST, MONEY)) if scene in given.scenes]
    rows, shown = [], {scene: [] for scene in MUST_SHOW}
    try:
        setting.wrong += answers.check(setting.gateway)
        for client in chosen:
            before, counted = setting.gateway.usage(), stub and stub.total()
            row = [client.name]
            for scene in scenes:
                run = None if scene == TOOL and client.tool is None else setting.play(client, scene)
                row.append(cell(scene, run))
                if run and scene in MUST_SHOW and CODES[scene] in run.codes() and run.after_refusal() is not None:
                    shown[scene].append(run.after_refusal())
                print(f"{setting.name}, {client.name}, {scene}: {row[-1]}", file=sys.stderr, flush=True)
            if stub:
                row.append(setting.compare(client.name, before, counted))
            rows.append(row)
        title = "A stub with tools" if stub else "The built-in demo"
        print(f"\n## {title}\n")
        table(["client", *scenes, *(["calls: tokens of prompts + answers = USD"] if stub else [])], rows)
        for scene in MUST_SHOW:
            quick = sum(seconds <= SHOWN_BY_MOST for seconds in shown[scene])
            if scene in scenes:
                print(f"{scene}: shown within {SHOWN_BY_MOST} s of the first refusal by {quick} of {len(chosen)}")
            if scene in scenes and len(chosen) == len(clients.CLIENTS) and quick < MOST:
                setting.wrong.append(f"{setting.name}, {scene}: shown within {SHOWN_BY_MOST} s by {quick} clients only")
        if stub:
            largest = max((call.limit or 0 for call in stub.calls if call.operation != "embeddings"), default=0)
            if largest > MAX_TOKENS:
                setting.wrong.append(f"The stub was asked for {largest} tokens, above the model's {MAX_TOKENS}.")
        setting.end()
        return setting.wrong
    finally:
        setting.gateway.stop()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tollkeeper", type=pathlib.Path)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--only", nargs="+", metavar="NAME", help="only clients whose folder or name begins so")
    arguments.add_argument("--scenes", nargs="+", choices=SCENES, default=SCENES)
    arguments.add_argument("--settings", nargs="+", choices=("demo", "stub"), default=("demo", "stub"))
    arguments.add_argument("--untimed", action="store_true",
                           help=f"a refusal may be shown at any time, as on a busy machine, and not within {SHOWN_BY_ALL} s")
    arguments.add_argument("--keep", type=pathlib.Path, help="keep the requests and the output of each start here")
    given = arguments.parse_args()
    chosen = [client for client in clients.CLIENTS if not given.only or any(
        name.lower() in (client.folder, client.name.lower()[:len(name)]) for name in given.only)]
    if not chosen:
        arguments.error("there is no such client")
    missing = sorted({client.folder for client in chosen if not install.is_there(given.folder, client.folder)})
    if missing:
        arguments.error(f"not installed: {' '.join(missing)}")
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    # When this script is terminated, it also ends the processes that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-clients-"))
    outside, stub, wrong = Outside(), Stub(), clients.other_versions()
    try:
        if "demo" in given.settings:
            wrong += run_setting(given, outside, scratch, None, chosen)
        if "stub" in given.settings:
            wrong += run_setting(given, outside, scratch, stub, chosen)
    finally:
        stub.stop()
        outside.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    if outside.hosts:
        print(f"Blocked hosts: {', '.join(sorted(set(outside.hosts)))}", file=sys.stderr)
    print("\n".join(wrong) if wrong else "Every client works, and every count is equal.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
