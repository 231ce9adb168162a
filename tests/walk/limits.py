"""Servers with tiny limits, with other settings, and with slow or greedy clients."""

import threading
import time

from walker import PASSWORD

LIMIT = "TOLLKEEPER_LIMITS__"


def walk(w):
    rates(w)
    counts(w)
    attempts(w)
    passwords(w)
    settings(w)
    bodies(w)


def restart(w, **changes):
    w.installation.stop()
    w.start(**changes)
    w.installation.wait_until_ready()


def rates(w):
    w.chapter("rates")
    restart(w, **{f"{LIMIT}READS_PER_MINUTE": "1", f"{LIMIT}WRITES_PER_MINUTE": "1",
                  f"{LIMIT}REGISTRATIONS_PER_MINUTE": "1", f"{LIMIT}BAD_CREDENTIALS_PER_MINUTE": "1"})
    for _ in range(2):
        w.get(w.acme, "ada")
    w.get("/v1/auth/me", "ada", note="that has no separate limit")
    for _ in range(2):
        w.put(w.acme, {}, "ada")
    for _ in range(2):
        w.post("/v1/auth/register", {})
    for _ in range(2):
        w.get("/v1/models", "no key")
    w.get("/v1/models", "ada", note="with a good credential")
    for _ in range(2):
        w.ask("/service/v1/usage", {}, "no key")
    w.ask("/service/v1/usage", {})
    restart(w, **{f"{LIMIT}LOGINS_PER_MINUTE": "1"})
    for _ in range(2):
        w.post("/v1/auth/login", {})
    for page in ["/verify-email", "/reset-password", "/change-email", "/invitations/accept"]:
        w.form(page, token="x")
        w.get(page)
    w.post("/v1/auth/change-password", {}, "ada")
    w.post("/v1/auth/change-email", {}, "ada")


def counts(w):
    w.chapter("counts")
    restart(w, **{f"{LIMIT}ORGANIZATIONS_PER_PERSON": "1", f"{LIMIT}PROJECTS_PER_ORGANIZATION": "1",
                  f"{LIMIT}OPEN_INVITATIONS_PER_ORGANIZATION": "1", f"{LIMIT}API_KEYS_PER_PROJECT": "1",
                  f"{LIMIT}SESSIONS_PER_PERSON": "1"})
    w.post("/v1/organizations", {"name": "One more"}, "ada")
    w.post(f"{w.acme}/projects", {"name": "One more"}, "ada")
    w.post(f"{w.acme}/invitations", {"email": "more@example.com"}, "ada")
    for name in ["first", "second"]:
        w.post(f"{w.search}/api-keys", {"name": name}, "ada")
    w.log_in("cem", as_="cem's newer session")
    w.get("/v1/auth/me", "cem")


def attempts(w):
    w.chapter("attempts and mails")
    restart(w, **{f"{LIMIT}LOGIN_FAILURES": "1", f"{LIMIT}PASSWORD_CHANGES_PER_HOUR": "1",
                  f"{LIMIT}PASSWORD_RESETS_PER_HOUR": "1", f"{LIMIT}VERIFICATIONS_PER_HOUR": "1",
                  f"{LIMIT}MAILS_PER_RECIPIENT_HOUR": "1", "TOLLKEEPER_REQUIRE_VERIFIED_EMAIL": "true"})
    w.post("/v1/auth/login", {"email": "una@example.com", "password": PASSWORD})
    for _ in range(3):
        w.post("/v1/auth/login", {"email": "vic@example.com", "password": "wrong"})
    w.post("/v1/auth/login", {"email": "vic@example.com", "password": PASSWORD}, note="while it has to wait")
    for new, old in [("Another-Horse-8-Nail", PASSWORD), (PASSWORD, "Another-Horse-8-Nail")]:
        w.post("/v1/auth/change-password", {"current_password": old, "new_password": new,
               "new_password_confirmation": new}, "dan")
    for _ in range(2):
        w.post("/v1/auth/forgot-password", {"email": "pam@example.com"})
    w.mail("pam@example.com", "Choose a new password")
    for name in ["payer", "voided"]:
        owner = {"payer": "rob", "voided": "pia"}[name]
        w.post(f"/v1/organizations/{w.ids[name]}/invitations", {"email": "many@example.com"}, owner)
    w.mail("many@example.com", "Invitation")


