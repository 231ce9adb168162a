//! Operations on webhooks of organizations and of the installation. Each rechecks the caller's permission
//! under the lock of the [owner](crate::owners), and adds an audit entry.

use db::{Page, Uncommitted};
use events::{EventType, data};
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::{DeliveryId, EventId, WebhookId};
use kernel::patch::Patch;
use kernel::version::Expected;
use tenants::ListPage;
use tenants::rules::counts;
use trail::{Action, Event};

use crate::owners::{OwnedTx, Owner};
use crate::rules::signing::WebhookSecret;
use crate::rules::urls::WebhookUrl;
use crate::targets::Target;
use crate::{Webhooks, store};

pub use crate::store::endpoints::{DisabledReason, Webhook};

/// Period during which the previous secret also signs, in milliseconds.
pub const ROTATION_MS: i64 = DAY_MS;

/// A webhook to create.
#[derive(Clone, Debug)]
pub struct New {
    /// The id from a form, so that resubmitting it doesn't create a second webhook; `None` generates an id.
    pub id: Option<WebhookId>,
    pub url: WebhookUrl,
    pub events: Vec<EventType>,
    pub description: Option<String>,
}

/// A newly created webhook.
#[derive(Debug)]
pub struct Created {
    pub webhook: Webhook,
    /// The secret, which is shown only once.
    pub secret: WebhookSecret,
}

/// Creates a webhook.
///
/// # Errors
/// 403 without permission; 409 if the owner has reached the limit; 412 if a webhook with this id
/// exists.
pub async fn create(
    webhooks: &Webhooks,
    owner: impl Into<Owner<'_>>,
    new: New,
) -> Result<Uncommitted<Created>, Error> {
    let owner = owner.into();
    let now = webhooks.clock.now();
    let id = new.id.unwrap_or_else(|| WebhookId::new(now, &webhooks.random));
    let secret = WebhookSecret::generate(&webhooks.random);
    let sealed = sealed(webhooks, &secret, id)?;
    let webhook = Webhook {
        id,
        organization_id: owner.organization_id(),
        url: new.url,
        description: new.description,
        events: new.events,
        is_enabled: true,
        disabled_reason: None,
        failing_since: None,
        previous_ends_at: None,
        created_at: now,
        updated_at: now,
    };
    let mut tx = webhooks.db.write().await?;
    let mut held = owner.lock(&mut tx).await?;
    if store::endpoints::get(&mut held, owner.organization_id(), id).await?.is_some() {
        return Err(Code::PreconditionFailed.into());
    }
    let count = store::endpoints::count(&mut held, owner.organization_id()).await?;
    counts::check_limit(&webhooks.tenants.limits, owner.counted_kind(), count)?;
    store::endpoints::insert(&mut held, &webhook, &sealed).await?;
    record(webhooks, &mut held, Target { owner, id }, Action::WebhookCreated, now).await?;
    Ok(Uncommitted::new(tx, Created { webhook, secret }))
}

/// Returns a page of the owner's webhooks, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(
    webhooks: &Webhooks,
    owner: impl Into<Owner<'_>>,
    page: Page,
) -> Result<ListPage<Webhook>, Error> {
    let owner = owner.into();
    let mut tx = webhooks.db.read().await?;
    let total = store::endpoints::count(&mut tx, owner.organization_id()).await?;
    let rows = store::endpoints::list(&mut tx, owner.organization_id(), page).await?;
    Ok(ListPage { rows, total })
}

/// Returns a webhook.
///
/// # Errors
/// 404 if its owner has no such webhook; the database fails.
pub async fn read(webhooks: &Webhooks, target: impl Into<Target<'_>>) -> Result<Webhook, Error> {
    let Target { owner, id } = target.into();
    let mut tx = webhooks.db.read().await?;
    let found = store::endpoints::get(&mut tx, owner.organization_id(), id).await?;
    Ok(found.ok_or(Code::WebhookNotFound)?)
}

/// A change to a webhook; `None` keeps a value.
#[derive(Clone, Debug)]
pub struct Change {
    pub url: Option<WebhookUrl>,
    pub events: Option<Vec<EventType>>,
    pub description: Patch<String>,
    pub is_enabled: Option<bool>,
}

