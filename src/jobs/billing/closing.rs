//! Closing months: each organization's in one transaction, the oldest month first.
//!
//! Whoever closes holds the wallet's lock and looks whether the month is still the open one, so it happens once, however many
//! replicas and commands are at it.

use crate::access::Trail;
use crate::app::App;
use crate::clock::{Month, Time};
use crate::db::Tx;
use crate::error::Error;
use crate::ids::{InvoiceId, OrganizationId};
use crate::jobs::leases::Lease;
use crate::money::Nano;
use crate::rules::books::{self, Source};
use crate::rules::invoicing::{self, Bill, Status, Used};
use crate::store;
use crate::store::audit_log::Action;
use crate::store::invoices::Invoice;
use crate::store::ledger::Movement;
use crate::store::wallets::Wallet;

use super::stops_everything;
use crate::live::books::deposits::{Covers, Deposit, Depositing};

/// How many organizations are looked for at a time.
const SLICE: i64 = 100;

/// A month that was closed.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Whose.
    pub organization_id: OrganizationId,
    /// Which.
    pub month: Month,
    /// What came of it, if anything was billed.
    pub invoice: Option<Invoice>,
}

/// A month that could not be closed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Whose.
    pub organization_id: OrganizationId,
    /// Which.
    pub month: Month,
    /// Why.
    pub reason: String,
}

/// What came of closing.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In the order in which it was done.
    pub closed: Vec<Closed>,
    /// These stay open, and are tried again.
    pub failed: Vec<Failed>,
}

/// Closes every month that ended a day or longer before `as_of`, month after month. With a lease it goes on as long as that
/// can be renewed.
pub async fn close_due(
    app: &App,
    as_of: Time,
    trail: &Trail,
    lease: Option<&Lease>,
) -> Result<Outcome, Error> {
    let last = invoicing::last_closable(as_of);
    let mut outcome = Outcome::default();
    let first = store::months::first_open(&mut app.db.read().await?, last).await?;
    let Some(mut month) = first else { return Ok(outcome) };
    while month <= last {
        let mut after = None;
        loop {
            let mut read = app.db.read().await?;
            let slice = store::months::open_in(&mut read, month, after, SLICE).await?;
            let Some(end) = slice.last() else { break };
            after = Some(*end);
            if let Some(lease) = lease
                && !lease.take(app).await?
            {
                return Ok(outcome);
            }
            for organization_id in slice {
                match close(app, organization_id, month, trail).await {
                    Ok(closed) => outcome.closed.extend(closed),
                    Err(error) if stops_everything(&error) => return Err(error),
                    Err(error) => {
                        let reason = error.to_string();
                        outcome.failed.push(Failed { organization_id, month, reason });
                    }
                }
            }
        }
        month = month.plus(1);
    }
    Ok(outcome)
}

/// Closes a month of one organization, unless it is closed.
async fn close(
    app: &App,
    organization_id: OrganizationId,
    month: Month,
    trail: &Trail,
) -> Result<Option<Closed>, Error> {
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let wallet = store::wallets::lock(&mut tx, organization_id, now).await?;
    let Some(mut wallet) = wallet.filter(|wallet| wallet.open_month == month) else {
        return Ok(None);
    };
    wallet.open_month = month.plus(1);
    let used = store::months::used(&mut tx, organization_id, month).await?;
    let bill = bill(&mut tx, month, &used).await?;
    if bill.items.is_empty() {
        store::wallets::write(&mut tx, &wallet).await?;
        tx.commit().await?;
        return Ok(Some(Closed { organization_id, month, invoice: None }));
    }
    let depositing = Depositing { app, trail, now };
    if bill.credited > Nano::ZERO {
        let deposit = discount(month, bill.credited);
        depositing.bring_in(&mut tx, &mut wallet, deposit).await?;
    } else {
        store::wallets::write(&mut tx, &wallet).await?;
    }
    let due = due(&mut tx, &wallet, month).await?;
    let name = store::wallets::owner_name(&mut tx, organization_id).await?;
    let id = InvoiceId::new(now, &app.random);
    depositing.note(&mut tx, Action::InvoiceCreated, &id.to_string(), organization_id).await?;
    let is_paid = due == Nano::ZERO;
    let invoice = Invoice {
        id,
        number: store::invoices::next_number(&mut tx).await?,
        organization_id,
        organization_name: name.unwrap_or_else(|| organization_id.to_string()),
        month,
        currency: wallet.currency,
        amount: bill.amount,
        due,
        status: if is_paid { Status::Paid } else { Status::Open },
        finalized_at: now,
        paid_at: is_paid.then_some(now),
        voided_at: None,
    };
    store::invoices::insert(&mut tx, &invoice, &bill.items).await?;
    tx.commit().await?;
    Ok(Some(Closed { organization_id, month, invoice: Some(invoice) }))
}

/// A month's bill by the prices and discounts of the database, whatever a catalog file says by now.
pub async fn bill(tx: &mut Tx, month: Month, used: &[Used]) -> Result<Bill, Error> {
    let book = store::prices::book(tx).await?;
    if book.is_empty() && !used.is_empty() {
        let message = "the database has no prices yet: start a server of this version first, or run `tollkeeper catalog reload`";
        return Err(Error::internal(message));
    }
    let price_of = |model: &str, version: i64| book.price(model, version).cloned();
    let bill = invoicing::bill(month, used, book.tiers_of_month(month), price_of);
    bill.ok_or_else(|| Error::internal(format!("the sums of {month} are out of range")))
}

fn discount(month: Month, amount: Nano) -> Deposit {
    Deposit {
        movement: Movement::Discount,
        key: format!("discount:{month}"),
        source: Source::Discount,
        reference: format!("discount:{month}"),
        amount,
        expires_at: None,
        covers: Covers::OnlyExcess,
    }
}

/// What the wallet, as it is by now, doesn't have for this month and for what earlier ones left.
async fn due(tx: &mut Tx, wallet: &Wallet, month: Month) -> Result<Nano, Error> {
    let id = wallet.organization_id;
    let owed = books::owed(wallet.posted, &store::credits::left(tx, id).await?);
    if owed == Nano::ZERO {
        return Ok(Nano::ZERO);
    }
    let charged_later = store::months::charged_after(tx, id, month).await?;
    let open = store::invoices::open(tx, id).await?;
    let before = open.iter().map(|invoice| invoice.due.units()).sum();
    Ok(invoicing::due(owed, charged_later, Nano::from_units(before)))
}