def passwords(w):
    w.chapter("a full queue of passwords")
    restart(w, TOLLKEEPER_PASSWORDS__HASH_THREADS="1", TOLLKEEPER_PASSWORDS__QUEUE="1")
    body = f'{{"email": "ada@example.com", "password": "{PASSWORD}"}}'
    kind = [("content-type", "application/json")]

    def refused():
        answers = []
        send = lambda: answers.append(w.installation.send("public", "POST", "/v1/auth/login", kind, body))
        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return next((answer for answer in answers if answer.status == 429), None)

    found = []
    w.wait_for(lambda: found.append(refused()) or found[-1])
    w.transcript.exchange("public", "POST", "/v1/auth/login", kind, body, found[-1], "one of several at once")


def settings(w):
    w.chapter("other settings")
    restart(w, TOLLKEEPER_API_KEYS__MANAGEMENT="none", TOLLKEEPER_CORS_ORIGINS="https://app.example.com",
            TOLLKEEPER_SERVER__HSTS_SECONDS="3600", TOLLKEEPER_TRUSTED_PROXIES="127.0.0.1")
    w.make_key("last key", w.search, {"name": "Last", "restrictions": {"allowed_ips": ["203.0.113.7"]}})
    for hops in [None, "203.0.113.7", "198.51.100.1, 203.0.113.7", "203.0.113.7, 198.51.100.1", "unknown"]:
        more = [("x-forwarded-for", hops)] if hops else []
        w.get("/v1/models/chat-1", "last key", headers=more)
        w.get(w.search, "last key", headers=more)
    for origin in ["https://app.example.com", "https://evil.example.com"]:
        asked = [("origin", origin), ("access-control-request-method", "PUT"),
                 ("access-control-request-headers", "authorization, x-stainless-os")]
        w.call("OPTIONS", w.acme, headers=asked)
        w.get(w.acme, "ada", headers=[("origin", origin)])
    restart(w, TOLLKEEPER_API_KEYS__MANAGEMENT="read", TOLLKEEPER_TRUSTED_PROXIES="127.0.0.1",
            TOLLKEEPER_SIGN_IN__TOTP="false", TOLLKEEPER_SIGN_IN__PASSKEYS="false",
            TOLLKEEPER_SIGN_IN__REQUIRE_SECOND_FACTOR="everyone", TOLLKEEPER_REGISTRATION="closed")
    w.log_in("ada", as_="ada lately")
    w.post("/v1/auth/totp", None, "ada lately")
    w.post("/v1/auth/passkey-login/options")
    w.get(w.acme, "ada lately")
    w.post("/v1/auth/register", {"email": "new@example.com", "password": PASSWORD, "username": "newcomer"})
    from_there = [("x-forwarded-for", "203.0.113.7")]
    w.get(w.search, "last key", headers=from_there)
    w.put(w.search, {}, "last key", headers=from_there)


def bodies(w):
    w.chapter("slow and greedy clients")
    restart(w, TOLLKEEPER_SERVER__HEAD_TIMEOUT_SECONDS="1", TOLLKEEPER_SERVER__BODY_TIMEOUT_SECONDS="1")
    for listener in ["public", "service"]:
        w.raw(listener, b"GET /healthz HTTP/1.1\r\nhost: a\r\n", "a head that doesn't end")
    head = lambda path, length, bearer="": (
        f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
        + (f"authorization: Bearer {bearer}\r\n" if bearer else "") + "\r\n{").encode()
    for path in ["/v1/auth/login", "/reset-password"]:
        w.raw("public", head(path, 100), f"a body for {path} that doesn't end")
    w.raw("service", head("/service/v1/usage", 100, w.bearers["service"]), "a body that doesn't end")
    restart(w, TOLLKEEPER_SERVER__BODY_BUDGET_BYTES="67108864")
    # The body without its last byte.
    usage = head("/service/v1/usage", 2**20, w.bearers["service"]) + b" " * (2**20 - 2)
    held = [w.installation.send_raw("service", usage, then_wait=False) for _ in range(64)]
    metric = 'tollkeeper_queue_length{queue="request_body_bytes"} 67108864'
    bearer = [("authorization", f"Bearer {w.bearers['service']}")]
    w.wait_for(lambda: metric in w.installation.send("service", "GET", "/metrics", bearer).text)
    w.raw("public", head("/v1/auth/login", 100), "a login's body, while others take all of the room")
    w.raw("service", head("/service/v1/usage", 100, w.bearers["service"]), "a report's body, the same")
    for stream in held:
        stream.close()
