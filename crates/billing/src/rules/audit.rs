//! The invariants of the books, as pure comparisons (docs/adr/0008-the-books.md).

mod billing;
mod books;
mod brought_forward;
mod budgets;
mod deadlines;
mod invoices;
mod payments;
mod usage;

use std::fmt;

use serde::Serialize;

pub use billing::{
    CreditUseRow, InvoicePayments, NoteRow, RecordedSince, credit_note_sums, credit_notes, credit_remainders,
    invoice_payments, recomputed, unbilled,
};
pub use books::{CreditRow, LedgerSums, MovementRow, WalletRow, credits, ledger_transaction, wallet};
pub use brought_forward::brought_forward;
pub use budgets::{BudgetRow, Budgets, ReservedRow};
pub use deadlines::{Deadline, Uptime, ended_in_time, open_month};
pub use invoices::{
    InvoiceRow, ItemRow, MonthSums, currencies, invoice, invoice_dues, invoice_months, numbers, void_invoices,
};
pub use payments::{Finding, PaymentRow, findings, payments, returned};
pub use usage::{DailyKey, DailyRow, EventRow, SumKey, SumRow, TotalRow, Usage, UsageSums, call_log, event};

/// A violation of an invariant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Drift {
    /// The organization; `None` if the drift concerns all organizations.
    pub organization_id: Option<String>,
    /// The violated invariant. Called `what` in JSON.
    #[serde(rename = "what")]
    pub invariant: Invariant,
    /// The row, movement or month.
    pub subject: String,
    pub expected: String,
    pub found: String,
}

