"""Refusals that all operations have in common: of credentials, roles, ids, bodies and methods. New operations of the
OpenAPI document are included automatically."""

import json

from installation import SERVICE_TOKEN
from organizations import UNKNOWN

ROLES = ["bob", "cem", "vic", "dan", "pam", "eve", "whole key", "narrow key", "key from elsewhere"]
JSON = "application/json"


def walk(w):
    document = json.loads(w.installation.command("openapi").stdout)
    operations = [(method.upper(), path, item[method]) for path, item in document["paths"].items()
                  for method in ["get", "post", "put", "delete"] if method in item]
    credentials(w, operations)
    roles(w, operations)
    unknown(w, operations)
    bodies(w, operations)
    methods(w, document)


def fill(w, path, **changes):
    values = {"organization_id": w.ids["acme"], "project_id": w.ids["bot"], "member_id": w.ids["cem"],
              "key_id": w.ids["chat key"], "invoice_id": f"invoice_{UNKNOWN}", "model_id": "chat-1",
              "invitation_id": f"inv_{UNKNOWN}", "reservation_id": f"res_{UNKNOWN}", "session_id": f"sess_{UNKNOWN}",
              "subject": "accounts", **changes}
    if "/projects/" in path:
        values["member_id"] = changes.get("member_id", w.ids["vic"])
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def listener(operation):
    return "service" if operation.get("servers") else "public"


def scheme(operation):
    return next(iter(operation["security"][0]), None) if operation.get("security") else None


def has_body(operation):
    return JSON in operation.get("requestBody", {}).get("content", {})


def credentials(w, operations):
    w.chapter("without a good credential")
    for method, path, operation in operations:
        if scheme(operation):
            for caller in ["anonymous", "ada's refresh token", "broken token", "no key"]:
                if (scheme(operation), caller) != ("refreshToken", "ada's refresh token"):
                    w.call(method, fill(w, path), caller, listener=listener(operation))


def roles(w, operations):
    w.chapter("by role")
    for method, path, operation in operations:
        if scheme(operation) != "bearer" or "{organization_id}" not in path:
            continue
        # An invalid body shows which callers pass the checks before the body is read.
        body = {"walked": 1} if has_body(operation) else None
        for caller in ROLES:
            if body is not None or method == "GET" or is_refused(caller, method, path):
                w.call(method, fill(w, path), caller, body)


def is_refused(caller, method, path):
    """Returns whether the caller is refused. Calls without a body, which can't be undone, are made only by such
    callers."""
    return caller in ["cem", "vic", "dan", "eve", "narrow key"] and "members" not in path


def unknown(w, operations):
    w.chapter("what isn't there")
    others = {"organization_id": "org", "project_id": "proj", "member_id": "user", "key_id": "key",
              "invitation_id": "inv"}
    for method, path, operation in operations:
        if scheme(operation) == "bearer":
            for name, prefix in others.items():
                if f"{{{name}}}" in path:
                    body = {} if has_body(operation) else None
                    w.call(method, fill(w, path, **{name: f"{prefix}_{UNKNOWN}"}), "ada", body)
            if "{project_id}" in path:
                w.call(method, fill(w, path, organization_id=w.poor.rsplit("/", 1)[1]), "ada", {})


def bodies(w, operations):
    w.chapter("bodies that can't be read")
    for method, path, operation in operations:
        if not has_body(operation):
            continue
        target, where = fill(w, path), listener(operation)
        caller = {"serviceToken": "service", None: None}.get(scheme(operation), "ada")
        send = lambda body, kind=JSON: w.call(
            method, target, caller, body, headers=[("content-type", kind)], listener=where)
        send("{")
        send('{"a": 1, "a": 2}')
        send(b'{"a": "\xff"}')
        send("[1]")
        send("{}", "text/plain")
        send("{}", "application/merge-patch+json")
        send(json.dumps({f"f{number}": 1 for number in range(30)}))
        send(json.dumps({f"f{number}": 1 for number in range(300)}))
        send(" " * {"service": 2**20 + 1}.get(where, 2**14 + 1 if "/auth/" in path else 2**18 + 1))
    w.post("/v1/auth/login", "{}", headers=[("content-type", JSON), ("content-type", "text/plain")])


def methods(w, document):
    w.chapter("other methods")
    for path, item in document["paths"].items():
        operation = next(iter(item.values()))
        for method in ["PATCH", "DELETE", "POST", "GET", "OPTIONS"]:
            if method.lower() not in item:
                w.call(method, fill(w, path), listener=listener(operation))
    w.call("GET", "/v1/models", headers=[("authorization", f"Bearer {SERVICE_TOKEN}")])
