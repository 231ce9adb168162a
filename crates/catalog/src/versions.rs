//! The versions that a catalog adds to those of the database when it is put in force, and the changes that
//! are refused.

use super::book::{BEGINNING, DiscountVersion, PriceBook, prices_at};
use super::{Catalog, CatalogError, Price, VolumeDiscount};
use kernel::clock::{MINUTE_MS, Time};

/// The duration before the effective time of a version during which it can no longer change, in milliseconds.
/// Within this duration, every replica receives the version.
pub const FREEZE_MS: i64 = MINUTE_MS;

/// The state of the database at the time when a catalog is put in force.
#[derive(Clone, Copy, Debug)]
pub struct StoredState<'a> {
    /// The stored versions.
    pub book: &'a PriceBook,
    pub now: Time,
    /// `true` if any usage was recorded. Before that, no version has had an effect.
    pub is_used: bool,
    /// The end of the last month that is closed for any organization.
    pub closed_before: Option<Time>,
}

/// The versions that a catalog adds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NewVersions {
    /// The prices that are added or withdrawn, with their models.
    pub prices: Vec<(String, NewPrice)>,
    /// The effective times and tiers of discounts; `None` withdraws the version.
    pub discounts: Vec<(Time, Option<Vec<VolumeDiscount>>)>,
    /// Sentences about allowed settings that may be mistakes.
    pub warnings: Vec<String>,
}

/// A change of a price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewPrice {
    Added(Price),
    Withdrawn(Price),
}

impl StoredState<'_> {
    fn can_change(&self, effective_at: Time) -> bool {
        !self.is_used || effective_at > self.now.plus_ms(FREEZE_MS)
    }

    /// Returns the reason why no new version can begin at this time, if it is in a closed month.
    fn closed_month(&self, effective_at: Time) -> Option<String> {
        let end = self.closed_before.filter(|end| self.is_used && effective_at < *end)?;
        Some(format!(
            "months before {} are closed, so it can't apply from {effective_at} on: give it a later \
             `effective_at`",
            end.day()
        ))
    }

    fn is_backdated(&self, effective_at: Time) -> bool {
        self.is_used && effective_at <= self.now
    }
}

impl Catalog {
    /// Returns the versions of this catalog that the database lacks.
    ///
    /// # Errors
    /// The catalog changes a version that is or was in force, or adds a version that begins in a closed
    /// month.
    pub fn new_versions(&self, stored: &StoredState<'_>) -> Result<NewVersions, CatalogError> {
        let (mut new, mut problems) = (NewVersions::default(), Vec::new());
        self.new_prices(stored, &mut new, &mut problems);
        self.new_discounts(stored, &mut new, &mut problems);
        if problems.is_empty() { Ok(new) } else { Err(CatalogError { problems }) }
    }

    fn new_prices(&self, stored: &StoredState<'_>, new: &mut NewVersions, problems: &mut Vec<String>) {
        for model in self.all_models() {
            let known = stored.book.prices_of(&model.id);
            for price in &model.prices {
                let at = price.effective_at;
                let problem = |what: &str| {
                    format!(
                        "{}: model `{}`: `prices`: {what}",
                        self.place_of_price(&model.id, price),
                        model.id
                    )
                };
                let from = from_text(price);
                match known.iter().find(|known| known.version == price.version) {
                    Some(known) if known == price => continue,
                    Some(_) if stored.can_change(at) => {}
                    Some(known) => {
                        problems.push(problem(&format!(
                            "the price {from} is in force with {known} and can't change: keep it, and add \
                             one with a different `effective_at`"
                        )));
                        continue;
                    }
                    None if known.is_empty() => {}
                    None => {
                        if let Some(why) = stored.closed_month(at) {
                            problems.push(problem(&why));
                            continue;
                        }
                        if stored.is_backdated(at) {
                            new.warnings.push(problem(&format!(
                                "the price {from} is new: usage that was already counted keeps its price"
                            )));
                        }
                    }
                }
                new.prices.push((model.id.clone(), NewPrice::Added(price.clone())));
            }
        }
        for (id, known) in stored.book.prices() {
            let model = self.get_any(id);
            let in_force = prices_at(known, stored.now);
            for price in known {
                let at = price.effective_at;
                let is_same = |other: &Price| other.version == price.version;
                if model.is_some_and(|model| model.prices.iter().any(is_same)) {
                    continue;
                }
                if stored.can_change(at) {
                    new.prices.push((id.to_owned(), NewPrice::Withdrawn(price.clone())));
                } else if model.is_some() && (in_force.contains(price) || at > stored.now) {
                    new.warnings.push(format!(
                        "{}: model `{id}`: `prices`: the price {} is missing but still in force: a price \
                         ends where the next one begins",
                        self.place_of(id),
                        from_text(price)
                    ));
                }
            }
        }
    }

