//! Settings of the call log.

use kernel::document::values::whole;
use serde::{Deserialize, Serialize};

/// Table `calls` of the configuration.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The time for which rows of calls are kept, in days; 0 logs no calls.
    #[serde(deserialize_with = "whole::<0, 400, _, _>")]
    pub days: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { days: 30 }
    }
}
