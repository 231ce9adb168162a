"""The installation under test, with its clock, its database and its processes."""

import atexit
import datetime
import email
import email.policy
import glob
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

# The time at which every walk starts. The walk starts at noon, so that the day doesn't change, and far in the future.
# When a signal interrupts libfaketime, the process sees the real time. If that were later than the time of the walk,
# all timeouts of PostgreSQL would expire.
BASE = datetime.datetime(2040, 3, 10, 12, tzinfo=datetime.timezone.utc)
TIMEOUT_S = 60
SERVICE_TOKEN = "svc_of-the-walk-through-all-operations"
MASTER_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
PUBLIC_URL = "http://tollkeeper.test"


def until(holds, what):
    """Waits until `holds` returns a true value, and returns this value."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"walk: timed out waiting for: {what}")


class Clock:
    """The fake clock of all processes of the installation, set through libfaketime. It changes the date, but not how
    fast time passes."""

    def __init__(self, folder):
        places = glob.glob("/usr/lib/*/faketime/libfaketime.so.1") + ["/usr/lib/faketime/libfaketime.so.1"]
        self.library = next((place for place in places if os.path.exists(place)), None)
        if self.library is None:
            raise SystemExit("walk: no libfaketime here: `apt-get install libfaketime`")
        self.file = folder / "clock"
        self.set(BASE)

    def set(self, at):
        self.offset = at - datetime.datetime.now(datetime.timezone.utc)
        self.write()

    def advance(self, by):
        self.offset += by
        self.write()

    def write(self):
        new = self.file.with_suffix(".new")
        new.write_text(f"{self.offset.total_seconds():+.6f}\n")
        new.chmod(0o644)
        new.rename(self.file)

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc) + self.offset

    def environment(self):
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }


class Postgres:
    """A temporary PostgreSQL server on the same clock. It listens on a Unix socket in the folder."""

    def __init__(self, folder, clock):
        self.binaries = find_postgres()
        # PostgreSQL refuses to run as root.
        self.user = self.binaries and os.geteuid() == 0 and postgres_user()
        self.folder, self.clock, self.server = folder, clock, None
        folder.mkdir()
        if self.user:
            shutil.chown(folder, self.user)
        self.run("initdb", "-D", str(folder / "data"), "-U", "postgres", "--auth=trust", "--no-sync",
                 "--encoding=UTF8", "--locale=C")
        atexit.register(self.stop)
        self.start()
        self.sql("postgres", "CREATE DATABASE walk")

    def command(self, program, *arguments, environment=()):
        words = ["env", *environment, os.path.join(self.binaries, program), *arguments]
        if self.user:
            words = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--", *words]
        return words

    def run(self, program, *arguments):
        subprocess.run(self.command(program, *arguments), check=True, stdout=subprocess.DEVNULL, cwd="/")

    def sql(self, database, statement):
        self.run("psql", "-h", str(self.folder), "-U", "postgres", "-q", "-d", database, "-c", statement)

    def start(self):
        options = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB",
                   "log_min_messages": "panic", "autovacuum": "off"}
        # Only the server gets these variables. If the program that switches users got them, the shared files of
        # libfaketime would belong to root.
        environment = [f"{name}={value}" for name, value in self.clock.environment().items()]
        words = self.command("postgres", "-D", str(self.folder / "data"), "-k", str(self.folder),
                             *[word for name, value in options.items() for word in ("-c", f"{name}={value}")],
                             environment=environment)
        self.server = subprocess.Popen(words, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
        state = self.folder / "data" / "postmaster.pid"
        until(lambda: state.exists() and "ready" in state.read_text(), "PostgreSQL starts")

    def stop(self):
        if self.server:
            # Closes the connections of clients instead of waiting for them.
            self.server.send_signal(signal.SIGINT)
            self.server.wait()
            self.server = None
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def url(self):
        return f"postgres://postgres@{str(self.folder).replace('/', '%2F')}/walk"


def find_postgres():
    """Returns the folder with PostgreSQL's programs: from PATH, or of the newest version that Debian or a derivative
    has installed."""
    initdb = shutil.which("initdb")
    if initdb:
        return os.path.dirname(os.path.realpath(initdb))
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if not found:
        raise SystemExit("walk: no initdb here: install `postgresql`")
    return os.path.dirname(max(found, key=lambda path: int(path.split("/")[4])))


def postgres_user():
    names = {line.split(":")[0] for line in pathlib.Path("/etc/passwd").read_text().splitlines()}
    return "postgres" if "postgres" in names else "nobody"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers = status, headers
        self.text = body.decode("utf-8", "backslashreplace")

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name), "")

    def is_json(self):
        return "json" in self.header("content-type") and bool(self.text)

    def json(self):
        return json.loads(self.text)

    @property
    def data(self):
        return self.json()["data"]


class Ended:
    def __init__(self, code, stdout, log):
        self.code, self.stdout, self.log = code, stdout, log


class Installation:
    """A data folder, its configuration, and the server that uses them."""

    def __init__(self, binary, folder, clock, database_url, settings):
        self.binary, self.folder, self.clock = binary, folder, clock
        self.data = folder / "data"
        self.settings = {
            "TOLLKEEPER_DATA_DIR": str(self.data),
            "TOLLKEEPER_PUBLIC_URL": PUBLIC_URL,
            "TOLLKEEPER_SERVICE_TOKEN": SERVICE_TOKEN,
            "TOLLKEEPER_MASTER_KEY": MASTER_KEY,
            "TOLLKEEPER_LOG__ACCESS": "false",
            **settings,
        }
        if database_url:
            self.settings["TOLLKEEPER_DATABASE_URL"] = database_url
            self.settings["TOLLKEEPER_DATABASE_ALLOW_FSYNC_OFF"] = "true"
        self.process = None
        self.changes = {}
        self.log = ""
        self.read_mails = set()
        atexit.register(self.kill)

    def environment(self, changes):
        settings = {**self.settings, **changes}
        return {"PATH": os.environ.get("PATH", ""), **self.clock.environment(),
                **{name: value for name, value in settings.items() if value is not None}}

    def start(self, **changes):
        """Starts the server with changed settings, and waits until it listens."""
        for _ in range(10):
            self.addresses = {"public": free_port(), "service": free_port()}
            self.changes = {**changes,
                            "TOLLKEEPER_LISTEN": f"127.0.0.1:{self.addresses['public']}",
                            "TOLLKEEPER_SERVICE_LISTEN": f"127.0.0.1:{self.addresses['service']}"}
            self.log = ""
            self.process = subprocess.Popen([self.binary, "serve"], env=self.environment(self.changes), cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE)
            self.reader = threading.Thread(target=self.collect, args=[self.process], daemon=True)
            self.reader.start()
            until(lambda: "listening" in self.log or self.process.poll() is not None, "the server listens")
            if self.process.poll() is None:
                return
            if "can't listen on" not in self.log:
                raise SystemExit(f"walk: the server has ended:\n{self.log}")
        raise SystemExit("walk: no free port")

    def collect(self, process):
        for line in process.stderr:
            self.log += line.decode("utf-8", "replace")

    def is_ready(self):
        return self.send("public", "GET", "/readyz").status == 200

    def wait_until_ready(self):
        until(self.is_ready, f"the server is ready:\n{self.log}")

    def stop(self):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        self.process = None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def send(self, listener, method, target, headers=(), body=None):
        """Sends one request on its own connection, and returns the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.addresses[listener], timeout=TIMEOUT_S)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            body = body.encode() if isinstance(body, str) else body
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders()
            if body is not None:
                try:
                    connection.send(body)
                except (BrokenPipeError, ConnectionResetError):
                    # The server refused the request before it had read the body.
                    pass
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def send_raw(self, listener, data, then_wait=True):
        """Sends raw bytes and returns the answer. If `then_wait` is false, returns the open connection instead."""
        stream = socket.create_connection(("127.0.0.1", self.addresses[listener]), timeout=TIMEOUT_S)
        stream.sendall(data)
        return read_answer(stream) if then_wait else stream

    def command(self, *arguments, **changes):
        ended = subprocess.run([self.binary, *arguments], env=self.environment({**self.changes, **changes}),
                               cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def mails(self):
        """Returns the unread e-mails, oldest first: path, sender, recipient, subject and text."""
        found = []
        for path in sorted((self.data / "mail").glob("*.eml")):
            if path.name not in self.read_mails:
                mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
                text = mail.get_body(("plain",)).get_content()
                found.append((path.name, str(mail["from"]), str(mail["to"]), str(mail["subject"]), text))
        return found


def read_answer(stream):
    response = http.client.HTTPResponse(stream)
    try:
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())
    finally:
        response.close()
        stream.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
