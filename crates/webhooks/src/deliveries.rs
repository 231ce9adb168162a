//! Operations on deliveries.

use db::{Page, Uncommitted};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use tenants::ListPage;
use trail::Action;

use crate::access::{DeliveryScope, WebhookScope};
use crate::endpoints::{record, require_enabled};
use crate::{Webhooks, store};

pub use crate::client::Outcome;
pub use crate::store::deliveries::{Delivery, State};

/// Returns one page of a webhook's deliveries, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(
    webhooks: &Webhooks,
    scope: &WebhookScope,
    state: Option<State>,
    page: Page,
) -> Result<ListPage<Delivery>, Error> {
    let mut tx = webhooks.db.read().await?;
    let (total, rows) = store::deliveries::list(&mut tx, scope.webhook_id(), state, page).await?;
    Ok(ListPage { rows, total })
}

/// Has an event delivered again, with the same id. One that is being sent stays as it is.
///
/// # Errors
/// 403 without the right; 404 if the webhook or the delivery is gone; 409 if the webhook is switched off.
pub async fn redeliver(webhooks: &Webhooks, scope: &DeliveryScope) -> Result<Uncommitted<Delivery>, Error> {
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = scope.webhook.lock_and_recheck(&mut tx).await?;
    require_enabled(&found)?;
    let now = webhooks.clock.now();
    store::deliveries::begin_anew(&mut held, scope.delivery_id(), now).await?;
    let delivery = store::deliveries::get(&mut held, found.id, scope.delivery_id()).await?;
    let delivery = delivery.ok_or(Code::DeliveryNotFound)?;
    let organization = scope.webhook.organization();
    record(webhooks, &mut held, organization, found.id, Action::WebhookRedelivered, now).await?;
    let webhooks = webhooks.clone();
    Ok(Uncommitted::new(tx, delivery).then(move || webhooks.notify_one()))
}

/// Has every failed delivery made again that was queued since a time; returns how many.
///
/// # Errors
/// 403 without the right; 404 if the webhook is gone; 409 if it is switched off.
pub async fn redeliver_failed(
    webhooks: &Webhooks,
    scope: &WebhookScope,
    since: Time,
) -> Result<Uncommitted<u64>, Error> {
    let mut tx = webhooks.db.write().await?;
    let (mut held, found) = scope.lock_and_recheck(&mut tx).await?;
    require_enabled(&found)?;
    let now = webhooks.clock.now();
    let count = store::deliveries::begin_failed_anew(&mut held, found.id, since, now).await?;
    record(webhooks, &mut held, scope.organization(), found.id, Action::WebhookRedelivered, now).await?;
    let webhooks = webhooks.clone();
    Ok(Uncommitted::new(tx, count).then(move || webhooks.notify_one()))
}
