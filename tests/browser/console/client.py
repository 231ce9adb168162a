"""Calls of the API, and the e-mails that the server has sent."""

import base64
import email
import email.policy
import hmac
import json
import pathlib
import urllib.error
import urllib.request

from waits import until


class Client:
    """A client of the API. `service` is the URL of the service listener."""

    def __init__(self, url, service, data):
        self.url, self.service, self.data = url, service, pathlib.Path(data)

    def call(self, method, path, body=None, token=None, base=None):
        """Sends a request, and returns the status and the body of the response."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request((base or self.url) + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def data_of(self, method, path, body=None, token=None):
        """Sends a request that must succeed, and returns the data of the response."""
        status, answer = self.call(method, path, body, token)
        assert 200 <= status < 300, (method, path, status, answer)
        return json.loads(answer)["data"]

    def post(self, path, body, token=None):
        return self.data_of("POST", path, body, token)

    def get(self, path, token=None):
        return self.data_of("GET", path, None, token)

    def chat(self, key, model="svc-1", words="Who are you?", expected=200):
        """Sends a chat request, which the demo answers."""
        body = {"model": model, "messages": [{"role": "user", "content": words}]}
        status, answer = self.call("POST", "/v1/chat/completions", body, key)
        assert status == expected, (status, answer)

    def use(self, events):
        """Reports usage, as an inference server does."""
        token = (self.data / "service.token").read_text().strip()
        status, answer = self.call("POST", "/service/v1/usage", {"events": events}, token, self.service)
        assert status == 200, (status, answer)
        refused = [result for result in json.loads(answer)["results"] if result["status"] != "accepted"]
        assert not refused, refused

    def mailed_link(self, path, address, after=0):
        """Returns the newest link to a page in the e-mails to an address, once more than `after` links exist.

        The server writes e-mails after it has sent its response.
        """

        def attempt():
            links = []
            for file in sorted((self.data / "mail").glob("*.eml")):
                mail = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
                if address in mail["To"]:
                    # If a name isn't ASCII, the text is quoted-printable.
                    lines = mail.get_body(("plain",)).get_content().splitlines()
                    links += [line.strip() for line in lines if line.strip().startswith(f"{self.url}{path}?token=")]
            return links[-1] if len(links) > after else None

        return until(f"a mail to {address} with a link to {path}", attempt)


def one_time_code(secret, step):
    """Returns the code of an authenticator app (RFC 6238) for a time step of 30 seconds."""
    digest = hmac.digest(base64.b32decode(secret), step.to_bytes(8, "big"), "sha1")
    start = digest[-1] & 15
    return f"{(int.from_bytes(digest[start:start + 4], 'big') & 0x7FFF_FFFF) % 1_000_000:06}"
