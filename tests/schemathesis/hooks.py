"""Our own checks and rules for Schemathesis."""

import json
import os
import urllib.request

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import EnsureResourceAvailability, RejectedPositiveData
from schemathesis.specs.openapi.checks import (
    ensure_resource_availability,
    negative_data_rejection,
    positive_data_acceptance,
)

# The same as in `run.py`.
SETUP = json.loads(os.environ["TOLLKEEPER_SETUP"])

# Reasons to refuse a request that its schema allows: state of the server, and rules without a keyword. A refusal
# with another code (`wrong_type`, `required`, `unknown_field`, `out_of_range` …) is a gap in the schema.
RULES = {
    "address_not_allowed",
    "does_not_match",
    "email_unchanged",
    "end_before_start",
    "https_required",
    "in_the_past",
    "invalid_address",
    "invalid_amount",
    "invalid_characters",
    "invalid_email",
    "invalid_entity_tag",
    "invalid_id",
    "invalid_ip",
    "invalid_phone",
    "invalid_text",
    "invalid_thresholds",
    "invalid_url",
    "mixed_scripts",
    "password_common",
    "password_needs_digit",
    "password_needs_lowercase",
    "password_needs_uppercase",
    "password_personal",
    "password_too_long",
    "password_too_short",
    "password_unchanged",
    "port_not_allowed",
    "range_too_long",
    "reserved",
    "too_many_digits",
    "unexpected_subject",
    "unknown_model",
}
# Rules that a schema can't express. A model and a server have their own maximum values. Chat and embeddings require a
# model. Groups are separated by commas. A name must have visible characters. A proof is a password, or both parts of a
# passkey's response. A budget of a project or a key contains its id. A payment has either an amount or an invoice. Each
# version of FOCUS has its own datasets.
CONDITIONS = {("settings.max_tokens", "out_of_range"), ("grace_seconds", "out_of_range"), ("model", "required"),
              ("group_by", "unknown_value"), ("name", "required"), ("password", "required"), ("ceremony", "required"),
              ("credential", "required"), ("project_id", "required"), ("api_key_id", "required"), ("amount", "required"),
              ("amount", "not_allowed"), ("dataset", "unknown_value")}
# The same for refusals that are codes of errors, not of details. A key limits the tokens, and the price of a call is
# limited.
CODES = {"amount_out_of_range", "challenge_expired", "precondition_failed", "invalid_signature", "invalid_token", "max_tokens_exceeded", "public_projects_not_allowed"}
# Calls with a list of messages.
MESSAGES = {"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"}
# Pages return text instead of JSON.
PAGES = {"/verify-email", "/reset-password", "/change-email", "/invitations/accept"}


@schemathesis.check
def valid_requests_are_refused_by_rules_only(ctx, response, case):
    try:
        return positive_data_acceptance(ctx, response, case)
    except RejectedPositiveData:
        # A schema doesn't contain the price of a call.
        if response.status_code == 402:
            return None
        if response.status_code in (400, 412) and is_by_rule(response, case):
            return None
        raise


def is_by_rule(response, case):
    if case.operation.path in PAGES:
        return True
    error = response.json()["error"]
    if error["code"] in CODES:
        return True
    return bool(error["details"]) and all(is_rule(detail) for detail in error["details"])


def is_rule(detail):
    return detail["code"] in RULES or (detail["param"], detail["code"]) in CONDITIONS


@schemathesis.check
def invalid_requests_are_refused(ctx, response, case):
    try:
        return negative_data_rejection(ctx, response, case)
    except AcceptedNegativeData:
        # An extremely long text makes the body too large, which is checked first.
        if response.status_code == 413:
            return None
        # The server behind the model checks the contents of messages, and the demo accepts anything.
        messages = case.body.get("messages") if isinstance(case.body, dict) else None
        is_list = isinstance(messages, list) and bool(messages)
        if case.operation.path in MESSAGES and is_list and not all(isinstance(one, dict) for one in messages):
            return None
        # A batch is accepted even if one of its events is invalid. The result of this event is a refusal.
        is_batch = case.operation.path == "/service/v1/usage" and response.status_code == 200
        if is_batch and any(result["status"] == "refused" for result in response.json()["results"]):
            return None
        raise


@schemathesis.check
def created_objects_are_found(ctx, response, case):
    try:
        return ensure_resource_availability(ctx, response, case)
    except EnsureResourceAvailability:
        # The project exists, but the user in the body doesn't.
        if response.json()["error"]["code"] == "user_not_found":
            return None
        raise


@schemathesis.hook
def before_call(context, case, kwargs):
    """Gives calls that end sessions a separate session of another user. Otherwise the first such call would break all others."""
    # Other tokens are wrong on purpose.
    is_own = (case.headers or {}).get("Authorization") == "Bearer " + SETUP["accessToken"]
    ends_it = case.operation.path in {"/v1/auth/logout", "/v1/auth/reauthenticate"}
    if is_own and (ends_it or case.operation.method.upper() == "DELETE" and case.operation.path.startswith("/v1/auth/")):
        case.headers["Authorization"] = "Bearer " + log_in()


def log_in():
    request = urllib.request.Request(
        f"http://{SETUP['public']}/v1/auth/login",
        data=json.dumps(SETUP["login"]).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["data"]["access_token"]
