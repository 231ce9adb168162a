//! The settings of the log.

use serde::{Deserialize, Deserializer, Serialize};
use tracing_subscriber::EnvFilter;

use kernel::document::values::{text, word};

/// The table `log` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    #[serde(deserialize_with = "word")]
    pub format: Format,
    /// The log level, or levels per target, such as `info,billing=debug`.
    #[serde(deserialize_with = "level")]
    pub level: String,
    /// Whether every request is logged.
    pub access: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { format: Format::Text, level: "info".to_owned(), access: true }
    }
}

/// Reads the log levels. `EnvFilter` takes any bare word as a target, so a misspelled level would silence
/// everything else. Here, a bare word must be a level.
fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let what = "off, error, warn, info, debug or trace, or a list such as \"info,cluster=debug\"";
    text(deserializer, what, |text| {
        let known = |part: &str| {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
            LEVELS.contains(&level.to_ascii_lowercase().as_str())
        };
        let fits = text.split(',').all(known) && EnvFilter::builder().parse(text).is_ok();
        fits.then(|| text.to_owned())
    })
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text for humans.
    Text,
    /// A JSON object per line, for programs.
    Json,
}
