//! From a month's daily rows to an invoice: its items, what it comes to and what is still due of it.
//!
//! Every line is exact, `quantity` × `unit_price` = `amount`; what whole nanos of many rows leave over is a line of its own, so
//! that the lines sum to what was really debited.

use std::collections::BTreeMap;

use crate::catalog::{Kind, Price, VolumeDiscount};
use crate::clock::{DAY_MS, Day, Month, Time};
use crate::ids::InvoiceId;
use crate::money::{Nano, Pico};
use crate::rules::discounts::{self, TokenKind, Tokens};

/// How long a month stays open after its end for usage that comes late, in milliseconds (decisions, section 5).
pub const GRACE_MS: i64 = DAY_MS;

/// The last month that may be closed at this time.
pub fn last_closable(now: Time) -> Month {
    now.plus_ms(-GRACE_MS).day().month().plus(-1)
}

/// Where an invoice stands (decisions, section 5). Drafts are never stored, because an invoice is made when its month closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Not made yet.
    Draft,
    /// Something is due.
    Open,
    /// Nothing is due any more.
    Paid,
    /// Taken back.
    Void,
    /// Given up.
    Uncollectible,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Draft, Self::Open, Self::Paid, Self::Void, Self::Uncollectible];

    /// The word in JSON and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Open => "open",
            Self::Paid => "paid",
            Self::Void => "void",
            Self::Uncollectible => "uncollectible",
        }
    }
}

/// What an organization used of a model on a day at one price, as it is billed in a month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// The model.
    pub model: String,
    /// What it does.
    pub kind: Kind,
    /// Since when its price was in force, in unix milliseconds.
    pub price_version: i64,
    /// When it was used.
    pub day: Day,
    /// Tokens in.
    pub prompt_tokens: i64,
    /// Tokens out.
    pub completion_tokens: i64,
    /// At list price.
    pub amount: Pico,
    /// What the wallet was charged for it.
    pub posted: Nano,
}

/// What a line of an invoice is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemKind {
    /// Usage of the month.
    Usage,
    /// Usage of a month that was closed when it was reported.
    LateUsage,
    /// A volume discount.
    Discount,
    /// What makes the lines sum to the amount.
    Rounding,
}

impl ItemKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Usage, Self::LateUsage, Self::Discount, Self::Rounding];

    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::LateUsage => "late_usage",
            Self::Discount => "discount",
            Self::Rounding => "rounding",
        }
    }
}

/// A line of an invoice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// What it is about.
    pub kind: ItemKind,
    /// In words.
    pub description: String,
    /// How many.
    pub quantity: i64,
    /// What one costs.
    pub unit_price: Pico,
    /// All of them.
    pub amount: Pico,
}

impl Item {
    fn single(kind: ItemKind, description: String, amount: Pico) -> Self {
        Self { kind, description, quantity: 1, unit_price: amount, amount }
    }
}

/// What a month comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bill {
    /// The lines; they sum to `amount`.
    pub items: Vec<Item>,
    /// What the discounts give back.
    pub credited: Nano,
    /// What was debited less that.
    pub amount: Nano,
    /// The list price less the discounts, before anything is rounded to whole nanos.
    pub exact: Pico,
}

/// What a line is put together by; lines stand in this order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LineKey<'a> {
    /// The month whose usage came late; none before all.
    late: Option<Month>,
    model: &'a str,
    kind: TokenKind,
    price_version: i64,
}

