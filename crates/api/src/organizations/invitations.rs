//! `/v1/organizations/{organization_id}/invitations` (docs/contract/organizations.md#invitations).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use input::record;
use input::types::{DescriptionText, Email};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::InvitationId;
use tenants::Tenants;
use tenants::access::OrgScope;
use tenants::invitations::New;
use tenants::roles::OrganizationRole;
use web::input::Body;
use web::reply::{Enveloped, ok};

record! {
    /// The recipient and role of an invitation.
    #[derive(Debug)]
    pub struct CreateInvitation in Api {
        email: Email = required,
        role: Option<OrganizationRole> = optional,
        message: Option<DescriptionText> = optional,
    }
}

/// The state of an invitation.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvitationStatus {
    /// Open.
    Pending,
}

/// A new invitation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreatedInvitation {
    invitation_id: InvitationId,
    email: String,
    role: OrganizationRole,
    expires_at: Time,
    status: InvitationStatus,
}

/// Invite a person to an organization.
///
/// Without a `role` the guest gets the organization's `default_role`.
pub async fn create(
    tenants: Tenants,
    scope: OrgScope,
    Body(body): Body<CreateInvitation>,
) -> Result<Enveloped<CreatedInvitation>, Error> {
    let email = body.email.display.clone();
    let new = New { email: body.email.into(), role: body.role, message: body.message.map(|text| text.0) };
    let created = tenants::invitations::create(&tenants, &scope, new).await?;
    Ok(ok(CreatedInvitation {
        invitation_id: created.id,
        expires_at: created.expires_at,
        email,
        role: created.role,
        status: InvitationStatus::Pending,
    }))
}
