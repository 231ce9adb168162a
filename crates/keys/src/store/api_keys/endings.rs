//! Keys that expire, and previous secrets, ordered by the time of their end.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use tenants::roles::ProjectRole;

/// A key, or its previous secret, with its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    pub id: ApiKeyId,
    pub name: String,
    pub project_id: ProjectId,
    pub project_name: String,
    pub ends_at: Time,
    /// The user's own role in the project.
    pub role: Option<ProjectRole>,
}

db::row!(Ending { id, name, project_id, project_name, ends_at, role });

/// The statement of [`expiring`]. `CROSS JOIN` forces SQLite to join in this order.
pub const EXPIRING: &str =
    "SELECT k.id, k.name, k.project_id, p.name AS project_name, k.expires_at AS ends_at, m.role
     FROM api_keys k CROSS JOIN projects p
     LEFT JOIN project_members m ON m.project_id = k.project_id AND m.user_id = $2
     WHERE k.organization_id = $1 AND k.expires_at > $3 AND k.expires_at <= $4 AND p.id = k.project_id
     ORDER BY k.expires_at, k.id LIMIT $5";

/// Returns an organization's keys that expire after `after` and at or before `until`, the earliest end first,
/// with a user's roles.
pub async fn expiring(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    (after, until): (Time, Time),
    limit: i64,
) -> Result<Vec<Ending>, db::Error> {
    sql(EXPIRING).bind(organization_id).bind(user_id).bind(after).bind(until).bind(limit).all(tx).await
}

/// The statement of [`rotating`]. It reads the previous secrets of all organizations, which are few because
/// they are valid only for hours.
pub const ROTATING: &str = "SELECT k.id, k.name, k.project_id, p.name AS project_name, s.ends_at, m.role
     FROM api_key_secrets s CROSS JOIN api_keys k CROSS JOIN projects p
     LEFT JOIN project_members m ON m.project_id = k.project_id AND m.user_id = $2
     WHERE s.ends_at > $3 AND k.id = s.api_key_id AND k.organization_id = $1 AND p.id = k.project_id
     ORDER BY s.ends_at, k.id LIMIT $4";

/// Returns an organization's keys whose previous secret ends after `after`, the earliest end first, with a
/// user's roles.
pub async fn rotating(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    after: Time,
    limit: i64,
) -> Result<Vec<Ending>, db::Error> {
    sql(ROTATING).bind(organization_id).bind(user_id).bind(after).bind(limit).all(tx).await
}

/// A key that expires soon and hasn't been announced to webhooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnnounced {
    pub id: ApiKeyId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub expires_at: Time,
}

db::row!(NotAnnounced { id, organization_id, project_id, expires_at });

/// The statement of [`not_announced`].
pub const NOT_ANNOUNCED: &str = "SELECT id, organization_id, project_id, expires_at FROM api_keys
     WHERE expires_at > $1 AND expires_at <= $2 AND expiry_announced_at IS NULL ORDER BY expires_at, id LIMIT $3";

/// Returns keys that expire after `after` and at or before `until`, and that haven't been announced to
/// webhooks, the earliest end first.
pub async fn not_announced(
    tx: &mut Tx,
    (after, until): (Time, Time),
    limit: i64,
) -> Result<Vec<NotAnnounced>, db::Error> {
    sql(NOT_ANNOUNCED).bind(after).bind(until).bind(limit).all(tx).await
}

/// Marks the expiry of a key as announced to webhooks. Returns `false` if it was already marked or the key no
/// longer exists.
pub async fn set_announced(tx: &mut Tx, id: ApiKeyId, now: Time) -> Result<bool, db::Error> {
    let changed =
        sql("UPDATE api_keys SET expiry_announced_at = $2 WHERE id = $1 AND expiry_announced_at IS NULL")
            .bind(id)
            .bind(now)
            .execute(tx)
            .await?;
    Ok(changed > 0)
}
