//! The configuration: built-in defaults, then a TOML file, then environment variables
//! (docs/contract/operators.md#configuration).
//!
//! `config/keys.rs` is the table of all keys: how each is read and shown. A wrong key or value stops the start
//! with the file, the line and what would be right, or with the variable's name; every mistake is reported at
//! once, and none of the errors holds the value of a secret.

mod keys;
mod load;
mod readers;
mod redaction;
mod types;
mod warnings;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use kernel::money::Nano;

pub use ::keys::settings::{Management, Settings as ApiKeys};
pub use billing::settings::{AuditSettings as Audit, Settings as Billing};
pub use document::variable;
pub use kernel::limits::Limits;
pub use keys::names;
pub use logging::settings::{Format as LogFormat, Settings as Log};
pub use mail::{MailUrl, SmtpLogin, SmtpServer, SmtpTls};
pub use types::{DatabaseUrl, Header, PublicUrl};
pub use warnings::warnings;
pub use web::settings::{Server, Tls};

use kernel::secrets::Secret;

/// Everything that an operator can set.
#[derive(Clone, Debug)]
pub struct Config {
    /// The public listener.
    pub listen: SocketAddr,
    /// The service listener, for the platform's own inference servers.
    pub service_listen: SocketAddr,
    /// Bearer of the service listener; `None`: made at first start, in `service.token` of the data folder.
    pub service_token: Option<Secret>,
    /// Holds the SQLite file, the master key and the mail folder.
    pub data_dir: PathBuf,
    /// The database; `None`: an SQLite file in the data folder.
    pub database_url: Option<DatabaseUrl>,
    /// A standby of that PostgreSQL, for reports; `None`: they are read where everything is.
    pub database_replica_url: Option<DatabaseUrl>,
    /// How far it may be behind, in seconds; else reports are read from the primary.
    pub database_replica_max_lag_seconds: u32,
    /// `true` to start on a PostgreSQL with `fsync = off`: for throwaway databases of tests.
    pub database_allow_fsync_off: bool,
    /// Seals API keys and signing keys: base64 of 32 bytes, already checked. See [`Config::master_key_bytes`].
    pub master_key: Option<Secret>,
    /// The file that holds the master key; `None`: `master.key` in the data folder.
    pub master_key_file: Option<PathBuf>,
    /// The master key that is being replaced: opens what is still sealed under it, and seals nothing.
    pub master_key_previous: Option<Secret>,
    /// The file that holds it; `None`: there is none.
    pub master_key_previous_file: Option<PathBuf>,
    /// What links in mails start with, and the issuer of tokens. See [`Config::public_url`].
    pub public_url: Option<PublicUrl>,
    /// Whether a login needs a verified e-mail address.
    pub require_verified_email: bool,
    /// The model catalog; `None`: the built-in one.
    pub catalog_file: Option<PathBuf>,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; empty: none.
    pub cors_origins: Vec<String>,
    /// How long open requests may take to end after the signal to stop, in milliseconds.
    pub shutdown_grace_ms: u32,
    /// Connections of both listeners.
    pub server: Server,
    /// TLS on the listeners.
    pub tls: Tls,
    /// Mail to users.
    pub mail: mail::Settings,
    /// The log.
    pub log: Log,
    /// Throttling.
    pub limits: Limits,
    /// Removal of rows and files by their age.
    pub retention: Retention,
    /// Money.
    pub billing: Billing,
    /// API keys.
    pub api_keys: ApiKeys,
    /// The checking of passwords.
    pub passwords: Passwords,
    /// The audit of the books.
    pub audit: Audit,
    /// Traces.
    pub telemetry: telemetry::Settings,
}

/// Table `retention`.
#[derive(Clone, Debug)]
pub struct Retention {
    /// How long an account is kept that was never verified, logged in to or made a member of anything, in days; 0: for ever.
    pub unverified_accounts_days: u32,
    /// How long entries of the audit trail are kept, in days; 0: for ever.
    pub audit_log_days: u32,
    /// How long mails are kept that were written to files, in days; 0: for ever.
    pub mail_files_days: u32,
}

/// Table `passwords`.
#[derive(Clone, Debug)]
pub struct Passwords {
    /// Threads that hash passwords.
    pub hash_threads: usize,
    /// Passwords that may wait for a thread; past it the answer is 429.
    pub queue: usize,
}

