"""Operator commands while the server runs."""

import catalog

COMMANDS = [
    [], ["serve"], ["migrate"], ["audit"], ["backup"], ["health"], ["audit-log"], ["signing-key"],
    ["signing-key", "rotate"], ["master-key"], ["master-key", "rotate"], ["session"], ["session", "end"], ["catalog"],
    ["catalog", "check"], ["catalog", "reload"], ["catalog", "show"], ["organization"], ["organization", "list"],
    ["organization", "show"], ["organization", "set-credit-limit"], ["credit"], ["credit", "add"], ["credit", "list"],
    ["credit", "take-back"], ["billing"], ["billing", "close"], ["clock"], ["clock", "show"], ["clock", "accept"],
    ["invoice"], ["invoice", "list"], ["invoice", "show"], ["invoice", "mark-paid"], ["invoice", "give-up"],
    ["invoice", "void"], ["openapi"], ["config"], ["setup"], ["user"], ["user", "list"], ["user", "show"], ["user", "create"],
    ["user", "disable"], ["user", "enable"], ["user", "end-sessions"], ["user", "reset-second-factor"], ["operator"],
    ["operator", "list"], ["operator", "grant"], ["operator", "revoke"], ["mail"], ["mail", "test"], ["mail", "list"],
    ["mail", "retry"],
]


def walk(w):
    w.chapter("what commands say of themselves")
    for command in COMMANDS:
        w.command(*command, "--help")
    for command in [["--version"], ["fly"], ["credit"], ["credit", "add"], ["audit", "--organization", "x"],
                    ["session", "end"], ["session", "end", "--all", "--user", "x"]]:
        w.command(*command)

    w.chapter("configuration, health, catalog")
    for command in [["config"], ["config", "--json"], ["health"], ["health", "--json"], ["migrate"],
                    ["migrate", "--json"]]:
        w.command(*command)
    w.command("health", "--json", TOLLKEEPER_LISTEN="127.0.0.1:1")
    w.command("config", TOLLKEEPER_LISTEN="nowhere", TOLLKEEPER_LIMITS__ENABLED="perhaps", TOLLKEEPER_COLOUR="red")
    file = str(w.catalog)
    bad = w.catalog.with_name("bad.toml")
    bad.write_text('[[models]]\nid = "a b"\nkind = "video"\nmax_token = 1\nprices = [{ effective_at = "soon" }]\n')
    for command in [["check", file], ["check", file, "--json"], ["check", file, "--currency", "EUR"],
                    ["check", str(bad)], ["check", str(bad), "--json"], ["check", "missing.toml"], ["show"],
                    ["show", "--json"], ["reload"]]:
        w.command("catalog", *command)
    catalog.extend(w.catalog)
    w.command("catalog", "reload", "--json")
    w.catalog.write_text(w.catalog.read_text().replace('prompt_tokens = "0.00001"', 'prompt_tokens = "0.00002"'))
    w.command("catalog", "reload")
    catalog.extend(w.catalog)
    w.wait_for(lambda: 'added="chat-3"' in w.installation.log)
    w.get("/v1/models/chat-3", "ada")

    w.chapter("books, trail, copies, keys, sessions")
    for command in [["audit"], ["audit", "--json"], ["audit", "--organization", w.ids["acme"], "--json"],
                    ["clock", "show"], ["clock", "show", "--json"], ["billing", "close"],
                    ["billing", "close", "--skip-wait"], ["billing", "close", "--skip-wait", "--json"],
                    ["billing", "close", "--as-of", "2050-01-01"], ["invoice", "list", "--organization", w.ids["acme"]],
                    ["invoice", "show", "invoice_01h2xcejqtf2nbrexx3vqjhp41"]]:
        w.command(*command)
    for more in [["--limit", "1000"], ["--limit", "1000", "--json"], ["--actor", "operator", "--json"],
                 ["--action", "fly"], ["--action", "credit.added"], ["--target", w.ids["whole key"]],
                 ["--organization", w.ids["acme"], "--since", "2040-03-10", "--until", "2040-03-11"]]:
        w.command("audit-log", *more, sort=True)
    copy = str(w.installation.folder / "copy.db")
    for more in [["--to", copy, "--json"], ["--to", copy], ["--to", copy + ".2"]]:
        w.command("backup", *more)
    w.command("master-key", "rotate")
    other = "bm90IHRoZSBrZXkgdGhhdCB3YXMgdXNlZCBiZWZvcmU="
    w.command("master-key", "rotate", "--json", TOLLKEEPER_MASTER_KEY_PREVIOUS=other)
    w.command("signing-key", "rotate", "--json")
    w.wait_for(lambda: w.installation.send("public", "GET", "/.well-known/jwks.json").text.count('"kid"') == 2)
    w.get("/.well-known/jwks.json")
    w.get("/v1/auth/me", "ada", note="with a token of the key before")
    w.log_in("lee")
    w.command("session", "end", "--user", "nobody@example.com")
    w.command("session", "end", "--user", "lee@example.com", "--json")
    w.wait_for(lambda: w.installation.send(
        "public", "GET", "/v1/auth/me", [("authorization", f"Bearer {w.bearers['lee']}")]).status == 401)
    w.get("/v1/auth/me", "lee")
    metrics(w)


def metrics(w):
    w.chapter("metrics")
    for caller in ["anonymous", "ada"]:
        w.get("/metrics", caller, listener="service")
    answer = w.installation.send("service", "GET", "/metrics", [("authorization", f"Bearer {w.bearers['service']}")])
    w.transcript.answers.append(("service", "GET", "/metrics", answer.status))
    w.transcript.line(f"#### GET /metrics, without its values\n< {answer.status}")
    lines = {line for line in answer.text.splitlines() if line.startswith("# ")}
    # Shows the values of usage events and decisions, but only the labels of other metrics.
    for line in answer.text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(("tollkeeper_usage_events_total", "tollkeeper_decisions_total")):
            lines.add(f"{name} {value}")
        elif not line.startswith("# "):
            lines.add(labels(name) if "{" in name else name)
    for line in sorted(lines):
        w.transcript.line(line)
    w.transcript.line()


def labels(name):
    metric, _, rest = name.partition("{")
    words = sorted(part.split("=")[0].strip(",") for part in rest.rstrip("}").split('",'))
    return f"{metric}{{{','.join(words)}}}"
