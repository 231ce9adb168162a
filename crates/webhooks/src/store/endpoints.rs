//! The table `webhooks`.

use db::{Lock, Page, Row, Tx, sql};
use events::EventType;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, WebhookId};
use kernel::version::Version;
use strum::{EnumString, IntoStaticStr};

use crate::owners::OwnedTx;
use crate::rules::urls::WebhookUrl;

/// The reason why a webhook is disabled.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "WebhookDisabledReason")]
pub enum DisabledReason {
    /// An owner disabled the webhook.
    Owner,
    /// The receiver responded with 410.
    Gone,
    /// Every attempt failed for five days.
    Failing,
}

db::words!(DisabledReason);

/// A webhook without its secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    pub id: WebhookId,
    /// `None` for a webhook of the installation.
    pub organization_id: Option<OrganizationId>,
    pub url: WebhookUrl,
    pub description: Option<String>,
    /// In the order of the contract, without duplicates.
    pub events: Vec<EventType>,
    pub is_enabled: bool,
    /// `None` while it is enabled.
    pub disabled_reason: Option<DisabledReason>,
    /// The time of the first failed attempt since the last success.
    pub failing_since: Option<Time>,
    /// Time until which the previous secret also signs; may be in the past.
    pub previous_ends_at: Option<Time>,
    pub created_at: Time,
    /// Time of the last change by a user, or of disabling.
    pub updated_at: Time,
}

db::row!(Webhook {
    id,
    organization_id,
    url: url,
    description,
    events: event_types,
    is_enabled,
    disabled_reason,
    failing_since,
    previous_ends_at,
    created_at,
    updated_at
});

impl Webhook {
    /// Returns the version of the secret, which changes with each rotation.
    ///
    /// # Errors
    /// Serialization to JSON fails.
    pub fn secret_version(&self) -> Result<Version, Error> {
        Version::of(&(self.id, self.previous_ends_at))
    }

    /// Returns the version, which changes with every change an owner can make.
    ///
    /// # Errors
    /// Serialization to JSON fails.
    pub fn version(&self) -> Result<Version, Error> {
        let Self {
            id, url, description, events, is_enabled, disabled_reason, created_at, updated_at, ..
        } = self;
        Version::of(&(
            id,
            url.as_str(),
            description,
            events,
            is_enabled,
            disabled_reason,
            created_at,
            updated_at,
        ))
    }
}

fn url(row: &Row) -> Result<WebhookUrl, db::Error> {
    let text: String = row.get("url")?;
    WebhookUrl::parse(&text).ok_or_else(|| db::Error::Internal("the URL of a webhook can't be read".into()))
}

fn event_types(row: &Row) -> Result<Vec<EventType>, db::Error> {
    let words: Vec<String> = serde_json::from_str(&row.get::<String>("event_types")?)
        .map_err(|error| db::Error::Internal(format!("the events of a webhook: {error}")))?;
    // A later version may have stored types that this version doesn't support.
    Ok(words.iter().filter_map(|word| word.parse().ok()).collect())
}

fn json(events: &[EventType]) -> Result<String, db::Error> {
    serde_json::to_string(events)
        .map_err(|error| db::Error::Internal(format!("the events of a webhook: {error}")))
}

/// Inserts a webhook.
pub async fn insert(tx: &mut OwnedTx<'_>, new: &Webhook, sealed_secret: &[u8]) -> Result<(), db::Error> {
    sql("INSERT INTO webhooks (id, organization_id, url, description, event_types, sealed_secret, is_enabled, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)")
    .bind(new.id)
    .bind(new.organization_id)
    .bind(new.url.as_str())
    .bind(new.description.as_deref())
    .bind(json(&new.events)?)
    .bind(sealed_secret)
    .bind(new.is_enabled)
    .bind(new.created_at)
    .defer(tx)
    .await
}

