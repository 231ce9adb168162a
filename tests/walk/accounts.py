"""Accounts, sessions, and the pages that e-mails link to."""

import base64
import hmac
import json
import pathlib
import struct
import sys

from installation import PUBLIC_URL
from walker import PASSWORD

sys.path.append(str(pathlib.Path(__file__).parents[1] / "passkeys"))
from security_key import SecurityKey

NEW_PASSWORD = "Wrong-Battery-9-Clip"
FORM = ("content-type", "application/x-www-form-urlencoded")


def walk(w):
    documents(w)
    not_http(w)
    register(w)
    sessions(w)
    settings(w)
    passwords(w)
    second_factor(w)
    passkeys(w)
    pages(w)


def documents(w):
    w.chapter("documents and health")
    for listener in ["public", "service"]:
        for path in ["/healthz", "/readyz", "/nowhere", "/v1/nowhere"]:
            w.get(path, listener=listener)
        w.call("HEAD", "/healthz", listener=listener)
        w.call("DELETE", "/healthz", listener=listener)
    for path in ["/", "/v1/models/", "/reset-password/nowhere", "/v1/auth/login", "/service/v1/usage"]:
        w.get(path)
    w.call("PATCH", "/reset-password")
    w.call("OPTIONS", "/v1/models")
    w.get("/.well-known/jwks.json")
    document = w.installation.send("public", "GET", "/openapi.json")
    w.transcript.answers.append(("public", "GET", "/openapi.json", document.status))
    w.transcript.document("GET /openapi.json", document.text)
    printed = w.installation.command("openapi").stdout
    w.transcript.document("tollkeeper openapi", json.dumps({"equal": json.loads(printed) == json.loads(document.text)}))
    # The pages are generated from the same document.
    for path in ["/docs", "/docs/accounts"]:
        page = w.installation.send("public", "GET", path)
        w.transcript.answers.append(("public", "GET", path, page.status))
        w.transcript.document(f"GET {path}", json.dumps({"status": page.status}))
    w.get("/docs/nowhere")


