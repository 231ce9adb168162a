//! Invoices and credit notes, computed from daily rows: their items, amounts and amounts due.
//!
//! Every item is exact: `quantity` × `unit_price` = `amount`. The difference from rounding to whole nanos is
//! a separate item, so that the items sum to the amount that was debited.

use std::collections::BTreeMap;

use catalog::discounts::{self, TokenKind, TokenUse};
use catalog::{Component, Kind, Parts, Price, PriceBook, Tokens, cost};
use kernel::clock::{DAY_MS, Day, Month, Time};
use kernel::money::{Nano, Pico};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The time for which a month stays open after its end for late usage, in milliseconds
/// (docs/contract/billing.md#closes).
pub const GRACE_MS: i64 = DAY_MS;

/// Returns the last month that may be closed at this time.
pub fn last_closable(now: Time) -> Month {
    now.plus_ms(-GRACE_MS).day().month().plus(-1)
}

/// The status of an invoice (docs/contract/billing.md#invoice-states). Drafts are never stored, because an
/// invoice is created when its month closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    Draft,
    Open,
    /// Nothing is due.
    Paid,
    Void,
    /// Written off.
    Uncollectible,
}

db::words!(Status);

impl Status {
    /// Every status.
    pub const ALL: &[Self] = Self::VARIANTS;
}

/// An organization's usage of one model on one day at one price, which is billed in one month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BilledUsage {
    pub model: String,
    pub kind: Kind,
    /// The version of the price.
    pub price_version: i64,
    pub day: Day,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The part of the prompt's tokens that came from the upstream's cache.
    pub cached_prompt_tokens: i64,
    pub parts: Parts,
    /// The list price.
    pub amount: Pico,
    /// The amount that the wallet was charged.
    pub posted: Nano,
}

impl BilledUsage {
    fn tokens(&self) -> Tokens {
        Tokens {
            prompt: self.prompt_tokens,
            cached_prompt: self.cached_prompt_tokens,
            completion: self.completion_tokens,
            parts: self.parts,
        }
    }
}

/// A component of a row, at its price.
#[derive(Clone, Copy, Debug)]
pub struct BilledPart<'a> {
    pub component: Component,
    pub kind: Kind,
    pub quantity: i64,
    pub unit_price: Pico,
    pub price: &'a Price,
}

impl BilledPart<'_> {
    /// Returns the name of the component on an invoice.
    pub fn label(&self) -> &'static str {
        label(self.component, self.kind)
    }

    /// Returns the tokens that count for volume discounts; `None` for pieces.
    fn token_use(&self, day: Day) -> Option<(TokenKind, TokenUse)> {
        let kind = TokenKind::of(self.component, self.kind)?;
        let (effective_at, count, unit_price) = (self.price.effective_at, self.quantity, self.unit_price);
        Some((kind, TokenUse { day, effective_at, count, unit_price }))
    }
}

/// Returns the name of a component on an invoice, for models of this kind.
pub fn label(component: Component, kind: Kind) -> &'static str {
    match (component, kind) {
        (Component::Prompt, Kind::Embeddings) => TokenKind::Input.label(),
        _ => component.label(),
    }
}

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ItemKind {
    /// Usage of the month.
    Usage,
    /// Usage that was reported after its month had been closed.
    LateUsage,
    /// A volume discount.
    Discount,
    /// The difference from rounding, so that the items sum to the amount.
    Rounding,
    /// A debt that was on no invoice; earlier versions charged it again.
    CarriedOver,
    /// Usage that a correction took back, on credit notes only.
    Correction,
}

db::words!(ItemKind);

/// A line of an invoice or a credit note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub kind: ItemKind,
    /// A human-readable description.
    pub description: String,
    pub quantity: i64,
    pub unit_price: Pico,
    pub amount: Pico,
}

impl Item {
    /// Returns an item with quantity 1.
    pub fn single(kind: ItemKind, description: String, amount: Pico) -> Self {
        Self { kind, description, quantity: 1, unit_price: amount, amount }
    }
}

/// The items and amounts of an invoice or a credit note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bill {
    /// The items, which sum to `amount`.
    pub items: Vec<Item>,
    /// The discounts; negative if more is taken back than given.
    pub credited: Nano,
    /// The usage minus the discounts, in whole nanos.
    pub amount: Nano,
    /// The list price minus the discounts, before rounding to whole nanos.
    pub exact: Pico,
}

/// The documents that are computed from usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DocumentKind {
    /// The invoice of this month.
    Invoice(Month),
    /// A credit note.
    CreditNote,
}

impl DocumentKind {
    /// Returns the month of use, if a line must name it.
    fn named_month(self, of: Month) -> Option<Month> {
        Some(of).filter(|of| self != Self::Invoice(*of))
    }

    fn item_kind(self, named_month: Option<Month>) -> ItemKind {
        match (self, named_month) {
            (Self::CreditNote, _) => ItemKind::Correction,
            (Self::Invoice(_), Some(_)) => ItemKind::LateUsage,
            (Self::Invoice(_), None) => ItemKind::Usage,
        }
    }

