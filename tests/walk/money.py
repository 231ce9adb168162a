"""Usage and money within a month."""

import time

import service


def walk(w):
    reports(w)
    balances(w)
    credits(w)
    budgets(w)
    payments(w)


def reports(w):
    w.chapter("reports of usage")
    for path in [f"{w.acme}/billing/usage", f"{w.bot}/usage"]:
        for query in ["", "?group_by=day,model", "?group_by=week,api_key", "?group_by=month,model,api_key",
                      "?group_by=project", "?group_by=hour", "?group_by=day,day", "?group_by=day,week", "?group_by=",
                      "?group_by[]=model&group_by[]=month", "?start_date=2040-03-01&end_date=2040-03-11",
                      "?start_date=2040-03-10T12:00:00%2B02:00", "?end_date=2040-03-01", "?start_date=2039-01-01",
                      "?start_date=2040-03-10&end_date=2040-03-10", "?start_date=2040-03-11&end_date=2040-03-10",
                      "?start_date=2038-01-01&end_date=2040-01-01", "?start_date=March", "?format=csv",
                      "?format=csv&group_by=month,model,api_key", "?format=xml"]:
            w.get(path + query, "ada")
        for body in [{"group_by": "month"}, {"group_by": ["month", "model"]}, {"group_by": []}, {"group_by": 1},
                     {"group_by": ["day", "hour"], "format": "csv"}, {"days": 1}]:
            w.call("GET", path, "ada", body)
        for caller in ["bob", "cem", "vic", "eve", "whole key", "anonymous"]:
            w.get(path, caller)
    w.get(f"{w.search}/usage", "ada")
    for path in [f"{w.acme}/calls", f"{w.bot}/calls"]:
        for caller in ["bob", "cem", "vic", "eve", "whole key", "anonymous"]:
            w.get(f"{path}?limit=1", caller)
        for query in ["?limit=0", "?ended=never", "?after=x", "?to=2039-01-01&from=2040-01-01", "?end_user=nobody"]:
            w.get(path + query, "ada")
        logged = w.get(f"{path}?limit=1", "ada").data["calls"][0]["id"]
        for call in [logged, "x", "call_01h2xcejqtf2nbrexx3vqjhp41"]:
            w.get(f"{path}/{call}", "ada")
    for query in ["?project_id=x", "?group_by=day", "?from=2039-01-01&to=2040-03-01", "?from=2039-01-01&to=2039-01-02"]:
        w.get(f"{w.acme}/usage/performance{query}", "ada")
    # The last use of a key is written every three seconds.
    time.sleep(4)
    w.get(f"{w.bot}/api-keys/{w.ids['whole key']}", "ada", last_use=True)
    w.get(f"{w.bot}/api-keys/{w.ids['chat key']}", "ada")
    w.get(w.bot, "vic")


def balances(w):
    w.chapter("balances")
    for caller in ["ada", "bob", "cem", "eve", "whole key", "anonymous"]:
        w.get(f"{w.acme}/billing/summary", caller)
        w.get(f"{w.acme}/billing/invoices", caller)
        w.get(f"{w.acme}/billing/credits", caller)
        w.get(f"{w.acme}/billing/movements?page_size=1", caller)
        w.get(f"{w.acme}/limits", caller)
    w.get(f"{w.poor}/billing/summary", "ada")
    w.get(f"{w.acme}/billing/invoices?status=draft&page=0", "ada")
    for invoice in ["x", "invoice_01h2xcejqtf2nbrexx3vqjhp41"]:
        w.get(f"{w.acme}/billing/invoices/{invoice}", "ada")
    w.delete(w.acme, "ada")
    w.delete(w.acme, "bob")
    w.calling = f"/v1/organizations/{w.post('/v1/organizations', {'name': 'Calling'}, 'vic').data['id']}"
    project = f"{w.calling}/projects/{w.post(f'{w.calling}/projects', {'name': 'Bot'}, 'vic').data['id']}"
    w.make_key("calling key", project, {"name": "Key"}, "vic")
    service.reserve(w, key="calling key")
    w.delete(w.calling, "vic", note="a call is under way")


def credits(w):
    w.chapter("credits, by an operator")
    acme, poor = w.ids["acme"], w.poor.rsplit("/", 1)[1]
    add = lambda organization, *more: w.command("credit", "add", "--organization", organization, *more)
    for more in [["--amount", "0", "--reference", "a"], ["--amount", "1.001", "--reference", "a"],
                 ["--amount", "1", "--reference", "void:a"], ["--amount", "1", "--reference", " "],
                 ["--amount", "99999999999", "--reference", "a"],
                 ["--amount", "1", "--reference", "a", "--expires-at", "2040-01-01"]]:
        add(acme, *more)
    add("org_01h2xcejqtf2nbrexx3vqjhp41", "--amount", "1", "--reference", "a")
    for _ in range(2):
        add(acme, "--amount", "5", "--reference", "payment 1", "--json")
    add(acme, "--amount", "6", "--reference", "payment 1")
    add(acme, "--amount", "2.50", "--reference", "gift", "--grant", "--expires-at", "2040-03-20T00:00:00Z")
    add(poor, "--amount", "0.03", "--reference", "mistake", "--json")
    add(poor, "--amount", "1", "--reference", "payment 1")
    w.command("credit", "list", "--organization", acme, "--all", "--json")
    listed = w.command("credit", "list", "--organization", poor, "--json").stdout.splitlines()
    w.command("credit", "list", "--organization", poor)
    w.ids["mistake"] = next(line for line in listed if '"mistake"' in line).split('"id":"')[1].split('"')[0]
    for more in [["--amount", "7"], ["--amount", "0.01", "--json"], [], []]:
        w.command("credit", "take-back", w.ids["mistake"], *more)
    w.command("credit", "take-back", "credit_01h2xcejqtf2nbrexx3vqjhp41")
    for command in [["list"], ["list", "--json"], ["show", acme], ["show", acme, "--json"], ["show", "org_x"],
                    ["show", "org_01h2xcejqtf2nbrexx3vqjhp41"], ["set-limit", acme, "--amount", "-1"],
                    ["set-limit", acme, "--amount", "1000", "--json"], ["set-limit", poor, "--amount", "0"]]:
        w.command("organization", *command)
    w.get(f"{w.acme}/billing/summary", "ada")
    statements(w)


