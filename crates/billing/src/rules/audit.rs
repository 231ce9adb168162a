//! What must hold of the books at all times, as comparisons without input or output (docs/adr/0008-the-books.md).

mod billing;
mod books;
mod invoices;
mod running;
mod usage;

use std::fmt;

use serde::Serialize;

pub use billing::{CreditUseRow, NoteRow, Paid, Since, noted, notes, paid, recomputed, rests, unbilled};
pub use books::{CreditRow, LedgerSums, MovementRow, WalletRow, credits, ledger, wallet};
pub use invoices::{InvoiceRow, ItemRow, MonthSums, currencies, dues, invoice, months, numbers, voids};
pub use running::{Overdue, Running, open_month, overdue};
pub use usage::{DailyKey, DailyRow, EventRow, Usage, UsageSums, event};

/// Something that isn't as it must be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Drift {
    /// In whose books; none when it is nobody's in particular.
    pub organization_id: Option<String>,
    /// Which rule is broken.
    pub what: What,
    /// Which row, movement or month.
    pub subject: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// The rules. The words never change once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Every organization has a wallet.
    WalletMissing,
    /// The entries of a movement sum to zero.
    MovementUnbalanced,
    /// A movement has two entries or more.
    MovementOneSided,
    /// The entries of a movement are in the books of the movement's organization.
    MovementElsewhere,
    /// What is posted to a wallet is the sum of its entries.
    WalletPosted,
    /// What is reserved in a wallet is the sum of its reservations.
    WalletReserved,
    /// The currency of a wallet is that of the prices.
    WalletCurrency,
    /// An event is its tokens at its recorded price.
    EventAmount,
    /// The price of an event is recorded.
    EventPrice,
    /// An event is in a daily row of the month in which it is billed.
    EventMonth,
    /// A daily row adds up its events.
    DailyUsage,
    /// What is posted of a daily row is the whole nanos of its amount.
    DailyPosted,
    /// What is posted of all daily rows is what movements took from the wallet.
    UsagePosted,
    /// What is left of a credit is between nothing and all of it.
    CreditRemaining,
    /// The rest of a credit is its amount less its uses and what ended of it.
    CreditRest,
    /// Nothing is left of a credit that was over for long.
    CreditOver,
    /// No reservation outlives its end for long.
    ReservationOver,
    /// What a wallet has lies in credits.
    CreditsTooSmall,
    /// Nothing is left of credits while money is owed.
    CreditsUnused,
    /// The items of an invoice sum to its amount.
    InvoiceItems,
    /// An item is its quantity times its price.
    InvoiceItem,
    /// The items of an invoice are what daily rows and versions of prices and discounts come to.
    InvoiceRecomputed,
    /// The currency of an invoice is that of its wallet.
    InvoiceCurrency,
    /// An invoice is what was posted in its month less the month's discount.
    InvoiceAmount,
    /// Of an open invoice what credits and credit notes don't cover is due, and of no other anything.
    InvoiceDue,
    /// Credits and credit notes cover a paid invoice.
    InvoicePaid,
    /// The write-off of an invoice that was given up is the part that nothing covers.
    InvoiceWriteOff,
    /// No more is due of all invoices than the wallet owes.
    InvoicesDue,
    /// The debt of a wallet is due of an invoice or charged for a month that isn't billed yet.
    DebtUnbilled,
    /// What came back of a void invoice is its amount, and nothing came back of another.
    InvoiceVoid,
    /// A closed month in which something was billed has one invoice, and no other month has one.
    InvoiceMonth,
    /// The first open month is no later than this one, and not one that could be closed for long.
    OpenMonth,
    /// The numbers of invoices have no gaps.
    InvoiceNumber,
    /// An item of a credit note is its quantity times its price.
    CreditNoteItem,
    /// The items of a credit note sum to its amount.
    CreditNoteItems,
    /// The items of credit notes are the usage that was taken back.
    CreditNoteUsage,
    /// The numbers of credit notes have no gaps.
    CreditNoteNumber,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The words of JSON, so that there is one set of them.
        self.serialize(f)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.organization_id.as_deref().unwrap_or("all organizations");
        write!(
            f,
            "{whose}  {}  {}: expected {}, found {}",
            self.what, self.subject, self.expected, self.found
        )
    }
}

/// The drift, unless both are the same.
fn compare(
    what: What,
    subject: &str,
    expected: impl fmt::Display,
    found: impl fmt::Display,
) -> Option<Drift> {
    let (expected, found) = (expected.to_string(), found.to_string());
    (expected != found).then(|| Drift {
        organization_id: None,
        what,
        subject: subject.to_owned(),
        expected,
        found,
    })
}

/// A sum of units in words; `None`: it is past 128 bits.
fn shown<const SCALE: u32>(units: Option<i128>) -> String {
    units.map_or_else(
        || "more than 128 bits".to_owned(),
        |units| kernel::money::Decimal::<SCALE>::from_units(units).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_says_whose_what_and_how_much() {
        let drift = compare(What::InvoiceDue, "INV-1", 0, 5).unwrap();
        assert_eq!(drift.to_string(), "all organizations  invoice_due  INV-1: expected 0, found 5");
        let drift = Drift { organization_id: Some("org_1".to_owned()), ..drift };
        assert_eq!(drift.to_string(), "org_1  invoice_due  INV-1: expected 0, found 5");
        assert_eq!(compare(What::InvoiceDue, "INV-1", 5, "5"), None);
    }

    #[test]
    fn a_sum_that_no_number_holds_is_told_too() {
        assert_eq!(
            (shown::<9>(Some(-1)), shown::<9>(None)),
            ("-0.000000001".into(), "more than 128 bits".into())
        );
    }
}
