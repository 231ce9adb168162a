"""Calls of the API, and the mails that the server has sent."""

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
    """Calls of the API by one program; `service` is the URL of the listener for inference servers."""

    def __init__(self, url, service, data):
        self.url, self.service, self.data = url, service, pathlib.Path(data)

    def call(self, method, path, body=None, token=None, base=None):
        """Returns the status and the body of an answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request((base or self.url) + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def data_of(self, method, path, body=None, token=None):
        """Returns the data of an answer that has to be a success."""
        status, answer = self.call(method, path, body, token)
        assert 200 <= status < 300, (method, path, status, answer)
        return json.loads(answer)["data"]

    def post(self, path, body, token=None):
        return self.data_of("POST", path, body, token)

    def get(self, path, token=None):
        return self.data_of("GET", path, None, token)

    def chat(self, key, model="svc-1", words="Who are you?", expected=200):
        """Makes a model call, which the demo answers."""
        body = {"model": model, "messages": [{"role": "user", "content": words}]}
        status, answer = self.call("POST", "/v1/chat/completions", body, key)
        assert status == expected, (status, answer)

    def use(self, events):
        """Reports usage as an inference server does."""
        token = (self.data / "service.token").read_text().strip()
        status, answer = self.call("POST", "/service/v1/usage", {"events": events}, token, self.service)
        assert status == 200, (status, answer)
        refused = [result for result in json.loads(answer)["results"] if result["status"] != "accepted"]
        assert not refused, refused

    def mailed_link(self, path, address, after=0):
        """Returns the newest link to a page in the mails to an address, once there are more than `after`.

        The server writes them after its answer.
        """

        def attempt():
            links = []
            for file in sorted((self.data / "mail").glob("*.eml")):
                mail = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
                if address in mail["To"]:
                    # A name that isn't ASCII makes the text quoted-printable.
                    lines = mail.get_body(("plain",)).get_content().splitlines()
                    links += [line.strip() for line in lines if line.strip().startswith(f"{self.url}{path}?token=")]
            return links[-1] if len(links) > after else None

        return until(f"a mail to {address} with a link to {path}", attempt)


def one_time_code(secret, step):
    """Returns the code of an authenticator app (RFC 6238) for a step of 30 seconds."""
    digest = hmac.digest(base64.b32decode(secret), step.to_bytes(8, "big"), "sha1")
    start = digest[-1] & 15
    return f"{(int.from_bytes(digest[start:start + 4], 'big') & 0x7FFF_FFFF) % 1_000_000:06}"
