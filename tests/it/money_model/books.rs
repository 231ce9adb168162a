//! The books as a person would keep them: lists, and sums made anew whenever one is asked for.

use std::collections::BTreeMap;

/// Pico in a nano.
const NANO: i128 = 1_000;

/// In which order credits of the same time are used up.
const GRANT: u8 = 0;
const CORRECTION: u8 = 1;
const DISCOUNT: u8 = 2;
const PURCHASE: u8 = 4;

/// A price from an instant on, in pico a token.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    pub from_ms: i64,
    pub prompt: i128,
    pub completion: i128,
}

/// An event that counts.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: usize,
    pub model: usize,
    pub day: i64,
    pub month: i64,
    pub price: Price,
    pub prompt: i128,
    pub completion: i128,
    pub corrects: Option<String>,
    /// What was reported, to tell a repetition from a contradiction.
    pub report: String,
}

impl Event {
    pub fn pico(&self) -> i128 {
        self.prompt * self.price.prompt + self.completion * self.price.completion
    }
}

/// Credit, and what is left of it.
#[derive(Clone, Debug)]
pub struct Lot {
    pub left: i128,
    /// Given before bought.
    pub rank: u8,
    pub since_ms: i64,
    pub until_ms: Option<i64>,
}

/// Money set aside.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    pub nano: i128,
    pub until_ms: i64,
    pub model: usize,
}

/// A month that was billed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bill {
    pub month: i64,
    pub nano: i128,
    pub due: i128,
}

/// Everything about one organization's money.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub events: BTreeMap<String, Event>,
    pub lots: Vec<Lot>,
    pub posted: i128,
    pub reservations: BTreeMap<String, Reservation>,
    pub open_month: i64,
    pub bills: Vec<Bill>,
    pub limit: i128,
}

/// Tokens and their price, by day and price version.
type Run = BTreeMap<(i64, i64), (i128, i128)>;

