//! The dataset of invoices: the lines of invoices and credit notes. Each line is the sum of its charges, so
//! the two datasets agree to the last digit.

use std::collections::BTreeMap;

use kernel::clock::{Month, Time};
use kernel::csv::{self, Cell};
use kernel::money::Pico;

use super::{Account, Category, Charge, decimal, first_instant, instant};

/// The columns of a file: those of the specification, then our own.
pub const COLUMNS: [&str; 21] = [
    "BilledCost",
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "InvoiceDetailCreated",
    "InvoiceDetailDescription",
    "InvoiceDetailGrain",
    "InvoiceDetailId",
    "InvoiceDetailLastUpdated",
    "InvoiceId",
    "InvoiceIssueDate",
    "InvoiceIssueStatus",
    "InvoiceIssuerName",
    "PaymentDueDate",
    "PaymentTerms",
    "ReferenceInvoiceId",
    "x_ListUnitPrice",
    "x_PricingQuantity",
    "x_PricingUnit",
];

/// The payment terms of a month's usage: it is due when the invoice is issued.
const PAYMENT_TERMS: &str = "Due on receipt";

/// An invoice or a credit note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    pub issued_at: Time,
    pub voided_at: Option<Time>,
    /// The invoice that a credit note corrects.
    pub reference: Option<String>,
}

/// A line of a document.
struct Line {
    /// A charge of the line: all have the same category, text and price.
    first: Charge,
    cost: Pico,
    quantity: i64,
}

/// The lines of the documents of a billing period.
pub struct InvoiceDetails {
    month: Month,
    /// By the ids of the document and of the line.
    lines: BTreeMap<(String, String), Line>,
}

impl InvoiceDetails {
    /// Creates an empty set of lines of a billing period.
    pub fn new(month: Month) -> Self {
        Self { month, lines: BTreeMap::new() }
    }

    /// Adds a charge to its line. A charge without a document has no line. Returns `None` if a sum overflows.
    pub fn add(&mut self, charge: Charge) -> Option<()> {
        let Some(document) = charge.document.clone() else { return Some(()) };
        let (cost, quantity) = (charge.cost, charge.metered.as_ref().map_or(0, |metered| metered.quantity));
        let id = charge.line_id(self.month);
        let line =
            self.lines.entry((document, id)).or_insert(Line { first: charge, cost: Pico::ZERO, quantity: 0 });
        line.cost = line.cost.checked_add(cost)?;
        line.quantity = line.quantity.checked_add(quantity)?;
        Some(())
    }

    /// Returns the lines of CSV, in the order of [`COLUMNS`]. Lines whose charges cancel each other are
    /// omitted.
    pub fn lines(&self, account: &Account, documents: &BTreeMap<String, Document>) -> String {
        let mut text = String::new();
        for ((document_id, line_id), line) in &self.lines {
            let Some(document) = documents.get(document_id).filter(|_| line.cost != Pico::ZERO) else {
                continue;
            };
            csv::add_line(&mut text, line.cells(account, line_id, document_id, document));
        }
        text
    }
}

impl Line {
    fn cells(
        &self,
        account: &Account,
        line_id: &str,
        document_id: &str,
        document: &Document,
    ) -> [Cell; COLUMNS.len()] {
        let null = || Cell::value("");
        let Self { first, cost, quantity } = self;
        // Usage whose price is no longer known has units that each have their own price.
        let metered = first.metered.as_ref().filter(|metered| !metered.is_unpriced());
        let created_at = instant(document.issued_at);
        let status = if document.voided_at.is_some() { "Voided" } else { "Issued" };
        [
            decimal(cost),
            Cell::value(account.organization_id),
            Cell::value(&account.currency),
            Cell::value(first_instant(account.month.plus(1).first_day())),
            Cell::value(first_instant(account.month.first_day())),
            Cell::value(first.category.as_str()),
            Cell::value(&created_at),
            Cell::text(&first.line_description(account.month)),
            first.grain().map_or_else(null, Cell::value),
            Cell::text(line_id),
            Cell::value(document.voided_at.map_or_else(|| created_at.clone(), instant)),
            Cell::value(document_id),
            Cell::value(&created_at),
            Cell::value(status),
            Cell::text(&account.issuer),
            null(),
            Cell::value(PAYMENT_TERMS),
            Cell::value(document.reference.as_deref().unwrap_or(document_id)),
            metered.map_or_else(null, |metered| decimal(metered.unit_price)),
            metered.map_or_else(null, |_| decimal(quantity)),
            metered.map_or_else(null, |metered| Cell::value(metered.quantity_unit)),
        ]
    }
}

/// The description of a line of usage whose price is no longer known.
pub(super) const UNPRICED: &str = "usage at a price that has left the catalog";

impl Charge {
    /// Returns the id of the charge's line on its document in this billing period. Usage at one price is one
    /// line. Its id is the id of the price, preceded by the month of use if it differs from the billing
    /// period. The id of other lines is their text.
    pub(super) fn line_id(&self, month: Month) -> String {
        let Some((metered, price)) =
            self.metered.as_ref().and_then(|metered| Some((metered, metered.price.as_ref()?)))
        else {
            return self.description.clone();
        };
        let id = if metered.is_unpriced() { &metered.sku_id } else { &price.id };
        match self.start.month() {
            of if of == month => id.clone(),
            of => format!("{of}/{id}"),
        }
    }

    /// Returns the text of the charge's line.
    fn line_description(&self, month: Month) -> String {
        let (Some(metered), Some(model)) = (&self.metered, &self.model) else {
            return self.description.clone();
        };
        if metered.price.is_none() {
            return self.description.clone();
        }
        let what = if metered.is_unpriced() { UNPRICED.to_owned() } else { metered.what() };
        match self.start.month() {
            of if of == month => format!("{model}, {what}"),
            of => format!("Late usage of {of}: {model}, {what}"),
        }
    }

    /// Returns the properties that distinguish a line of usage from the others, as a JSON object.
    fn grain(&self) -> Option<String> {
        let metered = self.metered.as_ref().filter(|_| self.category == Category::Usage)?;
        let mut grain = serde_json::Map::new();
        grain.insert("SkuId".to_owned(), metered.sku_id.as_str().into());
        grain.insert("SkuMeter".to_owned(), metered.meter.as_str().into());
        if let Some(price) = metered.price.as_ref().filter(|_| !metered.is_unpriced()) {
            grain.insert("SkuPriceId".to_owned(), price.id.as_str().into());
        }
        grain.insert("x_MonthOfUse".to_owned(), self.start.month().to_string().into());
        Some(serde_json::Value::Object(grain).to_string())
    }
}
