#!/usr/bin/env python3
"""Calls all operations of a separate installation and writes a transcript of every exchange.

    walk.py BINARY [--postgres] [--earlier] > transcript

The same binary always produces the same transcript, and two binaries with the same contract produce equal transcripts.
.ci/walk uses this to compare an earlier version with this one. By the end of the walk, every operation of the OpenAPI
document must have succeeded. Every code of an error and of a detail must have been seen, or be in `UNREACHABLE`.

The walk needs libfaketime, PostgreSQL for --postgres, and no Python packages outside the standard library.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True

import accounts
import catalog
import gateway
import keys
import limits
import money
import months
import operators
import organizations
import refusals
import service
import trouble
from installation import Clock, Installation, Postgres
from transcript import Transcript, Words
from walker import Walker

CONTRACT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "contract"
CHAPTERS = [accounts, organizations, keys, service, gateway, money, operators, refusals, months, limits, trouble]

# Codes that no client of the API can cause, each with the reason.
UNREACHABLE = {
    "internal_error": "a bug in the server",
    "books_queue_full": "10,000 requests would have to wait",
    "storage_full": "needs a separate disk that is full",
    "cross_origin_request": "only the console answers it, with a page",
    **dict.fromkeys(["connection_taken", "no_account", "provider_not_found", "provider_unavailable", "sign_on_expired",
                     "sign_on_failed"], "only the console answers it, with a page"),
    **dict.fromkeys(["last_credential", "no_password", "sign_on_required"], "needs a user who signs in with a provider"),
    "passwords_disabled": "needs a server without passwords",
    **dict.fromkeys(["invoice_not_open", "no_payment_method", "processor_unavailable", "invalid_signature"],
                    "needs Stripe: payments are off here, and `payments_disabled` is seen"),
}
# Operations that need data that no client of the API can create.
PAYMENTS = "/v1/organizations/{organization_id}/billing/"
UNREACHABLE_OPERATIONS = {
    ("DELETE", "/v1/auth/connections/{connection_id}"): "needs a user who signs in with a provider",
    **dict.fromkeys([("POST", f"{PAYMENTS}payments"), ("GET", f"{PAYMENTS}payments/{{payment_id}}"), ("PUT", f"{PAYMENTS}payment-method"),
                     ("DELETE", f"{PAYMENTS}payment-method"), ("PUT", f"{PAYMENTS}auto-top-up"), ("POST", "/v1/billing/stripe/events")],
                    "needs Stripe: payments are off here"),
}
UNREACHABLE_ON_SQLITE = {
    "storage_read_only": "needs a separate read-only file system",
}

# High limits, so that calls are refused only by rules. The module `limits` covers the limits.
SETTINGS = {
    "TOLLKEEPER_LIMITS__READS_PER_MINUTE": "100000",
    "TOLLKEEPER_LIMITS__WRITES_PER_MINUTE": "100000",
    "TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE": "100000",
    "TOLLKEEPER_LIMITS__REGISTRATIONS_PER_MINUTE": "100000",
    "TOLLKEEPER_LIMITS__BAD_CREDENTIALS_PER_MINUTE": "100000",
    "TOLLKEEPER_LIMITS__PASSWORD_RESETS_PER_HOUR": "1000",
    "TOLLKEEPER_LIMITS__VERIFICATIONS_PER_HOUR": "1000",
    "TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR": "1000",
    "TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR": "1000",
    "TOLLKEEPER_LIMITS__LOGIN_FAILURES": "1000",
    "TOLLKEEPER_LIMITS__LOGIN_FAILURES_ALL_NETWORKS": "1000",
    "TOLLKEEPER_LIMITS__PASSWORD_CHANGES_PER_HOUR": "1000",
    "TOLLKEEPER_PASSWORDS__HASH_THREADS": "2",
    "TOLLKEEPER_BILLING__CREDIT_LIMIT": "100",
    "TOLLKEEPER_BILLING__ISSUER_NAME": "Toll & Keeper Ltd",
    "TOLLKEEPER_BILLING__ISSUER_ADDRESS": "1 Bridge Street\nVAT 123",
}


def documented_codes(document):
    """Returns all documented codes: those of errors from the OpenAPI document, and those of details and refused events
    from the tables of the contract."""
    schemas = document["components"]["schemas"]
    # Earlier versions have the enum in the field itself.
    codes = set((schemas.get("ErrorCode") or schemas["Error"]["properties"]["code"])["enum"])
    tables = [("README.md", "| about | codes |", 2), ("service.md", "| code | when | `retryable` |", 1)]
    for page, head, column in tables:
        table = (CONTRACT / page).read_text().split(f"\n{head}\n")[1].split("\n\n")[0]
        for row in table.splitlines():
            codes.update(re.findall(r"`([a-z_]+)`", row.split("|")[column]))
    return codes


def check_coverage(transcript, document, unreachable):
    """Prints everything that wasn't covered. Returns whether everything required was covered."""
    operations = [
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "post", "put", "delete")
    ]
    # A path parameter can be the id of a model, which can contain slashes.
    patterns = {
        operation: re.compile(re.sub(r"\{model_id\}", ".+", re.sub(r"\{(?!model_id)[a-z_]+\}", "[^/]+", operation[1])))
        for operation in operations
    }
    visited = set()
    for _, method, path, status in transcript.answers:
        if 200 <= status < 300:
            visited.update(one for one in operations if one[0] == method and patterns[one].fullmatch(path))
    missed = [one for one in operations if one not in visited and one not in UNREACHABLE_OPERATIONS]
    due = documented_codes(document)
    unseen = sorted(due - transcript.codes - set(unreachable))
    print(f"walk: {transcript.exchanges} exchanges, {len(visited)} of {len(operations)} operations, "
          f"{len(due & transcript.codes)} of {len(due)} codes", file=sys.stderr)
    for code in sorted(set(unreachable) & due):
        seen = " (but it was seen)" if code in transcript.codes else ""
        print(f"walk: can't be caused by a client: {code}: {unreachable[code]}{seen}", file=sys.stderr)
    for method, path in missed:
        print(f"walk: NEVER ANSWERED WITH SUCCESS: {method} {path}", file=sys.stderr)
    for code in unseen:
        print(f"walk: NEVER SEEN: {code}", file=sys.stderr)
    return not missed and not unseen


