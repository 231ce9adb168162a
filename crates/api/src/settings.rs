//! Settings of the console.

use serde::{Deserialize, Serialize};

use kernel::document::values::whole;

/// Table `console`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Console {
    /// `true` if the public listener has the console.
    pub enabled: bool,
    /// How long a session lives without use, unless the person asked to be remembered, in hours; 0: as others.
    #[serde(deserialize_with = "whole::<0, 720, _, _>")]
    pub idle_hours: u32,
    /// `true` if browsers are told to use only HTTPS for this host, where the public URL is HTTPS.
    pub hsts: bool,
}

impl Default for Console {
    fn default() -> Self {
        Self { enabled: true, idle_hours: 12, hsts: true }
    }
}
