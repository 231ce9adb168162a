//! The balance of a wallet: incoming money minus outgoing money and usage (docs/contract/billing.md#wallets).

use kernel::currencies::ChargeUnit;

use super::documents::Billed;
use super::evidence::{InvoiceRow, MovementRow, NoteRow, PaymentRow, Returns, WalletRow};
use super::{finding, nano};
use crate::rules::audit::{Drift, Invariant};

/// The parts of a balance.
pub struct Parts<'a> {
    pub billed: Billed<'a>,
    pub invoices: &'a [InvoiceRow],
    pub notes: &'a [NoteRow],
    pub paid: &'a [PaymentRow],
    pub returns: &'a Returns<'a>,
}

impl Parts<'_> {
    /// Returns the sum of the payments minus the returned amounts.
    fn payments(&self) -> i128 {
        let amount =
            |payment: &PaymentRow, units: i64| ChargeUnit::of(&payment.currency).amount(units).units();
        let mut sum = 0;
        for payment in self.paid.iter().filter(|payment| payment.status == "succeeded") {
            sum += amount(payment, payment.amount_minor);
            for back in self.returns.get(payment.id.as_str()).into_iter().flatten() {
                sum -= amount(payment, back.amount_minor - back.tax_minor);
            }
        }
        sum
    }

    /// Returns the cost of usage, from the documents of closed months and the rows of open months. A void
    /// invoice bills nothing, and neither do its credit notes. Debts that are carried over aren't usage.
    fn used(&self, wallet: &WalletRow) -> i128 {
        let counts = |invoice: &&InvoiceRow| !invoice.is_void();
        let invoices = self.invoices.iter().filter(counts);
        let billed: i128 =
            invoices.map(|invoice| i128::from(invoice.amount_nano) - invoice.carried_over / 1_000).sum();
        let is_void = |note: &NoteRow| {
            self.invoices.iter().any(|invoice| invoice.id == note.invoice_id && invoice.is_void())
        };
        let notes = self.notes.iter().filter(|note| !is_void(note));
        billed - notes.map(|note| i128::from(note.amount_nano)).sum::<i128>()
            + self.billed.unbilled(wallet.open_month)
    }
}

/// Checks the balance of a wallet. `added` is the sum that operators have added. Amounts that expired, were
/// taken back or were written off are read from the books.
pub fn check(wallet: &WalletRow, parts: &Parts<'_>, added: i128, ledger: &[MovementRow]) -> Option<Drift> {
    let is_end = |row: &&MovementRow| match row.kind.as_str() {
        "credit_expiry" | "write_off" => true,
        "credit" => row.to_wallet_nano < 0,
        _ => false,
    };
    let ended: i128 = ledger.iter().filter(is_end).map(|row| i128::from(row.to_wallet_nano)).sum();
    let (payments, used) = (parts.payments(), parts.used(wallet));
    let expected = added + payments + ended - used;
    let found = i128::from(wallet.posted_nano);
    if found == expected {
        return None;
    }
    let expected = format!(
        "{}: {} added by operators, {} of payments, {} ended or written off, {} used",
        nano(expected),
        nano(added),
        nano(payments),
        nano(ended),
        nano(used)
    );
    Some(finding(Invariant::RecountBalance, "wallet", expected, nano(found)))
}
