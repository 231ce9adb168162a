//! The versions of the specification, and the datasets of each.

use kernel::csv::{self, Cell};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{COLUMNS, billing_period, invoice_details};

/// A version of the specification.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    Default,
    Deserialize,
    Serialize,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
pub enum Version {
    #[default]
    #[serde(rename = "1.2")]
    #[strum(serialize = "1.2")]
    V1_2,
    /// Names the service provider and the host provider, in addition to the provider and the publisher of
    /// 1.2.
    #[serde(rename = "1.3")]
    #[strum(serialize = "1.3")]
    V1_3,
    /// Without the provider and the publisher of 1.2, and with datasets of invoices and billing periods.
    #[serde(rename = "1.4")]
    #[strum(serialize = "1.4")]
    V1_4,
}

impl Version {
    /// Every version, the oldest first.
    pub const ALL: &[Self] = Self::VARIANTS;
}

/// The dataset of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dataset {
    /// Charges.
    #[default]
    CostAndUsage,
    /// Lines of invoices and credit notes.
    InvoiceDetail,
    /// The billing period, with its status.
    BillingPeriod,
}

impl Dataset {
    /// Every dataset.
    pub const ALL: &[Self] = Self::VARIANTS;
}

/// The version and the kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Form {
    version: Version,
    dataset: Dataset,
}

impl Form {
    /// Returns the form of a dataset; `None` if the version doesn't have it.
    pub fn new(version: Version, dataset: Dataset) -> Option<Self> {
        (dataset == Dataset::CostAndUsage || version >= Version::V1_4).then_some(Self { version, dataset })
    }

    /// Returns the form of charges.
    pub const fn charges(version: Version) -> Self {
        Self { version, dataset: Dataset::CostAndUsage }
    }

    /// Returns the version of the specification.
    pub const fn version(self) -> Version {
        self.version
    }

    /// Returns the dataset.
    pub const fn dataset(self) -> Dataset {
        self.dataset
    }

    /// Returns the header line with the names of the columns.
    pub fn header(self) -> String {
        let names: Vec<_> = match self.dataset {
            Dataset::CostAndUsage => {
                COLUMNS.iter().filter(|column| column.is_in(self.version)).map(|column| column.name).collect()
            }
            Dataset::InvoiceDetail => invoice_details::COLUMNS.to_vec(),
            Dataset::BillingPeriod => billing_period::COLUMNS.to_vec(),
        };
        let mut text = String::new();
        csv::add_line(&mut text, names.into_iter().map(Cell::value));
        text
    }
}

/// A column of charges.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    first: Version,
    last: Version,
}

impl Column {
    /// Returns a column that every version has.
    pub(super) const fn of_all(name: &'static str) -> Self {
        Self { name, first: Version::V1_2, last: Version::V1_4 }
    }

    /// Returns a column that this version added.
    pub(super) const fn since(first: Version, name: &'static str) -> Self {
        Self { name, first, last: Version::V1_4 }
    }

    /// Returns a column that this version is the last to have.
    pub(super) const fn until(last: Version, name: &'static str) -> Self {
        Self { name, first: Version::V1_2, last }
    }

    /// Returns `true` if a version has the column.
    pub fn is_in(&self, version: Version) -> bool {
        (self.first..=self.last).contains(&version)
    }
}
