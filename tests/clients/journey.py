"""Follows the steps of the README and then uses the other operations, with the client that `openapi-python-client`
generated from the server's OpenAPI document.

The only argument is a JSON object with the URLs of both listeners, the service token, and the folder of e-mails. Prints
"all good", or fails. mypy checks this file together with the client.
"""

import datetime
import json
import pathlib
import re
import sys
import time
from typing import TypeVar

from tollkeeper_client import AuthenticatedClient, Client
from tollkeeper_client.api.accounts import (
    change_password,
    delete_session,
    delete_sessions,
    forgot_password,
    get_me,
    list_sessions,
    login,
    logout,
    refresh_token,
    register,
    reset_password,
    update_me,
    verify_email,
)
from tollkeeper_client.api.api_keys import (
    create_api_key,
    delete_api_key,
    end_api_key_rotation,
    get_api_key,
    list_api_keys,
    rotate_api_key,
    update_api_key,
)
from tollkeeper_client.api.billing_and_usage import (
    get_billing_summary,
    get_organization_limits,
    get_organization_usage,
    get_pricing,
    get_project_usage,
    list_credits,
    list_invoices,
    list_movements,
)
from tollkeeper_client.api.documents import get_signing_keys
from tollkeeper_client.api.model_calls import create_chat_completion
from tollkeeper_client.api.models import get_model, list_models
from tollkeeper_client.api.monitoring import get_health, get_metrics, get_readiness
from tollkeeper_client.api.organizations import (
    create_invitation,
    create_organization,
    delete_invitation,
    delete_organization_member,
    get_organization,
    list_audit_log,
    list_invitations,
    list_organization_members,
    list_organizations,
    resend_invitation,
    update_organization,
    update_organization_member,
)
from tollkeeper_client.api.pages import get_verify_email_page
from tollkeeper_client.api.projects import (
    create_project,
    create_project_member,
    delete_project,
    get_project,
    list_project_members,
    list_projects,
    update_project,
    update_project_member,
)
from tollkeeper_client.api.service import authorize, delete_reservation, extend_reservation, report_usage
from tollkeeper_client.api.webhooks import (
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhook_deliveries,
    list_webhooks,
    test_webhook,
)
from tollkeeper_client.models import (
    AuditAction,
    AuthorizeRequest,
    BareError,
    ChangePasswordRequest,
    ChatCapabilities,
    ChatModelPricing,
    CreateApiKeyRequest,
    CreateApiKeyRequestRestrictions,
    CreateChatCompletionRequest,
    CreateChatCompletionRequestMessagesItem,
    CreateInvitationRequest,
    CreateOrganizationRequest,
    CreateProjectMemberRequest,
    CreateProjectRequest,
    CreateProjectRequestSettings,
    CreateWebhookRequest,
    EnvelopedError,
    ErrorCode,
    ErrorType,
    EventStatus,
    ForgotPasswordRequest,
    InvitationStatus,
    LoginRequest,
    OrganizationRole,
    Permission,
    ProjectRole,
    RegisterRequest,
    ReportUsageRequest,
    ResetPasswordRequest,
    RotateApiKeyRequest,
    UpdateApiKeyRequest,
    UpdateMeRequest,
    UpdateOrganizationMemberRequest,
    UpdateOrganizationRequest,
    UpdateOrganizationRequestSettings,
    UpdateProjectMemberRequest,
    UpdateProjectRequest,
    UsageEvent,
    UsageKind,
    VerifyEmailRequest,
    Visibility,
    WebhookEventType,
)

setup: dict[str, str] = json.loads(sys.argv[1])
PASSWORD, OTHER_PASSWORD, THIRD_PASSWORD = "Analytical-Engine-1843", "Violet-Kettle-Orbit-9", "Copper-Harbor-Lantern-52"

T = TypeVar("T")


def done(answer: T | EnvelopedError | BareError | None) -> T:
    """Returns an answer that must be a success."""
    if answer is None or isinstance(answer, (EnvelopedError, BareError)):
        raise AssertionError(f"expected a success: {answer}")
    return answer


