//! Charges of usage, from daily rows.

use catalog::discounts::{TokenKind, TokenUse};
use catalog::{Kind, PriceBook};
use kernel::clock::Month;
use kernel::money::Pico;

use super::{Caller, Category, Charge, Metered, Named, UnitPrice};
use crate::rules::invoicing::{self, BilledUsage};

/// A daily row with the names of its project and its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedUsage {
    pub project: Named,
    pub caller: Caller,
    pub used: BilledUsage,
}

/// Returns the charges of a row that is billed in `month`, one for each kind of tokens; `document` is the month's
/// invoice. `None` if a sum overflows.
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

/// Returns the charges that take out of a month what credit notes took back while it was open: `credited`, which is
/// negative, is in the rows of that month and isn't on its invoice. They belong to no project or caller.
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
    for (kind, tokens) in parts {
        let cost = tokens.unit_price.checked_mul(tokens.count)?;
        let metered = metered(used, kind, &tokens);
        let what = metered.meter.to_lowercase();
        charges.push(charge(metered, cost, &what));
    }
    Some(charges)
}

fn metered(used: &BilledUsage, kind: TokenKind, tokens: &TokenUse) -> Metered {
    let count = tokens.count;
    priced(used, (count, count, super::TOKENS), tokens.unit_price, meter(kind, tokens.is_cached))
}

/// Returns the word for a kind of tokens in ids, and the one for people.
pub(super) const fn meter(kind: TokenKind, is_cached: bool) -> (&'static str, &'static str) {
    match (kind, is_cached) {
        (TokenKind::Prompt, false) => ("prompt", "Prompt tokens"),
        (TokenKind::Prompt, true) => ("cached_prompt", "Cached prompt tokens"),
        (TokenKind::Completion, _) => ("completion", "Completion tokens"),
        (TokenKind::Input, false) => ("input", "Input tokens"),
        (TokenKind::Input, true) => ("cached_input", "Cached input tokens"),
    }
}

/// Usage whose price isn't known any more: one unit, as on an invoice; minus one where it is taken back.
fn unpriced(used: &BilledUsage) -> Option<Metered> {
    let tokens = used.prompt_tokens.checked_add(used.completion_tokens)?;
    let (quantity, unit_price) = match used.amount < Pico::ZERO {
        true => (-1, Pico::ZERO.checked_sub(used.amount)?),
        false => (1, used.amount),
    };
    Some(priced(used, (tokens, quantity, "Units"), unit_price, ("usage", "Usage")))
}

fn priced(
    used: &BilledUsage,
    (tokens, quantity, quantity_unit): (i64, i64, &'static str),
    unit_price: Pico,
    (kind, meter): (&str, &str),
) -> Metered {
    let since = invoicing::price_start(used.price_version);
    let sku_id = format!("{}/{kind}", used.model);
    let model_kind = match used.kind {
        Kind::Chat => "chat",
        Kind::Embeddings => "embeddings",
    };
    let details = serde_json::json!({
        "x_EffectiveAt": since,
        "x_Model": used.model,
        "x_ModelKind": model_kind,
        "x_TokenKind": kind,
    });
    Metered {
        tokens,
        quantity,
        quantity_unit,
        unit_price,
        meter: meter.to_owned(),
        price: Some(UnitPrice { id: format!("{sku_id}@{since}"), details: details.to_string() }),
        sku_id,
    }
}
