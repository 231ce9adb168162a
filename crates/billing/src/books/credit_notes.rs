//! Credit notes: corrections of usage that was already billed.

use super::booking::{Booking, Refund};
use crate::rules::books::Source;
use crate::rules::invoicing::{self, Bill, BilledUsage, Status};
use crate::store;
use db::Tx;
use kernel::clock::Month;
use kernel::ids::CreditNoteId;
use kernel::money::Nano;

use crate::store::credit_notes::CreditNote;
use crate::store::invoices::Invoice;
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::months::CreditedUsage;
use crate::store::wallets::Wallet;
use trail::Action;

/// Usage of a closed month that is taken back.
#[derive(Default)]
pub(super) struct CreditedMonth {
    pub(super) used: Vec<BilledUsage>,
    /// The corrections, by source and id.
    pub(super) corrections: Vec<(String, String)>,
}

/// Takes back usage that was billed in a closed month: adds a credit note to that month's invoice, which
/// lowers the amount due, and refunds the paid part. A correction of a void invoice posts nothing, because
/// the whole invoice was refunded.
pub(super) async fn take_back(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    month: Month,
    credited: &CreditedMonth,
) -> Result<(), db::Error> {
    let id = wallet.organization_id;
    let posted: i128 = credited.used.iter().map(|used| -used.posted.units()).sum();
    let Some(mut invoice) = store::invoices::of_month(tx, id, month).await? else {
        return take_back_unbilled(booking, tx, wallet, Nano::from_units(posted)).await;
    };
    let bill = bill(tx, wallet, credited).await?;
    for used in &credited.used {
        let credited = CreditedUsage { month, used: used.clone() };
        store::months::add_credited(tx, id, wallet.open_month, &credited).await?;
    }
    let amount = Nano::from_units(-bill.amount.units());
    if amount < Nano::ZERO && invoice.status != Status::Void {
        // The payment is recorded for the invoice's month, so that voiding the invoice also refunds these
        // credits.
        booking.pay_from_credits(tx, wallet, month, Nano::from_units(-amount.units()), Nano::ZERO).await?;
    }
    if posted != 0 {
        let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, Nano::from_units(posted));
        booking.post(tx, wallet, &transfer).await?;
    }
    if bill.credited != Nano::ZERO {
        let transfer = booking.transfer(wallet, Movement::Discount, Account::Discounts, bill.credited);
        booking.post(tx, wallet, &transfer).await?;
    }
    match invoice.status {
        Status::Void => {
            let back = Nano::from_units(-amount.units());
            let back = (Movement::Void, Account::VoidedInvoices, back);
            post_reversal(booking, tx, wallet, &invoice, back).await
        }
        Status::Uncollectible => {
            let paid = store::credits::uses(tx, id, month).await?;
            let paid: i128 = paid.iter().map(|used| used.amount.units()).sum();
            let notes = store::credit_notes::sum_of_month(tx, id, month).await?;
            // As with an open invoice, the unpaid part is lowered first, including the balance brought
            // forward.
            let asked = invoice.amount.units() + invoice.brought_forward.units();
            let unpaid = (asked - notes.units() - paid).max(0);
            let overpaid = (amount.units() - unpaid).max(0);
            let returned = overpaid.min(paid.max(0));
            let never_paid = Nano::from_units(returned - amount.units());
            let never_paid = (Movement::WriteOff, Account::WrittenOff, never_paid);
            post_reversal(booking, tx, wallet, &invoice, never_paid).await?;
            refund_paid(booking, tx, wallet, &invoice, Nano::from_units(returned)).await?;
            add_note(booking, tx, wallet, &invoice, credited, bill).await
        }
        Status::Draft | Status::Open | Status::Paid => {
            let lowered = Nano::from_units(amount.units().clamp(0, invoice.due.units()));
            if lowered > Nano::ZERO {
                booking.reduce_due(tx, &mut invoice, lowered).await?;
            }
            let paid = Nano::from_units(amount.units() - lowered.units());
            refund_paid(booking, tx, wallet, &invoice, paid).await?;
            add_note(booking, tx, wallet, &invoice, credited, bill).await
        }
    }
}

