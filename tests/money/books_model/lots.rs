//! Credits, their payments, and refunds.

use std::collections::BTreeMap;

use super::books::{Bill, Books};

/// A credit and its use.
#[derive(Clone, Debug)]
pub struct Lot {
    pub id: String,
    pub amount: i128,
    pub left: i128,
    /// The order in which credits are used: grants first, then refunds, purchases and payments.
    pub rank: u8,
    pub since_ms: i64,
    pub until_ms: Option<i64>,
    /// The amount that has expired.
    pub ended: i128,
    /// The amount paid for each billing month, less refunds.
    pub uses: BTreeMap<i64, i128>,
}

pub const GRANT: u8 = 0;
pub const CORRECTION: u8 = 1;
pub const DISCOUNT: u8 = 2;
pub const VOID: u8 = 3;
pub const PURCHASE: u8 = 4;
pub const PAYMENT: u8 = 5;

impl Lot {
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.until_ms.is_some_and(|until| until <= now_ms)
    }

    fn in_order(&self) -> (i64, u8, i64, String) {
        (self.until_ms.unwrap_or(i64::MAX), self.rank, self.since_ms, self.id.clone())
    }
}

impl Books {
    pub fn left(&self) -> i128 {
        self.lots.iter().map(|lot| lot.left).sum()
    }

    fn owes(&self) -> i128 {
        (self.left() - self.posted).max(0)
    }

    /// Expires credits, except for the parts reserved for calls.
    pub fn end_credits(&mut self, now_ms: i64) {
        let mut held = self.reserved();
        self.lots.sort_by_key(Lot::in_order);
        for lot in self.lots.iter_mut().filter(|lot| lot.is_over(now_ms)) {
            let kept = held.min(lot.left);
            held -= kept;
            let ended = lot.left - kept;
            lot.left = kept;
            lot.ended += ended;
            self.posted -= ended;
        }
    }

    /// Pays for a month with credits. Returns the paid amount. Expired credits pay at most `held`, the amount
    /// reserved for the call.
    pub fn pay(&mut self, month: i64, nano: i128, mut held: i128, now_ms: i64) -> i128 {
        let mut due = nano;
        self.lots.sort_by_key(Lot::in_order);
        for lot in &mut self.lots {
            let is_over = lot.is_over(now_ms);
            let taken = due.min(lot.left).min(if is_over { held } else { lot.left });
            if taken <= 0 {
                continue;
            }
            lot.left -= taken;
            *lot.uses.entry(month).or_default() += taken;
            due -= taken;
            held -= if is_over { taken } else { 0 };
        }
        nano - due
    }

    /// Adds a credit. It pays debts first, beginning with the debt of `bill`.
    pub fn bring_in(&mut self, lot: Lot, bill: Option<usize>, now_ms: i64) {
        self.posted += lot.amount;
        self.lots.push(lot);
        self.settle(bill, now_ms);
    }

    /// Pays debts with credits in this order: the debt of `first`, of the oldest invoices, and of unbilled
    /// months.
    pub fn settle(&mut self, first: Option<usize>, now_ms: i64) {
        let (owes, due) = (self.owes(), self.due());
        if owes == 0 {
            return;
        }
        let others = (0..self.bills.len()).filter(|at| Some(*at) != first);
        for at in first.into_iter().chain(others).collect::<Vec<_>>() {
            let (month, due) = (self.bills[at].month, self.bills[at].due);
            self.bills[at].due -= self.pay(month, due, 0, now_ms);
        }
        for (month, debt) in self.debts(owes - due) {
            self.pay(month, debt, 0, now_ms);
        }
    }

    /// Returns the debts of the unbilled months, which add up to `not_billed`. The open month is first.
    fn debts(&self, not_billed: i128) -> Vec<(i64, i128)> {
        let mut rest = not_billed.max(0);
        let mut debts = Vec::new();
        for month in self.open_month + 1..=self.last_month() {
            let debt = self.unpaid(month).clamp(0, rest);
            rest -= debt;
            debts.push((month, debt));
        }
        debts.insert(0, (self.open_month, rest));
        debts
    }

    /// Returns the debt of an unbilled month.
    pub fn debt_of(&self, month: i64) -> i128 {
        let debts = self.debts(self.owes() - self.due());
        debts.into_iter().find(|(of, _)| *of == month).map_or(0, |(_, debt)| debt)
    }

    /// Refunds an amount to the credits that paid for a month, and then to those that paid for the `earlier`
    /// months, whose debts are reduced first. The rest becomes a new credit.
    pub fn refund(&mut self, month: i64, earlier: &[i64], nano: i128, rank: u8, now_ms: i64) {
        let mut rest = self.return_paid(month, nano, now_ms);
        for month in earlier {
            if let Some(bill) = self.bills.iter_mut().find(|bill| bill.month == *month) {
                let lowered = rest.clamp(0, bill.due);
                bill.due -= lowered;
                rest -= lowered;
            }
            rest = self.return_paid(*month, rest, now_ms);
        }
        if rest > 0 {
            // No credit paid for usage of a void invoice, and extra cost that a correction caused can be paid
            // on a later invoice. A note on a complete invoice may refund an extra nano for each row that was
            // rounded, and the amount that discounts of earlier months paid.
            let is_free = |bill: &Bill| bill.is_void && earlier.contains(&bill.month);
            let is_dearer = |bill: &Bill| bill.month == month && bill.notes.iter().any(|note| note.nano < 0);
            let is_rounding = |bill: &Bill| {
                let discounts = bill.paid_by_discounts.min(bill.noted() - bill.nano).max(0);
                bill.month == month && (rest - discounts) * 1_000 <= bill.rounding_pico()
            };
            if !self.bills.iter().any(|bill| is_free(bill) || is_dearer(bill) || is_rounding(bill)) {
                self.wrong = Some(format!("{rest} of {month} are given back that no credit paid"));
            }
            let (id, uses) = Default::default();
            let lot =
                Lot { id, amount: rest, left: rest, rank, since_ms: now_ms, until_ms: None, ended: 0, uses };
            self.lots.push(lot);
        }
        self.settle(None, now_ms);
    }

    /// Returns an amount to the credits that paid for a month, beginning with the last one used. Refunds to
    /// expired credits expire. Returns the amount that no credit paid.
    fn return_paid(&mut self, month: i64, nano: i128, now_ms: i64) -> i128 {
        let mut rest = nano;
        self.lots.sort_by_key(Lot::in_order);
        for lot in self.lots.iter_mut().rev() {
            let back = rest.min(lot.uses.get(&month).copied().unwrap_or_default());
            if back <= 0 {
                continue;
            }
            rest -= back;
            *lot.uses.entry(month).or_default() -= back;
            if lot.is_over(now_ms) {
                lot.ended += back;
                self.posted -= back;
            } else {
                lot.left += back;
            }
        }
        rest
    }
}
