//! `/v1/organizations/{organization_id}/invitations` and `…/{invitation_id}`
//! (docs/contract/organizations.md#invitations).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::auth::Message;
use crate::organizations::PersonBrief;
use crate::paging::{PageInfo, PageQuery};
use idempotency::Uncommitted;
use input::fields::{Fields, Record};
use input::record;
use input::types::{DescriptionText, Email};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::InvitationId;
use kernel::page::Page;
use tenants::Tenants;
use tenants::access::{InvitationScope, OrgScope};
use tenants::invitations::{self, InvitationStatus, New, Resent};
use tenants::roles::OrganizationRole;
use web::input::{Body, NoInput, Query};
use web::reply::{Enveloped, ok};
use web::route::Operation;

record! {
    /// The recipient and role of an invitation.
    #[derive(Debug)]
    pub struct CreateInvitation in Api {
        /// The e-mail address.
        email: Email = required,
        /// The role; by default the organization's `default_role`.
        role: Option<OrganizationRole> = optional,
        /// A message to the guest, which is quoted in the e-mail.
        message: Option<DescriptionText> = optional,
    }
}

impl CreateInvitation {
    /// Returns the values for the operation.
    pub fn into_new(self) -> New {
        New { email: self.email.into(), role: self.role, message: self.message.map(|text| text.0) }
    }
}

/// A new invitation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedInvitation {
    /// The id of the invitation.
    invitation_id: InvitationId,
    /// The e-mail address.
    email: String,
    /// The role that the guest gets.
    role: OrganizationRole,
    /// The time at which the invitation expires.
    expires_at: Time,
    /// The state of the invitation.
    status: InvitationStatus,
}

pub const CREATE: Operation = Operation {
    errors: &[
        Code::AlreadyInvited,
        Code::AlreadyMember,
        Code::EmailNotVerified,
        Code::KeyExceedsCaller,
        Code::LimitReached,
        Code::ReauthenticationRequired,
        Code::TooManyAttempts,
    ],
    example: r#"{
  "email": "grace@example.com",
  "role": "member",
  "message": "Welcome to Acme."
}"#,
    ..Operation::new("create_invitation")
};

/// Invite someone to an organization.
///
/// Without a `role`, the guest gets the organization's `default_role`.
pub async fn create(
    tenants: Tenants,
    scope: OrgScope,
    Body(body): Body<CreateInvitation>,
) -> Result<Uncommitted<Enveloped<CreatedInvitation>>, Error> {
    let email = body.email.display.clone();
    let created = invitations::create(&tenants, &scope, body.into_new()).await?;
    Ok(created.map(|created| {
        ok(CreatedInvitation {
            invitation_id: created.id,
            expires_at: created.expires_at,
            email,
            role: created.role,
            status: InvitationStatus::Pending,
        })
    }))
}

/// The filters of a list of invitations.
#[derive(Clone, Copy, Debug)]
pub struct InvitationQuery {
    pub page: Page,
    /// Only invitations with this status.
    pub status: Option<InvitationStatus>,
}

impl Record<Api> for InvitationQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let (page, status) = (PageQuery::read(fields), fields.described("The state.").optional("status"));
        Some(Self { page: page?.0, status: status? })
    }
}

/// A page of invitations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InvitationPage {
    /// The invitations of this page.
    invitations: Vec<Invitation>,
    #[serde(flatten)]
    page: PageInfo,
}

/// An invitation in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Invitation {
    /// The invitation's id.
    id: InvitationId,
    /// The e-mail address.
    email: String,
    /// The role that the guest gets.
    role: OrganizationRole,
    /// The state of the invitation.
    status: InvitationStatus,
    /// The time when the invitation was created.
    created_at: Time,
    /// The time at which the invitation expires.
    expires_at: Time,
    /// The user who sent the invitation.
    invited_by: PersonBrief,
}

pub const LIST: Operation =
    Operation { query: &[("status", "pending")], ..Operation::new("list_invitations") };

/// List the invitations of an organization.
///
/// The newest come first. Withdrawn invitations aren't listed.
pub async fn list(
    tenants: Tenants,
    scope: OrgScope,
    Query(InvitationQuery { page, status }): Query<InvitationQuery>,
) -> Result<Enveloped<InvitationPage>, Error> {
    let listed = invitations::list(&tenants, &scope, status, page).await?;
    let rows = listed.rows.into_iter().map(|row| Invitation {
        id: row.id,
        email: row.email,
        role: row.role,
        status: row.status,
        created_at: row.created_at,
        expires_at: row.expires_at,
        invited_by: PersonBrief {
            id: row.invited_by,
            email: row.invited_by_email,
            username: row.invited_by_username,
        },
    });
    Ok(ok(InvitationPage { invitations: rows.collect(), page: PageInfo::new(listed.total, page) }))
}

pub const DELETE: Operation =
    Operation { errors: &[Code::AlreadyAccepted], ..Operation::new("delete_invitation") };

/// Withdraw an invitation.
///
/// Its link stops working, and the address can be invited again.
pub async fn delete(
    tenants: Tenants,
    scope: InvitationScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    invitations::withdraw(&tenants, &scope).await?;
    Ok(ok(Message { message: "The invitation is withdrawn. Its link no longer works.".to_owned() }))
}

/// An invitation that was sent again.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ResentInvitation {
    /// The invitation's id.
    id: InvitationId,
    /// The e-mail address.
    email: String,
    /// The role that the guest gets.
    role: OrganizationRole,
    /// The state of the invitation.
    status: InvitationStatus,
    /// The time at which the invitation expires.
    expires_at: Time,
}

pub const RESEND: Operation = Operation {
    errors: &[
        Code::AlreadyAccepted,
        Code::AlreadyInvited,
        Code::AlreadyMember,
        Code::EmailNotVerified,
        Code::KeyExceedsCaller,
        Code::LimitReached,
        Code::ReauthenticationRequired,
        Code::TooManyAttempts,
    ],
    ..Operation::new("resend_invitation")
};

/// Send an invitation again.
///
/// The new e-mail contains a new link, and the old link stops working. An expired invitation becomes open
/// again.
pub async fn resend(
    tenants: Tenants,
    scope: InvitationScope,
    _: NoInput,
) -> Result<Uncommitted<Enveloped<ResentInvitation>>, Error> {
    let resent = invitations::resend(&tenants, &scope, None).await?;
    let status = InvitationStatus::Pending;
    Ok(resent.map(|Resent { id, email, role, expires_at }| {
        ok(ResentInvitation { id, email, role, status, expires_at })
    }))
}
