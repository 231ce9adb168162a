"""People, organizations, projects, keys and usage, made through the API: what the pages show."""

import json
import os
import subprocess
from datetime import datetime, timedelta, timezone

PASSWORD = "Correct-Horse-7-Staple"
# Names as no table likes them: markup, quotes, another direction, a word without an end.
HOSTILE = "<script>alert(1)</script> & \"quotes\" 'n' مؤسسة"
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
WORDS = "It says what this is for,\nin two lines, <b>without</b> markup.\n\n" + "Long enough to be wrapped. " * 8
MODELS = ["svc-1", "svc-1-turbo", "svc-1-pro"]


def text_of(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """`places` has the values of the parameters in the paths of pages, `people` who opens them."""

    def __init__(self, client):
        self.client = client
        self.tokens, self.ids, self.people, self.places = {}, {}, {}, {}

    def register(self, name, full_name=None):
        body = {"email": f"{name}@example.com", "password": PASSWORD, "username": name, "full_name": full_name}
        self.ids[name] = self.client.post("/v1/auth/register", body)["user"]["id"]
        token = self.client.mailed_link("/verify-email", body["email"]).split("token=")[1]
        self.client.post("/v1/auth/verify-email", {"token": token})

    def log_in(self, name):
        """Logs in, which takes up invitations, too."""
        body = {"email": f"{name}@example.com", "password": PASSWORD}
        self.tokens[name] = self.client.post("/v1/auth/login", body)["access_token"]

    def make(self, path, body, who="ada"):
        return self.client.post(path, body, self.tokens[who])

    def fill(self):
        """Makes everything."""
        for name in ["ada", "grace", "mia", "newcomer", "a-colleague-with-a-name-of-sixty-four-characters-as-long-as-it-g"[:64]]:
            self.register(name, full_name=LONG[:40])
        for name in ["ada", "newcomer"]:
            self.log_in(name)
        self.fill_full()
        empty = self.make("/v1/organizations", {"name": "Nothing yet"})["id"]
        project = self.make(f"/v1/organizations/{empty}/projects", {"name": "Nothing yet"})["id"]
        key = self.make(f"/v1/organizations/{empty}/projects/{project}/api-keys", {"name": "Unused"})["id"]
        place = {"organization_id": empty, "project_id": project, "key_id": key, "member_id": self.ids["ada"]}
        self.places["empty"] = place | {"model_id": "svc-embedding-1"}
        bare = self.make("/v1/organizations", {"name": "Bare"})["id"]
        self.places["bare"] = place | {"organization_id": bare}
        unused = self.make(f"/v1/organizations/{empty}/projects", {"name": "Without keys"})["id"]
        self.places["none"] = place | {"project_id": unused}

    def fill_full(self):
        body = {"name": f"{LONG} {HOSTILE}"[:100], "description": WORDS, "settings": {"allow_public_projects": True}}
        organization = self.make("/v1/organizations", body)["id"]
        top = f"/v1/organizations/{organization}"
        for name, role in [("grace", "admin"), ("mia", "member"), (list(self.ids)[-1], "member")]:
            self.make(f"{top}/invitations", {"email": f"{name}@example.com", "role": role})
            self.log_in(name)
        for number in range(3):
            body = {"email": f"guest-{number}.{LONG[:40].encode('ascii', 'ignore').decode()}@example.com", "message": WORDS}
            self.make(f"{top}/invitations", body)
        body = {"name": f"{HOSTILE} {LONG}"[:100], "description": WORDS, "visibility": "public",
                "settings": {"model": "svc-1", "max_tokens": 1000, "temperature": 0.7}}
        project = self.make(f"{top}/projects", body)["id"]
        for number in range(24):
            self.make(f"{top}/projects", {"name": f"Project {number}"})
        for name in ["grace", list(self.ids)[-1]]:
            self.make(f"{top}/projects/{project}/members", {"user_id": self.ids[name], "role": "developer"})
        key = self.fill_keys(f"{top}/projects/{project}/api-keys")
        if "TOLLKEEPER" in os.environ:
            add = [os.environ["TOLLKEEPER"], "credit", "add", "--organization", organization, "--amount", "12345.67"]
            subprocess.run(add + ["--reference", f"payment 4711 {HOSTILE}"[:60]], check=True, capture_output=True)
        self.places["full"] = {"organization_id": organization, "project_id": project, "key_id": key,
                               "member_id": self.ids["grace"], "model_id": "svc-1"}
        self.places["own"] = self.places["full"] | {"member_id": self.ids["ada"]}
        self.places["gone"] = self.places["full"] | {"member_id": self.ids["newcomer"], "model_id": "nothing"}
        self.places[None] = {"path": "nothing/here"}

    def fill_keys(self, path):
        soon = text_of(datetime.now(timezone.utc) + timedelta(days=3))
        at_once = text_of(datetime.now(timezone.utc) + timedelta(seconds=3))
        restrictions = {"allowed_ips": ["127.0.0.1", "2001:db8:1234:5678::/64", "203.0.113.0/24"], "rate_limit": 600,
                        "max_tokens": 4000, "models": MODELS}
        body = {"name": f"{LONG} {HOSTILE}"[:100], "description": WORDS, "expires_at": soon, "permissions": ["chat", "models"],
                "restrictions": restrictions}
        main = self.make(path, body)
        keys = [self.make(path, {"name": f"Key {number}"}) for number in range(23)]
        self.make(path, {"name": "Short", "expires_at": at_once})
        for key in [main, *keys[:3]]:
            for model in MODELS:
                self.client.chat(key["key"], model)
        now = datetime.now(timezone.utc)
        events = [{"id": f"{key['id']}-{model}", "source": "server", "time": text_of(now), "api_key_id": key["id"], "model": model,
                   "kind": "chat", "prompt_tokens": 123_456_789, "completion_tokens": 987_654}
                  for key in keys for model in MODELS]
        self.client.use(events)
        self.client.post(f"{path}/{main['id']}/rotate", {}, self.tokens["ada"])
        return main["id"]

    def sign_in(self, browser):
        """Opens a session in the browser for each of the people who look at pages."""
        for name in ["ada", "mia", "newcomer"]:
            self.people[name] = browser.sign_in(f"{name}@example.com", PASSWORD)
        self.people[None] = None

    def path(self, pattern, place):
        return pattern.replace("{*", "{").format(**self.places[place])


def changed_meanwhile(world, place, body):
    """Changes an organization while somebody has its form open."""
    path = f"/v1/organizations/{world.places[place]['organization_id']}"
    status, answer = world.client.call("PUT", path, body, world.tokens["ada"])
    assert status == 200, (status, answer, json.dumps(body))
