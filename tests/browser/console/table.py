"""Every page of the console with its states: empty, full, and with a mistake.

The paths of the pages are those of `console::routes::table()`. The suite fails if a page no longer exists or is missing
here. A page of an organization or a project without a form needs no entry: it has the states empty and full by default.
"""

from collections.abc import Callable
from dataclasses import dataclass

from browser import ANSWERED
from world import FIRST_ACCOUNT_TOKEN, HOSTILE, PASSWORD, changed_meanwhile


@dataclass
class State:
    """A state of a page. `place` and `who` are names in the world. `act` changes the opened page to this state."""

    name: str
    place: str = "full"
    who: str | None = "ada"
    query: str = ""
    status: int = 200
    says: tuple = ()
    act: Callable | None = None


def empty(place="empty", **more):
    return State("empty", place, **more)


def full(place="full", **more):
    return State("full", place, **more)


def mistake(act=None, status=400, **more):
    return State("mistake", act=act, status=status, **more)


def send(button, **values):
    """Returns an action that submits the form of this button. Two underscores in the name of a field stand for a
    dot."""
    values = {name.replace("__", "."): value for name, value in values.items()}
    return lambda browser, world: browser.send(button, values)


def overtaken(browser, world):
    """Submits a form after another user has changed the organization."""
    changed_meanwhile(world, "empty", {"description": "Theirs"})
    browser.send("Save", {"name": HOSTILE, "description": "Mine"})


def overtaken_alert(browser, world):
    """Submits the form of the balance alert after another user has set it."""
    path = f"/v1/organizations/{world.places['bare']['organization_id']}/billing/balance-alert"
    world.client.data_of("PUT", path, {"below": "-12.5"}, world.tokens["ada"])
    browser.send("Save", {"below": "3"})


def overtaken_top_up(browser, world):
    """Submits the form of the automatic top-up after another user has set it."""
    path = f"/v1/organizations/{world.places['full']['organization_id']}/billing/auto-top-up"
    before = world.client.get(path, world.tokens["ada"])["monthly_cap"] or 500
    world.client.data_of("PUT", path, {"monthly_cap": before + 1}, world.tokens["ada"])
    browser.send("Save", {"monthly_cap": "100"})


def signed_out(browser, world):
    browser.become(None)
    browser.send("Create the organization", {"name": HOSTILE})


def gone(button):
    """Returns an action that submits a form whose object was deleted. The form is submitted to the path of an unknown
    project."""

    def act(browser, world):
        unknown = world.places["full"]["project_id"].split("_")[0] + "_" + "0" * 26
        path = browser.path().replace(world.places["full"]["project_id"], unknown)
        browser.driver.execute_script("document.querySelector('main form[method=post]').action = arguments[0]", path)
        browser.send(button, {})

    return act


def answered(browser, world):
    """Calls a model in the playground, and waits for the price of the call."""
    browser.type(message="Who are you?")
    browser.one("main button.main").click()
    browser.wait("the price of the call", ANSWERED)


def pending_login(browser, world):
    """Signs in, up to the page that requests the code."""
    browser.begin_sign_in("felix@example.com", PASSWORD)


def conflict(name):
    """Returns an action that signs in with the provider, which has the address of this account."""

    def act(browser, world):
        browser.cdp("Network.setCookie", name="tollkeeper-connection", value=world.conflicts[name], url=browser.url)
        browser.open("/console/sign-in/confirm")

    return act


def waiting_connection(name):
    """Returns an action that returns from the provider to connect the account of this user."""

    def act(browser, world):
        browser.cdp("Network.setCookie", name="tollkeeper-connection", value=world.waiting[name], url=browser.url)
        browser.open("/console/account/connections/confirm")

    return act


def connection_of_another(browser, world):
    """Confirms a connection after another account was connected."""
    waiting_connection("ada")(browser, world)
    browser.send("Connect", {})


def wrong_code(browser, world):
    pending_login(browser, world)
    browser.send("Sign in", {"one_time_code": "000000"})