/// The invariants. Their names never change once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// Every organization has a wallet.
    WalletMissing,
    /// The entries of a movement sum to zero.
    MovementUnbalanced,
    /// A movement has two entries or more.
    MovementOneSided,
    /// The entries of a movement are in the books of the movement's organization.
    MovementElsewhere,
    /// The posted balance of a wallet is the sum of its entries.
    WalletPosted,
    /// The reserved amount of a wallet is the sum of its reservations.
    WalletReserved,
    /// The currency of a wallet is that of the prices.
    WalletCurrency,
    /// The amount of an event is the price of its tokens at its recorded price version.
    EventAmount,
    /// The price of an event is recorded.
    EventPrice,
    /// An event is in a daily row of the month in which it is billed.
    EventMonth,
    /// A daily row is the sum of its events.
    DailyUsage,
    /// A project's usage of a day by model, or by caller, is the sum of its daily rows.
    DailySums,
    /// The total usage of a project or an API key is the sum of its daily rows.
    UsageTotal,
    /// The posted amount of a daily row is its amount, rounded down to whole nanos.
    DailyPosted,
    /// The spent amount of a budget in a period is the sum of the daily rows of its organization, project or
    /// key.
    BudgetSpent,
    /// The reserved amount of a budget is the sum of the reservations of its organization, project or key.
    BudgetReserved,
    /// The number of budgets in a wallet is the number of its organization's budgets.
    BudgetCount,
    /// The movements of usage charged the posted amounts of all daily rows to the wallet.
    UsagePosted,
    /// The remainder of a credit is between 0 and its amount.
    CreditRemaining,
    /// The remainder of a credit is its amount minus its uses and its ended part.
    CreditRest,
    /// An expired credit is ended in time.
    CreditOver,
    /// An expired reservation is ended in time.
    ReservationOver,
    /// The balance of a wallet is covered by its credits.
    CreditsTooSmall,
    /// No credit has a remainder while money is owed.
    CreditsUnused,
    /// The items of an invoice sum to its amount.
    InvoiceItems,
    /// The amount of an item is its quantity times its price.
    InvoiceItem,
    /// The items of an invoice follow from its daily rows, prices and discounts.
    InvoiceRecomputed,
    /// The currency of an invoice is that of its wallet.
    InvoiceCurrency,
    /// The amount of an invoice is the amount posted in its month, minus the month's discount.
    InvoiceAmount,
    /// The amount due of an open invoice is the part that credits and credit notes don't cover; for other
    /// invoices it is 0.
    InvoiceDue,
    /// The amount that an invoice brings forward has a cause: returned money, a correction that increased a
    /// charge, or a void invoice.
    InvoiceBroughtForward,
    /// Credits and credit notes cover a paid invoice.
    InvoicePaid,
    /// The write-off of an uncollectible invoice is the part that credits and credit notes don't cover.
    InvoiceWriteOff,
    /// The amounts due of all invoices are at most the debt of the wallet.
    InvoicesDue,
    /// The debt of a wallet is due on an invoice, or charged for a month that isn't billed yet.
    DebtUnbilled,
    /// A void invoice was refunded completely, and no other invoice was refunded.
    InvoiceVoid,
    /// A closed month with billed usage has one invoice; no other month has one.
    InvoiceMonth,
    /// The open month isn't in the future, and its closing isn't overdue.
    OpenMonth,
    /// The numbers of invoices have no gaps.
    InvoiceNumber,
    /// The amount of an item of a credit note is its quantity times its price.
    CreditNoteItem,
    /// The items of a credit note sum to its amount.
    CreditNoteItems,
    /// The items of credit notes are the usage that was taken back.
    CreditNoteUsage,
    /// The numbers of credit notes have no gaps.
    CreditNoteNumber,
    /// A payment, and each refund and dispute of it, moved its amount once.
    PaymentBooked,
    /// The returned sum of a payment is the sum of its refunds and disputes, which don't exceed its amount
    /// and its tax.
    PaymentReturned,
    /// The payments at the payment processor are those stored here.
    PaymentAtProcessor,
    /// The calls of a day in the call log have the usage of the daily rows.
    CallLog,
    /// Recounted: the daily rows of a day, model and price have the cost of their tokens.
    RecountDay,
    /// Recounted: the daily rows of a day, model and price are the sum of its events.
    RecountEvents,
    /// Recounted: events have the price that was in force at their time.
    RecountPrice,
    /// Recounted: an invoice bills the usage at its price, minus its discounts, and nothing else.
    RecountInvoice,
    /// Recounted: credit notes refund the usage that was taken back, minus the discounts on it.
    RecountCreditNotes,
    /// Recounted: no debt is brought forward twice.
    RecountBroughtForward,
    /// Recounted: corrections of a written-off invoice lower the written-off amount before any money is
    /// refunded.
    RecountWriteOff,
    /// Recounted: a balance is the incoming money minus the outgoing money and the usage.
    RecountBalance,
    /// Recounted: each payment, refund and dispute has moved its amount once.
    RecountPayment,
    /// Recounted: the returned money of a payment consists of net and tax in the payment's proportion.
    RecountReturned,
    /// Recounted: the amount that Stripe has received for a payment is its credit and its tax.
    RecountReceived,
    /// Recounted: a refund that Stripe has made is booked.
    RecountRefund,
    /// Recounted: of a disputed payment, the bank holds the amount that remains after the movements.
    RecountDispute,
    /// Recounted: payments for a deleted organization were returned completely.
    RecountOrphan,
    /// Recounted: automatic top-ups don't exceed their maximum.
    RecountTopUp,
    /// Recounted: a declined charge is retried a day later at the earliest.
    RecountTopUpTime,
    /// Recounted: a top-up is paused as declined only if the card was declined.
    RecountTopUpPause,
    /// Recounted: no invoice that was settled in another way is paid by card.
    RecountInvoicePage,
    /// Recounted: the credits of operators are those of the audit trail.
    RecountCredit,
    /// Recounted: a credit limit is the last one that was set.
    RecountCreditLimit,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Use the JSON names, so that the code has only one set of names.
        self.serialize(f)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.organization_id.as_deref().unwrap_or("all organizations");
        write!(
            f,
            "{owner}  {}  {}: expected {}, found {}",
            self.invariant, self.subject, self.expected, self.found
        )
    }
}

/// Returns a drift, unless both are equal.
fn compare(
    invariant: Invariant,
    subject: &str,
    expected: impl fmt::Display,
    found: impl fmt::Display,
) -> Option<Drift> {
    let (expected, found) = (expected.to_string(), found.to_string());
    (expected != found).then(|| Drift {
        organization_id: None,
        invariant,
        subject: subject.to_owned(),
        expected,
        found,
    })
}

/// Returns a sum of units as a decimal. `None` means that the sum exceeds 128 bits.
fn decimal_text<const SCALE: u32>(units: Option<i128>) -> String {
    units.map_or_else(
        || "more than 128 bits".to_owned(),
        |units| kernel::money::Decimal::<SCALE>::from_units(units).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_names_organization_invariant_and_values() {
        let drift = compare(Invariant::InvoiceDue, "INV-1", 0, 5).unwrap();
        assert_eq!(drift.to_string(), "all organizations  invoice_due  INV-1: expected 0, found 5");
        let drift = Drift { organization_id: Some("org_1".to_owned()), ..drift };
        assert_eq!(drift.to_string(), "org_1  invoice_due  INV-1: expected 0, found 5");
        assert_eq!(compare(Invariant::InvoiceDue, "INV-1", 5, "5"), None);
    }

    #[test]
    fn overflowing_sum_has_a_text() {
        assert_eq!(
            (decimal_text::<9>(Some(-1)), decimal_text::<9>(None)),
            ("-0.000000001".into(), "more than 128 bits".into())
        );
    }
}
