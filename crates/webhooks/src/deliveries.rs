//! Operations on deliveries.

use db::{Page, Uncommitted};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use tenants::ListPage;
use trail::Action;

use crate::endpoints::{record, require_enabled};
use crate::targets::{Target, TargetDelivery};
use crate::{Webhooks, store};

pub use crate::client::Outcome;
pub use crate::store::deliveries::{Delivery, State};

/// Returns a page of a webhook's deliveries, newest first.
///
/// # Errors
/// 404 if its owner has no such webhook; the database fails.
pub async fn list(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    state: Option<State>,
    page: Page,
) -> Result<ListPage<Delivery>, Error> {
    let Target { owner, id } = target.into();
    let mut tx = webhooks.db.read().await?;
    let found = store::endpoints::get(&mut tx, owner.organization_id(), id).await?;
    let webhook = found.ok_or(Code::WebhookNotFound)?;
    let (total, rows) = store::deliveries::list(&mut tx, webhook.id, state, page).await?;
    Ok(ListPage { rows, total })
}

/// Redelivers an event with the same id. A delivery that is being sent is unaffected.
///
/// # Errors
/// 403 without permission; 404 if the webhook or the delivery is gone; 409 if the webhook is
/// disabled.
pub async fn redeliver(
    webhooks: &Webhooks,
    target: impl Into<TargetDelivery<'_>>,
) -> Result<Uncommitted<Delivery>, Error> {
    let TargetDelivery { webhook, id } = target.into();
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = webhook.lock(&mut tx).await?;
    require_enabled(&found)?;
    let now = webhooks.clock.now();
    store::deliveries::begin_anew(&mut held, found.id, id, now).await?;
    let delivery = store::deliveries::get(&mut held, found.id, id).await?;
    let delivery = delivery.ok_or(Code::DeliveryNotFound)?;
    record(webhooks, &mut held, webhook, Action::WebhookRedelivered, now).await?;
    let webhooks = webhooks.clone();
    Ok(Uncommitted::new(tx, delivery).then(move || webhooks.notify_one()))
}

/// Redelivers all failed deliveries queued since a time. Returns their number.
///
/// # Errors
/// 403 without permission; 404 if the webhook is gone; 409 if it's disabled.
pub async fn redeliver_failed(
    webhooks: &Webhooks,
    target: impl Into<Target<'_>>,
    since: Time,
) -> Result<Uncommitted<u64>, Error> {
    let target = target.into();
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = target.lock(&mut tx).await?;
    require_enabled(&found)?;
    let now = webhooks.clock.now();
    let count = store::deliveries::begin_failed_anew(&mut held, found.id, since, now).await?;
    record(webhooks, &mut held, target, Action::WebhookRedelivered, now).await?;
    let webhooks = webhooks.clone();
    Ok(Uncommitted::new(tx, count).then(move || webhooks.notify_one()))
}