    fn new_discounts(&self, stored: &StoredState<'_>, new: &mut NewVersions, problems: &mut Vec<String>) {
        let known = stored.book.discounts();
        for DiscountVersion { effective_at, tiers } in &self.discounts {
            let at = *effective_at;
            let problem = |what: &str| format!("{}: volume discount: {what}", self.place_of_discounts(at));
            match known.iter().find(|known| known.effective_at == at) {
                Some(known) if known.tiers == *tiers => continue,
                Some(_) if stored.can_change(at) => {}
                Some(known) => {
                    problems.push(problem(&format!(
                        "the discounts {} are in force ({}) and can't change: keep them, and add the new \
                         list with a different `effective_at`",
                        since_text(at),
                        describe_tiers(&known.tiers)
                    )));
                    continue;
                }
                None if known.is_empty() => {}
                None => {
                    if let Some(why) = stored.closed_month(at) {
                        problems.push(problem(&why));
                        continue;
                    }
                    if stored.is_backdated(at) {
                        new.warnings.push(problem(&format!(
                            "the discounts {} are new: they apply to every open month that begins after that",
                            since_text(at)
                        )));
                    }
                }
            }
            new.discounts.push((at, Some(tiers.clone())));
        }
        let missing = |at: Time| self.discounts.iter().all(|version| version.effective_at != at);
        let in_force = stored.book.discounts_at(stored.now);
        for known in known.iter().filter(|known| missing(known.effective_at)) {
            let at = known.effective_at;
            if stored.can_change(at) && at != BEGINNING {
                new.discounts.push((at, None));
            } else if stored.can_change(at) && !known.tiers.is_empty() {
                new.discounts.push((at, Some(Vec::new())));
            } else if !known.tiers.is_empty() && (in_force == Some(known) || at > stored.now) {
                new.warnings.push(format!(
                    "{}: volume discount: those {} ({}) are missing but still in force: to end them, \
                     add one with `threshold = 0`, `discount = 0` and an `effective_at`",
                    self.lines.file,
                    since_text(at),
                    describe_tiers(&known.tiers)
                ));
            }
        }
        // The state before the first discount is also stored as a version, because it can't be changed later.
        if missing(BEGINNING) && known.iter().all(|known| known.effective_at != BEGINNING) {
            new.discounts.push((BEGINNING, Some(Vec::new())));
        }
    }
}

/// Returns the effective time and the conditions of a price, such as `from 2026-12-01T00:00:00.000Z on
/// (flex)`.
fn from_text(price: &Price) -> String {
    let at = price.effective_at;
    match price.conditions.is_empty() {
        true => format!("from {at} on"),
        false => format!("from {at} on ({})", price.conditions),
    }
}

fn since_text(at: Time) -> String {
    if at == BEGINNING { "without `effective_at`".to_owned() } else { format!("from {at} on") }
}

/// Formats discounts, for example as `0.05 above 1000000, 0.1 above 5000000`.
pub fn describe_tiers(tiers: &[VolumeDiscount]) -> String {
    let words: Vec<_> =
        tiers.iter().map(|tier| format!("{} above {}", tier.discount, tier.threshold)).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
