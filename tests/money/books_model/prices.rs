//! Prices with components and conditions, and changes of prices.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tollkeeper::catalog::activation;
use tollkeeper::clock::{DAY_MS, MINUTE_MS, Time};

use super::history::{CATALOG, History, decimal};
use support::chance::Chance;

/// The total that a part belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whole {
    Prompt,
    Completion,
    Piece,
}

pub const PARTS: usize = 6;
const NAMES: [(&str, Whole); PARTS] = [
    ("cache_write_5m", Whole::Prompt),
    ("image_prompt", Whole::Prompt),
    ("reasoning", Whole::Completion),
    ("audio_completion", Whole::Completion),
    ("request", Whole::Piece),
    ("search", Whole::Piece),
];
/// The index of `request` in [`NAMES`].
pub const REQUEST: usize = 4;
const SEARCH: usize = 5;

/// The number of tokens or units of each part.
pub type Parts = [i128; PARTS];

/// Returns the sum of the parts that belong to a total.
pub fn sum_of(parts: &Parts, whole: Whole) -> i128 {
    parts.iter().zip(NAMES).filter(|(_, (_, of))| *of == whole).map(|(quantity, _)| quantity).sum()
}

/// Returns parts in the format of events.
pub fn json_of(parts: &Parts) -> Value {
    let named = parts.iter().zip(NAMES).filter(|(quantity, _)| **quantity != 0);
    Value::Object(Map::from_iter(
        named.map(|(quantity, (name, _))| (name.to_owned(), json!(*quantity as i64))),
    ))
}

/// Returns a correction of one more search than is left.
pub fn one_search_more(left: &Parts) -> Value {
    let mut parts = [0; PARTS];
    parts[SEARCH] = -left[SEARCH] - 1;
    json_of(&parts)
}

/// The conditions of a price. A price without conditions applies if no other price does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Conditions {
    tier: Option<&'static str>,
    above: Option<i128>,
    /// Whether the price applies only from Monday to Thursday at 06:00, for twenty hours each.
    is_daily: bool,
}

const TEXT_OF_HOURS: &str = "mon-thu 06:00-02:00";

/// The conditions, in ascending order of precedence.
const ALL: [Conditions; 6] = [
    Conditions { tier: None, above: None, is_daily: true },
    Conditions { tier: None, above: Some(150), is_daily: false },
    Conditions { tier: None, above: Some(150), is_daily: true },
    Conditions { tier: None, above: Some(300), is_daily: false },
    Conditions { tier: Some("flex"), above: None, is_daily: false },
    Conditions { tier: Some("priority"), above: Some(200), is_daily: false },
];
pub const TIERS_OF_ANSWERS: [&str; 4] = ["default", "flex", "priority", "batch"];

impl Conditions {
    fn hold(&self, at_ms: i64, prompt: i128, tier: &str) -> bool {
        // January 5, 1970 was a Monday.
        let minute = (at_ms - 4 * DAY_MS).div_euclid(MINUTE_MS).rem_euclid(7 * 1_440);
        let is_daily = (0..4).any(|day| (day * 1_440 + 360..day * 1_440 + 1_560).contains(&minute));
        self.tier.is_none_or(|own| own == tier)
            && self.above.is_none_or(|above| prompt > above)
            && (!self.is_daily || is_daily)
    }
}

/// A price that applies from a time on, in pico per token or piece.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    pub from_ms: i64,
    pub conditions: Conditions,
    pub prompt: i128,
    /// The price of a cached prompt token, if it differs from `prompt`.
    pub cached: Option<i128>,
    pub completion: i128,
    /// The prices of parts that have their own price.
    pub parts: [Option<i128>; PARTS],
}

impl Price {
    /// Returns a price without conditions.
    pub fn new(from_ms: i64, [prompt, completion]: [i128; 2], cached: Option<i128>) -> Self {
        let conditions = Conditions::default();
        Self { from_ms, conditions, prompt, cached, completion, parts: [None; PARTS] }
    }

    /// Returns the price's position among the prices that start at the same time.
    pub fn place(&self) -> usize {
        ALL.iter().position(|conditions| *conditions == self.conditions).map_or(0, |place| place + 1)
    }

