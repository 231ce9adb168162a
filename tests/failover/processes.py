"""Starts, pauses and stops the processes of a run, each in its own process group."""

import glob
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time


def find(program):
    """Returns the path of a program, including programs that aren't in the PATH of ordinary users."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise SystemExit(f"{program} is missing: apt-get install patroni etcd-server haproxy pgbouncer postgresql")
    return found


def find_postgres():
    """Returns the folder with the programs of the newest installed PostgreSQL version."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if not found:
        raise SystemExit("initdb is missing: apt-get install postgresql")
    return os.path.dirname(max(found, key=lambda path: int(path.split("/")[4])))


def free_ports(number):
    """Returns unused ports."""
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def until(holds, seconds, what):
    """Waits until a function returns a true value, and returns this value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds} s")


def unprivileged():
    """Returns the user for the processes, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise SystemExit("neither user `postgres` nor user `nobody` exists")


def as_unprivileged(words):
    """Returns a command that runs as the unprivileged user."""
    if os.geteuid() != 0:
        return words
    user = unprivileged()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *words]


class Process:
    """A program that runs until it is stopped. Its output goes to a file."""

    def __init__(self, words, log, folder, environment=None, privileged=False):
        self.words = words if privileged else as_unprivileged(words)
        self.log, self.folder = pathlib.Path(log), folder
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(environment or {})}
        self.process = None

    def start(self):
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(self.words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output, start_new_session=True)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        """Sends a signal to the whole group."""
        if self.is_running():
            os.killpg(self.process.pid, number)

    def end(self, number=signal.SIGKILL, seconds=10):
        """Stops the group, and waits until it has ended."""
        if not self.is_running():
            return
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait(seconds)


def parents():
    """Returns the parent of each process, and its state."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(path).read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        found[int(path.split("/")[2])] = (int(parent), state)
    return found


def postmaster(data):
    """Returns the process id of the PostgreSQL that runs in a folder, or None."""
    try:
        pid = int((pathlib.Path(data) / "postmaster.pid").read_text().split("\n")[0])
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if os.fsencode(str(data)) in command else None


def family(pid):
    """Returns a process and its children. Each PostgreSQL process has its own process group."""
    return [pid, *(child for child, (parent, state) in parents().items() if parent == pid and state != "Z")]


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
