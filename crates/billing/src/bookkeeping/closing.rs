//! Closing of months: each month of each organization in one transaction, the oldest first.
//!
//! A transaction that closes a month locks the wallet and checks that the month is still the open one.
//! Therefore each month is closed only once, even if several replicas and commands try to close it.

use std::collections::BTreeSet;

use crate::rules::books::{self, Source};
use crate::rules::invoicing::{self, Bill, BilledUsage, Debt, Status};
use crate::{Billing, store};
use cluster::leases::Lease;
use db::Tx;
use events::data::InvoiceChange;
use kernel::clock::{Month, Time};
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::{InvoiceId, OrganizationId};
use kernel::money::Nano;

use crate::store::invoices::{Invoice, Issuer};
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::wallets::Wallet;
use trail::{Action, Trail};

use super::{OperatorError, credits, is_database_unusable};
use crate::books::booking::{Booking, Refund};

/// Number of organizations that one statement looks up.
const PAGE_SIZE: i64 = 100;

/// A closed month.
#[derive(Clone, Debug)]
pub struct ClosedMonth {
    pub organization_id: OrganizationId,
    pub month: Month,
    /// The invoice, if anything was billed.
    pub invoice: Option<Invoice>,
}

/// A month that couldn't be closed.
#[derive(Clone, Debug)]
pub struct FailedMonth {
    pub organization_id: OrganizationId,
    pub month: Month,
    pub reason: String,
}

/// The result of closing months.
#[derive(Clone, Debug, Default)]
pub struct ClosingReport {
    /// In the order in which they were closed.
    pub closed: Vec<ClosedMonth>,
    /// Months that stay open until the next attempt.
    pub failed: Vec<FailedMonth>,
}

/// Closes every month that ended at least a day before `as_of`, month by month. With a lease, it continues
/// only while the lease can be renewed.
pub async fn close_due(
    billing: &Billing,
    as_of: Time,
    trail: &Trail,
    lease: Option<&Lease>,
) -> Result<ClosingReport, Error> {
    let last = invoicing::last_closable(as_of);
    let mut report = ClosingReport::default();
    let first = store::months::first_open(&mut billing.db().read().await?, last).await?;
    let Some(mut month) = first else { return Ok(report) };
    while month <= last {
        let mut after = None;
        loop {
            let mut read = billing.db().read().await?;
            let slice = store::months::with_open_month(&mut read, month, after, PAGE_SIZE).await?;
            let Some(end) = slice.last() else { break };
            after = Some(*end);
            if let Some(lease) = lease
                && !lease.take().await?
            {
                return Ok(report);
            }
            for organization_id in slice {
                match close(billing, organization_id, month, trail).await {
                    Ok(closed) => report.closed.extend(closed),
                    Err(error) if is_database_unusable(&error) => return Err(error),
                    Err(error) => {
                        let reason = error.to_string();
                        report.failed.push(FailedMonth { organization_id, month, reason });
                    }
                }
            }
        }
        month = month.plus(1);
    }
    Ok(report)
}

/// Ends expired credits and closes months for an operator: every month that ended at least a day before
/// `as_of`, by default before now. Requires a trusted clock and, without `skip_wait`, that the service has
/// been up for a while.
///
/// # Errors
/// Months can't be closed now; the database fails.
pub async fn close_for_operator(
    billing: &Billing,
    as_of: Option<Time>,
    skip_wait: bool,
    trail: &Trail,
) -> Result<ClosingReport, OperatorError> {
    let now = billing.clock_guard.now();
    let now = now.map_err(|distrust| OperatorError::Invalid(format!("nothing is closed: {distrust}")))?;
    let as_of = as_of.unwrap_or(now);
    if as_of > now {
        let message =
            format!("--as-of must not be in the future, because usage may still arrive; it is {now} now");
        return Err(OperatorError::Invalid(message));
    }
    if !skip_wait {
        billing.clock_guard.check_up().map_err(|wait| {
            OperatorError::Invalid(format!("nothing is closed: {wait}; use `--skip-wait` to close anyway"))
        })?;
    }
    credits::expire_due(billing, trail).await?;
    Ok(close_due(billing, as_of, trail, None).await?)
}

/// Closes a month of one organization, unless it is already closed.
async fn close(
    billing: &Billing,
    organization_id: OrganizationId,
    month: Month,
    trail: &Trail,
) -> Result<Option<ClosedMonth>, Error> {
    let mut tx = billing.db().write().await?;
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let wallet = booking.lock(&mut tx, organization_id).await?;
    let Some(mut wallet) = wallet.filter(|wallet| wallet.open_month == month) else {
        return Ok(None);
    };
    let closed = close_locked(&booking, &mut tx, &mut wallet).await?;
    tx.commit().await?;
    Ok(Some(closed))
}

/// Closes the open month of a locked wallet, and writes the wallet.
///
/// # Errors
/// The database fails, or a sum overflows: then the caller must not commit.
pub fn close_locked<'a>(
    booking: &'a Booking<'_>,
    tx: &'a mut Tx,
    wallet: &'a mut Wallet,
) -> BoxFuture<'a, Result<ClosedMonth, Error>> {
    Box::pin(close_open_month(booking, tx, wallet))
}

