//! Settings: the table `telemetry` of the configuration.

use std::fmt;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use kernel::document::values::{as_text, decimal, list};
use kernel::money::{Decimal, Ppm};
use kernel::secrets::HIDDEN;
use kernel::urls::PublicUrl;

/// The table `telemetry`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The OTLP over HTTP endpoint of an OpenTelemetry collector; `None` turns telemetry off.
    pub endpoint: Option<PublicUrl>,
    /// Headers of each export.
    #[serde(deserialize_with = "headers")]
    pub headers: Vec<Header>,
    /// The fraction of requests to trace.
    #[serde(deserialize_with = "ratio", serialize_with = "as_text")]
    pub sample_ratio: Ppm,
    /// Whether log lines are exported too.
    pub logs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { endpoint: None, headers: Vec::new(), sample_ratio: Decimal::from_units(100_000), logs: false }
    }
}

fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Header>, D::Error> {
    list(deserializer, "a list of headers such as [\"x-api-key=SECRET\"]", Header::parse)
}

fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ppm, D::Error> {
    decimal(deserializer, "a part", Decimal::from_units(1_000_000), "\"0.01\"")
}

/// A header of exports, for instance with an access key. Its value is secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    name: HeaderName,
    value: HeaderValue,
}

impl Header {
    /// Parses `name=value`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        // Hides the value from `Debug`.
        value.set_sensitive(true);
        Some(Self { name: name.trim().parse().ok()?, value })
    }

    /// Returns the name and the value.
    pub fn parts(&self) -> (HeaderName, HeaderValue) {
        (self.name.clone(), self.value.clone())
    }
}

/// Writes the header without its value.
impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={HIDDEN}", self.name)
    }
}
