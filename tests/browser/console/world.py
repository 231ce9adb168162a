"""The data that pages show: users, organizations, projects, keys, usage and invoices. They are created through the API
and the command line."""

import contextlib
import hashlib
import pathlib
import random
import sqlite3
import sys
import time
from datetime import datetime, timedelta, timezone

from client import one_time_code
from provider import Visitor

sys.path.append(str(pathlib.Path(__file__).parents[2] / "passkeys"))
from security_key import SecurityKey

PASSWORD = "Correct-Horse-7-Staple"
# Names that are difficult for tables: with markup, quotes, right-to-left text, and a very long word.
HOSTILE = "<script>alert(1)</script> & \"quotes\" 'n' مؤسسة"
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
LONG_USERNAME = "a-colleague-with-a-name-of-sixty-four-characters-as-long-as-it-gets"[:64]
WORDS = "It says what this is for,\nin two lines, <b>without</b> markup.\n\n" + "Long enough to be wrapped. " * 8
MODELS = ["svc-1", "svc-1-turbo", "svc-1-pro"]
# The token of the link that creates the first account.
FIRST_ACCOUNT_TOKEN = "first-account-" + "A" * 29
# The age of the oldest organizations in days. At this age, two months have been closed, or will be within a day.
DAYS = 75


def text_of(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """The data. `places` has the values of path parameters, and `people` has the cookies of the users who open
    pages."""

    def __init__(self, client, server, busyness=1):
        self.client, self.server, self.busyness = client, server, busyness
        self.tokens, self.ids, self.places = {}, {}, {}
        # The recovery codes of users with a second factor.
        self.recovery_codes = {}
        # The cookies of users who signed in with a provider whose address belongs to an existing account.
        self.conflicts = {}
        self.provider = None

    def register(self, name, full_name=None):
        body = {"email": f"{name}@example.com", "password": PASSWORD, "username": name, "full_name": full_name}
        self.ids[name] = self.client.post("/v1/auth/register", body)["user"]["id"]
        token = self.client.mailed_link("/verify-email", body["email"]).split("token=")[1]
        self.client.post("/v1/auth/verify-email", {"token": token})
        self.log_in(name)

    def log_in(self, name):
        """Logs in, which also accepts invitations."""
        body = {"email": f"{name}@example.com", "password": PASSWORD}
        self.tokens[name] = self.client.post("/v1/auth/login", body)["access_token"]

    def add_second_factor(self, name):
        """Adds an authenticator app, and stores the recovery codes of the response."""
        secret = self.make("/v1/auth/totp", {}, name)["secret"]
        code = one_time_code(secret, int(time.time()) // 30)
        self.recovery_codes[name] = self.make("/v1/auth/totp/confirm", {"code": code}, name)["recovery_codes"]

    def add_passkey(self, name, words):
        """Adds a passkey that isn't requested after the password, and returns its id."""
        options = self.make("/v1/auth/passkeys/options", {}, name)
        credential = SecurityKey().make(options["public_key"], self.client.url.replace("127.0.0.1", "localhost"))
        body = {"ceremony": options["ceremony"], "credential": credential, "name": words, "asked_after_password": False}
        return self.make("/v1/auth/passkeys", body, name)["passkey"]["id"]

    def make(self, path, body, who="ada"):
        return self.client.post(path, body, self.tokens[who])

    def invite(self, organization, name, role="member", who="ada"):
        """Makes a user a member of an organization."""
        self.make(f"/v1/organizations/{organization}/invitations", {"email": f"{name}@example.com", "role": role}, who)
        self.log_in(name)

    def fill(self):
        """Creates all data: first the data of the past, and then the data since then."""
        self.server.start(days_ago=DAYS)
        self.begin()
        self.northwind = Northwind(self)
        self.server.stop()
        self.server.start()
        for name in ["ada", "olivia"]:
            self.log_in(name)
        self.register("felix")
        self.add_second_factor("felix")
        self.log_in("mia")
        self.passkey = self.add_passkey("mia", f"{HOSTILE} {LONG}"[:100])
        self.go_on()
        self.northwind.go_on()
        self.server.command("billing", "close", "--skip-wait")
        path = f"/v1/organizations/{self.organization}/billing/invoices"
        invoice = self.client.get(path, self.tokens["ada"])["invoices"][0]["id"]
        for place in ["full", "own", "gone"]:
            self.places[place]["invoice_id"] = invoice
        self.places["gone"]["invoice_id"] = invoice[:-26] + "0" * 26

    def begin(self):
        for name in ["ada", "grace", "mia", "newcomer", "olivia", LONG_USERNAME]:
            self.register(name, full_name=LONG[:40])
        body = {"name": f"{LONG} {HOSTILE}"[:100], "description": WORDS, "settings": {"allow_public_projects": True}}
        self.organization = self.make("/v1/organizations", body)["id"]
        body = {"name": f"{HOSTILE} {LONG}"[:100], "description": WORDS, "visibility": "public",
                "settings": {"model": "svc-1", "max_tokens": 1000, "temperature": 0.7}}
        self.project = self.make(f"/v1/organizations/{self.organization}/projects", body)["id"]
        path = f"/v1/organizations/{self.organization}/projects/{self.project}/api-keys"
        self.keys = [self.make(path, {"name": f"Key {number}"}) for number in range(23)]

    def go_on(self):
        self.fill_full()
        empty = self.make("/v1/organizations", {"name": "Nothing yet"})["id"]
        project = self.make(f"/v1/organizations/{empty}/projects", {"name": "Nothing yet"})["id"]
        key = self.make(f"/v1/organizations/{empty}/projects/{project}/api-keys", {"name": "Unused"})["id"]
        place = {"organization_id": empty, "project_id": project, "key_id": key, "member_id": self.ids["ada"]}
        self.places["empty"] = place | {"model_id": "svc-embedding-1"}
        bare = self.make("/v1/organizations", {"name": "Bare"})["id"]
        self.places["bare"] = place | {"organization_id": bare}
        self.places["spent"] = place | {"organization_id": self.spend()}
        unused = self.make(f"/v1/organizations/{empty}/projects", {"name": "Without keys"})["id"]
        self.places["none"] = place | {"project_id": unused}
        self.make_operators()

    def make_operators(self):
        """Creates two operators. Opal runs the installation, and Otto has no second factor yet."""
        for name in ["opal", "otto"]:
            self.register(name)
        self.add_second_factor("opal")
        for name in ["opal", "otto"]:
            self.server.command("operator", "grant", f"{name}@example.com")

    def spend(self):
        organization = self.make("/v1/organizations", {"name": "Used up"})["id"]
        project = self.make(f"/v1/organizations/{organization}/projects", {"name": "Used up"})["id"]
        key = self.make(f"/v1/organizations/{organization}/projects/{project}/api-keys", {"name": "Used up"})["id"]
        self.report([(key, MODELS[0], datetime.now(timezone.utc), 123_456_789, 987_654)])
        return organization

    def fill_full(self):
        organization, project = self.organization, self.project
        top = f"/v1/organizations/{organization}"
        for name, role in [("grace", "admin"), ("mia", "member"), (LONG_USERNAME, "member")]:
            self.invite(organization, name, role)
        for number in range(3):
            body = {"email": f"guest-{number}.{LONG[:40].encode('ascii', 'ignore').decode()}@example.com", "message": WORDS}
            self.make(f"{top}/invitations", body)
        for number in range(24):
            self.make(f"{top}/projects", {"name": f"Project {number}"})
        for name in ["grace", LONG_USERNAME]:
            self.make(f"{top}/projects/{project}/members", {"user_id": self.ids[name], "role": "developer"})
        key = self.fill_keys(f"{top}/projects/{project}/api-keys")
        self.server.command("credit", "add", "--organization", organization, "--amount", "1234567.89",
                            "--reference", f"payment 4711 {HOSTILE}"[:60])
        body = {"name": f"{HOSTILE} {LONG}"[:100], "scope": "api_key", "api_key_id": key, "period": "total", "limit": "0.01"}
        budget = self.make(f"{top}/billing/budgets", body)["id"]
        body = {"name": "All", "scope": "organization", "period": "month", "limit": 1_000_000, "hard": True}
        self.make(f"{top}/billing/budgets", body)
        body = {"name": "Passed", "scope": "organization", "period": "month", "limit": 100}
        self.make(f"{top}/billing/budgets", body)
        self.places["full"] = {"organization_id": organization, "project_id": project, "key_id": key, "budget_id": budget,
                               "member_id": self.ids["grace"], "user_id": self.ids["grace"], "model_id": "svc-1"}
        self.places["own"] = self.places["full"] | {"member_id": self.ids["ada"]}
        self.places["gone"] = self.places["full"] | {"member_id": self.ids["newcomer"], "model_id": "nothing",
                                                     "budget_id": budget[:-26] + "0" * 26}
        self.make_webhooks(top)
        self.make_payments(top)
        self.places["passkey"] = {"passkey_id": self.passkey}
        self.places["unknown passkey"] = {"passkey_id": self.passkey[:-26] + "0" * 26}
        self.places[None] = {"path": "nothing/here"}

    def make_webhooks(self, top):
        """Creates three webhooks: one whose receiver doesn't exist, one that is disabled, and one that gets no
        events."""
        token = self.tokens["ada"]
        url = f"https://receiver.invalid/{'a-long-path/' * 40}?a='1'&b=2"
        body = {"url": url, "description": f"{HOSTILE} {WORDS}"[:1000], "events": ["api_key.created", "member.added", "balance.low"]}
        full = self.make(f"{top}/webhooks", body)["id"]
        off = self.make(f"{top}/webhooks", {"url": "https://off.invalid/", "events": ["invoice.paid"]})["id"]
        quiet = self.make(f"{top}/webhooks", {"url": "https://quiet.invalid/", "events": ["invoice.voided"]})["id"]
        self.make(f"{top}/webhooks/{full}/rotate", {})
        for webhook in [full, full, full, off]:
            self.make(f"{top}/webhooks/{webhook}/test", {})
        self.client.data_of("PUT", f"{top}/webhooks/{off}", {"enabled": False}, token)
        self.client.data_of("PUT", f"{top}/billing/balance-alert", {"below": 9_000_000}, token)
        for place, webhook in [("full", full), ("own", full), ("gone", full[:-26] + "0" * 26), ("off", off), ("quiet", quiet)]:
            self.places[place] = self.places.get(place, self.places["full"]) | {"webhook_id": webhook}

    def make_payments(self, top):
        """Creates a payment that waits for the customer. Also inserts data that otherwise comes from Stripe: payments
        with every result, a card, and a paused top-up."""
        full = self.make(f"{top}/billing/payments", {"amount": "1234.56", "save_card": True})["id"]
        now = int(datetime.now(timezone.utc).timestamp() * 1000)
        ends = [("credit", "succeeded", 500_000, 120_000, 380_000, None), ("auto_top_up", "failed", 4_000, 0, 0, "lost_card"),
                ("credit", "canceled", 2_500, 0, 0, "session_expired"), ("auto_top_up", "processing", 4_000, 0, 0, None)]
        ids = [full[:-26] + f"01h2xcejqtf2nbrexx3vqjhp4{number}" for number in range(len(ends))]
        with contextlib.closing(sqlite3.connect(self.server.data / "tollkeeper.db", timeout=30)) as database, database:
            for payment, (kind, status, amount, refunded, disputed, failure) in zip(ids, ends):
                paid_at = now if status == "succeeded" else None
                database.execute(
                    "INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, refunded_minor, disputed_minor,"
                    " failure_code, caller, created_at, updated_at, paid_at) VALUES (?, ?, ?, ?, 'USD', ?, ?, ?, ?, 'system', ?, ?, ?)",
                    (payment, self.organization, kind, amount, status, refunded, disputed, failure, now, now, paid_at))
            database.execute(
                "UPDATE payments SET is_taxed = 1, tax_minor = 95000, returned_tax_minor = 95000,"
                " receipt_url = 'https://stripe.example/receipts/1' WHERE id = ?", (ids[0],))
            database.execute(
                "UPDATE payment_customers SET method_id = 'pm_1', card_brand = 'visa', card_last4 = '4242', card_exp_month = 2,"
                " card_exp_year = 2031 WHERE organization_id = ?", (self.organization,))
            database.execute(
                "INSERT INTO auto_top_ups (organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano, paused_reason,"
                " failures, created_at, updated_at) VALUES (?, 1, 10000000000, 50000000000, NULL, 'declined', 3, ?, ?)",
                (self.organization, now, now))
        for place, payment in [("full", full), ("own", full), ("gone", full[:-26] + "0" * 26), ("paid", ids[0]), ("failed", ids[1])]:
            self.places[place] = self.places.get(place, self.places["full"]) | {"payment_id": payment}

    def fill_keys(self, path):
        soon = text_of(datetime.now(timezone.utc) + timedelta(days=3))
        at_once = text_of(datetime.now(timezone.utc) + timedelta(seconds=3))
        restrictions = {"allowed_ips": ["127.0.0.1", "2001:db8:1234:5678::/64", "203.0.113.0/24"], "rate_limit": 600,
                        "max_tokens": 4000, "models": MODELS}
        body = {"name": f"{LONG} {HOSTILE}"[:100], "description": WORDS, "expires_at": soon, "permissions": ["chat", "models"],
                "restrictions": restrictions}
        main = self.make(path, body)
        self.make(path, {"name": "Short", "expires_at": at_once})
        for key in [main, *self.keys[:3]]:
            for model in MODELS:
                self.client.chat(key["key"], model)
        now = datetime.now(timezone.utc)
        usage = [(key["id"], model, now - timedelta(days=day), 123_456_789, 987_654)
                 for number, key in enumerate(self.keys) for model in MODELS for day in range(number % 3, DAYS, 15)]
        usage += [(main["id"], MODELS[0], now, 1_234, 56)]
        self.report(usage)
        self.client.post(f"{path}/{main['id']}/rotate", {}, self.tokens["ada"])
        return main["id"]

    def report(self, usage):
        """Reports the usage of keys, as inference servers do. Each item has a key, a model, a time, and tokens."""
        events = [{"id": f"{key}-{model}-{number}", "source": "server", "time": text_of(time), "api_key_id": key, "model": model,
                   "kind": "chat", "prompt_tokens": prompt, "completion_tokens": completion}
                  for number, (key, model, time, prompt, completion) in enumerate(usage)]
        for start in range(0, len(events), 500):
            self.client.use(events[start:start + 500])

    def sign_in(self):
        """Signs in each user who opens pages, and returns their cookies."""
        people = {None: None}
        for name in ["ada", "grace", "mia", "newcomer", "olivia", "otto", "felix", "opal"]:
            visitor = Visitor()
            visitor.open(f"{self.server.url}/console/sign-in", {"email": f"{name}@example.com", "password": PASSWORD})
            if name in self.recovery_codes:
                code = {"one_time_code": self.recovery_codes[name].pop()}
                visitor.open(f"{self.server.url}/console/sign-in/second-factor", code)
            people[name] = visitor.cookies["tollkeeper"]
        return people

    def connect(self, provider):
        """Connects Grace with the provider. Other users sign in with the provider, up to the page about a conflict."""
        client, server, self.provider = self.client, self.server, provider
        grace = Visitor()
        grace.open(f"{server.url}/console/sign-in", {"email": "grace@example.com", "password": PASSWORD})
        claims = {"sub": "1", "email": f"grace.{LONG[:30].encode('ascii', 'ignore').decode()}@example.org", "email_verified": True}
        to = provider.sign_on(grace, "/console/account/connections/new/acme", claims)
        assert to.endswith("/console/account/connections/confirm"), to
        # Ada returns with the same subject of the provider, and hasn't confirmed the connection either.
        ada = Visitor()
        ada.open(f"{server.url}/console/sign-in", {"email": "ada@example.com", "password": PASSWORD})
        provider.sign_on(ada, "/console/account/connections/new/acme", claims)
        self.waiting = {name: visitor.cookies["tollkeeper-connection"] for name, visitor in [("grace", grace), ("ada", ada)]}
        to = grace.open(to, {"confirm": "yes"})
        assert to.endswith("?done=connected"), to
        body = {"email": "unverified@example.com", "password": PASSWORD, "username": "unverified"}
        client.post("/v1/auth/register", body)
        for name in ["mia", "unverified"]:
            visitor = Visitor()
            claims = {"sub": name, "email": f"{name}@example.com", "email_verified": True}
            to = provider.sign_on(visitor, "/console/sign-in/acme", claims)
            assert to.endswith("/console/sign-in/confirm"), to
            self.conflicts[name] = visitor.cookies["tollkeeper-connection"]
        # Inserts the link for creating the first account, as if the installation had no operator yet.
        with contextlib.closing(sqlite3.connect(server.data / "tollkeeper.db", timeout=30)) as database, database:
            row = (hashlib.sha256(FIRST_ACCOUNT_TOKEN.encode()).digest(), 0)
            database.execute("INSERT INTO first_account (id, token_hash, created_at) VALUES (1, ?, ?)", row)
            # Inserts costs, which only the gateway writes: of an existing customer, and of a deleted one.
            customer = self.places["full"]["organization_id"]
            days = "CAST(strftime('%s', 'now') AS INTEGER) / 86400"
            for organization, model, upstream, amount, cost in [
                (customer, "svc-1-pro", "vllm-a", 1234500000000, 250000000001),
                ("org_01h2xcejqtf2nbrexx3vqjhp42", "<script>", "provider", 300000000000, 400000000000),
            ]:
                database.execute(
                    "INSERT INTO daily_costs (day, organization_id, model, upstream, requests, prompt_tokens, completion_tokens,"
                    f" amount_whole, amount_pico, cost_whole, cost_pico) VALUES ({days}, ?, ?, ?, 1234, 10, 20, 0, ?, 0, ?)",
                    (organization, model, upstream, amount, cost),
                )

    def path(self, pattern, place):
        return pattern.replace("{*", "{").format(**self.places[place])


class Northwind:
    """An organization like a customer's, with usage on every day."""

    def __init__(self, world):
        self.world = world
        make = lambda path, body: world.make(path, body, "olivia")
        body = {"name": "Northwind Research", "description": "Assistants and search for our customers."}
        self.organization = make("/v1/organizations", body)["id"]
        self.top = f"/v1/organizations/{self.organization}"
        self.keys, self.secrets = {}, {}
        projects = {
            "Support assistant": ("Answers first-line questions in the help centre.", ["web-widget", "mobile-app", "agent-desk"]),
            "Document search": ("Summaries and answers over our document store.", ["indexer", "search-api"]),
            "Internal tools": ("Notebooks and scripts of the research team.", ["notebooks"]),
        }
        self.projects = {}
        for name, (description, keys) in projects.items():
            body = {"name": name, "description": description, "settings": {"model": "svc-1", "max_tokens": 1000, "temperature": 0.3}}
            project = self.projects[name] = make(f"{self.top}/projects", body)["id"]
            for key in keys:
                made = make(f"{self.top}/projects/{project}/api-keys", {"name": key})
                self.keys[key], self.secrets[key] = made["id"], made["key"]

    def go_on(self):
        world = self.world
        for name, role in [("grace", "admin"), ("mia", "member")]:
            world.invite(self.organization, name, role, "olivia")
        world.make(f"{self.top}/invitations", {"email": "sam@northwind.example", "role": "member"}, "olivia")
        for reference, amount in [("bank transfer 2041-117", "500.00"), ("bank transfer 2041-204", "1500.00")]:
            world.server.command("credit", "add", "--organization", self.organization, "--amount", amount, "--reference", reference)
        chance = random.Random(7)
        now = datetime.now(timezone.utc)
        usage = []
        shares = [("web-widget", "svc-1", 5), ("mobile-app", "svc-1", 3), ("agent-desk", "svc-1-pro", 2),
                  ("indexer", "svc-1-turbo", 6), ("search-api", "svc-1", 2), ("notebooks", "svc-1-pro", 1)]
        for day in range(DAYS - 1, -1, -1):
            time = now - timedelta(days=day)
            week = 0.35 if time.weekday() >= 5 else 1
            growth = 1 - day / DAYS * 0.5
            for key, model, share in shares:
                for _ in range(max(1, round(share * week)) * world.busyness):
                    tokens = chance.uniform(150_000, 520_000) * growth / world.busyness
                    usage.append((self.keys[key], model, time, round(tokens), round(tokens / chance.uniform(2.5, 6))))
        world.report(usage)
        for key in ["web-widget", "mobile-app", "search-api"]:
            world.client.chat(self.secrets[key])
        project = self.projects["Support assistant"]
        path = f"{self.top}/projects/{project}/api-keys"
        body = {"name": "staging", "permissions": ["chat"], "expires_at": text_of(now + timedelta(days=9)),
                "restrictions": {"allowed_ips": ["203.0.113.0/24"], "rate_limit": 60, "models": ["svc-1", "svc-1-turbo"]}}
        world.make(path, body, "olivia")
        world.make(f"{path}/{self.keys['mobile-app']}/rotate", {}, "olivia")
        world.make(f"{self.top}/projects/{project}/members", {"user_id": world.ids["mia"], "role": "developer"}, "olivia")
        place = {"organization_id": self.organization, "project_id": project, "key_id": self.keys["web-widget"],
                 "member_id": world.ids["grace"], "model_id": "svc-1"}
        rotated = place | {"key_id": self.keys["mobile-app"]}
        world.places |= {"northwind": place, "rotated": rotated}


def changed_meanwhile(world, place, body):
    """Changes an organization while another user has its form open."""
    path = f"/v1/organizations/{world.places[place]['organization_id']}"
    world.client.data_of("PUT", path, body, world.tokens["ada"])
