//! Changes of invoices by operators: marked as paid, voided, written off.

use crate::rules::books::{Credit, Source};
use crate::rules::invoicing::Status;
use crate::{Billing, store};
use db::Tx;
use kernel::currencies;
use kernel::error::Error;
use kernel::ids::InvoiceId;
use kernel::money::Nano;

use crate::store::invoices::Invoice;
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::wallets::Wallet;
use trail::{Action, Trail};

use super::{OperatorError, check_payable};
use crate::books::booking::{Booking, Deposit, Refund};

/// The result of a change.
#[derive(Clone, Debug)]
pub struct InvoiceChange {
    /// The invoice after the change.
    pub invoice: Invoice,
    /// `true` if the invoice already had this status and nothing was changed.
    pub was_unchanged: bool,
    /// The new credit, if a payment was recorded.
    pub credit: Option<Credit>,
}

/// Records that an open invoice was paid outside the service. Without `amount`, the paid amount is the
/// invoice's amount due, rounded up to the currency's minor unit. A surplus pays the oldest other invoices;
/// the rest stays as credit.
///
/// # Errors
/// The invoice isn't open, or the amount is wrong; the database fails.
pub async fn mark_paid(
    billing: &Billing,
    id: InvoiceId,
    amount: Option<Nano>,
    trail: &Trail,
) -> Result<InvoiceChange, OperatorError> {
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let mut tx = billing.db().write().await?;
    let (mut wallet, invoice) = lock_invoice(&mut tx, id, &booking).await?;
    match invoice.status {
        Status::Open => {}
        Status::Paid => return Ok(InvoiceChange { invoice, was_unchanged: true, credit: None }),
        other => return Err(wrong_status(&invoice, "can't be paid", other)),
    }
    let amount = amount.unwrap_or_else(|| currencies::payable(invoice.due, &invoice.currency));
    check_payment(amount, &invoice)?;
    wallet.check_fits(amount).map_err(OperatorError::Invalid)?;
    let payment = Deposit {
        movement: Movement::Payment,
        key: format!("payment:{id}"),
        source: Source::Payment,
        reference: format!("payment:{id}"),
        amount,
        expires_at: None,
        pays_first: Some(id),
    };
    let credit = booking.deposit(&mut tx, &mut wallet, payment).await?;
    let paid = store::invoices::get(&mut tx, id).await?.filter(|invoice| invoice.status == Status::Paid);
    let invoice =
        paid.ok_or_else(|| Error::internal(format!("the payment of {id} didn't pay it in full")))?;
    tx.commit().await?;
    Ok(InvoiceChange { invoice, was_unchanged: false, credit: Some(credit) })
}

/// Refuses an amount that can't be paid in the invoice's currency or is less than the amount due.
fn check_payment(amount: Nano, invoice: &Invoice) -> Result<(), OperatorError> {
    let Invoice { number, due, currency, .. } = invoice;
    check_payable(amount, currency).map_err(OperatorError::Invalid)?;
    if amount < *due {
        return Err(OperatorError::Invalid(format!(
            "--amount {amount} is less than the {due} {currency} due on invoice {number}: book a partial \
             payment with `credit add --reference …`, which pays the oldest invoices first"
        )));
    }
    Ok(())
}

/// Voids an invoice: its amount returns to the wallet, and its number remains in use.
///
/// # Errors
/// The invoice is neither open nor paid; the database fails.
pub async fn void(billing: &Billing, id: InvoiceId, trail: &Trail) -> Result<InvoiceChange, OperatorError> {
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let mut tx = billing.db().write().await?;
    let (mut wallet, mut invoice) = lock_invoice(&mut tx, id, &booking).await?;
    match invoice.status {
        Status::Open | Status::Paid => {}
        Status::Void => return Ok(InvoiceChange { invoice, was_unchanged: true, credit: None }),
        other => return Err(wrong_status(&invoice, "can't be voided", other)),
    }
    if invoice.amount < Nano::ZERO {
        return Err(OperatorError::Invalid(format!(
            "invoice {} refunds {} for corrections, so it can't be voided",
            invoice.number,
            Nano::from_units(-invoice.amount.units())
        )));
    }
    let due = invoice.due;
    invoice.due = Nano::ZERO;
    invoice.status = Status::Void;
    invoice.voided_at = Some(booking.now);
    store::invoices::set_status(&mut tx, &invoice, booking.now).await?;
    // Credit notes have already refunded their parts.
    let credited = store::credit_notes::sum_of_month(&mut tx, invoice.organization_id, invoice.month).await?;
    let refunded = Nano::from_units(invoice.amount.units() - credited.units());
    if refunded != Nano::ZERO {
        let transfer = Transfer {
            idempotency_key: format!("void:{id}"),
            ..booking.transfer(&wallet, Movement::Void, Account::VoidedInvoices, refunded)
        };
        booking.post(&mut tx, &mut wallet, &transfer).await?;
        let refund = Refund {
            month: invoice.month,
            earlier: Vec::new(),
            amount: Nano::from_units((refunded.units() - due.units()).max(0)),
            source: Source::Void,
            reference: format!("void:{id}"),
        };
        booking.refund(&mut tx, &mut wallet, refund).await?;
        booking.write(&mut tx, &mut wallet).await?;
    }
    booking.record_event(&mut tx, Action::InvoiceVoided, &id.to_string(), invoice.organization_id).await?;
    booking.emit_invoice(&mut tx, &invoice, events::data::InvoiceChange::Voided).await?;
    tx.commit().await?;
    Ok(InvoiceChange { invoice, was_unchanged: false, credit: None })
}

