//! Deletion of everything that was created with an account before its owner took it over.

use db::Tx;
use events::data::{ApiKeyChange, ApiKeyChanged};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::random::Random;

use crate::store;
use accounts::store::users::User;
use tenants::store::organization_members::Membership;
use trail::{Action, Event, Trail};

/// Maximum number of organizations that the e-mail to the owner lists.
const MAX_LISTED_ORGANIZATIONS: usize = 50;

/// Deletes the API keys that were created with an account, and ends the invitations that were sent with it.
/// Returns the organizations that the account belongs to, one line each.
///
/// # Errors
/// The database fails.
pub async fn reclaim(
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    now: Time,
    random: &Random,
) -> Result<Vec<String>, Error> {
    tenants::store::invitations::end_all_sent(tx, user.id, now).await?;
    for organization_id in store::api_keys::organizations_with_keys_of(tx, user.id).await? {
        tenants::store::organizations::lock(tx, organization_id).await?;
    }
    for (id, organization_id, project_id) in store::api_keys::delete_created_by(tx, user.id, now).await? {
        let event = Event {
            action: Action::ApiKeyDeleted,
            target: id.to_string(),
            organization_id: Some(organization_id),
        };
        trail::record(tx, trail, &event, now, random).await?;
        let (change, api_key_id) = (ApiKeyChange::Deleted, id);
        let deleted = ApiKeyChanged { change, organization_id, project_id, api_key_id };
        events::emit(tx, &deleted, now, random).await?;
    }
    organization_lines(tx, user).await
}

/// Returns the organizations that the account belongs to, one line each.
async fn organization_lines(tx: &mut Tx, user: &User) -> Result<Vec<String>, Error> {
    let limit = i64::try_from(MAX_LISTED_ORGANIZATIONS).unwrap_or(i64::MAX);
    let memberships =
        tenants::store::organization_members::memberships_of(tx, user.id, limit.saturating_add(1)).await?;
    let mut lines: Vec<_> = memberships.iter().take(MAX_LISTED_ORGANIZATIONS).map(membership_line).collect();
    if memberships.len() > MAX_LISTED_ORGANIZATIONS {
        lines.push("and more, which you can see after signing in".to_owned());
    }
    Ok(lines)
}

fn membership_line(membership: &Membership) -> String {
    let Membership { organization, role, others } = membership;
    let others = match others {
        ..=0 => "no other member".to_owned(),
        1 => "1 other member".to_owned(),
        many => format!("{many} other members"),
    };
    format!("{organization}: {}, {others}", role.as_str())
}