    /// Returns the kind, number and price of each of these quantities.
    pub fn uses(&self, [prompt, cached, completion]: [i128; 3], parts: &Parts) -> Vec<(Whole, i128, i128)> {
        let mut uses = vec![
            (Whole::Prompt, prompt - cached - sum_of(parts, Whole::Prompt), self.prompt),
            (Whole::Prompt, cached, self.cached.unwrap_or(self.prompt)),
            (Whole::Completion, completion - sum_of(parts, Whole::Completion), self.completion),
        ];
        for ((quantity, own), (_, whole)) in parts.iter().zip(self.parts).zip(NAMES) {
            let otherwise = match whole {
                Whole::Prompt => self.prompt,
                Whole::Completion => self.completion,
                Whole::Piece => 0,
            };
            uses.push((whole, *quantity, own.unwrap_or(otherwise)));
        }
        uses
    }

    /// Returns `true` if the piece at this index of [`uses`](Self::uses) has a price.
    pub fn has_piece(&self, place: usize) -> bool {
        place.checked_sub(3).is_some_and(|place| self.parts[place].is_some())
    }

    /// Returns the maximum cost of a call of this size without searches, in pico.
    fn most(&self, prompt: i128, completion: i128) -> i128 {
        let dearest = |whole, base: i128| {
            let parts = self.parts.iter().zip(NAMES).filter(|(_, (_, of))| *of == whole);
            parts.filter_map(|(price, _)| *price).fold(base, i128::max)
        };
        let of_prompt = dearest(Whole::Prompt, self.prompt).max(self.cached.unwrap_or_default());
        prompt * of_prompt
            + completion * dearest(Whole::Completion, self.completion)
            + self.parts[REQUEST].unwrap_or_default()
    }

    /// Formats the price as a line of the catalog.
    fn line(&self) -> String {
        let mut line = format!(
            "  {{ effective_at = \"{}\", prompt_tokens = \"{}\", completion_tokens = \"{}\"",
            Time::from_unix_ms(self.from_ms),
            decimal(self.prompt, 12),
            decimal(self.completion, 12)
        );
        if let Some(cached) = self.cached {
            write!(line, ", cached_prompt_tokens = \"{}\"", decimal(cached, 12)).unwrap();
        }
        let parts = self.parts.iter().zip(NAMES);
        let parts = parts.filter_map(|(price, (name, _))| Some((name, (*price)?)));
        let parts: Vec<_> =
            parts.map(|(name, price)| format!("{name} = \"{}\"", decimal(price, 12))).collect();
        if !parts.is_empty() {
            write!(line, ", components = {{ {} }}", parts.join(", ")).unwrap();
        }
        if let Some(tier) = self.conditions.tier {
            write!(line, ", service_tier = \"{tier}\"").unwrap();
        }
        if let Some(above) = self.conditions.above {
            write!(line, ", above_prompt_tokens = {above}").unwrap();
        }
        if self.conditions.is_daily {
            write!(line, ", hours = [\"{TEXT_OF_HOURS}\"]").unwrap();
        }
        line + " },\n"
    }

    /// Returns this price with prices for some parts, and other prices that start at the same time under some
    /// conditions.
    fn with_others(self, chance: &mut Chance) -> Vec<Self> {
        let mut prices = vec![self.with_parts(chance)];
        for conditions in ALL {
            if chance.below(2) == 0 {
                let [prompt, completion] = [0; 2].map(|_| chance.below(9_000_000) as i128);
                let cached = (chance.below(2) == 0).then(|| chance.below(prompt as usize + 1) as i128);
                let other = Self::new(self.from_ms, [prompt, completion], cached);
                prices.push(Self { conditions, ..other.with_parts(chance) });
            }
        }
        prices
    }

    fn with_parts(mut self, chance: &mut Chance) -> Self {
        for (price, (_, whole)) in self.parts.iter_mut().zip(NAMES) {
            // A piece costs up to a few hundred times as much as a token.
            let most = if whole == Whole::Piece { 900_000_000 } else { 9_000_000 };
            *price = (chance.below(2) == 0).then(|| chance.below(most) as i128);
        }
        self
    }
}

/// Returns the prices in force at a time. The given prices are ordered by start.
fn in_force(prices: &[Price], at_ms: i64) -> impl Iterator<Item = &Price> {
    let newest = prices.iter().rev().find(|price| price.from_ms <= at_ms).unwrap().from_ms;
    prices.iter().filter(move |price| price.from_ms == newest)
}

