//! The settings: table `telemetry` of the configuration.

use std::fmt;

use http::{HeaderName, HeaderValue};
use kernel::money::Decimal;
use kernel::secrets::HIDDEN;
use kernel::urls::PublicUrl;

/// Table `telemetry`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where an OpenTelemetry collector takes OTLP over HTTP; `None`: nothing is traced.
    pub endpoint: Option<PublicUrl>,
    /// Headers that it wants.
    pub headers: Vec<Header>,
    /// Which part of the requests is traced.
    pub sample_ratio: Decimal<6>,
    /// Whether the log's lines go there too.
    pub logs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { endpoint: None, headers: Vec::new(), sample_ratio: Decimal::from_units(100_000), logs: false }
    }
}

/// A header that is sent along, for instance with a key of the one who takes it: its value is a secret.
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
        // Then its `Debug` doesn't show it either.
        value.set_sensitive(true);
        Some(Self { name: name.trim().parse().ok()?, value })
    }

    /// As it is sent.
    pub fn parts(&self) -> (HeaderName, HeaderValue) {
        (self.name.clone(), self.value.clone())
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={HIDDEN}", self.name)
    }
}
