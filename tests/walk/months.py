"""Time: clock changes, expiry, invoices, and deleted organizations."""

import datetime

import service
from walker import PASSWORD

PEOPLE = ["ada", "bob", "cem", "vic", "dan", "pam", "eve", "rob", "pia"]


def walk(w):
    distrust(w)
    expiries(w)
    invoices(w)
    corrections(w)
    settlements(w)
    deletions(w)


def move(w, notices, **by):
    """Advances the clock of the running server, and waits until the server reports `notices`."""
    w.clock.advance(datetime.timedelta(**by))

    def is_settled():
        text = w.installation.send("public", "GET", "/readyz").text
        # The feed of changes is trusted again once it was read at the new time.
        return notices in text and '"feed"' not in text

    w.wait_for(is_settled)


def accept(w):
    w.command("clock", "accept", "--json")
    w.wait_for(w.installation.is_ready)


def distrust(w):
    w.chapter("a clock that is not trusted")
    move(w, "according to the elapsed time", days=23)
    for listener in ["public", "service"]:
        w.get("/readyz", listener=listener)
    w.get("/v1/auth/me", "ada", note="with a token that has expired")
    refreshed = w.post("/v1/auth/refresh-token", None, "ada's refresh token")
    w.bearers["ada's old session"] = refreshed.data["access_token"]
    w.post("/v1/auth/totp", None, "ada's old session")
    for person in PEOPLE:
        w.log_in(person)
    w.ask("/service/v1/authorize", service.question(w))
    w.ask("/service/v1/authorize", service.question(w, reserve=False))
    service.report(w, service.event(w, 1))
    w.delete(w.poor, "ada")
    for command in [["health"], ["clock", "show"], ["clock", "show", "--json"]]:
        w.command(*command)
    accept(w)
    w.command("clock", "show")


def expiries(w):
    w.chapter("expiries")
    for path, caller in [(w.acme, "ada"), (w.calling, "vic")]:
        bearer = [("authorization", f"Bearer {w.bearers[caller]}")]
        summary = lambda: w.installation.send("public", "GET", f"{path}/billing/summary", bearer).data
        w.wait_for(lambda: summary()["balance"]["reserved"] == 0)
    for caller in ["bounded key", "its former secret", "turned key"]:
        w.get(w.bot, caller)
        w.ask("/service/v1/authorize", service.question(w, caller))
    w.post(f"{w.bot}/api-keys/{w.ids['bounded key']}/rotate", None, "ada")
    w.get(f"{w.bot}/api-keys?status=expired", "ada")
    w.put(f"{w.bot}/api-keys/{w.ids['bounded key']}", {"description": "Over"}, "ada")
    w.post("/v1/auth/verify-email", {"token": w.expired})
    w.form("/verify-email", token=w.expired, password=PASSWORD)
    w.form("/invitations/accept", token=w.invitation)
    w.get(f"{w.acme}/invitations?status=expired", "ada")
    w.post(f"{w.old_invitation}/resend", None, "ada", note="an expired one")
    w.mail("old@example.com", "Invitation")
    w.post(f"{w.acme}/invitations", {"email": "new@example.com"}, "bob", note="again")
    w.mail("new@example.com", "Invitation")
    w.get(f"{w.acme}/billing/summary", "ada")


