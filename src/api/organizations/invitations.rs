//! `/v1/organizations/{organization_id}/invitations` (section 4.2).

pub(crate) mod acceptance;

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{HeldOrganization, OrgScope};
use crate::app::App;
use crate::clock::{DAY_MS, Time};
use crate::error::{Code, Error};
use crate::ids::InvitationId;
use crate::input::types::{DescriptionText, Email};
use crate::input::{Body, Fields, Record};
use crate::mail::posting::Draft;
use crate::reply::{Enveloped, ok};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, Kind};
use crate::rules::membership;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::invitations::NewInvitation;
use crate::store::mail_counters::Sender;
use crate::store::outbox::{About, Template};

/// How long an invitation holds, in milliseconds (decisions, section 3).
const LIFETIME_MS: i64 = 7 * DAY_MS;

/// Whom to invite, as what.
#[derive(Debug)]
pub struct CreateInvitation {
    email: Email,
    role: Option<OrganizationRole>,
    message: Option<DescriptionText>,
}

impl Record for CreateInvitation {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let email = fields.required("email");
        let role = fields.optional("role");
        let message = fields.optional("message");
        Some(Self { email: email?, role: role?, message: message? })
    }
}

/// What becomes of an invitation.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvitationStatus {
    /// It is open.
    Pending,
    /// The guest is a member.
    Accepted,
    /// Its time is over.
    Expired,
}

/// An invitation right after it was sent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedInvitation {
    invitation_id: InvitationId,
    email: String,
    role: OrganizationRole,
    expires_at: Time,
    status: InvitationStatus,
}

/// POST /v1/organizations/{organization_id}/invitations. Section 4.2 doesn't say what a guest becomes without a `role`: we
/// take the organization's `default_role`, which is there for new members.
pub async fn create(
    app: App,
    scope: OrgScope,
    Body(body): Body<CreateInvitation>,
) -> Result<Enveloped<CreatedInvitation>, Error> {
    let now = app.clock.now();
    let organization_id = scope.organization_id();
    let mut tx = app.db.write().await?;
    let (mut held, HeldOrganization { row, grantor, .. }) = scope.hold(&mut tx).await?;
    let role = body.role.unwrap_or(row.default_role);
    membership::invite(grantor, role)?;
    if !store::users::is_verified(&mut held, scope.user_id()).await? {
        return Err(Code::EmailNotVerified.into());
    }
    if store::organization_members::has_address(&mut held, organization_id, &body.email.folded).await? {
        return Err(Error::new(Code::AlreadyMember).param("email"));
    }
    let new = NewInvitation {
        id: InvitationId::new(now, &app.random),
        organization_id,
        email: &body.email.display,
        email_folded: &body.email.folded,
        role,
        message: body.message.as_ref().map(|text| text.0.as_str()),
        invited_by: scope.user_id(),
        expires_at: now.plus_ms(LIFETIME_MS),
    };
    let open = store::invitations::open_count(&mut held, organization_id, now).await?;
    counts::one_more(&app.config.limits, Kind::Invitations, open)?;
    store::invitations::end_expired(&mut held, organization_id, new.email_folded, now).await?;
    store::invitations::insert(&mut held, &new, now).await?;
    let about = About { invitation_id: Some(new.id.to_string()), ..About::default() };
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::Invitation, about };
    app.outbox.post(&mut held, &sender, &draft, new.email, now).await?;
    let event = Event {
        action: Action::MemberInvited,
        target: new.id.to_string(),
        organization_id: Some(organization_id),
    };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(ok(CreatedInvitation {
        invitation_id: new.id,
        expires_at: new.expires_at,
        email: body.email.display,
        role,
        status: InvitationStatus::Pending,
    }))
}
