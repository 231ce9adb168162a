//! Settings: the table `telemetry` of the configuration.

use std::fmt;

use http::{HeaderName, HeaderValue};
use kernel::money::Decimal;
use kernel::secrets::HIDDEN;
use kernel::urls::PublicUrl;

/// The table `telemetry`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The OTLP over HTTP endpoint of an OpenTelemetry collector; `None`: no telemetry.
    pub endpoint: Option<PublicUrl>,
    /// Headers of each export.
    pub headers: Vec<Header>,
    /// The fraction of requests that is traced.
    pub sample_ratio: Decimal<6>,
    /// Export log lines too.
    pub logs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { endpoint: None, headers: Vec::new(), sample_ratio: Decimal::from_units(100_000), logs: false }
    }
}

/// A header of exports, for instance with an access key. Its value is secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    name: HeaderName,
    value: HeaderValue,
}

impl Header {
    /// Reads `name=value`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        // Hides the value from `Debug`.
        value.set_sensitive(true);
        Some(Self { name: name.trim().parse().ok()?, value })
    }

    /// The name and the value.
    pub fn parts(&self) -> (HeaderName, HeaderValue) {
        (self.name.clone(), self.value.clone())
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={HIDDEN}", self.name)
    }
}
