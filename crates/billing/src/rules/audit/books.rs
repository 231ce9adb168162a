//! Checks of wallets, ledger and credits.

use std::collections::BTreeMap;

use super::{Drift, Invariant, compare, decimal_text};
use kernel::clock::{MINUTE_MS, Time};
use kernel::money::Nano;

/// A stored wallet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalletRow {
    pub posted: Nano,
    pub reserved: Nano,
    /// The first month that isn't closed, counted from 1970-01.
    pub open_month: i64,
    pub currency: String,
    pub created_at: Time,
    /// `true` if the organization is deleted.
    pub is_deleted: bool,
    /// The number of budgets.
    pub budgets: i64,
}

/// A ledger transaction with the sums of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovementRow {
    pub id: String,
    pub kind: String,
    pub idempotency_key: String,
    /// The number of entries.
    pub entries: i64,
    /// The number of entries in the books of other organizations.
    pub foreign_entries: i64,
    /// The sum of the entries.
    pub sum: Nano,
    /// The amount that the wallet gained.
    pub to_wallet: Nano,
}

/// Sums of all ledger transactions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LedgerSums {
    /// The sum of the wallet's entries.
    pub wallet: i128,
    /// The sum of the wallet's entries for usage, normally negative.
    pub usage: i128,
    /// Discounts by month, such as `2026-01`.
    pub discounts: BTreeMap<String, i128>,
    /// Refunds of void invoices, by invoice id.
    pub void_invoices: BTreeMap<String, i128>,
    /// Amounts that were ended, taken back or written off, by credit id.
    pub ended: BTreeMap<String, i128>,
    /// Amounts that were written off, by invoice id.
    pub written_off: BTreeMap<String, i128>,
    /// The amount that was written off because it was too small to be paid.
    pub dust: i128,
    /// The amounts that payments, refunds and disputes added to the wallet, by the id of the payment and the
    /// id of the refund or dispute, which is empty for the payment itself.
    pub payments: BTreeMap<(String, String), i128>,
    /// Debts from refunds and disputes, by the month that was open, counted from 1970-01.
    pub returned: BTreeMap<i64, i128>,
}

impl LedgerSums {
    /// Adds a ledger transaction.
    pub fn add(&mut self, movement: &MovementRow) {
        let to_wallet = movement.to_wallet.units();
        self.wallet = self.wallet.saturating_add(to_wallet);
        if movement.kind == "usage" {
            self.usage = self.usage.saturating_add(to_wallet);
        }
        self.add_ended(movement);
        let sums = match movement.kind.as_str() {
            "discount" => &mut self.discounts,
            "void" => &mut self.void_invoices,
            _ => return,
        };
        let owner = movement.idempotency_key.split_once(':').filter(|(kind, _)| *kind == movement.kind);
        // A key with three parts belongs to a correction after the invoice was voided.
        if let Some((_, owner)) = owner.filter(|(_, owner)| !owner.contains(':')) {
            let sum = sums.entry(owner.to_owned()).or_default();
            *sum = sum.saturating_add(to_wallet);
        }
    }
}

impl LedgerSums {
    /// Adds an amount that a movement takes away permanently. The keys are `credit_expiry:{credit}:…`,
    /// `credit:{credit}:…` with a negative amount, and `write_off:` with a credit, an invoice, or `dust`.
    fn add_ended(&mut self, movement: &MovementRow) {
        let nano = movement.to_wallet.units();
        let mut parts = movement.idempotency_key.split(':');
        let (kind, Some(owner)) = (parts.next(), parts.next()) else { return };
        if kind != Some(movement.kind.as_str()) {
            return;
        }
        let add = |sums: &mut BTreeMap<String, i128>, nano: i128| {
            let sum = sums.entry(owner.to_owned()).or_default();
            *sum = sum.saturating_add(nano);
        };
        match movement.kind.as_str() {
            "credit_expiry" => add(&mut self.ended, -nano),
            "credit" if nano < 0 => add(&mut self.ended, -nano),
            "write_off" if owner == "dust" => self.dust = self.dust.saturating_add(nano),
            "write_off" if owner.starts_with("credit_") => add(&mut self.ended, -nano),
            "write_off" => add(&mut self.written_off, nano),
            "payment" if owner.starts_with("payment_") => self.add_payment(owner, parts, nano),
            _ => {}
        }
    }

