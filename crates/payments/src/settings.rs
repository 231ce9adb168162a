//! Table `payments` of the configuration.

use std::path::PathBuf;

use kernel::currencies;
use kernel::document::values::{decimal, path, text};
use kernel::money::Nano;
use kernel::secrets::{Secret, files};
use kernel::urls::BaseUrl;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stripe::Client;

use crate::Processor;

/// Table `payments` of the configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// File with Stripe's secret key. Payments are off without this and the next file.
    #[serde(deserialize_with = "path")]
    pub stripe_secret_key_file: Option<PathBuf>,
    /// File with the secret that signs Stripe's events.
    #[serde(deserialize_with = "path")]
    pub stripe_webhook_secret_file: Option<PathBuf>,
    /// URL of a proxy for Stripe's API; `None` means Stripe itself.
    #[serde(deserialize_with = "url", serialize_with = "url_text")]
    pub stripe_api_url: Option<BaseUrl>,
    /// Whether Stripe calculates tax on purchased credit, which is paid on top.
    pub stripe_tax: bool,
    /// Stripe's tax code of the credit; `None` means the account's default.
    #[serde(deserialize_with = "tax_code")]
    pub stripe_tax_code: Option<String>,
    /// Minimum payment, excluding tax; `None` means about 5 dollars.
    #[serde(deserialize_with = "amount", serialize_with = "amount_text")]
    pub minimum_amount: Option<Nano>,
    /// Maximum payment, and maximum of automatic top-ups per organization and day; invoices may be larger.
    /// `None` means about 10,000 dollars.
    #[serde(deserialize_with = "amount", serialize_with = "amount_text")]
    pub maximum_amount: Option<Nano>,
}

/// Default minimum payment, in dollars.
const MINIMUM: i64 = 5;
/// Default maximum payment, in dollars.
const MAXIMUM: i64 = 10_000;

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nano>, D::Error> {
    decimal(deserializer, "an amount", Nano::from_units(i64::MAX.into()), "5 or \"5.00\"").map(Some)
}

#[allow(clippy::ref_option, reason = "serde calls it so")]
fn amount_text<S: Serializer>(amount: &Option<Nano>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.as_ref().map(ToString::to_string).serialize(serializer)
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BaseUrl>, D::Error> {
    text(deserializer, "a URL such as \"https://stripe-proxy.example.com\"", |text| {
        BaseUrl::parse(text).map(Some)
    })
}

fn tax_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, "a tax code of Stripe such as \"txcd_10103001\"", |text| {
        let digits = text.strip_prefix("txcd_")?;
        let is_good = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_good.then(|| Some(text.to_owned()))
    })
}

#[allow(clippy::ref_option, reason = "serde calls it so")]
fn url_text<S: Serializer>(url: &Option<BaseUrl>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(ToString::to_string).serialize(serializer)
}

impl Settings {
    /// Returns `true` if payments are configured.
    pub const fn is_on(&self) -> bool {
        self.stripe_secret_key_file.is_some() && self.stripe_webhook_secret_file.is_some()
    }

    /// Returns the minimum payment in a currency, excluding tax.
    pub fn minimum(&self, currency: &str) -> Nano {
        self.minimum_amount.unwrap_or_else(|| default_amount(MINIMUM, currency))
    }

    /// Returns the maximum payment in a currency, excluding tax.
    pub fn maximum(&self, currency: &str) -> Nano {
        self.maximum_amount.unwrap_or_else(|| default_amount(MAXIMUM, currency))
    }

    /// Reads the files; `None` if payments are off. `currency` is the currency of new wallets.
    ///
    /// # Errors
    /// A sentence for the operator that contains no secret.
    pub fn open(&self, currency: &str) -> Result<Option<Processor>, String> {
        let (Some(key_file), Some(secret_file)) =
            (&self.stripe_secret_key_file, &self.stripe_webhook_secret_file)
        else {
            return Ok(None);
        };
        let (least, most) = (self.minimum(currency), self.maximum(currency));
        if least > most {
            return Err(format!(
                "`payments.minimum_amount` ({least} {currency}) is more than `payments.maximum_amount` ({most} {currency})"
            ));
        }
        let key = read("payments.stripe_secret_key_file", key_file, &["sk_", "rk_"])?;
        let webhook_secret = read("payments.stripe_webhook_secret_file", secret_file, &["whsec_"])?;
        let settings = stripe::Settings::new(key, self.stripe_api_url.clone())
            .map_err(|error| format!("`payments.stripe_api_url`: {error}"))?;
        let client = Client::new(settings).map_err(|error| format!("payments: {error}"))?;
        Ok(Some(Processor { client, webhook_secret }))
    }
}

/// Returns an amount in a currency that is worth roughly `dollars`.
fn default_amount(dollars: i64, currency: &str) -> Nano {
    let units = i128::from(dollars) * i128::from(currencies::magnitude(currency));
    Nano::from_units(units * 1_000_000_000)
}

/// Reads a secret that must begin with one of the prefixes.
fn read(key: &str, file: &std::path::Path, prefixes: &[&str]) -> Result<Secret, String> {
    let (secret, warning) = files::read_credential(file).map_err(|error| format!("`{key}`: {error}"))?;
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    if !prefixes.iter().any(|prefix| secret.expose().starts_with(prefix)) {
        let prefixes = prefixes.join("` or `");
        return Err(format!(
            "`{key}`: the file {} must contain a secret that begins with `{prefixes}`",
            file.display()
        ));
    }
    Ok(secret)
}