    /// Returns the beginning of a line's description.
    fn prefix(self, named_month: Option<Month>) -> String {
        match (self, named_month) {
            (_, None) => String::new(),
            (Self::CreditNote, Some(month)) => format!("Correction of {month}: "),
            (Self::Invoice(_), Some(month)) => format!("Late usage of {month}: "),
        }
    }
}

/// The key by which usage is grouped into lines, in the order of the lines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LineKey<'a> {
    /// The month of use, if it isn't the document's month.
    named_month: Option<Month>,
    model: &'a str,
    component: Component,
    label: &'static str,
    effective_at: Time,
    /// A description of the price's conditions; empty if it has none.
    conditions: String,
}

/// A line before its amount is computed.
struct Line {
    quantity: i64,
    unit_price: Pico,
}

/// The unit to which discounts apply: the tokens of one kind and model that were used in one month.
type DiscountGroup<'a> = (Month, &'a str, TokenKind);

/// Returns the bill of a month. `used` is the usage billed in the month. `before` is the usage that was
/// billed earlier, for the months that have late usage.
///
/// A discount belongs to the month of use. For each month of use, the bill contains the discount on all usage
/// that is known now, minus the discount on the usage that was known before. A negative difference takes back
/// a discount.
///
/// Returns `None` if a sum overflows; then the caller must not bill.
pub fn bill(month: Month, used: &[BilledUsage], before: &[BilledUsage], prices: &PriceBook) -> Option<Bill> {
    document(DocumentKind::Invoice(month), used, before, prices)
}

/// Returns the bill of a credit note, whose amounts are negative. `corrected` is the usage that is taken
/// back, and `before` is the other usage of its months.
///
/// Returns `None` if a sum overflows.
pub fn credit_note(corrected: &[BilledUsage], before: &[BilledUsage], prices: &PriceBook) -> Option<Bill> {
    document(DocumentKind::CreditNote, corrected, before, prices)
}

fn document(
    document_kind: DocumentKind,
    used: &[BilledUsage],
    before: &[BilledUsage],
    prices: &PriceBook,
) -> Option<Bill> {
    let mut lines: BTreeMap<LineKey<'_>, Line> = BTreeMap::new();
    let mut unpriced: BTreeMap<(Option<Month>, &str), Pico> = BTreeMap::new();
    let mut groups: BTreeMap<DiscountGroup<'_>, Vec<TokenUse>> = BTreeMap::new();
    for row in used {
        let named_month = document_kind.named_month(row.day.month());
        let Some(parts) = parts(row, prices) else {
            add(unpriced.entry((named_month, &row.model)).or_default(), row.amount)?;
            continue;
        };
        for part in parts {
            let key = LineKey {
                named_month,
                model: &row.model,
                component: part.component,
                label: part.label(),
                effective_at: part.price.effective_at,
                conditions: part.price.conditions.to_string(),
            };
            let line = lines.entry(key).or_insert(Line { quantity: 0, unit_price: part.unit_price });
            line.quantity = line.quantity.checked_add(part.quantity)?;
            if let Some((kind, tokens)) = part.token_use(row.day) {
                groups.entry((row.day.month(), &row.model, kind)).or_default().push(tokens);
            }
        }
    }
    let mut items = usage_items(document_kind, &lines)?;
    items.extend(
        unpriced
            .into_iter()
            .map(|((named_month, model), amount)| unpriced_item(document_kind, named_month, model, amount)),
    );
    let list = sum(items.iter().map(|item| item.amount))?;
    let known = tokens_before(before, &groups, prices);
    let mut discounted = Pico::ZERO;
    for (group, mut tokens) in groups {
        let (of, model, kind) = group;
        let tiers = prices.tiers_of_month(of);
        let earlier = known.get(&group).map(Vec::as_slice).unwrap_or_default();
        let discount_before = discounts::discount(tiers, earlier)?;
        tokens.extend_from_slice(earlier);
        let discount = discounts::discount(tiers, &tokens)?.checked_sub(discount_before)?;
        if discount != Pico::ZERO {
            add(&mut discounted, discount)?;
            let of = document_kind.named_month(of).map(|month| format!(" of {month}")).unwrap_or_default();
            let back = if discount < Pico::ZERO { " taken back" } else { "" };
            let description = format!("Volume discount{of}{back}: {model}, {}", kind.label());
            items.push(Item::single(ItemKind::Discount, description, Pico::ZERO.checked_sub(discount)?));
        }
    }
    finish(document_kind, items, used, list.checked_sub(discounted)?, discounted)
}