impl Change {
    /// Returns the changed webhook, with its old `updated_at`.
    fn onto(self, before: Webhook) -> Webhook {
        let mut webhook = before;
        if let Some(url) = self.url.filter(|url| *url != webhook.url) {
            // The failures belong to the previous receiver.
            (webhook.url, webhook.failing_since) = (url, None);
        }
        webhook.events = self.events.unwrap_or(webhook.events);
        webhook.description = self.description.onto(webhook.description);
        match self.is_enabled {
            Some(true) if !webhook.is_enabled => {
                (webhook.is_enabled, webhook.disabled_reason, webhook.failing_since) = (true, None, None);
            }
            Some(false) if webhook.is_enabled => {
                (webhook.is_enabled, webhook.disabled_reason) = (false, Some(DisabledReason::Owner));
            }
            _ => {}
        }
        webhook
    }
}

/// Updates a webhook and returns it. A change to the same values writes nothing. Disabling a webhook gives up
/// its pending deliveries.
///
/// # Errors
/// 403 without permission; 404 if it's gone; 412 on a version mismatch.
pub async fn update(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    expected: &Expected,
    change: Change,
) -> Result<Webhook, Error> {
    let target = target.into();
    let mut tx = webhooks.db.write().await?;
    let (mut held, before) = target.lock(&mut tx).await?;
    expected.check(before.version()?)?;
    let mut webhook = change.onto(before.clone());
    if webhook != before {
        let now = webhooks.clock.now();
        webhook.updated_at = now;
        store::endpoints::update(&mut held, &webhook).await?;
        if before.is_enabled && !webhook.is_enabled {
            store::deliveries::give_up_pending(&mut held, webhook.id).await?;
        }
        record(webhooks, &mut held, target, Action::WebhookChanged, now).await?;
        tx.commit().await?;
    }
    Ok(webhook)
}

/// Deletes a webhook and its deliveries.
///
/// # Errors
/// 403 without permission; 404 if it's gone; 412 on a version mismatch.
pub async fn delete(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    expected: &Expected,
) -> Result<(), Error> {
    let target = target.into();
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = target.lock(&mut tx).await?;
    expected.check(found.version()?)?;
    store::endpoints::remove(&mut held, found.id).await?;
    store::deliveries::remove_of(&mut held, found.id).await?;
    let now = webhooks.clock.now();
    record(webhooks, &mut held, target, Action::WebhookDeleted, now).await?;
    Ok(tx.commit().await?)
}

/// The result of a rotation.
#[derive(Debug)]
pub struct Rotated {
    /// The new secret, which is shown only once.
    pub secret: WebhookSecret,
    /// Time until which the previous secret also signs.
    pub previous_ends_at: Time,
}

/// Rotates a webhook's secret. For a day, events are signed with both secrets.
///
/// # Errors
/// 403 without permission; 404 if it's gone; 412 if the secret's [version](Webhook::secret_version)
/// doesn't match.
pub async fn rotate(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    expected: &Expected,
) -> Result<Uncommitted<Rotated>, Error> {
    let target = target.into();
    let secret = WebhookSecret::generate(&webhooks.random);
    let sealed = sealed(webhooks, &secret, target.id)?;
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = target.lock(&mut tx).await?;
    expected.check(found.secret_version()?)?;
    let now = webhooks.clock.now();
    let previous_ends_at = now.plus_ms(ROTATION_MS);
    store::endpoints::replace_secret(&mut held, found.id, &sealed, previous_ends_at).await?;
    record(webhooks, &mut held, target, Action::WebhookRotated, now).await?;
    Ok(Uncommitted::new(tx, Rotated { secret, previous_ends_at }))
}

