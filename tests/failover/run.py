#!/usr/bin/env python3
"""Injects faults into a Patroni cluster under load, and checks that no acknowledged event is lost.

    run.py TOLLKEEPER [--small] [--faults NUMBER] [--only FAULT ...] [--keep FOLDER]

TOLLKEEPER is the program. The cluster (etcd, PostgreSQL under Patroni, HAProxy, PgBouncer) uses the files of
packaging/patroni. Replicas reach the primary in three ways: by a URL with all hosts, through HAProxy, and through
PgBouncer in front of HAProxy. Everything listens on 127.0.0.1 only, and ends with this script.

The script prints a table, and exits with 1 if something is wrong. Times depend on the machine, so their default bounds are
generous. Options change them.
"""

import argparse
import pathlib
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import checks
import faults
import silent
from cluster import Cluster
from keepers import Keeper, Tenant
from load import Load
from processes import until
from revocation import Revocation

WAYS = ("hosts", "haproxy", "pgbouncer")
# Seconds of load before a fault and after the recovery.
BEFORE, AFTER = 3, 2
KEYS = 60


class Scene:
    """The cluster, the replicas, and the current fault."""

    def __init__(self, options, folder, logs):
        self.options, self.wrong, self.notes, self.measured = options, [], [], []
        self.fault, self.number, self.load, self.revocation = None, 0, None, None
        self.cluster = Cluster(folder, logs, options.nodes, options.etcds, options.asynchronous)
        self.environments = self.cluster.environments()
        program = options.tollkeeper.resolve()
        self.keepers = [Keeper(program, folder, logs, f"{way}{number}", way, self.environments[way])
                        for number in range(1, options.replicas + 1) for way in WAYS]

    def start(self):
        self.cluster.start()
        # Only the first replica runs at first, so that it sends the mail of the registration.
        self.keepers[0].start()
        self.keepers[0].wait_until_ready()
        self.tenant = Tenant(self.keepers[0])
        self.start_keepers()
        self.revocation = Revocation(self.tenant, self.keepers)

    def start_keepers(self):
        for keeper in self.keepers:
            if not keeper.process.is_running():
                keeper.start()
        for keeper in self.keepers:
            keeper.wait_until_ready()

    def ways(self):
        return {keeper.way for keeper in self.keepers}

    def wait_for_writes(self, seconds=90):
        """Waits until a new booking is acknowledged on each way."""
        now = time.monotonic()
        until(lambda: self.load.wrote_since(now) == self.ways(), seconds, "all ways book again")

    def fail(self, what):
        self.wrong.append(f"{self.fault}: {what}")
        say(f"  WRONG: {what}")

    def note(self, what):
        self.notes.append(f"{self.fault}: {what}")
        say(f"  {what}")

    def play(self, fault):
        """Injects a fault. Returns a row of the table."""
        self.fault, self.number = fault.__name__.replace("_", " "), self.number + 1
        say(self.fault)
        self.tenant.log_in()
        self.revocation.prepare(KEYS)
        self.load = Load(self.tenant, self.keepers, f"fault-{self.number}")
        lines = {keeper: keeper.lines() for keeper in self.keepers}
        self.load.start()
        self.revocation.start()
        began = time.monotonic()
        try:
            time.sleep(BEFORE)
            try:
                fault(self)
            except (TimeoutError, RuntimeError) as error:
                self.fail(str(error))
            self.cluster.heal()
            self.cluster.wait_until_healthy()
            self.start_keepers()
            self.wait_for_writes()
            time.sleep(AFTER)
        finally:
            self.revocation.stop()
            self.load.stop()
        seconds = time.monotonic() - began
        lost, strange = checks.check(self)
        gaps, allowed = self.load.gaps(), self.revocation.longest()
        self.measured.append((self.fault, gaps, allowed, lost))
        for way, longest in allowed.items():
            if longest > self.options.allowed_seconds:
                self.fail(f"{way}: a deleted key was allowed for {longest:.1f} s")
        warned = {way: 0 for way in WAYS}
        for keeper in self.keepers:
            warned[keeper.way] += (keeper.lines() - lines[keeper])["WARN"]
        row = [self.fault, each(gaps, ".1f"), f"{len(self.load.acknowledged)}", f"{lost}", f"{strange}",
               each(allowed, ".2f"), f"{self.revocation.deleted}", each(warned, "d"), f"{seconds:.0f}"]
        refused = ", ".join(f"{name}: {number}" for name, number in self.load.refusals.most_common())
        say(f"  {' | '.join(row[1:])} | {refused}")
        return row

    def check_silent(self, folder, logs):
        """Tests a URL that lists unresponsive hosts first. Returns rows of a table."""
        self.fault = "silent host"
        rows = []
        found = silent.measure(self.options.tollkeeper.resolve(), folder, logs, self.environments["hosts"],
                               self.cluster.leader(), 2 * self.options.silent_seconds)
        for kind, (start, command) in found.items():
            for what, seconds in (("start", start), ("command", command)):
                if kind != "none" and (seconds is None or seconds > self.options.silent_seconds):
                    self.fail(f"{kind}, {what}: {in_words(seconds)}")
            rows.append([kind, in_words(start), in_words(command)])
        return rows

    def end(self):
        for keeper in self.keepers:
            keeper.process.end()
        self.cluster.end()


