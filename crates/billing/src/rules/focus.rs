//! Charges in the form of FOCUS, the FinOps Open Cost and Usage Specification
//! (docs/contract/billing.md#focus-export).
//!
//! [`usage`] converts daily rows to charges, and [`documents`] the other lines of invoices and credit notes.
//! [`Charge::add_to`] writes a charge as a line of CSV, in the order of [`COLUMNS`]. A [`Form`] is the
//! version of the specification that a file follows, and the dataset of the file: charges, lines of invoices,
//! or billing periods.

pub mod billing_period;
pub mod documents;
mod form;
pub mod invoice_details;
mod subjects;
pub mod usage;

#[cfg(test)]
mod tests;

use std::fmt::Display;

use kernel::clock::{Day, Month, SECOND_MS, Time};
use kernel::csv::Cell;
use kernel::ids::OrganizationId;
use kernel::money::Pico;

pub use form::{Column, Dataset, Form, Version};

/// The provider's name on an installation without `billing.issuer_name`.
pub const DEFAULT_PROVIDER: &str = "tollkeeper";

/// The columns of charges: those of the specification, then our own.
pub const COLUMNS: [Column; 45] = [
    Column::of_all("BilledCost"),
    Column::of_all("BillingAccountId"),
    Column::of_all("BillingAccountName"),
    Column::of_all("BillingAccountType"),
    Column::of_all("BillingCurrency"),
    Column::of_all("BillingPeriodEnd"),
    Column::of_all("BillingPeriodStart"),
    Column::of_all("ChargeCategory"),
    Column::of_all("ChargeClass"),
    Column::of_all("ChargeDescription"),
    Column::of_all("ChargeFrequency"),
    Column::of_all("ChargePeriodEnd"),
    Column::of_all("ChargePeriodStart"),
    Column::of_all("CommitmentDiscountStatus"),
    Column::of_all("ConsumedQuantity"),
    Column::of_all("ConsumedUnit"),
    Column::of_all("ContractedCost"),
    Column::of_all("ContractedUnitPrice"),
    Column::of_all("EffectiveCost"),
    Column::since(Version::V1_3, "HostProviderName"),
    Column::since(Version::V1_4, "InvoiceDetailId"),
    Column::of_all("InvoiceId"),
    Column::of_all("InvoiceIssuerName"),
    Column::of_all("ListCost"),
    Column::of_all("ListUnitPrice"),
    Column::of_all("PricingCategory"),
    Column::of_all("PricingQuantity"),
    Column::of_all("PricingUnit"),
    Column::until(Version::V1_3, "ProviderName"),
    Column::until(Version::V1_3, "PublisherName"),
    Column::of_all("ResourceId"),
    Column::of_all("ResourceName"),
    Column::of_all("ResourceType"),
    Column::of_all("ServiceCategory"),
    Column::of_all("ServiceName"),
    Column::since(Version::V1_3, "ServiceProviderName"),
    Column::of_all("ServiceSubcategory"),
    Column::of_all("SkuId"),
    Column::of_all("SkuMeter"),
    Column::of_all("SkuPriceDetails"),
    Column::of_all("SkuPriceId"),
    Column::of_all("SubAccountId"),
    Column::of_all("SubAccountName"),
    Column::of_all("SubAccountType"),
    Column::of_all("x_Model"),
];

/// The organization and the billing period of charges.
#[derive(Clone, Debug)]
pub struct Account {
    pub organization_id: OrganizationId,
    pub organization_name: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The month in which the charges are billed.
    pub month: Month,
    /// The name of the installation.
    pub provider: String,
    /// The name of the issuer of its invoices.
    pub issuer: String,
}

/// The unit of tokens.
const TOKENS: &str = "Tokens";
/// The unit of usage whose price is no longer known: the whole usage is a single unit.
const UNPRICED_UNIT: &str = "Units";

/// The categories of charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Category {
    /// Tokens.
    Usage,
    /// A volume discount, or a part of one that is taken back.
    Credit,
    /// Rounding, or a void invoice.
    Adjustment,
}

impl Category {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "Usage",
            Self::Credit => "Credit",
            Self::Adjustment => "Adjustment",
        }
    }

    const fn frequency(self) -> &'static str {
        match self {
            Self::Usage => "Usage-Based",
            Self::Credit | Self::Adjustment => "One-Time",
        }
    }
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charge {
    pub category: Category,
    /// `true` if the charge belongs to a month before the one in which it is billed.
    pub is_correction: bool,
    pub description: String,
    pub start: Day,
    /// Exclusive.
    pub end: Day,
    /// The invoice or the credit note; `None` until it exists.
    pub document: Option<String>,
    /// The exact price; list, contracted, billed and effective cost are the same.
    pub cost: Pico,
    pub model: Option<String>,
    /// The tokens or pieces, for [`Category::Usage`].
    pub metered: Option<Metered>,
    pub project: Option<Named>,
    /// The API key, or the user who called without one.
    pub caller: Option<Caller>,
}

/// Tokens or pieces with their price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metered {
    /// The quantity that was used.
    pub consumed: i64,
    pub consumed_unit: &'static str,
    /// `quantity` × `unit_price` is the cost.
    pub quantity: i64,
    pub quantity_unit: &'static str,
    /// Not negative.
    pub unit_price: Pico,
    pub sku_id: String,
    /// The human-readable name of the meter.
    pub meter: String,
    /// `None` if the line of a credit note doesn't contain the price.
    pub price: Option<UnitPrice>,
}