/// Returns the components of a row, at the price at which it was rated; `None` if that price is no longer
/// known.
pub(super) fn parts<'a>(row: &BilledUsage, prices: &'a PriceBook) -> Option<Vec<BilledPart<'a>>> {
    let counts = row.tokens();
    // The catalog may have been rewritten since the row was rated.
    let price = prices.price(&row.model, row.price_version);
    let price = price.filter(|price| cost(price, counts) == Some(row.amount))?;
    let part = |(component, quantity)| BilledPart {
        component,
        kind: row.kind,
        quantity,
        unit_price: price.of(component),
        price,
    };
    Some(price.billed(counts)?.into_iter().map(part).collect())
}

/// Returns the tokens that were known before, for the discounts of a document.
fn tokens_before<'a>(
    before: &'a [BilledUsage],
    groups: &BTreeMap<DiscountGroup<'_>, Vec<TokenUse>>,
    prices: &PriceBook,
) -> BTreeMap<DiscountGroup<'a>, Vec<TokenUse>> {
    let mut known: BTreeMap<DiscountGroup<'_>, Vec<TokenUse>> = BTreeMap::new();
    for row in before {
        for (kind, tokens) in
            parts(row, prices).into_iter().flatten().filter_map(|part| part.token_use(row.day))
        {
            let group = (row.day.month(), row.model.as_str(), kind);
            if groups.contains_key(&group) {
                known.entry(group).or_default().push(tokens);
            }
        }
    }
    known
}

/// Subtracts the discounts from the charges, and adds the item for rounding.
fn finish(
    document_kind: DocumentKind,
    mut items: Vec<Item>,
    used: &[BilledUsage],
    exact: Pico,
    discounted: Pico,
) -> Option<Bill> {
    let posted = nano_sum(used.iter().map(|row| row.posted))?;
    let charged = nano_sum(used.iter().map(|row| row.posted).filter(|posted| *posted > Nano::ZERO))?;
    let credited = match document_kind {
        // Late usage can lower the price of other usage of its month by more than its own price.
        DocumentKind::Invoice(_) if exact >= Pico::ZERO => discounts::credited(discounted, charged),
        DocumentKind::Invoice(_) | DocumentKind::CreditNote => discounted.ceil_nano(),
    };
    let amount = posted.checked_sub(credited)?;
    let rounding = amount.to_pico()?.checked_sub(exact)?;
    if rounding != Pico::ZERO {
        items.push(Item::single(ItemKind::Rounding, "Rounding".to_owned(), rounding));
    }
    Some(Bill { items, credited, amount, exact })
}

fn usage_items(document_kind: DocumentKind, lines: &BTreeMap<LineKey<'_>, Line>) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    for (key, line) in lines.iter().filter(|(_, line)| line.quantity != 0) {
        let Line { quantity, unit_price } = line;
        let same = |other: &&LineKey<'_>| (other.named_month, other.model) == (key.named_month, key.model);
        let has_versions = lines.keys().filter(same).any(|other| other.effective_at != key.effective_at);
        let prefix = document_kind.prefix(key.named_month);
        let mut description = format!("{prefix}{}, {}", key.model, key.label);
        if !key.conditions.is_empty() {
            description.push_str(&format!(", {}", key.conditions));
        }
        if has_versions {
            description.push_str(&format!(", price from {}", price_start(key.effective_at)));
        }
        items.push(Item {
            kind: document_kind.item_kind(key.named_month),
            description,
            quantity: *quantity,
            unit_price: *unit_price,
            amount: unit_price.checked_mul(*quantity)?,
        });
    }
    Some(items)
}

/// Returns an item for usage whose price is no longer known. The item keeps the amount, without a count of
/// tokens.
fn unpriced_item(document_kind: DocumentKind, named_month: Option<Month>, model: &str, amount: Pico) -> Item {
    let description =
        format!("{}{model}, usage at a price that has left the catalog", document_kind.prefix(named_month));
    Item::single(document_kind.item_kind(named_month), description, amount)
}

/// Formats the start of a price: as a day, or as a time if the price doesn't start at the beginning of a day.
pub(super) fn price_start(time: Time) -> String {
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

/// The debt of a wallet when a month closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debt {
    /// The part that is due on the month's invoice.
    pub of_month: Nano,
    /// The part that is on no invoice and belongs to no open month. The wallet was already charged for it, so
    /// the month's invoice only adds it to the amount due.
    pub brought_forward: Nano,
}

/// Splits the debt of a wallet when a month closes. `unpaid` is the part of the month's charges that no
/// credit has paid, `later` is the same for the months after it, and `on_invoices` is the sum of the amounts
/// due of older invoices.
///
/// Versions that didn't record uses of credits make `unpaid` too large, so the result never exceeds the debt.
pub fn split_debt(owed: Nano, unpaid: Nano, later: Nano, on_invoices: Nano) -> Debt {
    let left = (owed.units() - later.units().max(0) - on_invoices.units()).max(0);
    let of_month = left.min(unpaid.units().max(0));
    Debt { of_month: Nano::from_units(of_month), brought_forward: Nano::from_units(left - of_month) }
}

#[cfg(test)]
mod tests;
