//! The alert of an organization's balance. When the balance falls below a threshold, owners and admins get an
//! e-mail. The next e-mail is sent only after the balance was at or above the threshold again
//! (docs/contract/billing.md#balance-alert).
//!
//! Every write of a wallet compares its balance with the threshold ([`wallets::write`]), so no movement is
//! missed.

use crate::Billing;
use crate::store::balance_alerts::{self as store, DueAlert};
use crate::store::wallets;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::version::{Expected, Version};
use mail::posting::{Draft, Outbox};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, LowBalance, Template};
use tenants::access::OrgScope;
use tenants::store::organization_members;
use trail::{Action, Event};

pub use crate::store::balance_alerts::BalanceAlert;

/// Maximum number of organizations that one query returns.
const MAX_AT_ONCE: i64 = 100;
/// The service's own e-mails have no limit per sender, only a limit per recipient.
const SENDER: Sender = Sender { account: None, address: None };

/// Returns the alert of an organization.
///
/// # Errors
/// 404 for an unknown organization; the database fails.
pub fn read(
    billing: &Billing,
    organization_id: OrganizationId,
) -> BoxFuture<'_, Result<BalanceAlert, Error>> {
    Box::pin(async move {
        let alert = store::get(&mut billing.db().read().await?, organization_id).await?;
        Ok(alert.ok_or(Code::OrganizationNotFound)?)
    })
}

/// Returns the version of an alert: that of its threshold.
///
/// # Errors
/// Never in practice: a threshold can always be written as JSON.
pub fn version(below: Option<Nano>) -> Result<Version, Error> {
    Version::of(&below)
}

/// Sets or removes the threshold, and returns the alert. If the balance is below the threshold, the e-mail is
/// sent immediately, unless the balance was already below the previous threshold.
///
/// # Errors
/// 404 and 403 from the scope; 412 if the alert doesn't have the expected version.
pub fn update<'a>(
    billing: &'a Billing,
    scope: &'a OrgScope,
    expected: &'a Expected,
    below: Option<Nano>,
) -> BoxFuture<'a, Result<BalanceAlert, Error>> {
    Box::pin(async move {
        let (organization_id, now) = (scope.organization_id(), billing.clock.now());
        let mut tx = billing.db().write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let wallet = wallets::lock(&mut held, organization_id, &billing.clock_guard).await?;
        let mut wallet = wallet.ok_or(Code::OrganizationNotFound)?;
        expected.check(version(wallet.alert_below)?)?;
        if wallet.alert_below != below {
            store::set_below(&mut held, organization_id, below).await?;
            wallet.alert_below = below;
            wallets::write(&mut held, &mut wallet, billing.demo_credit(), now, &billing.random).await?;
            let (action, target) = (Action::BalanceAlertSet, organization_id.to_string());
            let event = Event { action, target, organization_id: Some(organization_id) };
            trail::record(&mut held, scope.trail(), &event, now, &billing.random).await?;
        }
        let after = store::get(&mut held, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
        tx.commit().await?;
        Ok(after)
    })
}

/// Puts the e-mails about balances that have fallen below their thresholds into the outbox. Returns the
/// number of organizations; replicas that run at the same time send each alert once.
///
/// # Errors
/// The database fails.
pub async fn mail_due(billing: &Billing, outbox: &Outbox) -> Result<u64, Error> {
    let mut mailed = 0;
    loop {
        let due = store::due(&mut billing.db().read().await?, MAX_AT_ONCE).await?;
        if due.is_empty() {
            break;
        }
        for alert in due {
            mailed += u64::from(mail_one(billing, outbox, &alert, billing.clock.now()).await?);
        }
    }
    if mailed > 0 {
        outbox.notify_one();
    }
    Ok(mailed)
}

/// Queues the alert of a balance. Returns `false` if it was already queued, or if the balance is no longer
/// low. The wallet is locked before the counters of e-mails, as when an organization is deleted.
async fn mail_one(billing: &Billing, outbox: &Outbox, due: &DueAlert, now: Time) -> Result<bool, Error> {
    let mut tx = billing.db().write().await?;
    let is_first = store::set_mailed(&mut tx, due.organization_id, now).await?;
    let people = organization_members::viewers_of_billing(&mut tx, due.organization_id).await?;
    if let (true, Some((organization, _))) = (is_first, people.first()) {
        let low = LowBalance {
            balance: due.balance.to_string(),
            below: due.below.to_string(),
            currency: due.currency.clone(),
        };
        let about =
            About { organization: Some(organization.clone()), low_balance: Some(low), ..About::default() };
        let draft = Draft { template: Template::BalanceLow, about };
        let recipients = people.into_iter().map(|(_, email)| email).collect();
        outbox.post_all(&mut tx, &SENDER, &draft, recipients, now).await?;
    }
    tx.commit().await?;
    Ok(is_first)
}
