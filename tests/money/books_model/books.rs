//! The model's books: plain lists, and sums that are recalculated whenever they are needed.

use std::collections::{BTreeMap, BTreeSet};

use super::contract::{self, AmountDue, Tiers};
use super::lots::{CORRECTION, DISCOUNT, Lot, VOID};
use super::prices::{Parts, Price, Whole};

/// The number of pico in a nano.
pub const NANO: i128 = 1_000;

/// An accepted event.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: usize,
    pub model: usize,
    pub day: i64,
    pub month_of_use: i64,
    /// The month in which the event is billed. For a correction, the month of the corrected event.
    pub billed: i64,
    /// The month of the daily row that counts the event.
    pub booked: i64,
    pub price: Price,
    pub prompt: i128,
    /// The part of the prompt that was cached.
    pub cached: i128,
    pub completion: i128,
    pub parts: Parts,
    pub corrects: Option<String>,
    /// The reported event, to distinguish a repetition from a conflict.
    pub report: String,
}

impl Event {
    /// Returns the quantities that the event counts, with their kinds and prices.
    pub fn uses(&self) -> Vec<(Whole, i128, i128)> {
        self.price.uses([self.prompt, self.cached, self.completion], &self.parts)
    }

    pub fn pico(&self) -> i128 {
        self.uses().iter().map(|(_, count, price)| count * price).sum()
    }

    /// Returns the version of the event's price.
    pub fn version(&self) -> (i64, usize) {
        (self.price.from_ms, self.price.place())
    }
}

/// Reserved money.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    pub nano: i128,
    pub until_ms: i64,
    pub model: usize,
}

/// A correction of a billed month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    pub nano: i128,
    pub exact: i128,
}

/// A billed month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bill {
    pub month: i64,
    pub nano: i128,
    /// The debt of earlier times that is due with this invoice.
    pub carried: i128,
    /// List price less discounts.
    pub exact: i128,
    /// The nanos by which late usage made earlier months cheaper than they were billed. They pay for the
    /// usage of this month before any credit does.
    pub paid_by_discounts: i128,
    pub due: i128,
    pub is_void: bool,
    pub notes: Vec<Note>,
}

impl Bill {
    pub fn status(&self) -> &'static str {
        match (self.is_void, self.due) {
            (true, _) => "void",
            (false, 0) => "paid",
            (false, _) => "open",
        }
    }

    /// Returns the amount by which rounding alone makes the credit notes larger than the invoice, in pico. It
    /// consists of the fractions of nanos that the invoice didn't charge, and of those that the notes refund
    /// beyond the exact amounts.
    pub fn rounding_pico(&self) -> i128 {
        let of_notes = self.notes.iter().map(|note| note.nano * 1_000 - note.exact).sum::<i128>();
        of_notes + self.exact - self.nano * 1_000
    }

    pub fn noted(&self) -> i128 {
        self.notes.iter().map(|note| note.nano).sum()
    }
}

/// The money of one organization.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub events: BTreeMap<String, Event>,
    pub lots: Vec<Lot>,
    pub posted: i128,
    pub reservations: BTreeMap<String, Reservation>,
    pub open_month: i64,
    pub bills: Vec<Bill>,
    pub limit: i128,
    /// The amounts that corrections of closed months took off daily rows, by the month that was open at the
    /// time. They don't belong to that month.
    pub noted_in: BTreeMap<i64, i128>,
    /// The amounts of corrections of void invoices, which were already refunded.
    pub of_void: AmountDue,
    /// The message about a violated rule, if any.
    pub wrong: Option<String>,
}

/// The key of a daily row: day, key, model, version of the price, and month.
type Row = (i64, usize, usize, (i64, usize), i64);

impl Event {
    fn row(&self) -> Row {
        (self.day, self.key, self.model, self.version(), self.booked)
    }
}

impl Books {
    pub fn reserved(&self) -> i128 {
        self.reservations.values().map(|reservation| reservation.nano).sum()
    }

    pub fn live(&self, model: usize) -> usize {
        self.reservations.values().filter(|reservation| reservation.model == model).count()
    }

    pub fn may_reserve(&self, nano: i128) -> bool {
        self.posted - self.reserved() - nano >= -self.limit
    }

