//! The amount due according to the contract: for each month of use the list price less the discount. The
//! order of usage, corrections, ends of months, voids and payments doesn't matter.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::books::Event;
use super::prices::Whole;

/// The tiers of a discount. Tokens above the first number cost this many millionths less.
pub type Tiers = [(i128, i128)];

/// The number of parts of a pico in which discounts are counted.
const PARTS: i128 = 1_000_000;

/// Sums in pico.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AmountDue {
    pub list: i128,
    pub discount: i128,
}

impl AmountDue {
    /// Returns the list price less discounts.
    pub fn net(self) -> i128 {
        self.list - self.discount
    }

    pub fn minus(self, other: Self) -> Self {
        Self { list: self.list - other.list, discount: self.discount - other.discount }
    }
}

impl AddAssign for AmountDue {
    fn add_assign(&mut self, other: Self) {
        self.list += other.list;
        self.discount += other.discount;
    }
}

/// Numbers of tokens, ordered by day, start of the price, and price.
type Run = BTreeMap<(i64, i64, i128), i128>;

/// Returns the sum over all months of use: the list price, and the discounts on each month's net tokens,
/// separately for each model and kind of token.
pub fn owed<'e>(events: impl Iterator<Item = &'e Event>, tiers: &Tiers) -> AmountDue {
    let mut streams: BTreeMap<(i64, usize, Whole), Run> = BTreeMap::new();
    let mut sum = AmountDue::default();
    for event in events {
        sum.list += event.pico();
        // Pieces have no discount.
        for (whole, tokens, price) in event.uses().into_iter().filter(|(whole, ..)| *whole != Whole::Piece) {
            let run = streams.entry((event.month_of_use, event.model, whole)).or_default();
            *run.entry((event.day, event.price.from_ms, price)).or_default() += tokens;
        }
    }
    for run in streams.values() {
        let (mut first, mut parts) = (0, 0);
        for ((_, _, price), tokens) in run {
            assert!(*tokens >= 0, "more usage is taken back than was recorded");
            let end = first + tokens;
            for (tier, (above, ppm)) in tiers.iter().enumerate() {
                let up_to = tiers.get(tier + 1).map_or(i128::MAX, |next| next.0);
                parts += (end.min(up_to) - first.max(*above)).max(0) * price * ppm;
            }
            first = end;
        }
        // Discounts are rounded in the customer's favor.
        sum.discount += (parts + PARTS - 1) / PARTS;
    }
    sum
}