/// Updates the fields that an owner can change, and the start of the current failures.
pub async fn update(tx: &mut OwnedTx<'_>, webhook: &Webhook) -> Result<(), db::Error> {
    sql("UPDATE webhooks SET url = $2, description = $3, event_types = $4, is_enabled = $5, disabled_reason = $6,
                failing_since = $7, updated_at = $8 WHERE id = $1")
    .bind(webhook.id)
    .bind(webhook.url.as_str())
    .bind(webhook.description.as_deref())
    .bind(json(&webhook.events)?)
    .bind(webhook.is_enabled)
    .bind(webhook.disabled_reason)
    .bind(webhook.failing_since)
    .bind(webhook.updated_at)
    .defer(tx)
    .await
}

/// Replaces a webhook's secret. The current one also signs until `previous_ends_at`; an older one is dropped.
pub async fn replace_secret(
    tx: &mut OwnedTx<'_>,
    id: WebhookId,
    sealed_secret: &[u8],
    previous_ends_at: Time,
) -> Result<(), db::Error> {
    sql("UPDATE webhooks SET previous_sealed_secret = sealed_secret, sealed_secret = $2, previous_ends_at = $3 WHERE id = $1")
        .bind(id)
        .bind(sealed_secret)
        .bind(previous_ends_at)
        .defer(tx)
        .await
}

/// Deletes a webhook.
pub async fn remove(tx: &mut OwnedTx<'_>, id: WebhookId) -> Result<(), db::Error> {
    sql("DELETE FROM webhooks WHERE id = $1").bind(id).defer(tx).await
}

/// Returns a webhook of an organization, or of the installation.
pub async fn get(
    tx: &mut Tx,
    organization_id: Option<OrganizationId>,
    id: WebhookId,
) -> Result<Option<Webhook>, db::Error> {
    sql("SELECT id, organization_id, url, description, event_types, is_enabled, disabled_reason, failing_since, previous_ends_at,
                created_at, updated_at
         FROM webhooks WHERE id = $1 AND organization_id IS NOT DISTINCT FROM $2")
    .bind(id)
    .bind(organization_id)
    .optional(tx)
    .await
}

/// Returns the number of webhooks of an organization, or of the installation.
pub async fn count(tx: &mut Tx, organization_id: Option<OrganizationId>) -> Result<i64, db::Error> {
    let statement = match organization_id {
        Some(id) => sql(COUNT).bind(id),
        None => sql(COUNT_OF_INSTALLATION),
    };
    let (count,): (i64,) = statement.one(tx).await?;
    Ok(count)
}

/// The statement of [`count`] for an organization.
pub const COUNT: &str = "SELECT COUNT(*) FROM webhooks WHERE organization_id = $1";
/// The statement of [`count`] for the installation.
pub const COUNT_OF_INSTALLATION: &str = "SELECT COUNT(*) FROM webhooks WHERE organization_id IS NULL";

/// Returns a page of the webhooks of an organization or the installation, newest first.
pub async fn list(
    tx: &mut Tx,
    organization_id: Option<OrganizationId>,
    page: Page,
) -> Result<Vec<Webhook>, db::Error> {
    let statement = match organization_id {
        Some(id) => sql(LIST).bind(id),
        None => sql(LIST_OF_INSTALLATION),
    };
    statement.bind(page.page_size).bind(page.offset()).all(tx).await
}

/// The statement of [`list`] for the installation.
pub const LIST_OF_INSTALLATION: &str =
    "SELECT id, organization_id, url, description, event_types, is_enabled, disabled_reason, failing_since, previous_ends_at,
            created_at, updated_at
     FROM webhooks WHERE organization_id IS NULL ORDER BY id DESC LIMIT $1 OFFSET $2";
/// The statement of [`list`] for an organization.
pub const LIST: &str =
    "SELECT id, organization_id, url, description, event_types, is_enabled, disabled_reason, failing_since, previous_ends_at,
            created_at, updated_at
     FROM webhooks WHERE organization_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3";

/// The data needed to send to a webhook.
#[derive(Clone, Debug)]
pub struct Receiver {
    pub id: WebhookId,
    /// `None` for a webhook of the installation.
    pub organization_id: Option<OrganizationId>,
    pub url: WebhookUrl,
    pub is_enabled: bool,
    pub sealed_secret: Vec<u8>,
    pub previous_sealed_secret: Option<Vec<u8>>,
    pub previous_ends_at: Option<Time>,
}

db::row!(Receiver {
    id,
    organization_id,
    url: url,
    is_enabled,
    sealed_secret,
    previous_sealed_secret,
    previous_ends_at
});

/// Locks a webhook and returns it, so that only one replica at a time claims its deliveries.
pub async fn lock_receiver(tx: &mut Tx, id: WebhookId) -> Result<Option<Receiver>, db::Error> {
    sql("SELECT id FROM webhooks WHERE id = $1").bind(id).lock(tx, Lock::Change).await?;
    sql("SELECT id, organization_id, url, is_enabled, sealed_secret, previous_sealed_secret, previous_ends_at
         FROM webhooks WHERE id = $1")
    .bind(id)
    .optional(tx)
    .await
}

/// Records a successful attempt.
pub async fn note_success(tx: &mut Tx, id: WebhookId) -> Result<(), db::Error> {
    sql("UPDATE webhooks SET failing_since = NULL WHERE id = $1 AND failing_since IS NOT NULL")
        .bind(id)
        .defer(tx)
        .await
}

/// Records a failed attempt. Returns the time of the first failed attempt since the last success, or `None`
/// if the webhook no longer exists.
pub async fn note_failure(tx: &mut Tx, id: WebhookId, now: Time) -> Result<Option<Time>, db::Error> {
    let since: Option<(Time,)> = sql(
        "UPDATE webhooks SET failing_since = COALESCE(failing_since, $2) WHERE id = $1 RETURNING failing_since",
    )
    .bind(id)
    .bind(now)
    .optional(tx)
    .await?;
    Ok(since.map(|(since,)| since))
}

/// Disables an enabled webhook and returns its URL, or `None` if it's already disabled or gone. The caller
/// holds its owner's lock.
pub async fn disable(
    tx: &mut Tx,
    id: WebhookId,
    reason: DisabledReason,
    now: Time,
) -> Result<Option<String>, db::Error> {
    let url: Option<(String,)> =
        sql("UPDATE webhooks SET is_enabled = 0, disabled_reason = $2, updated_at = $3
         WHERE id = $1 AND is_enabled = 1 RETURNING url")
        .bind(id)
        .bind(reason)
        .bind(now)
        .optional(tx)
        .await?;
    Ok(url.map(|(url,)| url))
}

/// The sealed secrets of a webhook.
#[derive(Clone)]
pub struct Sealed {
    pub id: WebhookId,
    pub sealed_secret: Vec<u8>,
    pub previous_sealed_secret: Option<Vec<u8>>,
}

db::row!(Sealed { id, sealed_secret, previous_sealed_secret });

/// Returns the sealed secrets of up to `limit` webhooks, ordered by id, after a given one.
pub async fn fetch_sealed(tx: &mut Tx, after: &str, limit: i64) -> Result<Vec<Sealed>, db::Error> {
    sql("SELECT id, sealed_secret, previous_sealed_secret FROM webhooks WHERE id > $1 ORDER BY id LIMIT $2")
        .bind(after)
        .bind(limit)
        .all(tx)
        .await
}

/// Replaces the sealed secrets of a webhook.
pub async fn set_sealed(tx: &mut Tx, sealed: &Sealed) -> Result<(), db::Error> {
    sql("UPDATE webhooks SET sealed_secret = $2, previous_sealed_secret = $3 WHERE id = $1")
        .bind(sealed.id)
        .bind(sealed.sealed_secret.clone())
        .bind(sealed.previous_sealed_secret.clone())
        .defer(tx)
        .await
}