def refused(answer: object, code: ErrorCode) -> EnvelopedError:
    """Returns the error of an answer that must be a refusal with this code."""
    assert isinstance(answer, EnvelopedError), answer
    assert answer.error.code is code and answer.status_message == code.value.upper(), answer
    return answer


def mailed_link(address: str, page: str) -> str:
    """Returns the token of the newest link to a page in the e-mails to an address."""
    link = re.compile(rf"^{re.escape(setup['public'])}/{page}[?#]token=([A-Za-z0-9_-]{{43}})\s*$", re.MULTILINE)
    for _ in range(400):
        mails = sorted(pathlib.Path(setup["mails"]).glob("*.eml"), key=lambda mail: mail.stat().st_mtime_ns, reverse=True)
        for mail in mails:
            text = mail.read_text()
            found = link.search(text)
            if found and re.search(rf"^To: .*{re.escape(address)}", text, re.MULTILINE):
                return found[1]
        time.sleep(0.025)
    raise AssertionError(f"no mail to {address} came")


def sign_up(name: str) -> AuthenticatedClient:
    """Registers an account, verifies it with the link in the e-mail, and logs in."""
    email = f"{name}@example.com"
    registered = done(
        register.sync(client=anyone, body=RegisterRequest(email=email, password=PASSWORD, username=name))
    ).data
    assert registered.verification_email_sent and registered.user.username == name
    assert registered.user.created_at.tzinfo is not None and registered.user.full_name is None
    token = mailed_link(email, "verify-email")
    page = get_verify_email_page.sync(client=anyone, token=token)
    assert page is not None and "<form" in page, page
    verified = done(verify_email.sync(client=anyone, body=VerifyEmailRequest(token=token))).data
    assert verified.verified and verified.email == email
    return log_in(name, PASSWORD)


def log_in(name: str, password: str) -> AuthenticatedClient:
    logged_in = done(
        login.sync(client=anyone, body=LoginRequest(email=f"{name}@example.com", password=password))
    ).data
    assert logged_in.token_type == "Bearer" and logged_in.user.username == name
    refreshing = AuthenticatedClient(base_url=setup["public"], token=logged_in.refresh_token)
    refreshed = done(refresh_token.sync(client=refreshing)).data
    return AuthenticatedClient(base_url=setup["public"], token=refreshed.access_token)


# Operations without a credential.
anyone = Client(base_url=setup["public"])
assert done(get_health.sync(client=anyone)).status == "ok"
readiness = done(get_readiness.sync(client=anyone))
assert readiness.checks and all(check.ok for check in readiness.checks)
keys = done(get_signing_keys.sync(client=anyone)).keys
assert [key.alg for key in keys] == ["EdDSA"] and keys[0].kid

# An account.
ada = sign_up("ada")
assert done(get_me.sync(client=ada)).data.user.email_verified
me = done(update_me.sync(client=ada, body=UpdateMeRequest(full_name="Ada Lovelace"))).data.user
assert me.full_name == "Ada Lovelace" and me.phone is None
log_in("ada", PASSWORD)
sessions = done(list_sessions.sync(client=ada, page_size=10)).data
assert (sessions.total, [session.current for session in sessions.sessions]) == (2, [False, True]), sessions
done(delete_session.sync(client=ada, session_id=sessions.sessions[0].id))
assert done(list_sessions.sync(client=ada)).data.total == 1
changed = ChangePasswordRequest(
    current_password=PASSWORD, new_password=OTHER_PASSWORD, new_password_confirmation=OTHER_PASSWORD
)
done(change_password.sync(client=ada, body=changed))
done(forgot_password.sync(client=anyone, body=ForgotPasswordRequest(email="ada@example.com")))
reset = ResetPasswordRequest(
    token=mailed_link("ada@example.com", "reset-password"), password=THIRD_PASSWORD, password_confirmation=THIRD_PASSWORD
)
done(reset_password.sync(client=anyone, body=reset))
ada = log_in("ada", THIRD_PASSWORD)