/// Returns the price of a call.
pub fn of_call(prices: &[Price], at_ms: i64, prompt: i128, tier: &str) -> Price {
    let mut holding: Vec<_> =
        in_force(prices, at_ms).filter(|price| price.conditions.hold(at_ms, prompt, tier)).collect();
    holding.sort_by_key(|price| price.place());
    **holding.last().unwrap()
}

/// Returns the maximum cost of a call that is admitted at this time, in pico. The call may get any tier, and
/// have twice the prompt tokens.
pub fn most(prices: &[Price], at_ms: i64, prompt: i128, completion: i128) -> i128 {
    let may_hold =
        |price: &&Price| TIERS_OF_ANSWERS.iter().any(|tier| price.conditions.hold(at_ms, 2 * prompt, tier));
    in_force(prices, at_ms).filter(may_hold).map(|price| price.most(prompt, completion)).max().unwrap()
}

impl History<'_> {
    /// Returns `true` if the prices of this history have components and conditions. Components, conditions
    /// and the parts of events have their own source of randomness, and a quarter of the histories have none
    /// of them. Therefore histories that failed before parts existed are still the same.
    pub fn has_parts(&self) -> bool {
        !self.seed.is_multiple_of(4)
    }

    /// Returns random numbers of all parts except requests. They don't exceed the rest of the prompt, the
    /// rest of the completion, and three pieces.
    pub fn some_parts(&mut self, [prompt, completion]: [i128; 2]) -> Parts {
        let mut parts = [0; PARTS];
        if !self.has_parts() || self.parts_chance.below(3) == 0 {
            return parts;
        }
        let mut left = [prompt, completion, 3];
        for (place, (_, whole)) in NAMES.iter().enumerate().filter(|(place, _)| *place != REQUEST) {
            let most = &mut left[*whole as usize];
            if self.parts_chance.below(2) == 0 {
                parts[place] = self.parts_chance.below(*most as usize + 1) as i128;
                *most -= parts[place];
            }
        }
        parts
    }

    /// Returns random numbers of the remaining parts, as negative numbers.
    pub fn some_back(&mut self, left: &Parts) -> Parts {
        let mut back = [0; PARTS];
        if !self.has_parts() {
            return back;
        }
        for (back, left) in back.iter_mut().zip(left) {
            *back = match self.parts_chance.below(3) {
                0 => 0,
                1 => -left,
                _ => -(self.parts_chance.below(*left as usize + 1) as i128),
            };
        }
        back
    }

    /// Returns a random tier of an answer.
    pub fn some_tier(&mut self) -> &'static str {
        match self.has_parts() {
            true => self.parts_chance.one_of(&TIERS_OF_ANSWERS),
            false => "default",
        }
    }

    /// Changes a price, now or within two days.
    pub async fn change_price(&mut self) {
        let from = Time::from_unix_ms(self.now_ms() + self.chance.below(3) as i64 * DAY_MS);
        if self.prices[0].last().is_some_and(|price| price.from_ms >= from.unix_ms()) {
            return;
        }
        // Some prices are almost zero, so that earlier or later usage is much more expensive.
        let most = self.chance.one_of(&[9_000_000, 9_000_000, 90_000]);
        let (prompt, completion) = (self.chance.below(most) as i128, self.chance.below(most) as i128);
        let cached = (self.chance.below(3) > 0).then(|| self.chance.below(prompt as usize + 1) as i128);
        self.put_in_force(Price::new(from.unix_ms(), [prompt, completion], cached)).await;
        self.count("price");
    }

    /// Adds a price to the catalog, with other prices that start at the same time.
    pub async fn put_in_force(&mut self, price: Price) {
        match self.has_parts() {
            true => self.prices[0].extend(price.with_others(&mut self.parts_chance)),
            false => self.prices[0].push(price),
        }
        let rows: String = self.prices[0].iter().map(Price::line).collect();
        let first = CATALOG.find("  { effective_at").unwrap();
        let end = first + CATALOG[first..].find('\n').unwrap() + 1;
        let text = format!("{}{rows}{}", &CATALOG[..first], &CATALOG[end..]);
        std::fs::write(&self.catalog, text).unwrap();
        for (app, _) in &self.apps {
            activation::reload(&app.catalogs).await.unwrap();
            assert!(!app.catalog.is_refused());
        }
        let added = self.prices[0].iter().filter(|other| other.from_ms == price.from_ms);
        let added: String = added.map(Price::line).collect();
        self.note(format!("prices:\n{added}"));
    }
}