/// Makes the bill of a month. `price_of` finds the price of a model that is in force from an instant on.
///
/// `None` when a sum leaves its bits: nothing is billed then, rather than something else.
pub fn bill<'a>(
    month: Month,
    used: &'a [Used],
    tiers: &[VolumeDiscount],
    price_of: impl Fn(&str, i64) -> Option<Price>,
) -> Option<Bill> {
    let mut lines: BTreeMap<LineKey<'a>, (i64, Pico)> = BTreeMap::new();
    let mut streams: BTreeMap<(&'a str, TokenKind), Vec<Tokens>> = BTreeMap::new();
    let mut unpriced: BTreeMap<(Option<Month>, &'a str), Pico> = BTreeMap::new();
    for row in used {
        let late = Some(row.day.month()).filter(|of| *of != month);
        let price = price_of(&row.model, row.price_version).filter(|price| costs(row, price));
        let Some(price) = price else {
            add(unpriced.entry((late, &row.model)).or_default(), row.amount)?;
            continue;
        };
        let parts = [
            (TokenKind::of_prompt(row.kind), row.prompt_tokens, price.prompt),
            (TokenKind::Completion, row.completion_tokens, price.completion),
        ];
        for (kind, count, unit_price) in parts.into_iter().filter(|(_, count, _)| *count != 0) {
            let key = LineKey { late, model: &row.model, kind, price_version: row.price_version };
            let line = lines.entry(key).or_insert((0, unit_price));
            line.0 = line.0.checked_add(count)?;
            let tokens = Tokens { day: row.day, price_version: row.price_version, count, unit_price };
            streams.entry((&row.model, kind)).or_default().push(tokens);
        }
    }
    let mut items = usage_items(&lines)?;
    items.extend(unpriced.into_iter().map(unpriced_item));
    let list = sum(items.iter().map(|item| item.amount))?;
    let mut less = Pico::ZERO;
    for ((model, kind), tokens) in streams {
        let discount = discounts::discount(tiers, &tokens)?;
        if discount != Pico::ZERO {
            add(&mut less, discount)?;
            let description = format!("Volume discount: {model}, {}", kind.words());
            items.push(Item::single(ItemKind::Discount, description, Pico::ZERO.checked_sub(discount)?));
        }
    }
    finish(items, used, list.checked_sub(less)?, less)
}

/// Takes what is credited off what was debited, and lets a line say what rounding made of it.
fn finish(mut items: Vec<Item>, used: &[Used], exact: Pico, less: Pico) -> Option<Bill> {
    let posted = nano_sum(used.iter().map(|row| row.posted))?;
    let charged = nano_sum(used.iter().map(|row| row.posted).filter(|posted| *posted > Nano::ZERO))?;
    let credited = discounts::credited(less, charged);
    let amount = posted.checked_sub(credited)?;
    let rounding = amount.to_pico()?.checked_sub(exact)?;
    if rounding != Pico::ZERO {
        items.push(Item::single(ItemKind::Rounding, "Rounding".to_owned(), rounding));
    }
    Some(Bill { items, credited, amount, exact })
}

/// Whether this is the price that the row was rated by: a catalog can have been rewritten since.
fn costs(row: &Used, price: &Price) -> bool {
    let prompt = price.prompt.checked_mul(row.prompt_tokens);
    let completion = price.completion.checked_mul(row.completion_tokens);
    prompt.zip(completion).and_then(|(a, b)| a.checked_add(b)) == Some(row.amount)
}

fn usage_items(lines: &BTreeMap<LineKey<'_>, (i64, Pico)>) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    for (key, (quantity, unit_price)) in lines.iter().filter(|(_, (quantity, _))| *quantity != 0) {
        let same = |other: &&LineKey<'_>| (other.late, other.model) == (key.late, key.model);
        let has_versions = lines.keys().filter(same).any(|other| other.price_version != key.price_version);
        let mut description = format!("{}{}, {}", late_words(key.late), key.model, key.kind.words());
        if has_versions {
            description.push_str(&format!(", price from {}", instant(key.price_version)));
        }
        items.push(Item {
            kind: if key.late.is_some() { ItemKind::LateUsage } else { ItemKind::Usage },
            description,
            quantity: *quantity,
            unit_price: *unit_price,
            amount: unit_price.checked_mul(*quantity)?,
        });
    }
    Some(items)
}

/// What was rated by a price that nobody knows any more stays what it was, without a count of tokens.
fn unpriced_item(((late, model), amount): ((Option<Month>, &str), Pico)) -> Item {
    let kind = if late.is_some() { ItemKind::LateUsage } else { ItemKind::Usage };
    let description = format!("{}{model}, usage at a price that has left the catalog", late_words(late));
    Item::single(kind, description, amount)
}

fn late_words(late: Option<Month>) -> String {
    late.map(|month| format!("Late usage of {month}: ")).unwrap_or_default()
}

/// The day from which a price holds; the instant, when that isn't its first.
fn instant(unix_ms: i64) -> String {
    let time = Time::from_unix_ms(unix_ms);
    if time == time.day().start() { time.day().to_string() } else { time.to_string() }
}

fn add(sum: &mut Pico, amount: Pico) -> Option<()> {
    *sum = sum.checked_add(amount)?;
    Some(())
}

fn sum(mut amounts: impl Iterator<Item = Pico>) -> Option<Pico> {
    amounts.try_fold(Pico::ZERO, Pico::checked_add)
}

fn nano_sum(mut amounts: impl Iterator<Item = Nano>) -> Option<Nano> {
    amounts.try_fold(Nano::ZERO, Nano::checked_add)
}

/// What is due of a new invoice: all of the wallet's debt that stands on no invoice yet and isn't a later month's. What was
/// charged for later months is the youngest part of the debt, because credits were used up before; what older invoices wait for
/// is the oldest.
///
/// It is more than the invoice comes to where corrections were credited to older invoices at once, and lower this one too.
pub fn due(owed: Nano, charged_later: Nano, due_before: Nano) -> Nano {
    let left = owed.units() - charged_later.units().max(0) - due_before.units();
    Nano::from_units(left.max(0))
}

/// What is due of each open invoice once this much of the debt is covered, for those where it changes; the oldest come first.
pub fn cover(dues: &[(InvoiceId, Nano)], covered: Nano) -> Vec<(InvoiceId, Nano)> {
    let mut left = covered.units();
    let mut changed = Vec::new();
    for (id, due) in dues {
        let taken = left.min(due.units());
        if taken <= 0 {
            break;
        }
        left -= taken;
        changed.push((*id, Nano::from_units(due.units() - taken)));
    }
    changed
}

#[cfg(test)]
mod tests;
