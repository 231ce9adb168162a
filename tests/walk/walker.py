"""Sends requests, runs commands and reads e-mails, and writes each of them to the transcript."""

import json
import time
import urllib.parse

from installation import SERVICE_TOKEN, until

PASSWORD = "Correct-Horse-7-Staple"


class Walker:
    def __init__(self, installation, transcript, catalog):
        self.installation, self.transcript, self.catalog = installation, transcript, catalog
        self.clock = installation.clock
        # The bearer tokens by the name of their owner, which appears in the transcript.
        self.bearers = {"service": SERVICE_TOKEN, "anonymous": None}
        # The ids by name.
        self.ids = {}

    def chapter(self, title):
        self.transcript.chapter(title)

    # Requests

    def call(self, method, target, caller=None, body=None, *, headers=(), listener="public", note="", last_use=False):
        """Sends a request, and writes it with its answer. Sends a body that isn't text as JSON."""
        headers = list(headers)
        if caller is not None and self.bearers[caller] is not None:
            headers.insert(0, ("authorization", f"Bearer {self.bearers[caller]}"))
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body, ensure_ascii=False)
        if body is not None and not any(name == "content-type" for name, _ in headers):
            headers.append(("content-type", "application/json"))
        answer = self.installation.send(listener, method, target, headers, body)
        said = f"as {caller}" if caller else ""
        words = ", ".join(filter(None, [said, note]))
        self.transcript.exchange(listener, method, target, headers, body, answer, words, last_use)
        # The order of ids with the same millisecond is undefined.
        time.sleep(0.002)
        return answer

    def get(self, target, caller=None, **more):
        return self.call("GET", target, caller, **more)

    def post(self, target, body=None, caller=None, **more):
        return self.call("POST", target, caller, body, **more)

    def put(self, target, body, caller=None, **more):
        return self.call("PUT", target, caller, body, **more)

    def delete(self, target, caller=None, **more):
        return self.call("DELETE", target, caller, **more)

    def form(self, target, **fields):
        kind = ("content-type", "application/x-www-form-urlencoded")
        return self.call("POST", target, None, urllib.parse.urlencode(fields), headers=[kind])

    def ask(self, target, body=None, caller="service", **more):
        """Sends a POST request to the service listener."""
        return self.call("POST", target, caller, body, listener="service", **more)

    def raw(self, listener, data, note):
        """Sends bytes that aren't a valid request, and writes the answer."""
        answer = self.installation.send_raw(listener, data)
        self.transcript.exchange(listener, "-", note, [], None, answer)
        return answer

    # Commands and e-mails

    def command(self, *arguments, sort=False, **changes):
        ended = self.installation.command(*arguments, **changes)
        self.transcript.command(arguments, ended, sort)
        time.sleep(0.002)
        return ended

    def mail(self, to, subject):
        """Waits for the next e-mail with this text in its subject, and returns the token in it, if any."""

        def find():
            found = self.installation.mails()
            return next((mail for mail in found if to in mail[2] and subject in mail[3]), None)

        name, sender, to, subject, text = until(find, f"a mail to {to}: {subject}")
        self.installation.read_mails.add(name)
        self.transcript.mail(sender, to, subject, text)
        return next((line.strip() for line in text.splitlines() if len(line.strip()) == 43), None)

    # Users

    def sign_up(self, name, password=PASSWORD, verify=True):
        """Creates an account with a session, and stores its bearer token under the name."""
        body = {"email": f"{name}@example.com", "password": password, "username": name}
        self.ids[name] = self.post("/v1/auth/register", body).data["user"]["id"]
        token = self.mail(f"{name}@example.com", "Confirm")
        if verify:
            self.post("/v1/auth/verify-email", {"token": token})
        self.log_in(name, password)
        return token

    def log_in(self, name, password=PASSWORD, as_=None):
        data = self.post("/v1/auth/login", {"email": f"{name}@example.com", "password": password}).data
        self.bearers[as_ or name] = data["access_token"]
        self.bearers[f"{as_ or name}'s refresh token"] = data["refresh_token"]

    def make_key(self, word, path, body, caller="ada"):
        data = self.post(f"{path}/api-keys", body, caller).data
        self.ids[word], self.bearers[word] = data["id"], data["key"]
        return data["id"]

    def invite(self, name, role, organization, caller="ada"):
        self.post(f"{organization}/invitations", {"email": f"{name}@example.com", "role": role}, caller)
        token = self.mail(f"{name}@example.com", "Invitation")
        self.form("/invitations/accept", token=token)

    def wait_for(self, holds):
        until(holds, f"the server:\n{self.installation.log}")

    def begin(self):
        """Starts the server for the first time."""
        self.version = self.installation.command("--version").stdout.split()[1]
        self.start()

    def start(self, **changes):
        """Starts the server with changed settings."""
        self.installation.start(**changes)
        known = self.transcript.words.known
        known.clear()
        known[str(self.installation.folder)] = "<folder>"
        known[str(self.installation.folder).replace("/", "%2F")] = "<folder>"
        known[self.version] = "<version>"
        for listener, port in self.installation.addresses.items():
            known[f"127.0.0.1:{port}"] = f"<{listener} address>"

    def rest_of_mails(self):
        self.chapter("unexpected mails")
        tell = self.transcript.words.tell
        mails = sorted((to, subject, tell(text), sender) for _, sender, to, subject, text in self.installation.mails())
        for to, subject, text, sender in mails:
            self.transcript.mail(sender, to, subject, text)
