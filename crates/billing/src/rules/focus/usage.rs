//! Charges of usage, from daily rows.

use catalog::{Component, Kind, Price, PriceBook};
use kernel::clock::{Month, Time};
use kernel::money::Pico;

use super::{Caller, Category, Charge, Metered, Named, UnitPrice};
use crate::rules::invoicing::{self, BilledPart, BilledUsage};

/// A daily row with the names of its project and its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedUsage {
    pub project: Named,
    pub caller: Caller,
    pub used: BilledUsage,
}

/// Returns the charges of a row that is billed in `month`, one for each component. `document` is the month's
/// invoice. Returns `None` if a sum overflows.
pub fn of_row(
    row: &NamedUsage,
    month: Month,
    document: Option<&str>,
    prices: &PriceBook,
) -> Option<Vec<Charge>> {
    let subject = |charge: Charge| Charge {
        project: Some(row.project.clone()),
        caller: Some(row.caller.clone()),
        ..charge
    };
    let words = |quantity: i64, month_of_use: Month| match (month_of_use == month, quantity < 0) {
        (true, _) => String::new(),
        (false, false) => format!("Late usage of {month_of_use}: "),
        (false, true) => format!("Correction of {month_of_use}: "),
    };
    let charges = charges(&row.used, month, document, prices, words)?;
    Some(charges.into_iter().map(subject).collect())
}

/// Returns the charges that remove the usage that credit notes took back while a month was open. This usage,
/// `credited`, is negative; it is in the rows of that month, but not on its invoice. The charges belong to no
/// project or caller.
pub fn on_credit_notes(
    credited: &BilledUsage,
    month: Month,
    document: Option<&str>,
    prices: &PriceBook,
) -> Option<Vec<Charge>> {
    let negative = |count: i64| count.checked_neg();
    let taken_out = BilledUsage {
        prompt_tokens: negative(credited.prompt_tokens)?,
        completion_tokens: negative(credited.completion_tokens)?,
        cached_prompt_tokens: negative(credited.cached_prompt_tokens)?,
        parts: credited.parts.checked_neg()?,
        amount: Pico::ZERO.checked_sub(credited.amount)?,
        ..credited.clone()
    };
    let words = |_, month_of_use: Month| format!("Correction of {month_of_use} that isn't on this invoice: ");
    charges(&taken_out, month, document, prices, words)
}

fn charges(
    used: &BilledUsage,
    month: Month,
    document: Option<&str>,
    prices: &PriceBook,
    words: impl Fn(i64, Month) -> String,
) -> Option<Vec<Charge>> {
    let charge = |metered: Metered, cost: Pico, what: &str| Charge {
        category: Category::Usage,
        is_correction: used.day.month() < month,
        description: format!("{}{}, {what}", words(metered.quantity, used.day.month()), used.model),
        start: used.day,
        end: used.day.plus(1),
        document: document.map(str::to_owned),
        cost,
        model: Some(used.model.clone()),
        metered: Some(metered),
        project: None,
        caller: None,
    };
    let Some(parts) = invoicing::parts(used, prices) else {
        let (metered, what) = (unpriced(used)?, super::invoice_details::UNPRICED);
        return Some(vec![charge(metered, used.amount, what)]);
    };
    let mut charges = Vec::with_capacity(parts.len());
    for part in parts {
        let cost = part.unit_price.checked_mul(part.quantity)?;
        let metered = metered(used, &part);
        let what = metered.what();
        charges.push(charge(metered, cost, &what));
    }
    Some(charges)
}

fn metered(used: &BilledUsage, part: &BilledPart<'_>) -> Metered {
    let (id, meter) = meter(part.component, part.kind);
    let (quantity, unit) = (part.quantity, unit(part.component));
    let counted = Counted { consumed: quantity, consumed_unit: unit, quantity, quantity_unit: unit };
    priced(used, counted, (part.unit_price, Some(part.price)), (id, meter))
}

/// Returns the name of a component in ids, and its display name.
pub(super) fn meter(component: Component, kind: Kind) -> (&'static str, String) {
    let id = match (component, kind) {
        (Component::Prompt, Kind::Embeddings) => "input",
        _ => component.as_str(),
    };
    let label = invoicing::label(component, kind);
    let (first, rest) = label.split_at_checked(1).unwrap_or_default();
    (id, first.to_uppercase() + rest)
}

/// Returns the unit of a component.
pub(super) const fn unit(component: Component) -> &'static str {
    match component {
        Component::Request => "Requests",
        Component::Image => "Images",
        Component::Second => "Seconds",
        Component::Character => "Characters",
        Component::Search => "Searches",
        _ => super::TOKENS,
    }
}

/// The used quantity and the charged quantity.
#[derive(Clone, Copy)]
struct Counted {
    consumed: i64,
    consumed_unit: &'static str,
    quantity: i64,
    quantity_unit: &'static str,
}

/// Returns usage whose price is no longer known as one unit, as on an invoice, or as minus one unit if it is
/// taken back.
fn unpriced(used: &BilledUsage) -> Option<Metered> {
    let consumed = used.prompt_tokens.checked_add(used.completion_tokens)?;
    let (quantity, unit_price) = match used.amount < Pico::ZERO {
        true => (-1, Pico::ZERO.checked_sub(used.amount)?),
        false => (1, used.amount),
    };
    let counted =
        Counted { consumed, consumed_unit: super::TOKENS, quantity, quantity_unit: super::UNPRICED_UNIT };
    Some(priced(used, counted, (unit_price, None), ("usage", "Usage".to_owned())))
}

fn priced(
    used: &BilledUsage,
    counted: Counted,
    (unit_price, price): (Pico, Option<&Price>),
    (kind, meter): (&str, String),
) -> Metered {
    // The version of a price without conditions is the time at which it comes into force.
    let effective_at = price.map_or(Time::from_unix_ms(used.price_version), |price| price.effective_at);
    let since = invoicing::price_start(effective_at);
    let conditions = price.map(|price| price.conditions.to_string()).unwrap_or_default();
    let sku_id = format!("{}/{kind}", used.model);
    let model_kind = match used.kind {
        Kind::Chat => "chat",
        Kind::Embeddings => "embeddings",
    };
    let mut details = serde_json::Map::new();
    let mut id = format!("{sku_id}@{since}");
    if !conditions.is_empty() {
        id = format!("{id} ({conditions})");
        details.insert("x_Conditions".to_owned(), conditions.as_str().into());
    }
    for (name, value) in [
        ("x_EffectiveAt", since.as_str()),
        ("x_Model", &used.model),
        ("x_ModelKind", model_kind),
        ("x_TokenKind", kind),
    ] {
        details.insert(name.to_owned(), value.into());
    }
    Metered {
        consumed: counted.consumed,
        consumed_unit: counted.consumed_unit,
        quantity: counted.quantity,
        quantity_unit: counted.quantity_unit,
        unit_price,
        meter,
        price: Some(UnitPrice { id, details: serde_json::Value::Object(details).to_string(), conditions }),
        sku_id,
    }
}
