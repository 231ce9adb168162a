//! Settings of API keys.

use serde::{Deserialize, Deserializer, Serialize};

use crate::rules::rotation::MAX_GRACE_HOURS;
use kernel::document::values::{text, whole, word};

/// The table `api_keys` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The rights of API keys on management endpoints.
    #[serde(deserialize_with = "word")]
    pub management: Management,
    /// The prefix of new keys.
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    /// `true` if a sealed copy of each key's secret is kept, so that a rotation can return the previous
    /// secret.
    pub keep_sealed: bool,
    /// The time for which the previous secret of a rotated key stays valid, in hours.
    #[serde(deserialize_with = "whole::<0, MAX_GRACE_HOURS, _, _>")]
    pub rotation_grace_hours: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            management: Management::Full,
            prefix: "tk_".to_owned(),
            keep_sealed: true,
            rotation_grace_hours: 24,
        }
    }
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let what = "1 to 20 letters, digits, `_` or `-`, a letter first and `_` or `-` last, such as \"tk_\"";
    text(deserializer, what, |text| {
        let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let ends = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.ends_with(['_', '-']);
        (letters && ends && text.len() <= 20).then(|| text.to_owned())
    })
}

/// The rights of API keys on management endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Management {
    /// The rights of the key's creator.
    Full,
    /// Only reads.
    Read,
    /// No access.
    None,
}
