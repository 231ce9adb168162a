//! Memberships that sign-ons with a provider create, change and end, and the check for members who need a
//! sign-on.

use std::sync::Arc;

use crate::access::{self, SignedInBy};
use crate::rules::groups::{self, Current, Outcome};
use crate::rules::membership;
use crate::store;
use accounts::hooks::SignOnGrant;
use accounts::store::users::User;
use db::Tx;
use events::data::{MemberAdded, MemberRemoved};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};
use sign_on::Provider;
use trail::{Action, Event, Trail};

use super::Tenants;

/// Returns the provider that the member must sign in with, if the organization requires sign-ons; `None` if
/// the session already meets the requirement.
///
/// # Errors
/// The database fails.
pub async fn missing(
    tenants: &Tenants,
    organization_id: OrganizationId,
    user_id: UserId,
    signed_in_by: &SignedInBy,
) -> Result<Option<Arc<Provider>>, Error> {
    let mut tx = tenants.db().read().await?;
    signed_in_by.missing(&mut tx, organization_id, user_id).await
}

/// Creates, changes or ends the membership of a user who has signed in with a provider, in the transaction of
/// the sign-on.
///
/// # Errors
/// The database fails.
pub async fn apply(
    tenants: &Tenants,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    grant: &SignOnGrant<'_>,
    now: Time,
) -> Result<(), Error> {
    let organization_id = grant.membership.organization_id;
    let Some((mut held, found)) = access::lock_for_sign_on(tx, organization_id, user.id).await? else {
        tracing::warn!(
            provider = grant.provider_id,
            organization = %organization_id,
            "the organization of a provider doesn't exist: its sign-ons create no memberships"
        );
        return Ok(());
    };
    let managed_by = store::members::managed_by(&mut held, organization_id, user.id).await?;
    let current = found.member.as_ref().map(|member| Current {
        role: member.role,
        is_managed: managed_by.as_deref() == Some(grant.provider_id),
        has_other_owner: found.has_other_owner,
    });
    let event =
        |action| Event { action, target: user.id.to_string(), organization_id: Some(organization_id) };
    match (groups::decide(grant.membership, grant.groups, current), found.member) {
        (Outcome::Nothing, _) => {}
        (Outcome::LastOwnerStays, _) => tracing::warn!(
            provider = grant.provider_id,
            organization = %organization_id,
            "a sign-on would leave an organization without an owner: its last owner stays one"
        ),
        (Outcome::Join(role), _) => {
            store::organization_members::insert(&mut held, organization_id, user.id, role, now).await?;
            store::members::set_managed_by(&mut held, organization_id, user.id, grant.provider_id).await?;
            trail::record(&mut held, trail, &event(Action::MemberAdded), now, &tenants.random).await?;
            let added = MemberAdded { organization_id, user_id: user.id, role: role.as_str() };
            events::emit(&mut held, &added, now, &tenants.random).await?;
        }
        (Outcome::SetRole(role), _) => {
            for role_beyond in membership::roles_beyond(role) {
                store::invitations::end_sent(&mut held, organization_id, user.id, role_beyond, now).await?;
            }
            trail::record(&mut held, trail, &event(Action::MemberRoleChanged), now, &tenants.random).await?;
            store::organization_members::set_role(&mut held, organization_id, user.id, role, now).await?;
        }
        (Outcome::Remove, Some(member)) => {
            store::invitations::end_with_member(&mut held, organization_id, &member, now).await?;
            trail::record(&mut held, trail, &event(Action::MemberRemoved), now, &tenants.random).await?;
            let removed = MemberRemoved { organization_id, user_id: user.id };
            events::emit(&mut held, &removed, now, &tenants.random).await?;
            store::organization_members::remove(&mut held, organization_id, user.id, now).await?;
        }
        (Outcome::Remove, None) => {}
    }
    Ok(())
}
