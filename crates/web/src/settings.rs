//! Settings of the listeners.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};

use kernel::document::values::{path, whole};

/// The settings that apply to every request.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration table `server`.
    pub server: Server,
    /// Peers whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; none if empty.
    pub cors_origins: Vec<String>,
    /// `true` if pages of every origin may make model calls and list models.
    pub allows_model_calls_from_browsers: bool,
    /// `true` to log a line for every request.
    pub log_access: bool,
}

/// The configuration table `server`: the timeouts and bounds of each listener.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The maximum time for the head of a request to arrive, including a TLS handshake before it, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub head_timeout_seconds: u32,
    /// The maximum time for a body to arrive, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub body_timeout_seconds: u32,
    /// The maximum time for a client to read a response, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub write_timeout_seconds: u32,
    /// The maximum time that a connection waits for its next request, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub idle_timeout_seconds: u32,
    /// The maximum number of connections of a listener. Further connections wait until they are accepted.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub max_connections: u32,
    /// The maximum number of bytes of all unfinished request bodies together. The largest body, of 16 MiB,
    /// must fit into the quarter that a single credential can use.
    #[serde(deserialize_with = "whole::<0x400_0000, 0x100_0000_0000, _, _>")]
    pub body_budget_bytes: usize,
    /// The rate at which the bodies of one organization, user or network are read, in bytes per second. At
    /// least 1 MiB, so that the largest body arrives within `body_timeout_seconds`.
    #[serde(deserialize_with = "whole::<0x10_0000, 0x100_0000_0000, _, _>")]
    pub body_bytes_per_second: usize,
    /// The time for which browsers use only HTTPS for this host, in seconds; 0 to omit the header. At most
    /// two years, the time that browsers' preload lists recommend.
    #[serde(deserialize_with = "whole::<0, 63_072_000, _, _>")]
    pub hsts_seconds: u32,
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    whole::<1, 3_600, _, _>(deserializer)
}

impl Default for Server {
    fn default() -> Self {
        Self {
            head_timeout_seconds: 10,
            body_timeout_seconds: 30,
            write_timeout_seconds: 30,
            // Longer than nginx (60 s), Traefik (90 s) and Caddy (120 s) keep their connections. If the
            // server closed a connection first, a request could arrive during the close.
            idle_timeout_seconds: 150,
            max_connections: 10_000,
            body_budget_bytes: 128 * 1024 * 1024,
            body_bytes_per_second: 128 * 1024 * 1024,
            hsts_seconds: 0,
        }
    }
}

/// The configuration table `tls`. A listener with a certificate accepts only TLS.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The path of the public listener's certificate with its intermediates, as PEM.
    #[serde(deserialize_with = "path")]
    pub certificate_file: Option<PathBuf>,
    /// The path of its private key, as PEM.
    #[serde(deserialize_with = "path")]
    pub key_file: Option<PathBuf>,
    /// The path of the service listener's certificate with its intermediates, as PEM.
    #[serde(deserialize_with = "path")]
    pub service_certificate_file: Option<PathBuf>,
    /// The path of its private key, as PEM.
    #[serde(deserialize_with = "path")]
    pub service_key_file: Option<PathBuf>,
}
