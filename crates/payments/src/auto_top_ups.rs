//! Settings of automatic top-ups.

use billing::store::wallets;
use kernel::clock::Time;
use kernel::currencies::ChargeUnit;
use kernel::error::{Code, Detail, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::patch::Patch;
use kernel::version::Expected;
use tenants::access::OrgScope;
use trail::Action;

use crate::store::auto_top_ups as store;
use crate::store::{customers, payments as payment_store};
use crate::{Payments, top_up_state};

pub use crate::store::auto_top_ups::{AutoTopUp, PausedReason};

/// A change to an automatic top-up; `None` keeps a value.
#[derive(Clone, Debug)]
pub struct Change {
    pub is_enabled: Option<bool>,
    pub threshold: Option<Nano>,
    pub restore_to: Option<Nano>,
    pub monthly_cap: Patch<Nano>,
}

/// Returns an organization's automatic top-up, or a disabled one if none was set.
///
/// # Errors
/// The database fails.
pub fn read(payments: &Payments, organization_id: OrganizationId) -> BoxFuture<'_, Result<AutoTopUp, Error>> {
    Box::pin(async move {
        let found = store::get(&mut payments.db.read().await?, organization_id).await?;
        // Without a row, the timestamps are 0.
        Ok(found.unwrap_or_else(|| AutoTopUp::none(organization_id, Time::from_unix_ms(0))))
    })
}

/// Sets an organization's automatic top-up and returns it. Enabling it also resumes a paused one, and a
/// balance below the threshold is topped up immediately.
///
/// # Errors
/// 400 for inconsistent values; 403 without permission, or if payments are off; 409 without a saved
/// card; 412 on a version mismatch.
pub fn update<'a>(
    payments: &'a Payments,
    scope: &'a OrgScope,
    expected: &'a Expected,
    change: Change,
) -> BoxFuture<'a, Result<AutoTopUp, Error>> {
    Box::pin(async move {
        payments.processor()?;
        let organization_id = scope.organization_id();
        let booking = payments.booking(scope.trail());
        let now = booking.now;
        let mut tx = payments.db.write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let wallet = wallets::lock(&mut held, organization_id, &payments.clock_guard).await?;
        let mut wallet = wallet.ok_or(Code::OrganizationNotFound)?;
        let stored = store::get(&mut held, organization_id).await?;
        let before =
            stored.clone().unwrap_or_else(|| AutoTopUp::none(organization_id, Time::from_unix_ms(0)));
        expected.check(before.version()?)?;
        let mut top_up = AutoTopUp {
            is_enabled: change.is_enabled.unwrap_or(before.is_enabled),
            threshold: change.threshold.unwrap_or(before.threshold),
            restore_to: change.restore_to.unwrap_or(before.restore_to),
            monthly_cap: change.monthly_cap.onto(before.monthly_cap),
            created_at: stored.map_or(now, |stored| stored.created_at),
            updated_at: now,
            ..before
        };
        if top_up.is_enabled {
            check(payments, &top_up, &wallet.currency)?;
            let customer = customers::get(&mut held, organization_id).await?;
            customer.filter(|customer| customer.method_id.is_some()).ok_or(Code::NoPaymentMethod)?;
        }
        if change.is_enabled == Some(true) {
            (top_up.paused_reason, top_up.next_try_at, top_up.failures) = (None, None, 0);
        }
        store::put(&mut held, &top_up, now).await?;
        if !top_up.is_active()
            && let Some(id) = payment_store::top_up_under_way(&mut held, organization_id).await?
        {
            top_up_state::abandon(&mut held, id, now).await?;
        }
        top_up_state::arm(payments, &booking, &mut held, &mut wallet).await?;
        let subject = (Action::AutoTopUpSet, organization_id.text());
        payments.record(&mut held, scope.trail(), subject, organization_id, now).await?;
        tx.commit().await?;
        payments.notify_one();
        Ok(top_up)
    })
}

/// Checks that the values of a top-up are consistent.
fn check(payments: &Payments, top_up: &AutoTopUp, currency: &str) -> Result<(), Error> {
    let (least, most) = (payments.settings.minimum(currency), payments.settings.maximum(currency));
    let mut details = Vec::new();
    let mut refuse = |param: &str, message: String| {
        details.push(Detail { param: param.to_owned(), code: "invalid_amount", message });
    };
    if top_up.threshold < Nano::ZERO {
        refuse("threshold", "`threshold` must be 0 or more.".to_owned());
    }
    let gap = top_up.restore_to.units() - top_up.threshold.units();
    if gap < least.units() {
        refuse(
            "restore_to",
            format!("`restore_to` must be at least {least} {currency} more than `threshold`."),
        );
    } else if top_up.restore_to > most {
        refuse("restore_to", format!("`restore_to` must be at most {most} {currency}."));
    }
    let is_payable = |amount| ChargeUnit::of(currency).exactly(amount).is_some();
    if let Some(cap) = top_up.monthly_cap
        && (cap < least || !is_payable(cap))
    {
        refuse("monthly_cap", format!("`monthly_cap` must be an amount of {currency}, at least {least}."));
    }
    if details.is_empty() { Ok(()) } else { Err(Error::invalid(details)) }
}
