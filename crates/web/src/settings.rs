//! Settings of the listeners.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};

use kernel::document::values::{path, whole};

/// The settings that apply to every request.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Table `server`.
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

/// Table `server`: the timeouts and bounds of each listener.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The time that the head of a request, and a TLS handshake before it, may take to arrive, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub head_timeout_seconds: u32,
    /// The time that a body may take to arrive, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub body_timeout_seconds: u32,
    /// The time that a client may take to read a response, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub write_timeout_seconds: u32,
    /// The time that a connection may wait for its next request, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub idle_timeout_seconds: u32,
    /// Maximum number of connections of a listener; further ones wait to be accepted.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub max_connections: u32,
    /// Maximum number of bytes of all unfinished request bodies together. The largest body, of 16 MiB, must fit
    /// into the quarter that one credential gets.
    #[serde(deserialize_with = "whole::<0x400_0000, 0x100_0000_0000, _, _>")]
    pub body_budget_bytes: usize,
    /// The time that browsers use only HTTPS for this host, in seconds; with 0 the header isn't sent. At most
    /// two years, the time that browsers' preload lists ask for.
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
            // Longer than nginx (60 s), Traefik (90 s) and Caddy (120 s) keep their connections: if the server
            // closed first, a request could arrive during the close.
            idle_timeout_seconds: 150,
            max_connections: 10_000,
            body_budget_bytes: 128 * 1024 * 1024,
            hsts_seconds: 0,
        }
    }
}

/// Table `tls`. A listener with a certificate accepts only TLS.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The public listener's certificate and its intermediates, PEM.
    #[serde(deserialize_with = "path")]
    pub certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(deserialize_with = "path")]
    pub key_file: Option<PathBuf>,
    /// The service listener's certificate, PEM.
    #[serde(deserialize_with = "path")]
    pub service_certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(deserialize_with = "path")]
    pub service_key_file: Option<PathBuf>,
}
