//! Settings of the listeners.

use std::path::PathBuf;

use ipnet::IpNet;

/// The settings that every request meets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Table `server`.
    pub server: Server,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; empty: none.
    pub cors_origins: Vec<String>,
    /// `true` to log a line for every request.
    pub log_access: bool,
}

/// Table `server`: what a client may take its time for. Each holds for each connection of each listener.
#[derive(Clone, Debug)]
pub struct Server {
    /// How long the head of a request may take to come, and a TLS handshake before it, in seconds.
    pub head_timeout_seconds: u32,
    /// How long a body may take to come, in seconds.
    pub body_timeout_seconds: u32,
    /// How long a client may take to read an answer, in seconds.
    pub write_timeout_seconds: u32,
    /// How long a connection may wait for its next request, in seconds.
    pub idle_timeout_seconds: u32,
    /// Connections that a listener has at a time; further ones wait to be accepted.
    pub max_connections: u32,
    /// The bytes that all unfinished request bodies may take together.
    pub body_budget_bytes: usize,
    /// How long browsers are told to use HTTPS only for this host, in seconds; 0: they aren't told.
    pub hsts_seconds: u32,
}

/// Table `tls`. A listener with a certificate speaks TLS and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The public listener's certificate and the ones that lead to its authority, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The service listener's certificate, PEM.
    pub service_certificate_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub service_key_file: Option<PathBuf>,
}
