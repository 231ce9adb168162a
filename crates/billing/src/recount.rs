//! A second audit with its own reads and computations.
//!
//! The [audit](crate::audit) adds up the books by the rules that made them, so it can't detect a wrong rule.
//! This module starts from external data: usage events, the versions of prices, payments, refunds and
//! disputes, and the additions and settings of operators. It follows docs/contract, and shares no function
//! with the books, except arithmetic, times and ids.
//!
//! Each organization is read in one snapshot. The database adds up usage by day, model and price, so it
//! returns groups of events with the same parts instead of single events. Events are read once, in slices,
//! and a second time where a price has conditions.

mod balance;
mod conditions;
mod documents;
mod evidence;
mod limits;
mod payments;
mod prices;
mod quantities;
mod statements;
mod top_ups;
mod usage;

use std::fmt::Display;

use db::Tx;
use kernel::clock::{HOUR_MS, Time};
use kernel::money::{Nano, Pico};

use crate::rules::audit::{Drift, Invariant};

pub use evidence::{CALLS, DAILY, DAILY_PARTS, EVENTS, EVENTS_END, LEDGER};
pub use prices::PriceList;

/// Maximum time between a statement of Stripe and its booking, in milliseconds.
const BOOKED_MS: i64 = HOUR_MS;

/// Recounts the money of one organization. Returns the differences from the books, without the organization's
/// id.
///
/// # Errors
/// The database can't be read.
pub async fn organization(
    tx: &mut Tx,
    id: &str,
    prices: &PriceList,
    now: Time,
) -> Result<Vec<Drift>, db::Error> {
    let days = evidence::days(tx, id).await?;
    let credited = evidence::credited(tx, id).await?;
    let mut drifts = usage::days(&days, prices);
    let (events, calls) = evidence::events(tx, id, prices.has_conditions()).await?;
    drifts.extend(usage::choices(&calls, prices));
    drifts.extend(usage::events(&events, &days, prices, evidence::events_gone_before(tx).await?));
    let Some(wallet) = evidence::wallet(tx, id).await? else { return Ok(drifts) };
    let invoices = evidence::invoices(tx, id).await?;
    let notes = evidence::notes(tx, id).await?;
    let billed = documents::Billed { days: &days, credited: &credited, prices };
    if prices.covers(wallet.created_at) {
        drifts.extend(usage::credited(&credited, prices));
        drifts.extend(documents::invoices(&billed, &invoices, wallet.open_month));
        drifts.extend(documents::notes(&billed, &invoices, &notes));
    }
    let ledger = evidence::ledger(tx, id).await?;
    let paid = evidence::payments(tx, id).await?;
    let returns = evidence::returns(tx, id).await?;
    let back = evidence::by_payment(&returns);
    drifts.extend(documents::brought_forward(&invoices, &notes, &ledger));
    drifts.extend(documents::written_off(&invoices, &notes, &ledger));
    if prices.covers(wallet.created_at) {
        let added = evidence::added(tx, id).await?;
        let parts =
            balance::Parts { billed, invoices: &invoices, notes: &notes, paid: &paid, returns: &back };
        drifts.extend(balance::check(&wallet, &parts, added, &ledger));
    }
    drifts.extend(payments::credited(&paid, &back, &ledger));
    drifts.extend(payments::returned(&paid, &back));
    drifts.extend(payments::invoices(&paid, &invoices));
    drifts.extend(payments::orphans(&paid, evidence::deleted_at(tx, id).await?));
    let stated = evidence::statements(tx, id, now.plus_ms(-BOOKED_MS)).await?;
    drifts.extend(statements::check(&stated, &paid, &returns));
    drifts.extend(top_ups::charges(&paid));
    drifts.extend(top_ups::pause(evidence::paused_reason(tx, id).await?.as_deref(), &paid));
    drifts.extend(limits::credits(&evidence::additions(tx, id).await?));
    let (recorded, entry) = (evidence::last_credit(tx, id).await?, evidence::last_limit(tx, id).await?);
    drifts.extend(limits::credit_limit(&wallet, recorded, entry.as_deref()));
    Ok(drifts)
}

/// Returns a finding about an organization.
fn finding(
    invariant: Invariant,
    subject: impl Display,
    expected: impl Display,
    found: impl Display,
) -> Drift {
    Drift {
        organization_id: None,
        invariant,
        subject: subject.to_string(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// Returns an amount of nanos as a decimal.
fn nano(units: i128) -> String {
    Nano::from_units(units).to_string()
}

/// Returns an amount of picos as a decimal.
fn pico(units: i128) -> String {
    Pico::from_units(units).to_string()
}