def code_of_another_app(browser, world):
    browser.send("Show the QR code", {})
    browser.send("Confirm", {"code": "abc"})


def without_passkey(browser, world):
    """Submits the form for a new passkey without a passkey, as the script could."""
    send = "const form = document.querySelector('main form'); form.elements.credential.value = '{}'; form.submit()"
    browser.leave(lambda: browser.driver.execute_script(send))


def too_many(browser, world):
    """Submits a form after too many requests."""
    bad = {"token": "x"}
    # The rate limit may allow another request between our last attempt and the click.
    for _ in range(5):
        assert 429 in (world.client.call("POST", "/v1/auth/verify-email", bad)[0] for _ in range(1000))
        browser.send("Send reset link", {"email": "nobody@example.com"})
        if browser.heading() == "Please wait a moment":
            return
        browser.open("/console/forgot-password")


WEAK = "weak"
ORGANIZATION = "/console/organizations/{organization_id}"
PROJECT = ORGANIZATION + "/projects/{project_id}"
WEBHOOK = ORGANIZATION + "/webhooks/{webhook_id}"
KEY = PROJECT + "/api-keys/{key_id}"
INSTALLATION = "/console/installation"


def has_usual_states(path):
    """Returns whether the only parameters of a path are an organization and optionally its project."""
    rest = path.removeprefix(PROJECT) if path.startswith(PROJECT) else path.removeprefix(ORGANIZATION)
    return rest != path and "{" not in rest


# Paths whose responses aren't pages: redirects and files.
OTHERS = {
    "/", "/console", "/console/", "/console/assets/{hash}/{name}", "/console/account/data",
    # These paths redirect to a provider and handle its callback.
    "/console/sign-in/{provider_id}", "/console/sign-in/{provider_id}/callback", "/console/reauthenticate/{provider_id}",
    "/console/account/connections/new/{provider_id}",
    ORGANIZATION + "/audit-log/csv", ORGANIZATION + "/usage/csv", PROJECT + "/usage/csv", ORGANIZATION + "/billing/movements/csv",
    ORGANIZATION + "/billing/export",
}

