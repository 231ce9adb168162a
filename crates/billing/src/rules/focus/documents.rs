//! Charges of invoices and credit notes that aren't in daily rows.

use catalog::{Component, Kind};
use kernel::clock::{Day, Month};
use kernel::money::Pico;

use super::subjects::{Subject, subject};
use super::{Category, Charge, Metered};
use crate::rules::invoicing::{self, Item, ItemKind};

/// Returns the charge of an invoice line other than usage: a discount, rounding, or a debt that an earlier
/// version charged again. Returns `None` for other lines, which [`super::usage`] creates from daily rows.
pub fn of_invoice(item: &Item, month: Month, document: Option<&str>) -> Option<Charge> {
    let category = match item.kind {
        ItemKind::Discount => Category::Credit,
        ItemKind::Rounding | ItemKind::CarriedOver => Category::Adjustment,
        ItemKind::Usage | ItemKind::LateUsage | ItemKind::Correction => return None,
    };
    let of = subject(&item.description);
    // A debt that is carried over is older than the month.
    let is_correction = of.month.is_some() || item.kind == ItemKind::CarriedOver;
    Some(of_line(item, category, is_correction, (month, of), document))
}

/// Returns the charge of a line of a credit note on the invoice of a month.
pub fn of_credit_note(item: &Item, invoiced: Month, document: &str) -> Charge {
    let category = match item.kind {
        ItemKind::Discount => Category::Credit,
        ItemKind::Rounding | ItemKind::CarriedOver => Category::Adjustment,
        ItemKind::Usage | ItemKind::LateUsage | ItemKind::Correction => Category::Usage,
    };
    let of = subject(&item.description);
    let charge = of_line(item, category, true, (invoiced, of), Some(document));
    let Some(model) = charge.model.clone().filter(|_| category == Category::Usage) else { return charge };
    Charge { metered: taken_back(item, &model), ..charge }
}

/// Returns the charge that cancels an invoice: its amount, minus its credit notes.
pub fn of_void_invoice(number: i64, document: &str, invoiced: Month, amount: Pico) -> Charge {
    Charge {
        category: Category::Adjustment,
        is_correction: true,
        description: format!("Invoice {number} of {invoiced} is void"),
        start: invoiced.first_day(),
        end: invoiced.plus(1).first_day(),
        document: Some(document.to_owned()),
        cost: Pico::from_units(-amount.units()),
        model: None,
        metered: None,
        project: None,
        caller: None,
    }
}

fn of_line(
    item: &Item,
    category: Category,
    is_correction: bool,
    (month, of): (Month, Subject),
    document: Option<&str>,
) -> Charge {
    let month = of.month.unwrap_or(month);
    let bounds: (Day, Day) = (month.first_day(), month.plus(1).first_day());
    Charge {
        category,
        is_correction,
        description: item.description.clone(),
        start: bounds.0,
        end: bounds.1,
        document: document.map(str::to_owned),
        cost: item.amount,
        model: of.model,
        metered: None,
        project: None,
        caller: None,
    }
}

/// Returns the usage that a line of a credit note takes back. The line names the component, but not always
/// the price version. Returns `None` if the line no longer has a price.
fn taken_back(item: &Item, model: &str) -> Option<Metered> {
    let all = [Kind::Chat, Kind::Embeddings]
        .into_iter()
        .flat_map(|kind| Component::ALL.iter().map(move |component| (*component, kind)));
    let named = |(component, kind): &(Component, Kind)| {
        item.description.split(", ").any(|word| word == invoicing::label(*component, *kind))
    };
    let (component, kind) = all.into_iter().find(named)?;
    let ((id, meter), unit) = (super::usage::meter(component, kind), super::usage::unit(component));
    Some(Metered {
        consumed: item.quantity,
        consumed_unit: unit,
        quantity: item.quantity,
        quantity_unit: unit,
        unit_price: item.unit_price,
        sku_id: format!("{model}/{id}"),
        meter,
        price: None,
    })
}