    /// Adds a movement of a payment. Its key is `payment:{payment}`, or `payment:{payment}:{cause}:{place}`:
    /// the cause is a refund or dispute, and the place is `back`, the id of a credit, or `debt-` and a month.
    /// Later bookings of the same dispute append their number.
    fn add_payment<'a>(&mut self, owner: &str, mut parts: impl Iterator<Item = &'a str>, nano: i128) {
        let cause = parts.next().unwrap_or_default();
        let sum = self.payments.entry((owner.to_owned(), cause.to_owned())).or_default();
        *sum = sum.saturating_add(nano);
        let place = parts.next().unwrap_or_default();
        if place.starts_with("credit_") {
            let ended = self.ended.entry(place.to_owned()).or_default();
            *ended = ended.saturating_sub(nano);
        } else if let Some(month) = place.strip_prefix("debt-").and_then(|month| month.parse().ok()) {
            let debt = self.returned.entry(month).or_default();
            *debt = debt.saturating_sub(nano);
        }
    }

    /// Returns the debts from refunds and disputes since a month was open.
    pub fn returned_since(&self, month: i64) -> i128 {
        self.returned.range(month..).map(|(_, debt)| debt).sum()
    }
}

/// Checks a single ledger transaction.
pub fn ledger_transaction(movement: &MovementRow) -> Vec<Drift> {
    let mut drifts = Vec::new();
    drifts.extend(compare(Invariant::MovementUnbalanced, &movement.id, Nano::ZERO, movement.sum));
    if movement.entries < 2 {
        drifts.extend(compare(
            Invariant::MovementOneSided,
            &movement.id,
            "2 entries or more",
            movement.entries,
        ));
    }
    drifts.extend(compare(Invariant::MovementElsewhere, &movement.id, 0, movement.foreign_entries));
    drifts
}

/// Checks a wallet against the sums of its entries, its reservations, and the posted amounts of its daily
/// rows.
pub fn wallet(
    wallet: Option<&WalletRow>,
    ledger: &LedgerSums,
    reserved: i128,
    posted_of_usage: i128,
) -> Vec<Drift> {
    let mut drifts = Vec::new();
    match wallet {
        None => drifts.extend(compare(Invariant::WalletMissing, "wallet", "a wallet", "none")),
        Some(wallet) => {
            let entries = decimal_text::<9>(Some(ledger.wallet));
            drifts.extend(compare(Invariant::WalletPosted, "wallet", entries, wallet.posted));
            drifts.extend(compare(
                Invariant::WalletReserved,
                "wallet",
                decimal_text::<9>(Some(reserved)),
                wallet.reserved,
            ));
        }
    }
    let debited = decimal_text::<9>(ledger.usage.checked_neg());
    drifts.extend(compare(
        Invariant::UsagePosted,
        "daily rows",
        debited,
        decimal_text::<9>(Some(posted_of_usage)),
    ));
    drifts
}

/// A stored credit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditRow {
    pub id: String,
    pub amount: Nano,
    pub remaining: Nano,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

/// Maximum difference between the clocks of replicas: a credit that ends within it may have expired for the
/// replica that charged the wallet.
const MAX_CLOCK_DIFFERENCE_MS: i64 = MINUTE_MS;

