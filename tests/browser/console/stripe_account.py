"""A fake Stripe account with the objects that pages need: customers, and checkout pages that are never paid. Requests
fail for one amount."""

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

# Requests with this amount, in cents, are answered with an error.
OUT_OF_ORDER = "66666"


class StripeAccount:
    """A running account. `settings` are those of a server that uses this account for payments."""

    def __init__(self, folder):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.server.sessions = {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.settings = {"TOLLKEEPER_PAYMENTS__STRIPE_API_URL": self.server.url}
        for name, secret in [("secret_key", "sk_test_pages"), ("webhook_secret", "whsec_pages")]:
            file = folder.absolute() / f"stripe_{name}"
            file.write_text(secret)
            file.chmod(0o600)
            self.settings[f"TOLLKEEPER_PAYMENTS__STRIPE_{name.upper()}_FILE"] = str(file)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        form = dict(parse_qsl(self.rfile.read(int(self.headers.get("content-length", 0))).decode()))
        path, now = urlsplit(self.path).path, int(time.time())
        if OUT_OF_ORDER in form.values():
            return self.answer(500, {"error": {"type": "api_error", "message": "Out of order"}})
        if path == "/v1/customers":
            return self.answer(200, {"id": f"cus_{secrets.token_hex(8)}", "object": "customer", "livemode": False, "created": now,
                                     "name": form.get("name"), "email": None, "metadata": {}})
        if path == "/v1/checkout/sessions":
            identifier = f"cs_test_{secrets.token_hex(12)}"
            self.server.sessions[identifier] = {
                "id": identifier, "object": "checkout.session", "mode": form["mode"], "status": "open", "payment_status": "unpaid",
                "url": f"{self.server.url}/c/pay/{identifier}", "expires_at": now + 86_400, "created": now, "livemode": False,
                "customer": form["customer"], "currency": "usd", "client_reference_id": form.get("client_reference_id"), "metadata": {},
                "payment_intent": None, "setup_intent": None, "invoice": None,
            }
            return self.answer(200, self.server.sessions[identifier])
        self.answer(404, {"error": {"type": "invalid_request_error", "message": "Not here"}})

    def do_GET(self):
        session = self.server.sessions.get(urlsplit(self.path).path.split("/")[-1])
        missing = {"error": {"type": "invalid_request_error", "message": "Not here"}}
        self.answer(200 if session else 404, session or missing)

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