def longest_of(measured):
    """Returns a row with the maximum values for each fault that was injected several times."""
    rows = []
    for name in dict.fromkeys(fault for fault, *_ in measured):
        played = [one for one in measured if one[0] == name]
        longest = [{way: max(one[place].get(way, 0) for one in played) for way in WAYS} for place in (1, 2)]
        rows.append([name, f"{len(played)}", each(longest[0], ".1f"), f"{sum(one[3] for one in played)}",
                     each(longest[1], ".2f")])
    return rows


def say(what):
    print(f"{time.strftime('%T')} {what}", file=sys.stderr, flush=True)


def each(values, form):
    """Returns a value for each way."""
    return " / ".join(format(values[way], form) if way in values else "–" for way in WAYS)


def in_words(seconds):
    return "failed" if seconds is None else f"{seconds:.1f} s"


def table(head, rows):
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def read_arguments():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tollkeeper", type=pathlib.Path)
    arguments.add_argument("--small", action="store_true", help="two nodes and a few faults, in four minutes")
    arguments.add_argument("--faults", type=int, metavar="NUMBER", help="number of faults; the list is repeated if necessary")
    arguments.add_argument("--only", nargs="+", choices=[*faults.FAULTS, "silent_host"], metavar="FAULT",
                           help=f"of {', '.join(faults.FAULTS)}, silent_host")
    arguments.add_argument("--nodes", type=int, choices=(2, 3), help="3; with --small 2")
    arguments.add_argument("--etcds", type=int, choices=(1, 3), default=1)
    arguments.add_argument("--replicas", type=int, metavar="NUMBER", help="replicas per way: 2; with --small 1")
    arguments.add_argument("--asynchronous", action="store_true", help="without synchronous_mode, so that events are lost")
    arguments.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="folder to which the logs are copied")
    arguments.add_argument("--allowed-seconds", type=float, default=10, metavar="S",
                           help="maximum seconds for which a deleted key is allowed (10)")
    arguments.add_argument("--silent-seconds", type=float, default=10, metavar="S",
                           help="maximum seconds of a start and a command with an unresponsive host (10)")
    arguments.add_argument("--books-seconds", type=float, default=10, metavar="S",
                           help="maximum seconds until every way uses the new primary while the old one is running (10)")
    options = arguments.parse_args()
    options.nodes = options.nodes or (2 if options.small else 3)
    options.replicas = options.replicas or (1 if options.small else 2)
    return options


def main():
    options = read_arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("ended by a signal"))
    names = options.only or [fault.__name__ for fault in (faults.SMALL if options.small else faults.WHOLE)] + ["silent_host"]
    chosen = [faults.FAULTS[name] for name in names if name != "silent_host"]
    if options.faults and chosen:
        chosen = [chosen[number % len(chosen)] for number in range(options.faults)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tollkeeper-failover-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        # The unprivileged user has folders in this folder.
        folder.chmod(0o755)
        logs = folder / "logs"
        logs.mkdir()
        scene, rows, quiet = Scene(options, folder, logs), [], []
        try:
            scene.start()
            say(f"the cluster was ready after {time.monotonic() - began:.0f} s")
            for fault in chosen:
                rows.append(scene.play(fault))
            if "silent_host" in names:
                quiet = scene.check_silent(folder, logs)
        except (TimeoutError, RuntimeError) as error:
            scene.fail(f"the run ends: {error}")
        finally:
            scene.end()
            if options.keep:
                scene.cluster.keep_logs()
                shutil.copytree(logs, options.keep, dirs_exist_ok=True)
    report(scene, rows, quiet)
    say(f"{time.monotonic() - began:.0f} s in all")
    sys.exit(1 if scene.wrong else 0)


def report(scene, rows, quiet):
    options = scene.options
    print(f"\n{options.nodes} nodes, {options.etcds} etcd, {options.replicas} replicas per way; "
          f"{'asynchronous' if options.asynchronous else 'synchronous'} replication. "
          f"Three numbers are those of {WAYS[0]}, {WAYS[1]} and {WAYS[2]}.\n")
    if rows:
        table(["fault", "longest gap, s", "acknowledged", "lost", "never sent", "deleted key allowed, s", "keys", "WARN lines",
               "seconds"], rows)
    if len(rows) > len({row[0] for row in rows}):
        table(["fault", "times", "longest gap, s", "lost", "deleted key allowed, s"], longest_of(scene.measured))
    if quiet:
        table(["before the leader in the URL", "start", "command"], quiet)
    for note in scene.notes:
        print(note)
    print("\n".join(f"WRONG: {one}" for one in scene.wrong) or "nothing is wrong")


if __name__ == "__main__":
    main()