/// A version of a price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitPrice {
    pub id: String,
    /// A JSON object with the details of the price.
    pub details: String,
    /// A description of the conditions under which the price applies; empty if it applies to all calls.
    pub conditions: String,
}

/// A thing with an id and a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    pub id: String,
    /// `None` if the thing was deleted together with its name.
    pub name: Option<String>,
}

/// The caller of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    pub named: Named,
    pub is_key: bool,
}

impl Charge {
    /// Returns the day whose file contains the charge, if each day has a file: the day on which the charge
    /// begins, or the period's first day if it began earlier.
    pub fn file_day(&self, month: Month) -> Day {
        self.start.max(month.first_day())
    }

    /// Appends the charge to a string, as a line of CSV with the columns of a version.
    pub fn add_to(&self, text: &mut String, account: &Account, version: Version) {
        let cells = COLUMNS.iter().zip(self.cells(account));
        kernel::csv::add_line(text, cells.filter(|(column, _)| column.is_in(version)).map(|(_, cell)| cell));
    }

    /// Returns the cells, in the order of [`COLUMNS`]. User-defined names never begin like a formula.
    fn cells(&self, account: &Account) -> [Cell; COLUMNS.len()] {
        let null = || Cell::value("");
        let optional = |text: Option<&str>| text.map_or_else(null, Cell::value);
        let (metered, project, caller) = (self.metered.as_ref(), self.project.as_ref(), self.caller.as_ref());
        let price = metered.and_then(|metered| metered.price.as_ref());
        let unit_price = || metered.map_or_else(null, |metered| decimal(metered.unit_price));
        let cost = || decimal(self.cost);
        [
            cost(),
            Cell::value(account.organization_id),
            Cell::text(&account.organization_name),
            Cell::value("Organization"),
            Cell::value(&account.currency),
            Cell::value(first_instant(account.month.plus(1).first_day())),
            Cell::value(first_instant(account.month.first_day())),
            Cell::value(self.category.as_str()),
            optional(self.is_correction.then_some("Correction")),
            Cell::text(&self.description),
            Cell::value(self.category.frequency()),
            Cell::value(first_instant(self.end)),
            Cell::value(first_instant(self.start)),
            null(),
            metered.map_or_else(null, |metered| decimal(metered.consumed)),
            optional(metered.map(|metered| metered.consumed_unit)),
            cost(),
            unit_price(),
            cost(),
            // No other host of the models is disclosed to customers.
            Cell::text(&account.provider),
            self.document.as_ref().map_or_else(null, |_| Cell::text(&self.line_id(account.month))),
            optional(self.document.as_deref()),
            Cell::text(&account.issuer),
            cost(),
            unit_price(),
            optional(metered.map(|_| "Standard")),
            metered.map_or_else(null, |metered| decimal(metered.quantity)),
            optional(metered.map(|metered| metered.quantity_unit)),
            Cell::text(&account.provider),
            Cell::text(&account.provider),
            optional(caller.map(|caller| caller.named.id.as_str())),
            caller.and_then(|caller| caller.named.name.as_deref()).map_or_else(null, Cell::text),
            optional(caller.map(|caller| if caller.is_key { "API Key" } else { "User" })),
            Cell::value("AI and Machine Learning"),
            Cell::value("Model Inference"),
            Cell::text(&account.provider),
            Cell::value("Generative AI"),
            optional(metered.map(|metered| metered.sku_id.as_str())),
            optional(metered.map(|metered| metered.meter.as_str())),
            optional(price.map(|price| price.details.as_str())),
            optional(price.map(|price| price.id.as_str())),
            optional(project.map(|project| project.id.as_str())),
            project.map_or_else(null, |project| Cell::text(project.name.as_deref().unwrap_or(&project.id))),
            optional(project.map(|_| "Project")),
            self.model.as_deref().map_or_else(null, Cell::text),
        ]
    }
}

/// Formats a number with a decimal point, because programs that guess the types of columns might take a
/// column for integers if a file has only whole numbers.
fn decimal(number: impl Display) -> Cell {
    let number = number.to_string();
    Cell::Value(if number.contains('.') { number } else { format!("{number}.0") })
}

impl Metered {
    /// Returns the name of the meter, and the conditions of the price.
    fn what(&self) -> String {
        let meter = self.meter.to_lowercase();
        match self.price.as_ref().map(|price| price.conditions.as_str()) {
            None | Some("") => meter,
            Some(conditions) => format!("{meter}, {conditions}"),
        }
    }

    /// Returns `true` if the price is no longer known. Then the whole usage is a single unit.
    fn is_unpriced(&self) -> bool {
        self.quantity_unit == UNPRICED_UNIT
    }
}

/// Formats a time as the specification requires, to the second.
fn instant(time: Time) -> String {
    let whole = Time::from_unix_ms(time.unix_ms().div_euclid(SECOND_MS) * SECOND_MS);
    whole.to_string().replace(".000", "")
}

/// Formats the start of a day as the specification requires.
fn first_instant(day: Day) -> String {
    format!("{day}T00:00:00Z")
}
