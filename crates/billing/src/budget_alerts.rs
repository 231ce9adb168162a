//! E-mails about budgets that have reached a threshold. The threshold is recorded in the transaction of the
//! usage, which doesn't wait for e-mails.

use crate::Billing;
use crate::rules::budgets as rules;
use crate::store::budget_alerts::{self as store, DueAlert, ReachedThreshold};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Nano;
use mail::posting::{Draft, Outbox};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, ReachedBudget, Template};
use tenants::store::organization_members;

/// Maximum number of budgets that one query returns.
const MAX_AT_ONCE: i64 = 100;
/// The service's own e-mails have no limit per sender, only a limit per recipient.
const SENDER: Sender = Sender { account: None, address: None };

/// Puts the e-mails about reached thresholds into the outbox: one for each budget and period, about the
/// highest threshold, to the owners and admins whose address is verified. Returns the number of budgets;
/// replicas that run at the same time send each e-mail once.
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

/// Queues the alert of a budget. Returns `false` if it was already queued.
async fn mail_one(billing: &Billing, outbox: &Outbox, due: &DueAlert, now: Time) -> Result<bool, Error> {
    let mut tx = billing.db().write().await?;
    let reached = store::set_mailed(&mut tx, due.budget_id, due.period_start, now).await?;
    let highest = reached.into_iter().max_by_key(|reached| reached.threshold);
    if let Some(highest) = highest {
        let people = organization_members::viewers_of_billing(&mut tx, due.organization_id).await?;
        if let Some((organization, _)) = people.first() {
            let about = about(due, highest, organization);
            let draft = Draft { template: Template::BudgetThreshold, about };
            let recipients = people.into_iter().map(|(_, email)| email).collect();
            outbox.post_all(&mut tx, &SENDER, &draft, recipients, now).await?;
        }
    }
    tx.commit().await?;
    Ok(highest.is_some())
}

fn about(due: &DueAlert, reached: ReachedThreshold, organization: &str) -> About {
    let ReachedThreshold { period_start, threshold, limit, spent, .. } = reached;
    let left = rules::left(limit, spent, Nano::ZERO).max(kernel::money::Pico::ZERO);
    let budget = ReachedBudget {
        name: due.name.clone(),
        period: due.period.label(period_start),
        threshold,
        spent: spent.to_string(),
        limit: limit.to_string(),
        left: left.to_string(),
        currency: due.currency.clone(),
        is_hard: due.hard,
    };
    About { organization: Some(organization.to_owned()), budget: Some(budget), ..About::default() }
}