PAGES = {
    "/console/sign-in": [
        empty(None, who=None),
        full(None, who=None, query="?next=/console/account&done=signed_out", says=("You’re signed out.",)),
        mistake(send("Sign in", email="nobody@example.com", password=WEAK), 401, place=None, who=None),
    ],
    "/console/sign-in/second-factor": [
        full(None, who=None, act=pending_login, says=("One more step",)),
        mistake(wrong_code, 401, place=None, who=None),
    ],
    # Without a pending connection this page doesn't exist, and redirects to the sign-in page.
    "/console/sign-in/confirm": [
        full(None, who=None, act=conflict("mia"), says=("An account with this address already exists", "Sign in and connect")),
        mistake(conflict("unverified"), 200, place=None, who=None, says=("but never verified it", "Send the link")),
    ],
    "/console/account/connections": [
        empty(None, says=("isn’t connected to a sign-in provider", "Acme & <b>Co</b>")), full(None, who="grace", says=("Acme & <b>Co</b>", "Disconnect")),
    ],
    # Without a pending connection this page redirects to the list of connections.
    "/console/account/connections/confirm": [
        full(None, who="grace", act=waiting_connection("grace"), says=("Connect it only if it’s yours", "Acme & <b>Co</b>")),
        mistake(connection_of_another, 409, place=None, says=("This conflicts with the current state",)),
    ],
    "/console/register": [
        full(None, who=None),
        mistake(send("Create the account", email=HOSTILE, username="!", full_name=HOSTILE, password=WEAK), place=None, who=None),
    ],
    "/console/forgot-password": [
        full(None, who=None),
        mistake(send("Send reset link", email=HOSTILE), place=None, who=None),
    ],
    "/console/organizations": [
        empty(who="newcomer", says=("Create an organization",)),
        full(says=("<script>",)),
        mistake(status=200, query="?search=zzz", says=("Nothing matches.",)),
    ],
    "/console/organizations/new": [
        full(),
        mistake(send("Create the organization", name="", description="x" * 1001)),
        State("signed-out", act=signed_out, status=401, says=("You’re signed out", "Send it again")),
    ],
    ORGANIZATION: [
        empty("bare"), full(says=("<script>",)), State("usual", "northwind", "olivia", says=("Support assistant",)),
        State("used-up", "spent", says=("You’re out of credit.",)),
        State("member", who="mia"), mistake(status=403, who="newcomer"),
    ],
    ORGANIZATION + "/members": [
        empty(), full(says=("grace@example.com",)), State("member", who="mia"),
        mistake(status=200, query="?search=zzz", says=("Nothing matches.",)),
    ],
    ORGANIZATION + "/members/invite": [full(), mistake(send("Send the invitation", email=HOSTILE, message="x" * 1001))],
    ORGANIZATION + "/members/invitations": [
        empty(), full(says=("pending", "guest-2")), mistake(status=200, query="?status=expired", says=("Nothing matches.",)),
    ],
    ORGANIZATION + "/members/{member_id}": [
        empty(says=("last owner",)), full(says=("grace",)),
        mistake(status=404, place="gone"),
    ],
    ORGANIZATION + "/members/{member_id}/remove": [
        full(says=("What ends",)), State("leaving", "own"), mistake(status=200, place="empty"),
    ],
    ORGANIZATION + "/audit-log": [
        full(), mistake(status=200, query="?start_date=2001-01-01&end_date=2001-01-02", says=("Nothing matches.",)),
        State("not-read", query="?start_date=yesterday", status=400),
    ],
    ORGANIZATION + "/settings": [
        full(), mistake(send("Save", name="", description="x" * 1001)),
        State("forbidden", who="mia", status=403, says=("Access denied",)),
        State("conflict", "empty", act=overtaken, status=409, says=("Theirs", "Use mine")),
    ],
    ORGANIZATION + "/settings/second-factor": [full(), mistake(status=403, who="mia")],
    ORGANIZATION + "/settings/sign-on": [empty(says=("This organization has no provider",)), mistake(status=403, who="mia")],
    ORGANIZATION + "/delete": [empty("bare"), full(), mistake(send("Delete the organization", name="Another"))],
    ORGANIZATION + "/usage": [
        empty(), full(says=("svc-1-pro",)), State("keys", query="?range=90_days&by=key&show=tokens&period=month"),
        State("custom", query="?range=custom&start_date=2026-01-01&end_date=2026-01-31"),
        mistake(query="?range=custom&start_date=yesterday&end_date=2026-01-01"),
    ],
    ORGANIZATION + "/billing": [empty(), full()],
    ORGANIZATION + "/billing/movements": [empty(), full(), mistake(query="?start_date=yesterday")],
    ORGANIZATION + "/billing/invoices": [
        empty(), full(says=("Paid",)), State("open", "northwind", "olivia", says=("Pay",)),
        mistake(status=200, query="?status=void", says=("Nothing matches.",)),
    ],
    ORGANIZATION + "/billing/invoices/{invoice_id}": [full(), mistake(status=404, place="gone")],
    ORGANIZATION + "/billing/budgets": [empty(), full(says=("<script>", "Over the limit", "Amounts are in USD")), mistake(status=403, who="mia")],
    ORGANIZATION + "/billing/budgets/new": [
        full(), mistake(send("Create the budget", name="", scope="api_key", limit="much", thresholds="90\n50")),
    ],
    ORGANIZATION + "/billing/budgets/{budget_id}": [full(says=("<script>",)), mistake(send("Save", name="", limit="-1"))],
    ORGANIZATION + "/billing/budgets/{budget_id}/delete": [full(says=("<script>",)), mistake(status=404, place="gone")],
    ORGANIZATION + "/billing/balance-alert": [
        empty(says=("No alert",)), full(says=("The balance has been below this amount since",)), State("admin", who="grace", says=("Only owners",)),
        mistake(send("Save", below="much")), State("conflict", "bare", act=overtaken_alert, status=409, says=("Theirs", "Use mine")),
    ],
    ORGANIZATION + "/billing/payments": [
        empty(says=("No payments yet", "Save a card")), full(says=("Paid", "Disputed", "Visa ending in 4242", "Paused")),
        State("admin", who="grace"), mistake(status=403, who="mia"),
    ],
    ORGANIZATION + "/billing/payments/new": [
        full(says=("At least 5.00 USD",)), mistake(send("Go to payment", amount="much")),
        State("unreachable", "bare", act=send("Go to payment", amount="666.66"), status=502, says=("nothing is paid twice",)),
        State("made", "bare", act=send("Go to payment", amount="20"), says=("Continue to payment", "20.00 USD")),
    ],
    ORGANIZATION + "/billing/payments/{payment_id}": [
        full(says=("Continue to payment", "1,234.56 USD")), State("paid", "paid", says=("Refunded", "Disputed", "950.00 USD", "5,950.00 USD", "shown without tax")),
        State("failed", "failed", says=("lost_card",)), State("admin", who="grace", says=("This payment is waiting for an owner",)),
        mistake(status=404, place="gone"),
    ],
    ORGANIZATION + "/billing/card": [
        empty(says=("No card is saved",)), full(says=("Visa ending in 4242", "02/2031", "Remove the card")),
        State("begun", "bare", act=send("Save a card"), says=("Continue to Stripe",)),
        State("admin", who="grace", says=("Only owners",)), mistake(status=403, who="mia"),
    ],
    ORGANIZATION + "/billing/card/remove": [
        full(says=("Visa ending in 4242", "Automatic top-up is on")), mistake(status=403, who="grace"),
    ],
    ORGANIZATION + "/billing/auto-top-up": [
        empty(says=("Automatic top-up requires a saved card",)), full(says=("the card was declined", "Turn it back on", "3 charges")),
        State("admin", who="grace", says=("Only owners", "50.00 USD")), mistake(send("Save", threshold="much", restore_to="1")),
        State("conflict", act=overtaken_top_up, status=409, says=("Theirs", "Use mine")),
    ],
    ORGANIZATION + "/webhooks": [
        empty(says=("No webhooks yet",)), full(says=("receiver.invalid", "<script>")), State("admin", who="grace"),
        mistake(status=403, who="mia"),
    ],
    ORGANIZATION + "/webhooks/new": [
        full(), mistake(send("Create the webhook", url="http://example.com/" + "long/" * 20, description="x" * 1001)),
        State("secret", "bare", act=send("Create the webhook", url="https://example.invalid/", events=["invoice.paid"]),
              says=("able to see it again", "whsec_")),
    ],
    WEBHOOK: [
        full(says=("Events are also signed with the previous secret", "Send a test")), State("off", "off", says=("Send events",)),
        State("admin", who="grace", says=("Only owners", "api_key.created")),
        mistake(send("Save", url="", events=[], description="x" * 1001)), State("gone", "gone", status=404),
    ],
    WEBHOOK + "/rotate": [
        full(says=("This webhook was rotated recently",)), State("secret", "off", act=send("Rotate the secret"), says=("has a new secret",)),
        mistake(status=404, place="gone"),
    ],
    WEBHOOK + "/redeliver": [
        full(), State("off", "off", says=("This webhook is off",)), mistake(send("Redeliver", since="yesterday")),
    ],
    WEBHOOK + "/delete": [full(says=("receiver.invalid",)), mistake(status=404, place="gone")],
    WEBHOOK + "/deliveries": [
        empty("quiet", says=("Nothing sent yet",)), full(says=("webhook.test", "DNS lookup found no public address", "Redeliver")),
        State("off", "off", says=("failed",)), State("admin", who="grace"),
        mistake(status=200, query="?state=succeeded", says=("Nothing matches.",)),
    ],
    ORGANIZATION + "/limits": [empty(), full(says=("svc-1-pro",))],
    ORGANIZATION + "/projects": [
        empty("bare"), full(says=("25 projects",)), State("last", query="?page=2"),
        mistake(status=200, query="?search=zzz", says=("Nothing matches.",)),
    ],
    ORGANIZATION + "/projects/new": [
        full(), mistake(send("Create the project", name="", settings__max_tokens="many", settings__temperature="hot")),
    ],
    PROJECT: [empty(), full(says=("<script>",)), State("member", who="mia"), mistake(status=403, who="newcomer")],
    PROJECT + "/settings": [full(), mistake(send("Save", name="", settings__max_tokens="-1"))],
    PROJECT + "/delete": [empty(), full(), mistake(send("Delete the project", name="Another"))],
    PROJECT + "/members": [
        empty(), full(says=("grace",)), mistake(status=200, query="?search=zzz", says=("Nothing matches.",)),
    ],
    PROJECT + "/members/new": [empty(), full(), mistake(send("Add the member"))],
    PROJECT + "/members/{member_id}": [full(says=("grace",)), mistake(gone("Change the role"), status=404)],
    PROJECT + "/members/{member_id}/remove": [full(says=("What ends",)), mistake(gone("Remove grace"), status=404)],
    PROJECT + "/usage": [
        empty(), full(says=("svc-1-pro",)), State("keys", query="?range=90_days&by=key&show=requests&period=week"),
        mistake(query="?range=custom&start_date=2026-02-01&end_date=2026-01-01"),
    ],
    PROJECT + "/playground": [
        full(), State("answered", act=answered), mistake(send("Send", message="", max_tokens="many", temperature="9")),
    ],
    PROJECT + "/api-keys": [
        empty("none"), full(says=("25 keys",)), State("last", query="?page=2"),
        mistake(status=200, query="?search=zzz", says=("Nothing matches.",)),
    ],
    PROJECT + "/api-keys/new": [
        full(), State("secret", "empty", act=send("Create the key", name=HOSTILE), says=("able to see it again", "curl")),
        mistake(send("Create the key", name="", restrictions__allowed_ips="here\n10.0.0.0/33", restrictions__rate_limit="0",
                     lasts="day", last_day="2001-01-01")),
    ],
    KEY: [empty(), full(says=("Revoke old secret", "<script>")), mistake(status=403, who="newcomer")],
    KEY + "/edit": [full(), mistake(send("Save", name="", permissions=[], restrictions__rate_limit="many"))],
    KEY + "/rotate": [
        full(), State("secret", "empty", act=send("Rotate the key"), says=("has a new secret",)), mistake(gone("Rotate the key"), status=404),
    ],
    KEY + "/delete": [full(), mistake(gone("Delete the key"), status=404)],
    "/console/account": [full(), mistake(send("Save", username="!", full_name="x" * 201, phone="abc"))],
    "/console/account/email": [full(), mistake(send("Send the link", new_email=HOSTILE, password=WEAK))],
    "/console/account/password": [
        full(),
        mistake(send("Change the password", current_password=WEAK, new_password=WEAK, new_password_confirmation="another")),
    ],
    "/console/account/sessions": [full(says=("this one",))],
    "/console/first-account": [
        full(None, who=None, query=f"?token={FIRST_ACCOUNT_TOKEN}", says=("This account administers the installation",)),
        mistake(send("Create the account", email=HOSTILE, username="!", password=WEAK), place=None, who=None,
                query=f"?token={FIRST_ACCOUNT_TOKEN}"),
        State("used", None, None, status=400, says=("This link is incomplete or was already used",)),
    ],
    INSTALLATION: [
        full(None, who="opal", says=("The database answers.",)),
        State("no-factor", None, "otto", status=403, says=("Add a second factor",)),
        State("stranger", None, status=404, says=("Page not found",)),
    ],
    INSTALLATION + "/users": [
        full(None, who="opal", says=("grace@example.com",)),
        mistake(None, 200, place=None, who="opal", query="?search=zzz", says=("Nothing matches.",)),
    ],
    INSTALLATION + "/users/{user_id}": [full(who="opal", says=("grace",))],
    INSTALLATION + "/users/{user_id}/disable": [
        full(who="opal"), mistake(send("Disable the account", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/users/{user_id}/enable": [
        full(who="opal"), mistake(send("Enable the account", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/users/{user_id}/end-sessions": [
        full(who="opal"), mistake(send("End the sessions", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/users/{user_id}/reset-second-factor": [
        full(who="opal"), mistake(send("Remove the second factor", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/organizations": [
        full(None, who="opal", says=("Northwind Research",)),
        mistake(None, 200, place=None, who="opal", query="?search=zzz", says=("Nothing matches.",)),
    ],
    INSTALLATION + "/organizations/{organization_id}": [empty("bare", who="opal"), full(who="opal", says=("<script>",))],
    INSTALLATION + "/organizations/{organization_id}/credit": [
        full(who="opal"), mistake(send("Add the credit", amount="much", reference=HOSTILE, name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/organizations/{organization_id}/credit-limit": [
        full(who="opal"), mistake(send("Set the credit limit", amount="-1", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/invoices": [full(None, who="opal")],
    INSTALLATION + "/invoices/{invoice_id}/mark-paid": [
        full(who="opal"), mistake(send("Mark the invoice paid", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/invoices/{invoice_id}/void": [
        full(who="opal"), mistake(send("Void the invoice", name=HOSTILE), who="opal"),
    ],
    INSTALLATION + "/margins": [
        empty(None, who="opal", query="?month=2001-02", says=("No call in Feb 2001 has a cost",)),
        full(None, who="opal", says=("<script>", "svc-1-pro")),
        State("customers", None, "opal", query="?by=customer", says=("(deleted)",)),
    ],
    INSTALLATION + "/catalog": [full(None, who="opal", says=("svc-1-pro",))],
    INSTALLATION + "/mail": [
        full(None, who="opal"), mistake(send("Send a test e-mail", email=HOSTILE), place=None, who="opal"),
    ],
    INSTALLATION + "/audit": [
        full(None, who="opal"),
        mistake(None, 200, place=None, who="opal", query="?actor=nobody", says=("Nothing matches.",)),
    ],
    INSTALLATION + "/settings": [full(None, who="opal", says=("registration",))],
    "/console/account/second-factor": [
        empty(says=("off", "Set up")), full(who="felix", says=("recovery codes left",)),
        State("passkeys", who="mia", says=("<script>", "Passkeys don’t work at this address")),
    ],
    "/console/account/second-factor/passkeys/new": [full(says=("Add a passkey",)), mistake(without_passkey, 401)],
    "/console/account/second-factor/passkeys/{passkey_id}": [
        full("passkey", who="mia"), mistake(send("Save", name=""), place="passkey", who="mia"),
    ],
    "/console/account/second-factor/passkeys/{passkey_id}/remove": [
        full("passkey", who="mia", says=("<script>",)), mistake(status=404, place="unknown passkey"),
    ],
    "/console/account/second-factor/totp": [
        empty(), full(who="felix", says=("replaces your current one",)),
        State("qr-code", act=send("Show the QR code"), who="mia", says=("To finish, enter the first code by",)),
        mistake(code_of_another_app, 401),
    ],
    "/console/account/second-factor/recovery-codes": [
        full(who="felix", says=("recovery codes left",)), State("codes", who="felix", act=send("Generate new codes"), says=("able to see them again",)),
        mistake(status=404),
    ],
    "/console/account/second-factor/remove": [full(who="felix"), mistake(status=404)],
    "/console/reauthenticate": [
        full(), State("with-code", who="felix", says=("Confirm",)), mistake(send("Confirm", password=WEAK), 401),
    ],
    "/console/models": [full(says=("svc-1-pro",))],
    "/console/models/{*model_id}": [empty(), full(says=("Use this model",)), mistake(status=404, place="gone")],
    "/console/{*path}": [
        State("signed-out", None, None, status=404), full(None, status=404, says=("Page not found",)),
    ],
}

# States that can be reached only after all others.
LAST = {"/console/forgot-password": [State("too-many", None, None, status=429, act=too_many, says=("Please wait",))]}