impl Default for Retention {
    fn default() -> Self {
        // A month after the end of a year, the trail still holds all of it.
        Self { unverified_accounts_days: 30, audit_log_days: 400, mail_files_days: 30 }
    }
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            service_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            service_token: None,
            data_dir: PathBuf::from("./tollkeeper-data"),
            database_url: None,
            database_replica_url: None,
            database_replica_max_lag_seconds: 10,
            database_allow_fsync_off: false,
            master_key: None,
            master_key_file: None,
            master_key_previous: None,
            master_key_previous_file: None,
            public_url: None,
            require_verified_email: false,
            catalog_file: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            // Below the 10 s after which container runtimes kill.
            shutdown_grace_ms: 8_000,
            server: Server {
                head_timeout_seconds: 10,
                body_timeout_seconds: 30,
                write_timeout_seconds: 30,
                // Longer than nginx (60 s), Traefik (90 s) and Caddy (120 s) keep theirs: who opened a connection should be
                // the one to close it, or a request may meet the close.
                idle_timeout_seconds: 150,
                max_connections: 10_000,
                body_budget_bytes: 128 * 1024 * 1024,
                hsts_seconds: 0,
            },
            tls: Tls::default(),
            mail: mail::Settings { url: MailUrl::File, from: "Tollkeeper <tollkeeper@localhost>".to_owned() },
            log: Log { format: LogFormat::Text, level: "info".to_owned(), access: true },
            limits: Limits::default(),
            retention: Retention::default(),
            billing: Billing {
                credit_limit: Nano::from_units(100_000_000_000),
                further_credit_limit: Nano::ZERO,
                currency: "USD".to_owned(),
                reservation_minutes: 10,
                issuer_name: None,
                issuer_address: None,
            },
            api_keys: ApiKeys {
                management: Management::Full,
                prefix: "tk_".to_owned(),
                keep_sealed: true,
                rotation_grace_hours: 24,
            },
            // One core stays free for everything else.
            passwords: Passwords { hash_threads: cores.saturating_sub(1).max(1), queue: 128 },
            audit: Audit { every_hours: 24 },
            telemetry: telemetry::Settings::default(),
        }
    }
}

impl Config {
    /// Defaults, then `file` (or `tollkeeper.toml` in the working folder, when that exists), then the variables
    /// of `environment` that start with `TOLLKEEPER_`.
    ///
    /// # Errors
    /// Every unknown key and every wrong value.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        load::load(file, Path::new("tollkeeper.toml"), environment)
    }

    /// What links start with, without a slash at the end: as configured, or the public listener's
    /// own address, `https://` where it has a certificate.
    pub fn public_url(&self) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None if self.tls.certificate_file.is_some() => format!("https://{}", self.listen),
            None => format!("http://{}", self.listen),
        }
    }

    /// The URL of the service listener, `https://` where it has a certificate.
    pub fn service_url(&self) -> String {
        let scheme = if self.tls.service_certificate_file.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.service_listen)
    }

    /// The database: as configured, or `tollkeeper.db` in the data folder.
    pub fn database_url_or_default(&self) -> DatabaseUrl {
        match &self.database_url {
            Some(url) => url.clone(),
            None => DatabaseUrl::Sqlite(self.data_dir.join("tollkeeper.db")),
        }
    }

    /// The 32 bytes of `master_key`, where that is set.
    pub fn master_key_bytes(&self) -> Option<[u8; 32]> {
        self.master_key.as_ref().and_then(|key| types::decode_master_key(key.expose()))
    }

    /// The file of the master key: as configured, or `master.key` in the data folder.
    pub fn master_key_file_or_default(&self) -> PathBuf {
        self.master_key_file.clone().unwrap_or_else(|| self.data_dir.join("master.key"))
    }

    /// The effective configuration as TOML; secrets are shown as `***`.
    pub fn to_toml(&self) -> String {
        keys::to_toml(self)
    }

    /// The effective configuration as JSON; secrets are shown as `***`, what isn't set as null.
    pub fn to_json(&self) -> String {
        keys::to_json(self)
    }
}

/// Why the configuration can't be used: one line a mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Each with its place and what would be right.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
