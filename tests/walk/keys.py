"""API keys: how they are managed, calls with them, and the models that they can use."""

from organizations import UNKNOWN

HOUR = "2040-03-10T13:30:00Z"


def walk(w):
    management(w)
    callers(w)
    models(w)


def management(w):
    w.chapter("API keys")
    all_of = f"{w.bot}/api-keys"
    create = lambda body, caller="ada": w.post(all_of, body, caller)
    for body in [{}, {"name": ""}, {"name": "k", "permissions": []}, {"name": "k", "permissions": ["fly"]},
                 {"name": "k", "permissions": "chat"}, {"name": "k", "expires_at": "tomorrow"},
                 {"name": "k", "expires_at": "2040-01-01T00:00:00Z"}, {"name": "k", "expires_at": 1},
                 {"name": "k", "restrictions": {"allowed_ips": [], "models": [], "rate_limit": 0, "max_tokens": 0}},
                 {"name": "k", "restrictions": {"allowed_ips": ["here", "10.0.0.0/33"], "models": ["nothing"]}},
                 {"name": "k", "restrictions": {"allowed_ips": ["10.0.0.1"] * 101, "models": ["chat-1"] * 101}},
                 {"name": "k", "restrictions": {"models": ["chat-1"] * 1001}},
                 {"name": "k", "restrictions": 1}, {"name": "k", "restriction": {}}]:
        create(body)
    for caller in ["vic", "dan", "cem", "eve", "anonymous"]:
        create({"name": "k"}, caller)
    w.make_key("whole key", w.bot, {"name": "Whole", "description": "All of it"})
    w.make_key("narrow key", w.bot, {"name": "Narrow", "permissions": ["chat", "models"],
               "restrictions": {"models": ["chat-1", "acme/chat-2"], "max_tokens": 1000}})
    w.make_key("chat key", w.bot, {"name": "Chat", "permissions": ["chat"]})
    w.make_key("key from elsewhere", w.bot, {"name": "Elsewhere", "restrictions": {
        "allowed_ips": ["203.0.113.7", "2001:db8::/32"]}})
    for word in ["slow key", "second slow key", "third slow key"]:
        w.make_key(word, w.bot, {"name": word, "restrictions": {"rate_limit": 1}})
    w.make_key("bounded key", w.bot, {"name": "Bounded", "expires_at": HOUR, "restrictions": {
        "allowed_ips": ["127.0.0.0/8"], "rate_limit": 100_000}}, "pam")
    w.make_key("foreign key", f"{w.foreign}/projects/"
               f"{w.post(f'{w.foreign}/projects', {'name': 'Bot'}, 'eve').data['id']}", {"name": "Whole"}, "eve")
    w.make_key("poor key", f"{w.poor}/projects/"
               f"{w.post(f'{w.poor}/projects', {'name': 'Bot'}, 'ada').data['id']}", {"name": "Whole"})
    create({"name": "whole"})
    for query in ["", "?search=OW", "?status=active", "?status=expired", "?status=lost", "?page_size=2&page=2"]:
        w.get(f"{all_of}{query}", "pam")
    for caller in ["vic", "dan", "cem"]:
        w.get(all_of, caller)
    one = lambda word: f"{all_of}/{w.ids[word]}"
    for caller in ["ada", "bob", "pam", "dan", "cem", "eve"]:
        w.get(one("narrow key"), caller)
    w.get(f"{all_of}/key_{UNKNOWN}", "ada")
    w.get(f"{all_of}/x", "ada")
    w.get(f"{w.search}/api-keys/{w.ids['whole key']}", "ada")
    for body in [{}, {"name": None}, {"expires_at": HOUR}, {"permissions": []}, {"permissions": ["chat", "chat"]},
                 {"restrictions": {"models": None}}, {"restrictions": {"models": ["nothing"], "rate_limit": -1}},
                 {"restrictions": None}, {"name": "whole"},
                 {"name": "Narrow", "description": "Less", "permissions": ["chat", "models"],
                  "restrictions": {"models": ["chat-1", "acme/chat-2"], "max_tokens": 1000}}]:
        w.put(one("narrow key"), body, "ada")
    w.put(one("narrow key"), {"name": "Mine"}, "dan")
    for caller in ["dan", "eve"]:
        w.post(f"{one('chat key')}/rotate", None, caller)
        w.delete(one("chat key"), caller)
    w.make_key("turned key", w.bot, {"name": "Turned"})
    w.bearers["its former secret"] = w.bearers["turned key"]
    w.bearers["turned key"] = w.post(f"{one('turned key')}/rotate", None, "ada").data["key"]
    for caller in ["turned key", "its former secret"]:
        w.get(w.bot, caller)
    w.make_key("settled key", w.bot, {"name": "Settled"})
    w.bearers["its ended secret"] = w.bearers["settled key"]
    w.post(f"{one('settled key')}/end-rotation", None, "ada")
    for body in [{"grace_seconds": -1}, {"grace_seconds": 86_401}, {"grace_seconds": 1.5}, {"grace_seconds": "1"},
                 {"grace": 1}]:
        w.post(f"{one('settled key')}/rotate", body, "ada")
    data = w.post(f"{one('settled key')}/rotate", {"grace_seconds": 86_400}, "ada").data
    w.bearers["settled key"] = data["key"]
    for caller in ["dan", "ada", "ada"]:
        w.post(f"{one('settled key')}/end-rotation", None, caller)
    for caller in ["settled key", "its ended secret"]:
        w.get(w.bot, caller)
    w.post(f"{one('settled key')}/rotate", {"grace_seconds": 0}, "ada")
    w.get(w.bot, "settled key", note="that was rotated without grace")
    for body, key in [({}, "turn"), ({}, "turn"), ({"grace_seconds": 0}, "turn"), ({}, ""), ({}, "turn-again")]:
        w.post(f"{one('settled key')}/rotate", body, "ada", headers=[("idempotency-key", key)])
    current = w.get(one("settled key"), "ada").header("etag")
    w.put(one("settled key"), {"name": "Settling"}, "ada", headers=[("if-match", current)])
    for tag in [current, "*"]:
        w.delete(one("settled key"), "ada", headers=[("if-match", tag)])
    w.make_key("rotated key", w.bot, {"name": "Rotated"})
    before = w.bearers["rotated key"]
    for _ in range(2):
        data = w.post(f"{one('rotated key')}/rotate", None, "ada").data
        w.bearers["rotated key"] = data["key"]
    w.bearers["its oldest secret"] = before
    w.get(w.bot, "rotated key")
    w.get(w.bot, "its oldest secret")
    w.delete(one("rotated key"), "ada")
    w.delete(one("rotated key"), "ada")
    w.get(w.bot, "rotated key", note="that was deleted")


