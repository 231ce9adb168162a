//! Settings of the console.

use serde::{Deserialize, Deserializer, Serialize};

use ipnet::IpNet;
use kernel::document::values::{list, whole};
use kernel::proxies::parse_range;

/// The configuration table `console`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Console {
    /// `true` if the public listener has the console.
    pub enabled: bool,
    /// The lifetime of an unused session in hours, unless the user asked to be remembered; 0 for the lifetime
    /// of other sessions.
    #[serde(deserialize_with = "whole::<0, 720, _, _>")]
    pub idle_hours: u32,
    /// `true` to send the header `Strict-Transport-Security` if the public URL uses HTTPS.
    pub hsts: bool,
    /// The addresses from which operators can see the pages of the installation; empty for all addresses.
    #[serde(deserialize_with = "ranges")]
    pub operator_addresses: Vec<IpNet>,
}

fn ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    list(deserializer, "a list of IP addresses or CIDR ranges such as [\"10.0.0.0/8\"]", parse_range)
}

impl Default for Console {
    fn default() -> Self {
        Self { enabled: true, idle_hours: 12, hsts: true, operator_addresses: Vec::new() }
    }
}