def invoices(w):
    w.chapter("invoices")
    w.command("billing", "close")
    for _ in range(2):
        w.command("billing", "close", "--skip-wait", "--json")
    w.command("credit", "list", "--organization", w.ids["acme"], "--all")
    for query in ["", "?status=open", "?status=paid", "?status=overdue", "?page_size=1"]:
        w.get(f"{w.acme}/billing/invoices{query}", "ada")
    w.invoices = {}
    for word, path, caller in [("acme", w.acme, "ada"), ("foreign", w.foreign, "eve"),
                            ("payer", f"/v1/organizations/{w.ids['payer']}", "rob"),
                            ("voided", f"/v1/organizations/{w.ids['voided']}", "pia")]:
        answer = w.get(f"{path}/billing/invoices", caller)
        w.invoices[word] = answer.data["invoices"][0]["id"]
    w.one = f"{w.acme}/billing/invoices/{w.invoices['acme']}"
    for caller in ["ada", "bob", "cem", "eve", "whole key", "anonymous"]:
        w.get(w.one, caller)
    for accepted in ["text/html", "application/json, text/html", "text/html;q=0.5, application/json", "image/png"]:
        w.get(w.one, "ada", headers=[("accept", accepted)])
    w.get(f"{w.acme}/billing/invoices/{w.invoices['foreign']}", "ada")
    w.get(f"{w.acme}/billing/invoices/{w.invoices['foreign']}", "ada", headers=[("accept", "text/html")])
    for command in [["list", "--organization", w.ids["acme"]], ["list", "--organization", w.ids["acme"], "--json"],
                    ["show", w.invoices["acme"]], ["show", w.invoices["acme"], "--json"],
                    ["show", w.invoices["acme"], "--html"]]:
        w.command("invoice", *command)
    w.get(f"{w.acme}/billing/summary", "ada")


def corrections(w):
    w.chapter("corrections of a closed month, and what comes late")
    now = w.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    service.report(w, service.event(w, 80, corrects="e8", time=now, prompt_tokens=-1_000_000, completion_tokens=0))
    service.report(w, service.event(w, 81, prompt_tokens=10_000), service.event(w, 82, time=now))
    w.get(w.one, "ada")
    w.get(w.one, "ada", headers=[("accept", "text/html")])
    w.command("invoice", "show", w.invoices["acme"])
    w.get(f"{w.acme}/billing/summary", "ada")
    w.get(f"{w.acme}/billing/usage?start_date=2040-03-01&group_by=month,model", "ada")
    w.get("/v1/billing/pricing", "ada")


def settlements(w):
    w.chapter("invoices that are paid, given up, and taken back")
    invoice = lambda word, *more: w.command("invoice", *more[:1], w.invoices[word], *more[1:])
    invoice("payer", "mark-paid", "--amount", "0.01")
    invoice("payer", "mark-paid", "--amount", "9.999")
    invoice("payer", "mark-paid", "--amount", "1.00", "--json")
    invoice("payer", "mark-paid")
    invoice("payer", "give-up")
    move(w, "the service was already running at", hours=-1)
    invoice("foreign", "give-up")
    for command in [["clock", "show", "--json"], ["billing", "close", "--skip-wait"]]:
        w.command(*command)
    accept(w)
    for person in PEOPLE:
        w.log_in(person)
    for _ in range(2):
        invoice("foreign", "give-up", "--json")
    invoice("foreign", "mark-paid")
    invoice("foreign", "void")
    for _ in range(2):
        invoice("voided", "void", "--json")
    invoice("voided", "mark-paid")
    invoice("acme", "mark-paid")
    for word in ["payer", "foreign", "voided"]:
        invoice(word, "show")
    w.get(f"/v1/organizations/{w.ids['voided']}/billing/invoices/{w.invoices['voided']}", "pia",
          headers=[("accept", "text/html")])
    for command in [["organization", "list"], ["audit"], ["audit", "--json"]]:
        w.command(*command)


def deletions(w):
    w.chapter("organizations that go")
    w.delete(w.poor, "ada", note="it has credit")
    listed = w.command("credit", "list", "--organization", w.poor.rsplit("/", 1)[1], "--json").stdout
    w.command("credit", "take-back", listed.split('"id":"')[1].split('"')[0])
    w.post(f"{w.poor}/invitations", {"email": "lee@example.com", "role": "member"}, "ada")
    token = w.mail("lee@example.com", "Invitation")
    w.form("/invitations/accept", token=token)
    w.log_in("lee")
    for caller in ["lee", "ada", "ada"]:
        w.delete(w.poor, caller)
    w.mail("lee@example.com", "Second was deleted")
    w.get(w.poor, "lee")
    w.get("/v1/models", "poor key")
    service.report(w, service.event(w, 90, "poor key", time=w.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")))
    w.delete(w.bot, "pam")
    for caller in ["ada", "ada"]:
        w.delete(w.bot, caller)
    w.get("/v1/models", "whole key")
    w.command("organization", "list")
    w.command("audit-log", "--action", "organization.deleted", sort=True)