/// Checks all credits of a wallet.
pub fn credits(credits: &[CreditRow], posted: Nano, now: Time) -> Vec<Drift> {
    let mut drifts = Vec::new();
    for credit in credits.iter().filter(|one| one.remaining < Nano::ZERO || one.remaining > one.amount) {
        let expected = format!("0 to {}", credit.amount);
        drifts.extend(compare(Invariant::CreditRemaining, &credit.id, expected, credit.remaining));
    }
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    if left < posted.units().max(0) {
        let expected = format!("{posted} or more");
        drifts.extend(compare(
            Invariant::CreditsTooSmall,
            "credits",
            expected,
            decimal_text::<9>(Some(left)),
        ));
    }
    if left > posted.units() {
        let until = now.plus_ms(MAX_CLOCK_DIFFERENCE_MS);
        let usable = |credit: &&CreditRow| credit.expires_at.is_none_or(|end| end > until);
        for credit in credits.iter().filter(usable) {
            drifts.extend(compare(Invariant::CreditsUnused, &credit.id, Nano::ZERO, credit.remaining));
        }
    }
    drifts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nano(units: i128) -> Nano {
        Nano::from_units(units)
    }

    fn movement(kind: &str, key: &str, to_wallet: i128) -> MovementRow {
        MovementRow {
            id: "ltx_1".into(),
            kind: kind.into(),
            idempotency_key: key.into(),
            entries: 2,
            foreign_entries: 0,
            sum: nano(0),
            to_wallet: nano(to_wallet),
        }
    }

    fn words(drifts: &[Drift]) -> Vec<String> {
        drifts.iter().map(|d| format!("{} {} {} {}", d.invariant, d.subject, d.expected, d.found)).collect()
    }

    #[test]
    fn movements_balance() {
        let good = movement("usage", "k", -5);
        assert_eq!(ledger_transaction(&good), []);
        let bad = MovementRow { entries: 1, foreign_entries: 1, sum: nano(-5), ..good };
        let expected = [
            "movement_unbalanced ltx_1 0 -0.000000005",
            "movement_one_sided ltx_1 2 entries or more 1",
            "movement_elsewhere ltx_1 0 1",
        ];
        assert_eq!(words(&ledger_transaction(&bad)), expected);
    }

    #[test]
    fn wallet_is_the_sum_of_its_rows() {
        let mut sums = LedgerSums::default();
        sums.add(&movement("credit", "credit:x", 100));
        sums.add(&movement("usage", "k", -30));
        sums.add(&movement("discount", "discount:2026-01", 3));
        sums.add(&movement("credit", "discount:2026-01", 0));
        sums.add(&movement("void", "void:invoice_1", 7));
        sums.add(&movement("payment", "void:invoice_1", -7));
        assert_eq!((sums.wallet, sums.usage, sums.discounts["2026-01"]), (73, -30, 3));
        assert_eq!(sums.void_invoices, BTreeMap::from([("invoice_1".to_owned(), 7)]));
        // A correction after the invoice was voided isn't part of its refund.
        sums.add(&movement("void", "void:invoice_1:ltx_1", 9));
        sums.add(&movement("void", "void:invoice_2:ltx_1", 9));
        assert_eq!(sums.void_invoices, BTreeMap::from([("invoice_1".to_owned(), 7)]));
        sums.wallet -= 18;
        // The key names the owner of an amount, but only with the prefix of the movement's kind.
        let mut strange = LedgerSums::default();
        strange.add(&movement("discount", "void:invoice_1", 3));
        strange.add(&movement("void", "2026-01", 3));
        assert_eq!((strange.wallet, strange.discounts.len(), strange.void_invoices.len()), (6, 0, 0));
        let row = WalletRow {
            posted: nano(73),
            reserved: nano(7),
            open_month: 1,
            currency: "USD".into(),
            created_at: Time::from_unix_ms(0),
            is_deleted: false,
            budgets: 0,
        };
        assert_eq!(wallet(Some(&row), &sums, 7, 30), []);
        let expected = [
            "wallet_posted wallet 0.000000073 0.000000074",
            "wallet_reserved wallet 0.000000008 0.000000007",
            "usage_posted daily rows 0.00000003 0.000000031",
        ];
        let off = WalletRow { posted: nano(74), ..row };
        assert_eq!(words(&wallet(Some(&off), &sums, 8, 31)), expected);
        assert_eq!(words(&wallet(None, &sums, 0, 30)), ["wallet_missing wallet a wallet none"]);
    }

    #[test]
    fn ended_amounts_are_found_by_key() {
        let mut sums = LedgerSums::default();
        sums.add(&movement("credit_expiry", "credit_expiry:credit_1:ltx_1", -3));
        sums.add(&movement("credit_expiry", "credit_expiry:credit_1", -2));
        sums.add(&movement("credit", "credit:credit_1:ltx_2", -1));
        sums.add(&movement("credit", "credit:credit_1:ltx_2", 100));
        sums.add(&movement("write_off", "write_off:credit_2:ltx_3", -4));
        sums.add(&movement("write_off", "write_off:inv_1", 9));
        sums.add(&movement("write_off", "write_off:inv_1:ltx_4", -2));
        sums.add(&movement("write_off", "write_off:dust:2026-01", 1));
        assert_eq!(sums.ended, BTreeMap::from([("credit_1".to_owned(), 6), ("credit_2".to_owned(), 4)]));
        assert_eq!((sums.written_off, sums.dust), (BTreeMap::from([("inv_1".to_owned(), 7)]), 1));
    }

    #[test]
    fn credits_cover_the_balance() {
        let now = Time::from_unix_ms(1_000_000);
        let credit = |remaining: i128, expires_at: Option<i64>| CreditRow {
            id: format!("credit_{remaining}"),
            amount: nano(10),
            remaining: nano(remaining),
            created_at: now,
            expires_at: expires_at.map(|ms| now.plus_ms(ms)),
        };
        let check = |rows: &[CreditRow], posted| words(&credits(rows, nano(posted), now));
        assert!(check(&[credit(10, None), credit(3, Some(1))], 13).is_empty());
        assert!(check(&[], 0).is_empty() && check(&[], -5).is_empty());
        assert!(check(&[credit(0, None)], 0).is_empty(), "it is used up");
        // Credits that have expired, or may have expired by another clock, can't be used.
        assert!(check(&[credit(3, Some(-1)), credit(4, Some(MAX_CLOCK_DIFFERENCE_MS))], -5).is_empty());
        assert_eq!(
            check(&[credit(4, Some(MAX_CLOCK_DIFFERENCE_MS + 1))], -5),
            ["credits_unused credit_4 0 0.000000004"]
        );
        assert_eq!(
            check(&[credit(3, None)], 5),
            ["credits_too_small credits 0.000000005 or more 0.000000003"]
        );
        assert_eq!(
            check(&[credit(11, None), credit(-1, None)], 10),
            [
                "credit_remaining credit_11 0 to 0.00000001 0.000000011",
                "credit_remaining credit_-1 0 to 0.00000001 -0.000000001"
            ]
        );
    }
}