# An organization, a repeated request, and the error for a second organization with the same name.
acme = CreateOrganizationRequest(name="Acme")
created = done(create_organization.sync(client=ada, body=acme, idempotency_key="acme-1")).data
assert created.owner.username == "ada" and created.settings.default_role is OrganizationRole.MEMBER
org = created.id
repeated = create_organization.sync_detailed(client=ada, body=acme, idempotency_key="acme-1")
assert repeated.headers["idempotency-replayed"] == "true"
assert done(repeated.parsed).data == created
other = create_organization.sync(client=ada, body=CreateOrganizationRequest(name="Other"), idempotency_key="acme-1")
refused(other, ErrorCode.IDEMPOTENCY_KEY_REUSED)
taken = create_organization.sync_detailed(client=ada, body=acme)
assert taken.status_code == 409
error = refused(taken.parsed, ErrorCode.NAME_TAKEN).error
assert (error.type_, error.param, error.details[0].param) == (ErrorType.INVALID_REQUEST_ERROR, "name", "name"), error
assert [one.name for one in done(list_organizations.sync(client=ada, search="acm")).data.organizations] == ["Acme"]

# An update that requires a version.
version = get_organization.sync_detailed(org, client=ada).headers["etag"]
described = UpdateOrganizationRequest(
    description="Engines", settings=UpdateOrganizationRequestSettings(allow_public_projects=True)
)
assert done(update_organization.sync(org, client=ada, body=described, if_match=version)).data.description == "Engines"
stale = update_organization.sync_detailed(org, client=ada, body=UpdateOrganizationRequest(name="Acme 2"), if_match=version)
assert stale.status_code == 412
refused(stale.parsed, ErrorCode.PRECONDITION_FAILED)

# A project.
shop = CreateProjectRequest(name="Shop", settings=CreateProjectRequestSettings(model="svc-1", temperature=0.5))
project = done(create_project.sync(org, client=ada, body=shop)).data
assert (project.settings.model, project.settings.temperature, project.visibility) == ("svc-1", 0.5, Visibility.PRIVATE)
done(update_project.sync(org, project.id, client=ada, body=UpdateProjectRequest(visibility=Visibility.PUBLIC)))
listed = done(list_projects.sync(org, client=ada)).data.projects[0]
assert (listed.visibility, listed.role) == (Visibility.PUBLIC, ProjectRole.OWNER), listed

# Members.
invited = CreateInvitationRequest(email="bob@example.com", role=OrganizationRole.ADMIN, message="Welcome")
first = done(create_invitation.sync(org, client=ada, body=invited)).data
again = refused(create_invitation.sync(org, client=ada, body=invited), ErrorCode.ALREADY_INVITED)
done(delete_invitation.sync(org, first.invitation_id, client=ada))
second = done(create_invitation.sync(org, client=ada, body=invited)).data
assert done(resend_invitation.sync(org, second.invitation_id, client=ada)).data.status is InvitationStatus.PENDING
pending = done(list_invitations.sync(org, client=ada, status=InvitationStatus.PENDING)).data.invitations
assert [(one.email, one.role, one.invited_by.username) for one in pending] == [
    ("bob@example.com", OrganizationRole.ADMIN, "ada")
]
bob = sign_up("bob")
members = done(list_organization_members.sync(org, client=bob, role=OrganizationRole.ADMIN)).data.members
assert [member.username for member in members] == ["bob"]
bob_id = members[0].id
lowered = UpdateOrganizationMemberRequest(role=OrganizationRole.MEMBER)
changed_member = done(update_organization_member.sync(org, bob_id, client=ada, body=lowered)).data
assert changed_member.role is OrganizationRole.MEMBER
viewer = CreateProjectMemberRequest(user_id=bob_id, role=ProjectRole.VIEWER)
done(create_project_member.sync(org, project.id, client=ada, body=viewer))
raised = UpdateProjectMemberRequest(role=ProjectRole.DEVELOPER)
assert done(update_project_member.sync(org, project.id, bob_id, client=ada, body=raised)).data.role is ProjectRole.DEVELOPER
developers = done(list_project_members.sync(org, project.id, client=ada, role=ProjectRole.DEVELOPER)).data
assert [member.email for member in developers.members] == ["bob@example.com"]

