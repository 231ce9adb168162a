"""A server that isn't ready, and a database that is unavailable or read-only."""

import sqlite3

import service
from limits import restart


def walk(w):
    currency(w)
    restart(w)
    w.log_in("ada")
    cut_off(w)
    if w.postgres:
        postgres(w)
    else:
        sqlite(w)


def currency(w):
    w.chapter("another currency")
    w.installation.stop()
    w.catalog.write_text(w.catalog.read_text().replace('"USD"', '"EUR"'))
    w.start(TOLLKEEPER_BILLING__CURRENCY="EUR")
    w.wait_for(lambda: "have a currency other than" in w.installation.send("public", "GET", "/readyz").text)
    w.get("/readyz")
    w.command("health", "--json")
    w.ask("/service/v1/authorize", service.question(w, "foreign key"))
    service.report(w, service.event(w, 99, "foreign key"))
    w.catalog.write_text(w.catalog.read_text().replace('"EUR"', '"USD"'))


def cut_off(w):
    w.chapter("a request whose server has died")
    create = lambda: w.post("/v1/organizations", {"name": "Cut off"}, "ada", headers=[("idempotency-key", "cut-off")])
    create()
    # Restores the row as it was before the commit.
    forget = "UPDATE idempotency_keys SET answer = NULL"
    if w.postgres:
        w.postgres.sql("walk", forget)
    else:
        with sqlite3.connect(w.installation.data / "tollkeeper.db") as database:
            database.execute(forget)
        database.close()
    create()


def writes(w):
    w.post("/v1/organizations", {"name": "While it is away"}, "ada")
    service.report(w, service.event(w, 100, "foreign key"))
    w.get(w.acme, "ada")


def sqlite(w):
    w.chapter("a database locked by another process")
    # The queue of e-mails and other writes of the server have to wait too.
    other = sqlite3.connect(w.installation.data / "tollkeeper.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writes(w)
    other.execute("ROLLBACK")
    other.close()
    writes(w)


def postgres(w):
    w.chapter("a database that can't be written")
    w.postgres.sql("walk", "ALTER DATABASE walk SET default_transaction_read_only = on")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'walk'"
    w.postgres.sql("postgres", cut)
    bearer = [("authorization", f"Bearer {w.bearers['ada']}")]
    create = lambda: w.installation.send("public", "POST", "/v1/organizations", bearer, "{}")
    w.wait_for(lambda: create().status == 400)
    w.post("/v1/organizations", {"name": "While it is read only"}, "ada")
    w.postgres.sql("postgres", "ALTER DATABASE walk RESET default_transaction_read_only")
    w.postgres.sql("postgres", cut)

    w.chapter("a database that is down")
    w.postgres.stop()
    writes(w)
    w.get("/readyz")
    w.get("/metrics", "anonymous", listener="service")
    w.postgres.start()
    w.wait_for(w.installation.is_ready)
    writes(w)