/// Writes off an open invoice: the wallet no longer owes its amount due.
///
/// # Errors
/// The invoice isn't open; the database fails.
pub async fn give_up(
    billing: &Billing,
    id: InvoiceId,
    trail: &Trail,
) -> Result<InvoiceChange, OperatorError> {
    billing.clock_guard.require()?;
    let booking = Booking { billing, trail, now: billing.clock.now() };
    let mut tx = billing.db().write().await?;
    let (mut wallet, mut invoice) = lock_invoice(&mut tx, id, &booking).await?;
    match invoice.status {
        Status::Open => {}
        Status::Uncollectible => return Ok(InvoiceChange { invoice, was_unchanged: true, credit: None }),
        other => return Err(wrong_status(&invoice, "can't be given up", other)),
    }
    let transfer = Transfer {
        idempotency_key: format!("write_off:{id}"),
        ..booking.transfer(&wallet, Movement::WriteOff, Account::WrittenOff, invoice.due)
    };
    booking.post(&mut tx, &mut wallet, &transfer).await?;
    booking.write(&mut tx, &mut wallet).await?;
    invoice.due = Nano::ZERO;
    invoice.status = Status::Uncollectible;
    store::invoices::set_status(&mut tx, &invoice, booking.now).await?;
    booking.record_event(&mut tx, Action::InvoiceGivenUp, &id.to_string(), invoice.organization_id).await?;
    tx.commit().await?;
    Ok(InvoiceChange { invoice, was_unchanged: false, credit: None })
}

/// Writes off a balance, positive or negative, that is less than the smallest payment of its currency.
///
/// # Errors
/// The database fails.
pub async fn write_off_dust(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
) -> Result<(), db::Error> {
    let (id, posted) = (wallet.organization_id, wallet.posted);
    if posted.units().abs() >= currencies::smallest_payment(&wallet.currency).units() {
        return Ok(());
    }
    if posted < Nano::ZERO {
        let transfer = Transfer {
            idempotency_key: format!("write_off:dust:{}", wallet.open_month),
            ..booking.transfer(
                wallet,
                Movement::WriteOff,
                Account::WrittenOff,
                Nano::from_units(-posted.units()),
            )
        };
        booking.post(tx, wallet, &transfer).await?;
        for mut invoice in store::invoices::open(tx, id).await? {
            let due = invoice.due;
            booking.reduce_due(tx, &mut invoice, due).await?;
        }
        return Ok(());
    }
    for credit in store::credits::list_remaining(tx, id).await? {
        withdraw(booking, tx, wallet, &credit, (Movement::WriteOff, Account::WrittenOff), credit.remaining)
            .await?;
    }
    Ok(())
}

/// Takes a part of the remainder of a credit out of the wallet permanently.
///
/// # Errors
/// The database fails.
pub(super) async fn withdraw(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    credit: &Credit,
    (movement, account): (Movement, Account),
    amount: Nano,
) -> Result<(), db::Error> {
    let transfer = booking.transfer(wallet, movement, account, Nano::from_units(-amount.units()));
    let idempotency_key = format!("{}:{}:{}", movement.as_str(), credit.id, transfer.id);
    booking.post(tx, wallet, &Transfer { idempotency_key, ..transfer }).await?;
    let remaining = Nano::from_units(credit.remaining.units() - amount.units());
    store::credits::set_remaining(tx, credit.id, remaining).await
}

/// Locks the wallet of an invoice. Returns both, as read under the lock.
async fn lock_invoice(
    tx: &mut Tx,
    id: InvoiceId,
    booking: &Booking<'_>,
) -> Result<(Wallet, Invoice), OperatorError> {
    let unknown = || OperatorError::Invalid(format!("invoice {id} doesn't exist"));
    let unlocked = store::invoices::get(tx, id).await?.ok_or_else(unknown)?;
    let wallet = booking.lock(tx, unlocked.organization_id).await?.ok_or_else(unknown)?;
    let invoice = store::invoices::get(tx, id).await?.ok_or_else(unknown)?;
    Ok((wallet, invoice))
}

fn wrong_status(invoice: &Invoice, what: &str, status: Status) -> OperatorError {
    OperatorError::Invalid(format!("invoice {} is {} and {what}", invoice.number, status.as_str()))
}