# An API key.
ends_at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
checkout = CreateApiKeyRequest(
    name="Checkout",
    permissions=[Permission.CHAT, Permission.MODELS],
    expires_at=ends_at,
    restrictions=CreateApiKeyRequestRestrictions(rate_limit=600, models=["svc-1"]),
)
key = done(create_api_key.sync(org, project.id, client=ada, body=checkout)).data
assert key.key.startswith("tk_") and (key.restrictions.rate_limit, key.restrictions.max_tokens) == (600, None)
assert key.expires_at is not None and abs(key.expires_at - ends_at) < datetime.timedelta(seconds=1)
assert [one.name for one in done(list_api_keys.sync(org, project.id, client=ada)).data.api_keys] == ["Checkout"]
renamed = UpdateApiKeyRequest(description="Of the shop")
assert done(update_api_key.sync(org, project.id, key.id, client=ada, body=renamed)).data.description == "Of the shop"
rotated = done(rotate_api_key.sync(org, project.id, key.id, client=ada, body=RotateApiKeyRequest(grace_seconds=600))).data
assert rotated.key != key.key and rotated.grace_period_ends > rotated.rotation_date
assert done(end_api_key_rotation.sync(org, project.id, key.id, client=ada)).data.id == key.id
refused(end_api_key_rotation.sync(org, project.id, key.id, client=ada), ErrorCode.NO_ROTATION_PENDING)

# Models and a chat.
program = AuthenticatedClient(base_url=setup["public"], token=rotated.key)
assert [model.id for model in done(list_models.sync(client=program)).data] == ["svc-1"]
model = done(get_model.sync("svc-1", client=program))
assert isinstance(model.capabilities, ChatCapabilities) and model.capabilities.stream
assert model.pricing is not None and model.pricing.prompt_tokens == 0.000002
message = CreateChatCompletionRequestMessagesItem.from_dict({"role": "user", "content": "Who are you?"})
done(create_chat_completion.sync(client=program, body=CreateChatCompletionRequest(model="svc-1", messages=[message])))
lacking = create_chat_completion.sync(client=program, body=CreateChatCompletionRequest(model="none", messages=[message]))
assert isinstance(lacking, BareError) and lacking.error.code is ErrorCode.MODEL_NOT_FOUND, lacking

# The price of the chat.
usage = done(get_project_usage.sync(org, project.id, client=program)).data
chat = usage.usage[0].chat
assert (chat.requests, chat.tokens.prompt, chat.tokens.completion, chat.amount) == (1, 3, 42, 0.000258), usage
assert usage.usage[0].date == datetime.datetime.now(datetime.UTC).date() and usage.usage[0].api_key_id == key.id

# An inference server.
service = AuthenticatedClient(base_url=setup["service"], token=setup["service_token"])
question = AuthorizeRequest(credential=rotated.key, operation=Permission.CHAT, model="svc-1", max_tokens=1000)
given_back = done(authorize.sync(client=service, body=question)).reservation
assert given_back is not None
extended = done(extend_reservation.sync(given_back.id, client=service))
assert extended.id == given_back.id and extended.expires_at >= given_back.expires_at
assert done(delete_reservation.sync(given_back.id, client=service)).released
decision = done(authorize.sync(client=service, body=question))
assert decision.allowed and decision.api_key_id == key.id and decision.reservation is not None
assert decision.limits.api_key is not None and decision.limits.api_key.limit_requests == 600
event = UsageEvent(
    id="call-1",
    source="vllm-1",
    time=datetime.datetime.now(datetime.UTC),
    kind=UsageKind.CHAT,
    model="svc-1",
    prompt_tokens=1234,
    completion_tokens=567,
    api_key_id=key.id,
    reservation_id=decision.reservation.id,
)
for status in (EventStatus.ACCEPTED, EventStatus.DUPLICATE):
    results = done(report_usage.sync(client=service, body=ReportUsageRequest(events=[event]))).results
    assert [(result.id, result.status, result.code) for result in results] == [("call-1", status, None)], results