/// Queues a test event for a webhook, and returns the ids of the event and its delivery. With an id from a
/// form, resubmitting it doesn't send a second test; without one, a new id is generated.
///
/// # Errors
/// 403 without permission; 404 if it's gone; 409 if it's disabled; 412 if an event with this id
/// exists.
pub async fn test(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    id: Option<EventId>,
) -> Result<Uncommitted<(EventId, DeliveryId)>, Error> {
    let target = target.into();
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = target.lock(&mut tx).await?;
    require_enabled(&found)?;
    let now = webhooks.clock.now();
    let id = id.unwrap_or_else(|| EventId::new(now, &webhooks.random));
    let test = data::WebhookTest { organization_id: found.organization_id, webhook_id: found.id };
    let ids = events::emit_test(&mut held, id, &test, now, &webhooks.random).await?;
    let ids = ids.ok_or(Code::PreconditionFailed)?;
    record(webhooks, &mut held, target, Action::WebhookTested, now).await?;
    let webhooks = webhooks.clone();
    Ok(Uncommitted::new(tx, ids).then(move || webhooks.notify_one()))
}

/// Returns an error if a webhook is disabled.
pub(crate) fn require_enabled(webhook: &Webhook) -> Result<(), Error> {
    if webhook.is_enabled { Ok(()) } else { Err(Code::WebhookDisabled.into()) }
}

/// Adds an audit entry about a webhook.
pub(crate) async fn record(
    webhooks: &Webhooks,
    tx: &mut OwnedTx<'_>,
    Target { owner, id }: Target<'_>,
    action: Action,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action, target: id.to_string(), organization_id: owner.organization_id() };
    Ok(trail::record(tx, owner.trail(), &event, now, &webhooks.random).await?)
}

fn sealed(webhooks: &Webhooks, secret: &WebhookSecret, id: WebhookId) -> Result<Vec<u8>, Error> {
    Ok(webhooks.sealer.seal(secret.expose().as_bytes(), &id.to_string(), &webhooks.random)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::ids::OrganizationId;

    const NOW: Time = Time::from_unix_ms(1_769_851_800_000);

    fn webhook() -> Webhook {
        Webhook {
            id: WebhookId::from_parts(NOW, 1),
            organization_id: Some(OrganizationId::from_parts(NOW, 2)),
            url: WebhookUrl::parse("https://example.com/a").unwrap(),
            description: Some("Ours".to_owned()),
            events: vec![EventType::InvoicePaid],
            is_enabled: true,
            disabled_reason: None,
            failing_since: Some(NOW),
            previous_ends_at: None,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    fn keep() -> Change {
        Change { url: None, events: None, description: Patch::Keep, is_enabled: None }
    }

    #[test]
    fn change_keeps_what_it_does_not_name() {
        assert_eq!(keep().onto(webhook()), webhook());
        let same = Change {
            url: Some(webhook().url),
            events: Some(webhook().events),
            description: Patch::Set("Ours".to_owned()),
            is_enabled: Some(true),
        };
        assert_eq!(same.onto(webhook()), webhook(), "failures of the same receiver stay");
    }

    #[test]
    fn another_receiver_and_a_new_start_have_not_failed() {
        let url = WebhookUrl::parse("https://example.com/b").unwrap();
        let moved = Change { url: Some(url.clone()), ..keep() }.onto(webhook());
        assert_eq!((moved.url, moved.failing_since), (url, None));
        let off = Change { is_enabled: Some(false), ..keep() }.onto(webhook());
        assert_eq!(
            (off.is_enabled, off.disabled_reason, off.failing_since),
            (false, Some(DisabledReason::Owner), Some(NOW))
        );
        let on = Change { is_enabled: Some(true), ..keep() }.onto(off);
        assert_eq!((on.is_enabled, on.disabled_reason, on.failing_since), (true, None, None));
    }

    #[test]
    fn reason_stays_that_of_the_first_end() {
        let gone = Webhook { is_enabled: false, disabled_reason: Some(DisabledReason::Gone), ..webhook() };
        assert_eq!(Change { is_enabled: Some(false), ..keep() }.onto(gone.clone()), gone);
    }

    #[test]
    fn version_is_that_of_what_owners_change() {
        let version = webhook().version().unwrap();
        let failing = Webhook { failing_since: None, previous_ends_at: Some(NOW), ..webhook() };
        assert_eq!(failing.version().unwrap(), version);
        assert_ne!(Webhook { description: None, ..webhook() }.version().unwrap(), version);
    }
}