def statements(w):
    w.chapter("credits and movements")
    for query in ["", "?page_size=1", "?page=2&page_size=1", "?page=0&page_size=101"]:
        w.get(f"{w.poor}/billing/credits{query}", "ada")
    movements = f"{w.poor}/billing/movements"
    for query in ["", "?page_size=1", "?page=2&page_size=1", "?start_date=2040-03-01&end_date=2041-01-01",
                  "?end_date=2040-03-01", "?start_date=2040-03-02&end_date=2040-03-01", "?start_date=March&page=0"]:
        w.get(movements + query, "ada")
    for accepted in ["text/csv", "application/json, text/csv", "text/csv;q=0.5, application/json", "*/*"]:
        w.get(f"{movements}?page=2&page_size=1", "ada", headers=[("accept", accepted)])
    w.get(f"{movements}?end_date=2040-03-01", "ada", headers=[("accept", "text/csv")])
    w.get(f"{movements}?start_date=March", "ada", headers=[("accept", "text/csv")])
    w.get(f"{w.poor}/limits", "ada")
    for query in ["?format=focus&month=2040-03", "?format=focus&month=2031-01", "", "?format=csv&month=March"]:
        w.get(f"{w.poor}/billing/export{query}", "ada")
    for caller in ["bob", "cem", "eve", "whole key", "anonymous"]:
        w.get(f"{w.acme}/billing/export?format=focus&month=2040-03", caller)


def budgets(w):
    w.chapter("budgets")
    all_of = f"{w.acme}/billing/budgets"
    key = {"name": "Key", "scope": "api_key", "api_key_id": w.ids["whole key"], "period": "day", "limit": "0.000001",
           "hard": True, "thresholds": []}
    for body in [{}, {**key, "limit": "much"}, {**key, "limit": 0}, {**key, "limit": "0.0000000001"},
                 {**key, "limit": 0.1234567890123456}, {**key, "thresholds": [90, 50]}, {**key, "project_id": "proj_x"},
                 {**key, "scope": "organization"}, {**key, "period": "week", "name": " "},
                 {**key, "api_key_id": "key_01h2xcejqtf2nbrexx3vqjhp41"}]:
        w.post(all_of, body, "ada")
    w.post(all_of, key, "bob")
    for _ in range(2):
        budget = w.post(all_of, key, "ada", headers=[("idempotency-key", "budget")]).data["id"]
    w.post(all_of, key, "ada")
    w.ask("/service/v1/authorize", service.question(w))
    for caller in ["ada", "bob", "cem", "eve"]:
        w.get(all_of, caller)
    w.get(f"{all_of}?page=0", "ada")
    one = f"{all_of}/{budget}"
    for path in [one, f"{all_of}/budget_01h2xcejqtf2nbrexx3vqjhp41", f"{all_of}/x"]:
        w.get(path, "ada")
        w.put(path, {"limit": 1_000, "hard": False}, "ada")
    w.put(one, {"thresholds": [0]}, "ada")
    w.put(one, {"name": "Other"}, "ada", headers=[("if-match", '"00000000000000000000000000000000"')])
    w.delete(one, "bob")
    for _ in range(2):
        w.delete(one, "ada")
    alert = f"{w.acme}/billing/balance-alert"
    w.get(alert, "ada")
    for body in [{}, {"below": "low"}, {"below": "-1000000"}, {"below": None}]:
        w.put(alert, body, "ada")
    w.get(alert, "cem")


def payments(w):
    """Covers disabled payments: existing data can be read, but nothing can be changed."""
    w.chapter("payments")
    billing = f"{w.acme}/billing"
    for caller in ["ada", "bob", "cem", "eve", "whole key", "anonymous"]:
        w.get(f"{billing}/payments", caller)
        w.get(f"{billing}/auto-top-up", caller)
        w.post(f"{billing}/payments", {"amount": 10}, caller)
        w.put(f"{billing}/payment-method", {}, caller)
        w.delete(f"{billing}/payment-method", caller)
        w.put(f"{billing}/auto-top-up", {"enabled": False}, caller)
    for body in [{}, {"amount": "much"}, {"amount": 10, "invoice_id": "invoice_01h2xcejqtf2nbrexx3vqjhp41"}]:
        w.post(f"{billing}/payments", body, "ada")
    for payment in ["x", "payment_01h2xcejqtf2nbrexx3vqjhp41"]:
        w.get(f"{billing}/payments/{payment}", "ada")
    w.post("/v1/billing/stripe/events", {"id": "evt_1", "type": "checkout.session.completed"}, "anonymous")