def main():
    arguments = argparse.ArgumentParser(description="Walks through all operations of a tollkeeper.")
    arguments.add_argument("binary", type=os.path.abspath)
    arguments.add_argument("--postgres", action="store_true", help="on a throwaway PostgreSQL, not on SQLite")
    arguments.add_argument("--earlier", action="store_true", help="the binary may lack features of this version")
    arguments.add_argument("--until", help="stop after the chapters of this module", metavar="MODULE")
    options = arguments.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-walk-"))
    # PostgreSQL runs as another user, who needs access.
    folder.chmod(0o755)
    installation = postgres = None
    try:
        clock = Clock(folder)
        postgres = Postgres(folder / "pg", clock) if options.postgres else None
        database = postgres and postgres.url()
        settings = {**SETTINGS, "TOLLKEEPER_CATALOG_FILE": str(catalog.write(folder))}
        # Commands print the name of their program file. The link has the same name for both versions.
        binary = folder / "tollkeeper"
        binary.symlink_to(options.binary)
        installation = Installation(str(binary), folder, clock, database, settings)
        words = Words(clock)
        transcript = Transcript(words)
        walker = Walker(installation, transcript, folder / "catalog.toml")
        walker.postgres = postgres
        walker.begin()
        document = json.loads(installation.command("openapi").stdout)
        for chapter in CHAPTERS:
            chapter.walk(walker)
            if options.until == chapter.__name__:
                return
        walker.rest_of_mails()
        installation.stop()
        transcript.line(f"\n==== {transcript.exchanges} exchanges")
        unreachable = {**UNREACHABLE, **({} if postgres else UNREACHABLE_ON_SQLITE)}
        sys.stdout.flush()
        if not check_coverage(transcript, document, unreachable) and not options.earlier:
            sys.exit(1)
    except BaseException:
        if installation:
            print("".join(installation.log.splitlines(keepends=True)[-40:]), file=sys.stderr)
        raise
    finally:
        if installation:
            installation.kill()
        if postgres:
            postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


main()
