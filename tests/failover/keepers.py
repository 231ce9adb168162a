"""Replicas of tollkeeper that use the cluster, and the organization that is charged."""

import collections
import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import time

from processes import Process, free_ports, until

MODEL = "m-1"
CATALOG = f"""
[[upstreams]]
id = "none"
kind = "vllm"
url = "http://127.0.0.1:9"

[[models]]
id = "{MODEL}"
kind = "chat"
description = "A model that is never called here"
owned_by = "tests"
created = 1704067200
context_length = 8192
max_tokens = 1024
max_requests_per_min = 1000000
max_concurrent_requests = 100000
prices = [{{
  effective_at = "2024-01-01T00:00:00Z",
  prompt_tokens = "0.000002",
  completion_tokens = "0.000006",
}}]
routes = [{{ upstream = "none", model = "none" }}]
"""
# The limits are high, so that they refuse no request.
LIMITS = {f"TOLLKEEPER_LIMITS__{name}_PER_MINUTE": "1000000" for name in ("READS", "WRITES", "LOGINS", "BAD_CREDENTIALS")}
ACCOUNT = {"email": "ada@example.com", "password": "Analytical-Engine-1843"}
# Longer than the server's own timeouts, so that its responses arrive.
SECONDS = 40


class Answer:
    """A status and the JSON of the body; the status is 0 without a response."""

    def __init__(self, status, content):
        self.status = status
        try:
            self.json = json.loads(content) if content else {}
        except ValueError:
            self.json = {}

    def data(self):
        if self.status not in (200, 201):
            raise RuntimeError(f"status {self.status}: {self.json}")
        return self.json.get("data", self.json)

    def code(self):
        return (self.json.get("error") or {}).get("code", "") if self.status else "no answer"


class Keeper:
    """A replica that connects to the primary in one of the ways."""

    def __init__(self, program, folder, logs, name, way, environment):
        self.program, self.folder, self.name, self.way = str(program), folder / name, name, way
        self.folder.mkdir()
        catalog = self.folder / "catalog.toml"
        catalog.write_text(CATALOG)
        self.ports = dict(zip(("public", "service"), free_ports(2), strict=True))
        self.service_token = environment["TOLLKEEPER_SERVICE_TOKEN"]
        self.environment = {
            "PATH": os.environ["PATH"],
            "TOLLKEEPER_DATA_DIR": str(self.folder / "data"),
            "TOLLKEEPER_LISTEN": f"127.0.0.1:{self.ports['public']}",
            "TOLLKEEPER_SERVICE_LISTEN": f"127.0.0.1:{self.ports['service']}",
            "TOLLKEEPER_CATALOG_FILE": str(catalog),
            # The same for all replicas, because tokens contain it.
            "TOLLKEEPER_PUBLIC_URL": "http://tollkeeper.test",
            "TOLLKEEPER_LOG__ACCESS": "false",
            **LIMITS, **environment,
        }
        self.process = Process([self.program, "serve"], logs / f"{name}.log", self.folder, self.environment,
                               privileged=True)

    def start(self):
        self.process.start()

    def end(self):
        self.process.end(signal.SIGTERM)

    def request(self, listener, method, path, body=None, token=None, seconds=SECONDS):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[listener], timeout=seconds)
        headers = {"content-type": "application/json"} if body is not None else {}
        if token:
            headers["authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return Answer(0, b"")
        finally:
            connection.close()

    def ask(self, method, path, body=None, seconds=SECONDS):
        """Sends a request to the service listener."""
        return self.request("service", method, path, body, self.service_token, seconds)

    def is_ready(self):
        return self.request("public", "GET", "/readyz", seconds=5).status == 200

    def wait_until_ready(self, seconds=120):
        until(self.is_ready, seconds, f"{self.name} is ready")

    def lines(self):
        """Counts the log lines by level."""
        counted = collections.Counter()
        with open(self.process.log, encoding="utf-8", errors="replace") as log:
            for line in log:
                found = re.match(r"\S+\s+(INFO|WARN|ERROR) ", line)
                if found:
                    counted[found[1]] += 1
        return counted

    def command(self, *arguments, seconds=120):
        """Runs a command, and returns its exit code and output."""
        ended = subprocess.run([self.program, *arguments], cwd=self.folder, env=self.environment, capture_output=True,
                               text=True, timeout=seconds, check=False)
        return ended.returncode, ended.stdout + ended.stderr


class Tenant:
    """An organization with credit and a key, and the user who manages it."""

    def __init__(self, keeper):
        self.keeper = keeper
        keeper.request("public", "POST", "/v1/auth/register", ACCOUNT | {"username": "ada"}).data()
        token = until(self.mailed_token, 120, "the mail to confirm the address")
        keeper.request("public", "POST", "/v1/auth/verify-email", {"token": token}).data()
        self.log_in()
        self.organization = self.call(keeper, "POST", "/v1/organizations", {"name": "Acme"}).data()["id"]
        projects = f"/v1/organizations/{self.organization}/projects"
        self.keys = f"{projects}/{self.call(keeper, 'POST', projects, {'name': 'Shop'}).data()['id']}/api-keys"
        self.key = self.make_key("Everything")
        code, said = keeper.command("credit", "add", "--organization", self.organization, "--amount", "1000000",
                                    "--reference", "tests")
        if code:
            raise RuntimeError(said)

    def mailed_token(self):
        for mail in (self.keeper.folder / "data" / "mail").glob("*.eml"):
            found = re.search(r"^[A-Za-z0-9_-]{43}$", mail.read_text(), re.MULTILINE)
            if found:
                return found[0]
        return None

    def log_in(self):
        """Logs in, because an access token is valid only for minutes."""
        answer = self.keeper.request("public", "POST", "/v1/auth/login", ACCOUNT)
        self.token = answer.data()["access_token"]

    def call(self, keeper, method, path, body=None, seconds=SECONDS):
        return keeper.request("public", method, path, body, self.token, seconds)

    def make_key(self, name):
        """Returns the id and the secret of a new key."""
        data = self.call(self.keeper, "POST", self.keys, {"name": name}).data()
        return data["id"], data["key"]

    def event(self, source):
        """Returns a new usage event."""
        return {"id": secrets.token_hex(8), "source": source, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "api_key_id": self.key[0], "model": MODEL, "kind": "chat", "prompt_tokens": 10, "completion_tokens": 5}
