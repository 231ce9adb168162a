"""The provider of the npm package `oidc-provider`, and users who sign in with it, without a browser."""

import base64
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from waits import until

TESTS = pathlib.Path(__file__).parents[2]
CLIENT, SECRET = "tollkeeper", "a-secret-of-the-tests"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Doesn't follow redirects, so that the caller gets them with their cookies."""

    def redirect_request(self, *_):
        return None


class Visitor:
    """A user who opens pages, with all cookies."""

    def __init__(self, cookies=None):
        self.cookies = dict(cookies or {})
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)

    def open(self, url, form=None):
        """Opens a page, stores its cookies, and returns the target of its redirect."""
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), "Sec-Fetch-Site": "same-origin"}
        content = urllib.parse.urlencode(form).encode() if form else None
        try:
            answer = self.opener.open(urllib.request.Request(url, content, headers))
        except urllib.error.HTTPError as error:
            answer = error
        for line in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = line.split(";")[0].partition("=")
            self.cookies[name] = value
        location = answer.headers.get("Location")
        assert answer.status in (302, 303), (url, answer.status, answer.read().decode()[:2000])
        return urllib.parse.urljoin(url, location)


class Provider:
    """A provider that is configured as `acme` in the server under test."""

    def __init__(self, server, modules):
        self.server = server
        callback = f"{server.url}/console/sign-in/acme/callback"
        environment = {"PATH": os.environ["PATH"], "NODE_PATH": str(modules)}
        command = ["node", str(TESTS / "sign_on/provider.js"), callback, CLIENT, SECRET]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        issuer = self.process.stdout.readline().strip()
        assert issuer.startswith("http://"), f"the provider says {issuer!r}"
        (server.folder / "provider-secret").write_text(SECRET)
        server.providers.write_text(
            f'[[providers]]\nid = "acme"\nname = "Acme & <b>Co</b>"\nissuer = "{issuer}"\nclient_id = "{CLIENT}"\n'
            'client_secret_file = "provider-secret"\n')
        server.command("providers", "reload")
        self.wait_until_known()

    def wait_until_known(self):
        """Waits until the server has read its providers file again, which happens within a second."""
        def attempt():
            with urllib.request.urlopen(f"{self.server.url}/v1/auth/providers") as answer:
                return json.load(answer)["data"]["providers"]

        until("the provider", attempt)

    def sign_on(self, visitor, path, claims):
        """Signs in at the provider as a user with these claims, starting at a page. Returns the URL of the last
        redirect."""
        url = visitor.open(self.server.url + path)
        hint = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        url, there = f"{url}&login_hint={hint}", Visitor()
        while not url.startswith(self.server.url):
            url = there.open(url)
        return visitor.open(url)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
