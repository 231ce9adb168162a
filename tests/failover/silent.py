"""Hosts that don't answer: one drops each attempt to connect, one accepts it and says nothing."""

import socket
import subprocess
import time

from keepers import Keeper


class Dropping:
    """A port at which no connection can be made: as with a machine without power, nothing comes back."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        # Once its queue is full, Linux drops what asks for another connection.
        self.queue = []
        for _ in range(8):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self.queue.append(one)
        time.sleep(0.2)
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=0.5).close()
        except TimeoutError:
            return
        raise RuntimeError("a full queue still lets connections in")

    def close(self):
        for one in (*self.queue, self.listener):
            one.close()


class Mute:
    """A port that accepts connections, and never says anything: as with a machine that hangs."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()


def measure(program, folder, logs, environment, bound):
    """Starts a replica and a command whose URL names a silent host first. Returns the seconds of both, None if it failed."""
    found = {}
    for kind in (None, Dropping, Mute):
        host = kind() if kind else None
        name = kind.__name__.lower() if kind else "none"
        url = environment["TOLLKEEPER_DATABASE_URL"]
        if host:
            before, after = url.split("@")
            url = f"{before}@127.0.0.1:{host.port},{after}"
        keeper = Keeper(program, folder, logs, f"silent-{name}", "hosts", environment | {"TOLLKEEPER_DATABASE_URL": url})
        try:
            found[name] = (seconds_of_start(keeper, bound), seconds_of_command(keeper, bound))
        finally:
            keeper.process.end()
            if host:
                host.close()
    return found


def seconds_of_start(keeper, bound):
    began = time.monotonic()
    keeper.start()
    while time.monotonic() < began + bound:
        if keeper.is_ready():
            return time.monotonic() - began
        time.sleep(0.05)
    return None


def seconds_of_command(keeper, bound):
    began = time.monotonic()
    try:
        code, _ = keeper.command("clock", "show", seconds=bound)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - began if code == 0 else None
