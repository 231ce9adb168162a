//! Settings of the listeners.

use std::path::PathBuf;

use ipnet::IpNet;

/// The settings that apply to every request.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Table `server`.
    pub server: Server,
    /// Peers whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; empty: none.
    pub cors_origins: Vec<String>,
    /// `true` to log a line for every request.
    pub log_access: bool,
}

/// Table `server`: the timeouts and bounds of each listener.
#[derive(Clone, Debug)]
pub struct Server {
    /// How long the head of a request, and a TLS handshake before it, may take to arrive, in seconds.
    pub head_timeout_seconds: u32,
    /// How long a body may take to arrive, in seconds.
    pub body_timeout_seconds: u32,
    /// How long a client may take to read an answer, in seconds.
    pub write_timeout_seconds: u32,
    /// How long a connection may wait for its next request, in seconds.
    pub idle_timeout_seconds: u32,
    /// The most connections of a listener; further ones wait to be accepted.
    pub max_connections: u32,
    /// The most bytes of all unfinished request bodies together.
    pub body_budget_bytes: usize,
    /// How long browsers are told to use only HTTPS for this host, in seconds; 0: the header isn't sent.
    pub hsts_seconds: u32,
}

/// Table `tls`. A listener with a certificate accepts nothing but TLS.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The public listener's certificate and its intermediates, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The service listener's certificate, PEM.
    pub service_certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub service_key_file: Option<PathBuf>,
}
