//! What an operator does to an invoice: it was paid from outside, or it is taken back.

use crate::access::Trail;
use crate::app::App;
use crate::db::Tx;
use crate::ids::InvoiceId;
use crate::money::Nano;
use crate::rules::books::Source;
use crate::rules::invoicing::Status;
use crate::store;
use crate::store::audit_log::Action;
use crate::store::invoices::Invoice;
use crate::store::ledger::Movement;
use crate::store::wallets::Wallet;

use super::Refusal;
use crate::live::books::deposits::{Covers, Deposit, Depositing};

/// What came of it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The invoice as it is now.
    pub invoice: Invoice,
    /// Whether it was so before.
    pub was_so: bool,
}

/// What is due of an open invoice was paid: it comes into the wallet, which owed it.
pub async fn mark_paid(app: &App, id: InvoiceId, trail: &Trail) -> Result<Settled, Refusal> {
    let depositing = Depositing { app, trail, now: app.clock.now() };
    let mut tx = app.db.write().await?;
    let (mut wallet, mut invoice) = lock(&mut tx, id, &depositing).await?;
    match invoice.status {
        Status::Open => {}
        Status::Paid => return Ok(Settled { invoice, was_so: true }),
        other => return Err(refused(&invoice, "can't be paid", other)),
    }
    let due = invoice.due;
    invoice.due = Nano::ZERO;
    invoice.status = Status::Paid;
    invoice.paid_at = Some(depositing.now);
    store::invoices::set_status(&mut tx, &invoice).await?;
    let payment = Deposit {
        movement: Movement::Payment,
        key: format!("payment:{id}"),
        source: Source::Payment,
        reference: format!("payment:{id}"),
        amount: due,
        expires_at: None,
        covers: Covers::OldestDues { but: due },
    };
    depositing.bring_in(&mut tx, &mut wallet, payment).await?;
    depositing.note(&mut tx, Action::InvoicePaid, &id.to_string(), invoice.organization_id).await?;
    tx.commit().await?;
    Ok(Settled { invoice, was_so: false })
}

/// Takes an invoice back: its amount returns to the wallet, and its number stays taken.
pub async fn void(app: &App, id: InvoiceId, trail: &Trail) -> Result<Settled, Refusal> {
    let depositing = Depositing { app, trail, now: app.clock.now() };
    let mut tx = app.db.write().await?;
    let (mut wallet, mut invoice) = lock(&mut tx, id, &depositing).await?;
    match invoice.status {
        Status::Open | Status::Paid => {}
        Status::Void => return Ok(Settled { invoice, was_so: true }),
        other => return Err(refused(&invoice, "can't be taken back", other)),
    }
    if invoice.amount < Nano::ZERO {
        return Err(Refusal::Wrong(format!(
            "invoice {} gives {} back, for corrections; it can't be taken back",
            invoice.number,
            Nano::from_units(-invoice.amount.units())
        )));
    }
    let due = invoice.due;
    invoice.due = Nano::ZERO;
    invoice.status = Status::Void;
    invoice.voided_at = Some(depositing.now);
    store::invoices::set_status(&mut tx, &invoice).await?;
    if invoice.amount > Nano::ZERO {
        let returned = Deposit {
            movement: Movement::Void,
            key: format!("void:{id}"),
            source: Source::Void,
            reference: format!("void:{id}"),
            amount: invoice.amount,
            expires_at: None,
            covers: Covers::OldestDues { but: due },
        };
        depositing.bring_in(&mut tx, &mut wallet, returned).await?;
    }
    depositing.note(&mut tx, Action::InvoiceVoided, &id.to_string(), invoice.organization_id).await?;
    tx.commit().await?;
    Ok(Settled { invoice, was_so: false })
}

/// The invoice as it is while nobody else can change it.
async fn lock(tx: &mut Tx, id: InvoiceId, depositing: &Depositing<'_>) -> Result<(Wallet, Invoice), Refusal> {
    let unknown = || Refusal::Wrong(format!("there is no invoice {id}"));
    let seen = store::invoices::get(tx, id).await?.ok_or_else(unknown)?;
    let wallet = store::wallets::lock(tx, seen.organization_id, depositing.now).await?.ok_or_else(unknown)?;
    let invoice = store::invoices::get(tx, id).await?.ok_or_else(unknown)?;
    Ok((wallet, invoice))
}

fn refused(invoice: &Invoice, what: &str, status: Status) -> Refusal {
    Refusal::Wrong(format!("invoice {} is {} and {what}", invoice.number, status.as_str()))
}
