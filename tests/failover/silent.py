"""Unresponsive hosts: one drops connection attempts, and one accepts connections but never responds."""

import re
import socket
import subprocess
import time

from keepers import Keeper


class Dropping:
    """A port that can't be connected to and never responds, like a machine without power."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        # When the queue is full, Linux drops further connection requests.
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
        raise RuntimeError("a full queue still accepts connections")

    def close(self):
        for one in (*self.queue, self.listener):
            one.close()


class Mute:
    """A port that accepts connections but never responds, like a machine that hangs."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()


def measure(program, folder, logs, environment, leader, bound):
    """Starts a replica and a command with a URL that lists unresponsive hosts before the leader.

    Returns the seconds of both, None if it failed.
    """
    found = {}
    for kinds in ((), (Dropping,), (Mute,), (Dropping, Mute)):
        hosts = [kind() for kind in kinds]
        name = "-".join(kind.__name__.lower() for kind in kinds) or "none"
        ports = [*(host.port for host in hosts), leader.port]
        url = re.sub("@.*/", f"@{','.join(f'127.0.0.1:{port}' for port in ports)}/", environment["TOLLKEEPER_DATABASE_URL"])
        keeper = Keeper(program, folder, logs, f"silent-{name}", "hosts", environment | {"TOLLKEEPER_DATABASE_URL": url})
        try:
            found[name] = (seconds_of_start(keeper, bound), seconds_of_command(keeper, bound))
        finally:
            keeper.process.end()
            for host in hosts:
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