    /// Returns the daily rows, with their amounts in pico.
    pub fn rows(&self) -> BTreeMap<Row, i128> {
        let mut rows: BTreeMap<Row, i128> = BTreeMap::new();
        for event in self.events.values() {
            *rows.entry(event.row()).or_default() += event.pico();
        }
        rows
    }

    fn row(&self, row: Row) -> i128 {
        self.events.values().filter(|event| event.row() == row).map(Event::pico).sum()
    }

    /// Returns the list price of the usage that is billed in a month, in nano. Each daily row is rounded
    /// down.
    pub fn charged(&self, month: i64) -> i128 {
        let rows = self.rows();
        let nanos: i128 =
            rows.iter().filter(|(row, _)| row.4 == month).map(|(_, pico)| pico.div_euclid(NANO)).sum();
        nanos + self.noted_in.get(&month).copied().unwrap_or_default()
    }

    /// Returns the part of an open month that no credit has paid.
    pub fn unpaid(&self, month: i64) -> i128 {
        self.charged(month) - self.lots.iter().filter_map(|lot| lot.uses.get(&month)).sum::<i128>()
    }

    /// Returns the last month with usage.
    pub fn last_month(&self) -> i64 {
        self.events.values().map(|event| event.booked).max().unwrap_or_default().max(self.open_month)
    }

    /// Returns the total due of all invoices.
    pub fn due(&self) -> i128 {
        self.bills.iter().map(|bill| bill.due).sum()
    }

    /// Returns the amount due for all usage that is billed in these months, according to the contract.
    pub fn owed_of(&self, tiers: &Tiers, months: impl Fn(i64) -> bool) -> AmountDue {
        contract::owed(self.events.values().filter(|event| months(event.billed)), tiers)
    }

    /// Returns the invoice of a month, or the invoice so far. It is the increase of the contract's total.
    pub fn bill_of(&self, tiers: &Tiers, month: i64) -> AmountDue {
        self.owed_of(tiers, |billed| billed <= month).minus(self.owed_of(tiers, |billed| billed < month))
    }

    /// Records the events of one request, none of which corrects a billed month. They capture the
    /// reservations in `captured`.
    pub fn record_events(&mut self, events: Vec<(String, Event)>, captured: &[String], now_ms: i64) {
        self.end_credits(now_ms);
        let held = captured.iter().filter_map(|id| self.reservations.remove(id)).map(|held| held.nano).sum();
        let months: Vec<i64> = (self.open_month..=self.last_month().max(self.open_month + 2)).collect();
        let before: Vec<_> =
            months.iter().map(|month| (self.charged(*month), self.debt_of(*month))).collect();
        self.events.extend(events);
        for (month, (before, debt)) in months.iter().zip(before) {
            let rise = self.charged(*month) - before;
            if rise > 0 {
                self.pay(*month, rise, held, now_ms);
                self.posted -= rise;
            } else if rise < 0 {
                self.refund_unbilled(*month, &[], (-rise, debt), now_ms);
            }
        }
        self.end_credits(now_ms);
    }

    /// Reduces the charge of an open month. The reduction first lowers the month's debt.
    fn refund_unbilled(&mut self, month: i64, earlier: &[i64], (nano, debt): (i128, i128), now_ms: i64) {
        self.posted += nano;
        let rank = if earlier.is_empty() { CORRECTION } else { DISCOUNT };
        self.refund(month, earlier, (nano - debt).max(0), rank, now_ms);
    }

    /// Records the correction of a billed month. It becomes a credit note, unless the invoice is void.
    pub fn record_correction(&mut self, id: String, event: Event, tiers: &Tiers, now_ms: i64) {
        self.end_credits(now_ms);
        let (open, month, row) = (self.open_month, event.billed, event.row());
        let before = (self.owed_of(tiers, |billed| billed < open), self.row(row));
        self.events.insert(id, event);
        let change = self.owed_of(tiers, |billed| billed < open).minus(before.0);
        let given = before.1.div_euclid(NANO) - self.row(row).div_euclid(NANO);
        *self.noted_in.entry(open).or_default() += given;
        let at =
            self.bills.iter().position(|bill| bill.month == month).expect("a billed month has an invoice");
        if self.bills[at].is_void {
            self.of_void += change;
        } else {
            let nano = given + up_to_nano(change.discount);
            self.pay(month, -nano, 0, now_ms);
            let lowered = nano.clamp(0, self.bills[at].due);
            self.bills[at].due -= lowered;
            self.bills[at].notes.push(Note { nano, exact: -change.net() });
            self.posted += nano;
            match nano < lowered {
                true => self.settle(None, now_ms),
                false => self.refund(month, &[], nano - lowered, CORRECTION, now_ms),
            }
        }
        self.end_credits(now_ms);
    }