/// Tiers: tokens above the first number cost so many millionths less.
pub type Tiers = [(i128, i128)];

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

    fn left(&self) -> i128 {
        self.lots.iter().map(|lot| lot.left).sum()
    }

    fn owed(&self) -> i128 {
        (self.left() - self.posted).max(0)
    }

    /// What the wallet gains, negative when it is charged. What comes in covers what is owed first; payments do so on the
    /// oldest bills first, while what makes the open month cheaper takes only off bills what nobody owes any more.
    fn moves(&mut self, nano: i128, rank: u8, now_ms: i64, until_ms: Option<i64>) {
        if nano > 0 {
            let owed = self.owed();
            let left = (nano - owed).max(0);
            self.lots.push(Lot { left, rank, since_ms: now_ms, until_ms });
            let due: i128 = self.bills.iter().map(|bill| bill.due).sum();
            let still_owed = owed - (nano - left);
            let is_payment = matches!(rank, GRANT | PURCHASE);
            let mut covers = if is_payment { nano - left } else { (due - still_owed).max(0) };
            for bill in &mut self.bills {
                let paid = covers.min(bill.due);
                bill.due -= paid;
                covers -= paid;
            }
        } else {
            let mut due = -nano;
            let mut order: Vec<&mut Lot> =
                self.lots.iter_mut().filter(|lot| lot.until_ms.is_none_or(|until| until > now_ms)).collect();
            order.sort_by_key(|lot| (lot.until_ms.unwrap_or(i64::MAX), lot.rank, lot.since_ms));
            for lot in order {
                let taken = due.min(lot.left);
                lot.left -= taken;
                due -= taken;
            }
        }
        self.posted += nano;
    }

    /// The nanos that usage has cost, by whole ones of each row of a day.
    fn posted_usage(&self, months: impl Fn(i64) -> bool) -> i128 {
        self.posted_rows(months).into_iter().sum()
    }

    fn posted_rows(&self, months: impl Fn(i64) -> bool) -> Vec<i128> {
        let mut rows: BTreeMap<(i64, usize, usize, i64, i64), i128> = BTreeMap::new();
        for event in self.events.values().filter(|event| months(event.month)) {
            let row = (event.day, event.key, event.model, event.price.from_ms, event.month);
            *rows.entry(row).or_default() += event.pico();
        }
        rows.values().map(|pico| pico.div_euclid(NANO)).collect()
    }

    /// Takes in the events of one request.
    pub fn use_up(&mut self, events: Vec<(String, Event)>, now_ms: i64) {
        let before = self.posted_usage(|_| true);
        self.events.extend(events);
        let cost = self.posted_usage(|_| true) - before;
        if cost != 0 {
            self.moves(-cost, CORRECTION, now_ms, None);
        }
    }

    /// Adds credit.
    pub fn credit(&mut self, nano: i128, grant: bool, now_ms: i64, until_ms: Option<i64>) {
        self.moves(nano, if grant { GRANT } else { PURCHASE }, now_ms, until_ms);
    }

    /// Ends what has run out.
    pub fn expire(&mut self, now_ms: i64) {
        self.reservations.retain(|_, reservation| reservation.until_ms > now_ms);
        for lot in &mut self.lots {
            if lot.until_ms.is_some_and(|until| until <= now_ms) {
                self.posted -= lot.left;
                lot.left = 0;
            }
        }
    }

    /// What the tiers give back of a month so far, in pico: token by token in the order of days and prices, each model and
    /// kind of token on its own.
    pub fn discount(&self, month: i64, tiers: &Tiers) -> i128 {
        let mut runs: BTreeMap<(usize, bool), Run> = BTreeMap::new();
        for event in self.events.values().filter(|event| event.month == month) {
            let kinds =
                [(false, event.prompt, event.price.prompt), (true, event.completion, event.price.completion)];
            for (completion, tokens, price) in kinds {
                let run = runs.entry((event.model, completion)).or_default();
                let at = run.entry((event.day, event.price.from_ms)).or_insert((0, price));
                at.0 += tokens;
            }
        }
        let ppm_of =
            |token: i128| tiers.iter().rev().find(|(from, _)| token > *from).map_or(0, |(_, ppm)| *ppm);
        let mut pico = 0;
        for run in runs.values() {
            let (mut token, mut millionths) = (0, 0);
            for (tokens, price) in run.values() {
                for _ in 0..*tokens {
                    token += 1;
                    millionths += price * ppm_of(token);
                }
                for _ in *tokens..0 {
                    millionths -= price * ppm_of(token);
                    token -= 1;
                }
            }
            // In the customer's favour.
            pico += (millionths.max(0) + 999_999) / 1_000_000;
        }
        pico
    }

    /// Closes the open month.
    pub fn close(&mut self, tiers: &Tiers, now_ms: i64) {
        let month = self.open_month;
        self.open_month += 1;
        if !self.events.values().any(|event| event.month == month) {
            return;
        }
        let charged = self.posted_usage(|other| other == month);
        // Never more than was charged; what corrections take back of other months doesn't count against it.
        let rows = self.posted_rows(|other| other == month);
        let most = rows.into_iter().filter(|nano| *nano > 0).sum();
        let discount = (self.discount(month, tiers) + NANO - 1).div_euclid(NANO).min(most);
        if discount > 0 {
            self.moves(discount, DISCOUNT, now_ms, None);
        }
        let nano = charged - discount;
        let older: i128 = self.bills.iter().map(|bill| bill.due).sum();
        let later = self.posted_usage(|other| other > month).max(0);
        let due = (self.owed() - later - older).max(0);
        self.bills.push(Bill { month, nano, due });
    }

    /// List price of a month so far less its discount, in pico.
    pub fn running(&self, month: i64, tiers: &Tiers) -> i128 {
        let list: i128 = self.events.values().filter(|event| event.month == month).map(Event::pico).sum();
        list - self.discount(month, tiers)
    }
}