assert "tollkeeper_" in done(get_metrics.sync(client=service))

# Reports and billing.
report = done(get_organization_usage.sync(org, client=ada, group_by="month,model")).data
assert [(row.model, row.chat.amount) for row in report.usage] == [("svc-1", 0.006128)], report
assert report.total.chat.requests == 2 and report.total.embeddings.requests == 0
summary = done(get_billing_summary.sync(org, client=ada)).data
assert summary.current_period.total_amount == 0.006128 and summary.balance.reserved == 0, summary
assert summary.payment_method is None and summary.current_period.end_date > summary.current_period.start_date
assert done(list_invoices.sync(org, client=ada)).data.total == 0
credits = done(list_credits.sync(org, client=ada)).data
movements = done(list_movements.sync(org, client=ada, start_date=datetime.date(2026, 1, 1))).data
assert len(movements.movements) == movements.total
assert round(sum(movement.amount for movement in movements.movements), 9) == round(summary.balance.available, 9), movements
limits = done(get_organization_limits.sync(org, client=ada)).data
assert limits.balance.available == summary.balance.available
assert [one.max_tokens > 0 for one in limits.models if one.id == "svc-1"] == [True]
pricing = done(get_pricing.sync(client=ada)).data
prices = pricing.models["svc-1"]
assert isinstance(prices, ChatModelPricing) and prices.chat.completion_tokens == 0.000006
assert all(tier.threshold > 0 for tier in pricing.volume_discounts)
totals = done(get_project.sync(org, project.id, client=ada)).data.usage
assert (totals.requests, totals.tokens) == (2, 1846)
assert done(get_api_key.sync(org, project.id, key.id, client=ada)).data.usage.total_requests == 2

# A webhook.
hook = done(
    create_webhook.sync(
        org,
        client=ada,
        body=CreateWebhookRequest(url="https://events.invalid/in", events=[WebhookEventType.INVOICE_PAID]),
    )
).data
assert hook.secret.startswith("whsec_") and hook.enabled, hook
assert [one.id for one in done(list_webhooks.sync(org, client=ada)).data.webhooks] == [hook.id]
test = done(test_webhook.sync(org, hook.id, client=ada)).data
deliveries = done(list_webhook_deliveries.sync(org, hook.id, client=ada)).data.deliveries
assert [(one.id, one.event_id, one.event_type) for one in deliveries] == [(test.delivery_id, test.event_id, "webhook.test")]
done(delete_webhook.sync(org, hook.id, client=ada))
refused(get_webhook.sync(org, hook.id, client=ada), ErrorCode.WEBHOOK_NOT_FOUND)

# The audit log and deletions.
log = done(list_audit_log.sync(org, client=ada, action=AuditAction.API_KEY_ROTATED)).data
assert [(entry.target, entry.actor.username) for entry in log.entries] == [(key.id, "ada")], log
done(delete_organization_member.sync(org, bob_id, client=bob))
done(delete_api_key.sync(org, project.id, key.id, client=ada))
gone = get_api_key.sync(org, project.id, key.id, client=ada)
assert "key" in refused(gone, ErrorCode.API_KEY_NOT_FOUND).error.message
done(delete_project.sync(org, project.id, client=ada))
done(delete_sessions.sync(client=ada))
done(logout.sync(client=bob))
refused(get_me.sync(client=bob), ErrorCode.INVALID_ACCESS_TOKEN)
print("all good")