async fn close_open_month(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
) -> Result<ClosedMonth, Error> {
    let (organization_id, month) = (wallet.organization_id, wallet.open_month);
    let used = store::months::billed(tx, organization_id, month).await?;
    let bill = bill(tx, organization_id, month, &used).await?;
    let late: BTreeSet<Month> = used.iter().map(|used| used.day.month()).filter(|of| *of < month).collect();
    let debt = post_discount(booking, tx, wallet, &bill, late).await?;
    wallet.open_month = month.plus(1);
    booking.write(tx, wallet).await?;
    if bill.items.is_empty() && debt.brought_forward == Nano::ZERO {
        return Ok(ClosedMonth { organization_id, month, invoice: None });
    }
    let due = Nano::from_units(debt.of_month.units() + debt.brought_forward.units());
    let name = store::wallets::owner_name(tx, organization_id).await?;
    let id = InvoiceId::new(booking.now, &booking.billing.random);
    booking.record_event(tx, Action::InvoiceCreated, &id.to_string(), organization_id).await?;
    let is_paid = due == Nano::ZERO;
    let invoice = Invoice {
        id,
        number: store::invoices::next_number(tx).await?,
        organization_id,
        organization_name: name.unwrap_or_else(|| organization_id.to_string()),
        month,
        currency: wallet.currency.clone(),
        amount: bill.amount,
        brought_forward: debt.brought_forward,
        due,
        status: if is_paid { Status::Paid } else { Status::Open },
        finalized_at: booking.now,
        paid_at: is_paid.then_some(booking.now),
        voided_at: None,
        issuer: issuer(booking.billing),
    };
    store::invoices::insert(tx, &invoice, &bill.items).await?;
    booking.emit_invoice(tx, &invoice, InvoiceChange::Created).await?;
    if is_paid {
        booking.emit_invoice(tx, &invoice, InvoiceChange::Paid).await?;
    }
    Ok(ClosedMonth { organization_id, month, invoice: Some(invoice) })
}

/// Returns the issuer of new invoices.
pub fn issuer(billing: &Billing) -> Issuer {
    let settings = &billing.settings;
    Issuer { name: settings.issuer_name.clone(), address: settings.issuer_address.clone() }
}

/// Adds the configured issuer to invoices of earlier versions, which didn't store one.
///
/// # Errors
/// The database fails.
pub async fn add_missing_issuers(billing: &Billing) -> Result<(), Error> {
    if !store::invoices::lacks_issuer(&mut billing.db().read().await?).await? {
        return Ok(());
    }
    let mut tx = billing.db().write().await?;
    let invoices = store::invoices::add_issuer(&mut tx, &issuer(billing)).await?;
    tx.commit().await?;
    tracing::info!(invoices, "older invoices have the configured issuer from now on");
    Ok(())
}

/// Returns the bill of a month's billed usage, with the prices and discounts in the database, because the
/// catalog file may have changed since then.
///
/// # Errors
/// The database fails, or a sum overflows.
pub async fn bill(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    used: &[BilledUsage],
) -> Result<Bill, Error> {
    // Late usage gets the discounts of its own month, which depend on the usage that was billed before.
    let late = used.iter().map(|used| used.day.month()).filter(|of| *of != month).collect();
    let before = store::months::billed_before(tx, organization_id, &late, month).await?;
    let book = catalog::store::prices::book(tx).await?;
    if book.is_empty() && !used.is_empty() {
        let message = "the database has no prices yet: start a server of this version first, or run \
            `tollkeeper catalog reload`";
        return Err(Error::internal(message));
    }
    invoicing::bill(month, used, &before, &book).ok_or_else(|| out_of_range(month))
}

fn out_of_range(month: Month) -> Error {
    Error::internal(format!("the sums of {month} are out of range"))
}

/// Posts the discounts of the closed month, or a charge if the discounts of earlier months have become
/// smaller. Returns the remaining debt.
async fn post_discount(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    bill: &Bill,
    late: BTreeSet<Month>,
) -> Result<Debt, Error> {
    let (id, month, credited) = (wallet.organization_id, wallet.open_month, bill.credited);
    let transfer = Transfer {
        idempotency_key: format!("discount:{month}"),
        ..booking.transfer(wallet, Movement::Discount, Account::Discounts, credited)
    };
    if credited < Nano::ZERO {
        booking.pay_from_credits(tx, wallet, month, Nano::from_units(-credited.units()), Nano::ZERO).await?;
        booking.post(tx, wallet, &transfer).await?;
    } else if credited > Nano::ZERO {
        let lowered = booking.debt_of_open_month(tx, wallet, month).await?.min(credited);
        booking.post(tx, wallet, &transfer).await?;
        let refund = Refund {
            month,
            earlier: late.into_iter().collect(),
            amount: Nano::from_units(credited.units() - lowered.units()),
            source: Source::Discount,
            reference: format!("discount:{month}"),
        };
        booking.refund(tx, wallet, refund).await?;
    }
    let owed = books::owed(wallet.posted, &store::credits::list_remaining(tx, id).await?);
    if owed == Nano::ZERO {
        return Ok(Debt { of_month: Nano::ZERO, brought_forward: Nano::ZERO });
    }
    let paid: i128 = store::credits::uses(tx, id, month).await?.iter().map(|used| used.amount.units()).sum();
    let unpaid = bill.amount.units() - paid;
    let later = store::months::charges_from(tx, id, month.plus(1)).await?;
    let later = later.iter().map(|charged| charged.unpaid.units().max(0)).sum();
    let open = store::invoices::open(tx, id).await?;
    let on_invoices = open.iter().map(|invoice| invoice.due.units()).sum();
    let [unpaid, later, on_invoices] = [unpaid, later, on_invoices].map(Nano::from_units);
    Ok(invoicing::split_debt(owed, unpaid, later, on_invoices))
}