def callers(w):
    w.chapter("API keys as callers")
    w.bearers["no key"] = "tk_" + "x" * 49
    for key in ["whole key", "narrow key", "chat key", "key from elsewhere", "no key", "foreign key"]:
        for path in ["/v1/organizations", w.acme, w.bot, f"{w.bot}/api-keys", "/v1/models", "/v1/billing/pricing"]:
            w.get(path, key)
    for path in [w.search, f"{w.acme}/projects", f"{w.acme}/members", w.poor, "/v1/auth/me",
                 f"{w.acme}/billing/summary", f"{w.bot}/usage"]:
        w.get(path, "whole key")
    w.post("/v1/organizations", {"name": "By a key"}, "whole key")
    w.post("/v1/auth/logout", None, "whole key")
    w.put(w.bot, {"description": "By a key"}, "whole key")
    w.make_key("key by a key", w.bot, {"name": "By a key"}, "whole key")
    w.post(f"{w.bot}/api-keys/{w.ids['key by a key']}/rotate", None, "whole key")
    w.delete(f"{w.bot}/api-keys/{w.ids['key by a key']}", "whole key")
    w.put(f"{w.bot}/api-keys/{w.ids['whole key']}", {"name": "Myself"}, "whole key")
    w.post(f"{w.bot}/api-keys/{w.ids['whole key']}/rotate", None, "whole key")
    w.post(f"{w.bot}/api-keys/{w.ids['whole key']}/end-rotation", None, "whole key")
    w.delete(f"{w.bot}/api-keys/{w.ids['whole key']}", "whole key")
    for body in [{"name": "Wider"}, {"name": "Longer", "restrictions": {"allowed_ips": ["127.0.0.1"], "rate_limit": 1}},
                 {"name": "Faster", "expires_at": HOUR, "restrictions": {"allowed_ips": ["127.0.0.1"],
                                                                        "rate_limit": 1_000_000}}]:
        w.post(f"{w.bot}/api-keys", body, "bounded key")
    w.get(w.bot, "slow key")
    w.get(w.bot, "slow key", note="beyond its rate")


def models(w):
    w.chapter("models")
    for caller in ["ada", "eve", "narrow key", "chat key", "anonymous"]:
        w.get("/v1/models", caller)
    for model in ["chat-1", "acme/chat-2", "acme%2Fchat-2", "embed-1", "chat-unpriced", "chat-retired", "nothing"]:
        w.get(f"/v1/models/{model}", "ada")
        w.get(f"/v1/models/{model}", "narrow key")
    w.get("/v1/models/chat-1", "chat key")
    w.get("/v1/models/chat-1")
    w.get("/v1/billing/pricing", "cem")