    /// Voids an invoice. Refunds its amount less its credit notes.
    pub fn void(&mut self, at: usize, now_ms: i64) {
        self.end_credits(now_ms);
        let bill = &mut self.bills[at];
        let due = std::mem::take(&mut bill.due);
        bill.is_void = true;
        let (month, returned) = (bill.month, bill.nano - bill.noted());
        self.posted += returned;
        self.refund(month, &[], (returned - due).max(0), VOID, now_ms);
    }

    /// Expires reservations and credits.
    pub fn expire(&mut self, now_ms: i64) {
        self.reservations.retain(|_, reservation| reservation.until_ms > now_ms);
        self.end_credits(now_ms);
    }

    /// Closes the open month.
    pub fn close(&mut self, tiers: &Tiers, now_ms: i64) {
        self.end_credits(now_ms);
        let month = self.open_month;
        let bill = self.bill_of(tiers, month);
        let charged = self.charged(month);
        // A fraction of a nano from rounding isn't refunded.
        let mut credited = up_to_nano(bill.discount);
        if bill.net() >= 0 {
            credited = credited.min(charged.max(0));
        }
        if credited < 0 {
            self.pay(month, -credited, 0, now_ms);
            self.posted += credited;
        } else if credited > 0 {
            let late: BTreeSet<i64> = self
                .events
                .values()
                .filter(|event| event.billed == month)
                .map(|event| event.month_of_use)
                .collect();
            let earlier: Vec<i64> = late.into_iter().filter(|of| *of < month).collect();
            let debt = self.debt_of(month);
            self.refund_unbilled(month, &earlier, (credited, debt), now_ms);
        }
        let (left, later) = (self.left() - self.posted, month + 1..=self.last_month());
        let later: i128 = later.map(|later| self.unpaid(later).max(0)).sum();
        let not_on_paper = (left - later - self.due()).max(0);
        let of_month = not_on_paper.min((self.unpaid(month) - credited).max(0));
        let carried = not_on_paper - of_month;
        let nano = charged - credited;
        self.open_month += 1;
        if self.has_lines(month) || carried > 0 || (nano, bill.net()) != (0, 0) {
            let (exact, due) = (bill.net(), of_month + carried);
            let (paid_by_discounts, notes) = (self.given_for_earlier_months(tiers, month), Vec::new());
            let is_void = false;
            self.bills.push(Bill { month, nano, carried, exact, paid_by_discounts, due, is_void, notes });
        }
    }

    /// Returns the nanos that a month's invoice refunds for earlier months of use. Late usage can lower the
    /// price of an earlier month's usage by more than the late usage itself costs.
    fn given_for_earlier_months(&self, tiers: &Tiers, month: i64) -> i128 {
        let late = self.events.values().filter(|event| event.billed == month && event.month_of_use < month);
        let months: BTreeSet<i64> = late.map(|event| event.month_of_use).collect();
        let owed = |of: i64, billed: i64| {
            let events = self.events.values();
            contract::owed(events.filter(|event| event.month_of_use == of && event.billed <= billed), tiers)
        };
        let rises = months.into_iter().map(|of| owed(of, month).minus(owed(of, month - 1)).net());
        rises.map(|rise| up_to_nano((-rise).max(0))).sum()
    }

    /// Returns `true` if a month has lines, which are tokens and priced pieces by month of use, model and
    /// price.
    fn has_lines(&self, month: i64) -> bool {
        let mut lines: BTreeMap<_, i128> = BTreeMap::new();
        for event in self.events.values().filter(|event| event.billed == month) {
            for (place, (whole, count, _)) in event.uses().into_iter().enumerate() {
                if whole != Whole::Piece || event.price.has_piece(place) {
                    *lines.entry((event.month_of_use, event.model, event.version(), place)).or_default() +=
                        count;
                }
            }
        }
        lines.values().any(|count| *count != 0)
    }
}

/// Rounds an amount in pico to nanos, in the customer's favor.
fn up_to_nano(pico: i128) -> i128 {
    -(-pico).div_euclid(NANO)
}
