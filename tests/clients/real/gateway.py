"""A tollkeeper process with organizations, keys and money."""

import decimal
import http.client
import json
import os
import re
import socket
import subprocess
import time

PASSWORD = "Analytical-Engine-1843"
MODEL, VECTORS = "svc-1", "svc-embedding-1"
# The maximum number of tokens in an answer. The agents request more.
MAX_TOKENS = 4096
PRICES = {"prompt": "0.000002", "completion": "0.000006"}
CATALOG = f"""
[[upstreams]]
id = "stub"
kind = "vllm"
url = "%s"

[[models]]
id = "{MODEL}"
kind = "chat"
description = "A stub"
owned_by = "tests"
created = 1704067200
context_length = 200000
max_tokens = {MAX_TOKENS}
max_requests_per_min = 100000
max_concurrent_requests = 100
prices = [{{
  effective_at = "2024-01-01T00:00:00Z",
  prompt_tokens = "{PRICES["prompt"]}",
  completion_tokens = "{PRICES["completion"]}",
}}]
routes = [{{ upstream = "stub", model = "stub" }}]

[[models]]
id = "{VECTORS}"
kind = "embeddings"
description = "A stub"
owned_by = "tests"
created = 1704067200
dimension = 4
max_tokens = 8192
max_requests_per_min = 100000
max_concurrent_requests = 100
prices = [{{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "{PRICES["prompt"]}" }}]
routes = [{{ upstream = "stub", model = "stub" }}]
"""
# The limits are high, so that only the rate limit of a key refuses calls.
LIMITS = {
    f"TOLLKEEPER_LIMITS__{name}_PER_MINUTE": "100000" for name in ("READS", "WRITES", "LOGINS", "BAD_CREDENTIALS")
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Tollkeeper:
    """A tollkeeper with SQLite in a folder. Without a stub, it uses the built-in demo."""

    def __init__(self, program, folder, stub=None):
        self.program, self.folder = str(program), folder
        self.port = free_port()
        self.environment = {
            "PATH": os.environ["PATH"],
            "TOLLKEEPER_DATA_DIR": str(folder / "data"),
            "TOLLKEEPER_LISTEN": f"127.0.0.1:{self.port}",
            "TOLLKEEPER_SERVICE_LISTEN": f"127.0.0.1:{free_port()}",
            **LIMITS,
        }
        if stub:
            (folder / "catalog.toml").write_text(CATALOG % stub.url)
            self.environment["TOLLKEEPER_CATALOG_FILE"] = str(folder / "catalog.toml")
        self.log = folder / "tollkeeper.log"
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [self.program, "serve"], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )
        try:
            self.wait()
            self.sign_up(stub)
        except BaseException:
            self.stop()
            raise

    def request(self, method, path, body=None, token=None, headers=()):
        """Sends a request, and returns the status, the headers and the body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"content-type": "application/json"} if body is not None else {}
        if token:
            sent["authorization"] = f"Bearer {token}"
        connection.request(method, path, None if body is None else json.dumps(body), {**sent, **dict(headers)})
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
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"tollkeeper ended by itself: {self.log.read_text()[-2000:]}")
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"tollkeeper isn't ready after 60 s: {self.log.read_text()[-2000:]}")

    def sign_up(self, stub):
        """Creates a user, two organizations, only one of which has money, and a key for each of them."""
        account = {"email": "ada@example.com", "password": PASSWORD}
        self.data("POST", "/v1/auth/register", account | {"username": "ada"})
        self.data("POST", "/v1/auth/verify-email", {"token": self.mailed_token()})
        self.token = self.data("POST", "/v1/auth/login", account)["access_token"]
        self.organization, self.keys = self.make_organization("Acme")
        self.key = self.make_key("Everything")
        if stub:
            # With the demo, the first organization gets credit automatically.
            self.command("credit", "add", "--organization", self.organization, "--amount", "1000",
                         "--reference", "tests")
        _, poor = self.make_organization("Poor")
        self.poor_key = self.data("POST", poor, {"name": "Everything"}, self.token)["key"]

    def make_organization(self, name):
        """Creates an organization with a project. Returns the id of the organization and the path of the project's
        keys."""
        organization = self.data("POST", "/v1/organizations", {"name": name}, self.token)["id"]
        projects = f"/v1/organizations/{organization}/projects"
        project = self.data("POST", projects, {"name": "Shop"}, self.token)["id"]
        return organization, f"{projects}/{project}/api-keys"

    def make_key(self, name, **restrictions):
        body = {"name": name, **({"restrictions": restrictions} if restrictions else {})}
        return self.data("POST", self.keys, body, self.token)["key"]

    def mailed_token(self):
        for _ in range(300):
            for mail in (self.folder / "data" / "mail").glob("*.eml"):
                found = re.search(r"^[A-Za-z0-9_-]{43}$", mail.read_text(), re.MULTILINE)
                if found:
                    return found[0]
            time.sleep(0.1)
        raise SystemExit("The mail to confirm the address didn't come.")

    def command(self, *arguments):
        """Runs a command of tollkeeper, and returns its output."""
        ended = subprocess.run([self.program, *arguments], cwd=self.folder, env=self.environment, capture_output=True,
                               text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"tollkeeper {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def usage(self):
        """Returns the number of calls, the prompt and completion tokens, and the amount of the organization."""
        rows = self.data("GET", f"/v1/organizations/{self.organization}/billing/usage?group_by=month,model",
                         token=self.token)["usage"]
        calls = prompt = completion = 0
        amount = decimal.Decimal(0)
        for row in rows:
            chat, embeddings = row["chat"], row["embeddings"]
            calls += chat["requests"] + embeddings["requests"]
            prompt += chat["tokens"]["prompt"] + embeddings["tokens"]
            completion += chat["tokens"]["completion"]
            amount += decimal.Decimal(chat["amount"]) + decimal.Decimal(embeddings["amount"])
        return calls, prompt, completion, amount

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
