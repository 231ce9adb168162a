//! Settings of billing.

use crate::rules::credit_limits;
use crate::rules::focus::Version;
use kernel::document::values::{as_text, currency, decimal, path, text, whole};
use kernel::money::Nano;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// Table `billing` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The amount that a user's first organization may spend before it must pay; 0 means strictly prepaid.
    /// `None` means 0, and [`DEMO_CREDIT`](credit_limits::DEMO_CREDIT) while the catalog is the built-in one.
    #[serde(deserialize_with = "optional_amount", serialize_with = "optional_as_text")]
    pub credit_limit: Option<Nano>,
    /// The same amount for every further organization of that user.
    #[serde(deserialize_with = "amount", serialize_with = "as_text")]
    pub further_credit_limit: Nano,
    /// The currency of new organizations, an ISO 4217 code.
    #[serde(deserialize_with = "currency")]
    pub currency: String,
    /// The lifetime of a reservation that isn't extended, in minutes.
    #[serde(deserialize_with = "whole::<1, 1_440, _, _>")]
    pub reservation_minutes: i64,
    /// The lifetime of a reservation for a call of the gateway, in seconds. The gateway extends it in time.
    #[serde(deserialize_with = "whole::<4, 600, _, _>")]
    pub gateway_reservation_seconds: i64,
    /// The name of the issuer on invoices, if any.
    #[serde(deserialize_with = "line")]
    pub issuer_name: Option<String>,
    /// The address of the issuer on invoices, which may have several lines.
    #[serde(deserialize_with = "lines")]
    pub issuer_address: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            credit_limit: None,
            further_credit_limit: Nano::ZERO,
            currency: "USD".to_owned(),
            reservation_minutes: 10,
            gateway_reservation_seconds: 60,
            issuer_name: None,
            issuer_address: None,
        }
    }
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nano, D::Error> {
    decimal(deserializer, "an amount", Nano::from_units(i64::MAX.into()), "25 or \"25.50\"")
}

fn optional_amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nano>, D::Error> {
    amount(deserializer).map(Some)
}

fn optional_as_text<S: Serializer>(amount: &Option<Nano>, serializer: S) -> Result<S::Ok, S::Error> {
    match amount {
        Some(amount) => as_text(amount, serializer),
        None => serializer.serialize_none(),
    }
}

fn line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, "one line of 1 to 200 characters", |text| {
        let fits =
            !text.trim().is_empty() && text.chars().count() <= 200 && !text.chars().any(char::is_control);
        fits.then(|| Some(text.trim().to_owned()))
    })
}

fn lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, "1 to 10 lines, together at most 1000 characters", |text| {
        let plain = !text.chars().any(|c| c.is_control() && c != '\n');
        let short = text.chars().count() <= 1_000 && text.trim().lines().count() <= 10;
        (plain && short && !text.trim().is_empty()).then(|| Some(text.trim().to_owned()))
    })
}

impl Settings {
    /// Returns the credit limits of new organizations.
    pub fn credit_limits(&self) -> credit_limits::CreditLimits {
        let first = self.credit_limit.unwrap_or(Nano::ZERO);
        credit_limits::CreditLimits { first, further: self.further_credit_limit }
    }
}

/// Table `audit` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSettings {
    /// The interval of audits, in hours; 0 turns them off.
    #[serde(deserialize_with = "whole::<0, 720, _, _>")]
    pub every_hours: u32,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { every_hours: 24 }
    }
}

/// Table `exports` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportSettings {
    /// The folder for files of all charges; if `None`, no files are written.
    #[serde(deserialize_with = "path")]
    pub folder: Option<PathBuf>,
    /// The hours between two writes.
    #[serde(deserialize_with = "whole::<1, 720, _, _>")]
    pub every_hours: u32,
    /// The version of FOCUS that the files follow.
    pub focus_version: Version,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self { folder: None, every_hours: 24, focus_version: Version::default() }
    }
}