def not_http(w):
    w.chapter("what isn't HTTP")
    for listener in ["public", "service"]:
        w.raw(listener, b"hello\r\n\r\n", "no HTTP")
        w.raw(listener, b"GET /healthz HTTP/1.1\r\n\r\n", "no Host")
        w.raw(listener, b"GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "two Hosts")
        w.raw(listener, b"POST /v1/auth/login HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", "an encoding")
        many = b"".join(b"x-%d: y\r\n" % number for number in range(101))
        w.raw(listener, b"GET /healthz HTTP/1.1\r\nhost: a\r\n" + many + b"\r\n", "101 headers")
        w.raw(listener, b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", "a long head")


def register(w):
    w.chapter("registration")
    good = {"email": "ada@example.com", "password": PASSWORD, "username": "ada"}
    post = lambda **changes: w.post("/v1/auth/register", {**good, **changes})
    w.post("/v1/auth/register", {})
    w.post("/v1/auth/register", "")
    w.post("/v1/auth/register", "[]")
    w.post("/v1/auth/register", '{"email": "a", "email": "b"}')
    post(email=1, password=None, username=True, full_name=[], phone={})
    post(nickname="ada", emial="x")
    for email in ["ada", "ada@", "a b@example.com", "ada@[127.0.0.1]", "x" * 250 + "@example.com"]:
        post(email=email)
    for username in ["ad", "a" * 65, "ada lovelace", "root", "adа", ""]:
        post(username=username)
    for password in ["xK4mq9T", "ALLUPPER7LETTERS", "alllower7letters", "NoDigitsInHere", "Password1", "Lovelace 7x",
                     "xK4mq9Tz" * 17, ""]:
        post(password=password, full_name="Ada Lovelace")
    post(full_name="x" * 201)
    post(full_name="a\u0000b")
    for phone in ["12345", "+0999 12345678", "call me"]:
        post(phone=phone)
    data = post(full_name=" Ada Lovelace ", phone="+44 (0)1632 960961").data
    w.ids["ada"] = data["user"]["id"]
    post(username="ada2")
    post(email="Ada@Example.com", username="ada2")
    post(email="ada2@example.com", username="ADA")
    token = w.mail("ada@example.com", "Confirm")
    for body in [{}, {"token": 1}, {"token": ""}, {"token": "x" * 43}, {"token": "x" * 600}]:
        w.post("/v1/auth/verify-email", body)
    w.post("/v1/auth/verify-email", {"token": token})
    w.post("/v1/auth/verify-email", {"token": token}, note="again")


def sessions(w):
    w.chapter("sessions")
    for body in [{}, {"email": "ada@example.com"}, {"email": "ada@example.com", "password": "wrong"},
                 {"email": "nobody@example.com", "password": PASSWORD},
                 {"email": "ada@example.com", "password": PASSWORD, "remember_me": "yes"}]:
        w.post("/v1/auth/login", body)
    w.log_in("ada")
    data = w.post("/v1/auth/login", {"email": "ADA@example.com", "password": PASSWORD, "remember_me": True}).data
    w.bearers["ada's other session"] = data["access_token"]
    w.bearers["its refresh token"] = data["refresh_token"]
    w.get("/v1/auth/me", "ada")
    w.call("HEAD", "/v1/auth/me", "ada")
    w.get("/v1/auth/me", "ada's refresh token")
    w.post("/v1/auth/refresh-token", None, "its refresh token")
    w.post("/v1/auth/refresh-token", None, "ada")
    w.post("/v1/auth/refresh-token")
    w.post("/v1/auth/logout", None, "its refresh token")
    w.post("/v1/auth/logout", None, "ada's other session")
    w.get("/v1/auth/me", "ada's other session", note="after the logout")
    w.post("/v1/auth/logout", None, "ada's other session", note="again")
    w.post("/v1/auth/refresh-token", None, "its refresh token", note="after the logout")
    broken = w.bearers["ada"][:-4] + "AAAA"
    for value in ["Basic YWRhOng=", "Bearer", "Bearer ", "Bearer x", "bearer   x.y.z", f"Bearer {broken}"]:
        w.get("/v1/auth/me", headers=[("authorization", value)])
    two = [("authorization", f"Bearer {w.bearers['ada']}"), ("authorization", "Bearer y")]
    w.get("/v1/auth/me", headers=two, note="two headers")
    w.get("/v1/auth/me", headers=[("authorization", f"bEARER   {w.bearers['ada']}")], note="another case")


def settings(w):
    w.chapter("settings of one's own account")
    first = w.sign_up("ann", verify=False)
    w.post("/v1/auth/resend-verification", None, "ann")
    token = w.mail("ann@example.com", "Confirm")
    for link in [first, token]:
        w.post("/v1/auth/verify-email", {"token": link})
    w.post("/v1/auth/resend-verification", None, "ann", note="when there is nothing to verify")
    for body in [{}, {"username": "Ann", "full_name": "Ann Example", "phone": "+44 1632 960962"}, {"full_name": None, "phone": None},
                 {"username": None}, {"username": "root"}, {"username": "ada"}, {"phone": "12"}, {"email": "ann@example.org"}]:
        w.put("/v1/auth/me", body, "ann")
    w.log_in("ann", as_="ann elsewhere")
    w.get("/v1/auth/sessions", "ann")
    w.get("/v1/auth/sessions?page_size=1&page=2", "ann")
    w.get("/v1/auth/sessions?page=0", "ann")
    first_of = lambda caller: w.get("/v1/auth/sessions?page_size=1", caller).data["sessions"][0]["id"]
    w.delete(f"/v1/auth/sessions/{first_of('ada')}", "ann", note="another person's")
    w.delete("/v1/auth/sessions/nowhere", "ann")
    newest = first_of("ann")
    for note in ["", "again"]:
        w.delete(f"/v1/auth/sessions/{newest}", "ann", note=note)
    w.get("/v1/auth/me", "ann elsewhere")
    w.log_in("ann", as_="ann elsewhere")
    w.get("/v1/auth/providers")
    w.get("/v1/auth/connections", "ann")
    w.delete("/v1/auth/connections/nowhere", "ann")
    w.delete("/v1/auth/sessions", "ann")
    w.get("/v1/auth/me", "ann elsewhere")

    change = lambda email, password=PASSWORD: w.post(
        "/v1/auth/change-email", {"new_email": email, "password": password}, "ann")
    w.post("/v1/auth/change-email", {}, "ann")
    change("ann", "wrong")
    change("ann@example.com", "wrong")
    change("ann@example.org", "wrong")
    change("ADA@example.com")
    w.mail("ADA@example.com", "Someone tried to use your e-mail address")
    w.mail("ann@example.com", "A new e-mail address")
    change("ann@example.org")
    token = w.mail("ann@example.org", "Confirm your new e-mail address")
    w.mail("ann@example.com", "A new e-mail address")
    w.log_in("ann", as_="ann elsewhere")
    w.get(f"/change-email?token={token}")
    confirm = lambda password: w.form("/change-email", token=token, password=password)
    confirm("")
    confirm("wrong")
    confirm(PASSWORD)
    confirm(PASSWORD)
    w.mail("ann@example.com", "Your e-mail address was changed")
    w.get("/v1/auth/me", "ann")
    w.get("/v1/auth/me", "ann elsewhere", note="after the change")
    w.post("/v1/auth/login", {"email": "ann@example.com", "password": PASSWORD})
    w.post("/v1/auth/login", {"email": "ann@example.org", "password": PASSWORD})


def code_of(secret, time):
    """Returns the code that an authenticator app shows at this time (RFC 6238)."""
    step = struct.pack(">q", int(time.timestamp()) // 30)
    digest = hmac.digest(base64.b32decode(secret), step, "sha1")
    number = struct.unpack_from(">I", digest, digest[19] & 15)[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06}"


def second_factor(w):
    w.chapter("second factor")
    w.sign_up("kay")
    w.log_in("kay", as_="kay elsewhere")
    confirm = lambda body: w.post("/v1/auth/totp/confirm", body, "kay")
    w.get("/v1/auth/second-factor", "kay")
    w.delete("/v1/auth/totp", "kay")
    w.post("/v1/auth/recovery-codes", None, "kay")
    confirm({})
    confirm({"code": "letters"})
    secret = w.post("/v1/auth/totp", None, "kay").data["secret"]
    confirm({"code": "letters"})
    codes = confirm({"code": code_of(secret, w.clock.now())}).data["recovery_codes"]
    w.mail("kay@example.com", "An authenticator app was added")
    w.get("/v1/auth/second-factor", "kay")
    w.get("/v1/auth/me", "kay elsewhere")
    login = lambda **fields: w.post("/v1/auth/login", {"email": "kay@example.com", "password": PASSWORD, **fields})
    for fields in [{}, {"one_time_code": "letters"}, {"one_time_code": 5}, {"one_time_code": codes[0]}, {"one_time_code": codes[0]}]:
        login(**fields)
    w.mail("kay@example.com", "A recovery code was used on your account")
    prove = lambda body: w.post("/v1/auth/reauthenticate", body, "kay")
    for body in [{}, {"password": "wrong"}, {"password": PASSWORD}, {"password": PASSWORD, "one_time_code": "letters"}]:
        prove(body)
    w.bearers["kay"] = prove({"password": PASSWORD, "one_time_code": codes[1]}).data["access_token"]
    w.mail("kay@example.com", "A recovery code was used on your account")
    w.post("/v1/auth/recovery-codes", None, "kay")
    w.delete("/v1/auth/totp", "kay")
    w.mail("kay@example.com", "A second factor was removed from your account")
    login()
    w.command("user", "disable", "kay@example.com")
    login()
    w.mail("kay@example.com", "An administrator changed your account")
    w.command("user", "show", "kay@example.com")
    w.command("user", "enable", "kay@example.com", "--json")
    login()


def passkeys(w):
    w.chapter("passkeys")
    w.sign_up("kai")
    origin = PUBLIC_URL
    path, key = "/v1/auth/passkeys", SecurityKey()
    add = lambda ceremony, credential, **more: w.post(
        path, {"ceremony": ceremony, "credential": credential, "name": "Laptop", **more}, "kai")
    w.get(path, "kai")
    w.post(path, {}, "kai")
    w.post(path, {"ceremony": "x", "credential": "x", "name": 5, "asked_after_password": "x"}, "kai")
    options = w.post(f"{path}/options", None, "kai").data
    made = key.make(options["public_key"], origin)
    add("x", made)
    add(options["ceremony"], {})
    added = add(options["ceremony"], made).data
    w.mail("kai@example.com", "A passkey was added")
    add(options["ceremony"], made, asked_after_password=False)
    passkey = f"{path}/{added['passkey']['id']}"
    w.get(path, "kai")
    w.put(passkey, {"name": "Work laptop"}, "kai")
    w.put(passkey, {"name": None}, "kai")
    w.put(f"{path}/unknown", {"name": "Phone"}, "kai")

    login = "/v1/auth/passkey-login"
    options = w.post(f"{login}/options").data
    signed = key.sign(options["public_key"], origin)
    w.post(login, {})
    w.post(login, {"ceremony": options["ceremony"], "credential": made})
    data = w.post(login, {"ceremony": options["ceremony"], "credential": signed, "remember_me": True}).data
    w.post(login, {"ceremony": options["ceremony"], "credential": signed})
    w.bearers["kai"] = data["access_token"]

    prove = "/v1/auth/reauthenticate"
    options = w.post(f"{prove}/options", None, "kai").data
    w.post(prove, {"ceremony": options["ceremony"]}, "kai")
    signed = key.sign(options["public_key"], origin)
    w.bearers["kai"] = w.post(prove, {"ceremony": options["ceremony"], "credential": signed}, "kai").data["access_token"]
    w.get("/v1/auth/second-factor", "kai")
    w.delete(passkey, "kai")
    w.mail("kai@example.com", "A passkey was removed from your account")
    w.delete(passkey, "kai")
    w.post(f"{prove}/options", None, "kai")


def passwords(w):
    w.chapter("passwords")
    w.sign_up("rob")
    w.log_in("rob", as_="rob elsewhere")
    change = lambda current, new, again=None, caller="rob": w.post(
        "/v1/auth/change-password",
        {"current_password": current, "new_password": new, "new_password_confirmation": again or new}, caller)
    w.post("/v1/auth/change-password", {}, "rob")
    change("wrong", NEW_PASSWORD)
    change(PASSWORD, NEW_PASSWORD, "another")
    change(PASSWORD, PASSWORD)
    change(PASSWORD, "short")
    change(PASSWORD, NEW_PASSWORD)
    w.mail("rob@example.com", "Your password was changed")
    w.get("/v1/auth/me", "rob")
    w.get("/v1/auth/me", "rob elsewhere")
    for body in [{}, {"email": "x" * 400}, {"email": "nobody@example.com"}, {"email": "rob@example.com"}]:
        w.post("/v1/auth/forgot-password", body)
    token = w.mail("rob@example.com", "Choose a new password")
    reset = lambda token, password, again=None: w.post(
        "/v1/auth/reset-password",
        {"token": token, "password": password, "password_confirmation": again or password})
    w.post("/v1/auth/reset-password", {})
    reset("x" * 43, PASSWORD)
    reset(token, PASSWORD, "another")
    reset(token, "weak")
    reset(token, NEW_PASSWORD)
    reset(token, PASSWORD)
    reset(token, PASSWORD)
    w.mail("rob@example.com", "Your password was changed")
    w.get("/v1/auth/me", "rob", note="after the reset")
    w.post("/v1/auth/login", {"email": "rob@example.com", "password": NEW_PASSWORD})
    w.log_in("rob")


def pages(w):
    w.chapter("pages behind mailed links")
    w.expired = w.sign_up("pat", verify=False)
    w.post("/v1/auth/register", {"email": "pia@example.com", "password": PASSWORD, "username": "pia"})
    token = w.mail("pia@example.com", "Confirm")
    for page in ["/verify-email", "/reset-password", "/change-email", "/invitations/accept"]:
        w.get(page)
        w.get(f"{page}?token={'x' * 43}")
        w.get(f"{page}?token=short")
        w.get(f"{page}?token=a&token=b")
        w.call("HEAD", page)
        w.form(page)
        w.form(page, token="x" * 43)
        w.post(page, "token=x", headers=[("content-type", "text/plain")])
        w.post(page, "token=%ff", headers=[FORM])
        w.post(page, "token=" + "x" * 20_000, headers=[FORM])
        w.post(page, "&".join(f"f{number}=x" for number in range(300)), headers=[FORM])
    verify = lambda **fields: w.form("/verify-email", token=token, **fields)
    verify()
    verify(password="")
    verify(password="wrong")
    verify(new_password="weak", new_password_confirmation="weak")
    verify(new_password=NEW_PASSWORD)
    verify(new_password=NEW_PASSWORD, new_password_confirmation="another")
    verify(new_password=NEW_PASSWORD, new_password_confirmation=NEW_PASSWORD)
    verify(password=NEW_PASSWORD)
    w.log_in("pia", NEW_PASSWORD)
    w.post("/v1/auth/forgot-password", {"email": "pia@example.com"})
    token = w.mail("pia@example.com", "Choose a new password")
    w.get(f"/reset-password?token={token}")
    reset = lambda password, again: w.form(
        "/reset-password", token=token, password=password, password_confirmation=again)
    reset("weak", "weak")
    reset(PASSWORD, "another")
    reset(NEW_PASSWORD, NEW_PASSWORD)
    reset(PASSWORD, PASSWORD)
    reset(PASSWORD, PASSWORD)
    w.log_in("pia")