/// Returns the lines of the note: the usage at list price, and its discounts.
async fn bill(tx: &mut Tx, wallet: &Wallet, credited: &CreditedMonth) -> Result<Bill, db::Error> {
    let months = credited.used.iter().map(|used| used.day.month()).collect();
    let (id, open_month) = (wallet.organization_id, wallet.open_month);
    let before = store::months::billed_before(tx, id, &months, open_month).await?;
    let book = catalog::store::prices::book(tx).await?;
    let bill = invoicing::credit_note(&credited.used, &before, &book);
    bill.ok_or_else(|| db::Error::Internal("the sums of a credit note are out of range".to_owned()))
}

/// Refunds the paid part of an invoice. A negative amount is a charge: if no credit covers it, it is brought
/// forward to the next invoice.
async fn refund_paid(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    invoice: &Invoice,
    amount: Nano,
) -> Result<(), db::Error> {
    let month = invoice.month;
    if amount < Nano::ZERO {
        return booking.pay_debts(tx, wallet, None).await;
    }
    let reference = format!("correction:{}", CreditNoteId::new(booking.now, &booking.billing.random));
    booking
        .refund(
            tx,
            wallet,
            Refund { month, earlier: Vec::new(), amount, source: Source::Correction, reference },
        )
        .await
}

/// Posts the reversal of the part of a correction that was already refunded or never paid.
async fn post_reversal(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    invoice: &Invoice,
    (movement, account, to_wallet): (Movement, Account, Nano),
) -> Result<(), db::Error> {
    if to_wallet == Nano::ZERO {
        return Ok(());
    }
    let transfer = booking.transfer(wallet, movement, account, to_wallet);
    let idempotency_key = format!("{}:{}:{}", movement.as_str(), invoice.id, transfer.id);
    booking.post(tx, wallet, &Transfer { idempotency_key, ..transfer }).await
}

async fn add_note(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &Wallet,
    invoice: &Invoice,
    credited: &CreditedMonth,
    bill: Bill,
) -> Result<(), db::Error> {
    let note = CreditNote {
        id: CreditNoteId::new(booking.now, &booking.billing.random),
        number: store::credit_notes::next_number(tx).await?,
        organization_id: wallet.organization_id,
        invoice_id: invoice.id,
        month: invoice.month,
        booked_month: wallet.open_month,
        reference: reference(&credited.corrections),
        amount: Nano::from_units(-bill.amount.units()),
        created_at: booking.now,
    };
    store::credit_notes::insert(tx, &note, &bill.items).await?;
    booking.record_event(tx, Action::CreditNoteCreated, &note.id.to_string(), wallet.organization_id).await
}

/// Returns a reference with the first correction and the number of others.
fn reference(corrections: &[(String, String)]) -> String {
    let Some(((source, event_id), others)) = corrections.split_first() else { return String::new() };
    match others.len() {
        0 => format!("{source}/{event_id}"),
        more => format!("{source}/{event_id} and {more} more"),
    }
}

/// Takes back usage of a closed month without an invoice: it becomes part of the open month.
async fn take_back_unbilled(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    amount: Nano,
) -> Result<(), db::Error> {
    if amount == Nano::ZERO {
        return Ok(());
    }
    let month = wallet.open_month;
    let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, amount);
    let debt = booking.debt_of_open_month(tx, wallet, month).await?;
    let amount = Nano::from_units((amount.units() - debt.units()).max(0));
    let reference = format!("correction:{}", transfer.id);
    booking.post(tx, wallet, &transfer).await?;
    booking
        .refund(
            tx,
            wallet,
            Refund { month, earlier: Vec::new(), amount, source: Source::Correction, reference },
        )
        .await
}
