//! The configuration: built-in defaults, then a TOML file, then environment variables
//! (docs/contract/operators.md#configuration).
//!
//! `config/keys.rs` is the table of all keys, with how each is read and shown. A wrong key or value stops the
//! start. Its error names the file, the line and the expected value, or the variable. All mistakes are
//! reported at once, and no error shows a secret.

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

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The public listener.
    pub listen: SocketAddr,
    /// The service listener, for the platform's own inference servers.
    pub service_listen: SocketAddr,
    /// The bearer token of the service listener; `None`: created at the first start, as `service.token` in
    /// the data folder.
    pub service_token: Option<Secret>,
    /// The folder of the SQLite file, the master key and the mail files.
    pub data_dir: PathBuf,
    /// The database; `None`: an SQLite file in the data folder.
    pub database_url: Option<DatabaseUrl>,
    /// A standby of that PostgreSQL, for reports; `None`: reports are read from the primary.
    pub database_replica_url: Option<DatabaseUrl>,
    /// How far the standby may be behind, in seconds; past it reports are read from the primary.
    pub database_replica_max_lag_seconds: u32,
    /// `true` to start on a PostgreSQL with `fsync = off`: for throwaway databases of tests.
    pub database_allow_fsync_off: bool,
    /// Encrypts API keys and signing keys: 32 bytes in base64, already validated. See
    /// [`Config::master_key_bytes`].
    pub master_key: Option<Secret>,
    /// The file that holds the master key; `None`: `master.key` in the data folder.
    pub master_key_file: Option<PathBuf>,
    /// The master key that is being replaced: decrypts older secrets, and encrypts none.
    pub master_key_previous: Option<Secret>,
    /// The file that holds it; `None`: there is none.
    pub master_key_previous_file: Option<PathBuf>,
    /// The prefix of links in mails, and the issuer of tokens. See [`Config::public_url`].
    pub public_url: Option<PublicUrl>,
    /// `true` if a login needs a verified e-mail address.
    pub require_verified_email: bool,
    /// The model catalog; `None`: the built-in one.
    pub catalog_file: Option<PathBuf>,
    /// Peers whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; empty: none.
    pub cors_origins: Vec<String>,
    /// How long requests in flight may take after the stop signal, in milliseconds.
    pub shutdown_grace_ms: u32,
    pub server: Server,
    pub tls: Tls,
    /// Delivery of mail.
    pub mail: mail::Settings,
    pub log: Log,
    /// Rate limits and bounds.
    pub limits: Limits,
    /// How long data is kept.
    pub retention: Retention,
    pub billing: Billing,
    pub api_keys: ApiKeys,
    /// Password hashing.
    pub passwords: Passwords,
    pub audit: Audit,
    pub telemetry: telemetry::Settings,
}

/// Table `retention`.
#[derive(Clone, Debug)]
pub struct Retention {
    /// How long an account is kept that was never verified, used or made a member, in days; 0: for ever.
    pub unverified_accounts_days: u32,
    /// How long audit entries are kept, in days; 0: for ever.
    pub audit_log_days: u32,
    /// How long mail files are kept, in days; 0: for ever.
    pub mail_files_days: u32,
}

/// Table `passwords`.
#[derive(Clone, Debug)]
pub struct Passwords {
    /// Threads that hash passwords.
    pub hash_threads: usize,
    /// Passwords that may wait for a thread; past it 429.
    pub queue: usize,
}

impl Default for Retention {
    fn default() -> Self {
        // Audit entries of a whole year are still there a month after its end.
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
                // Longer than nginx (60 s), Traefik (90 s) and Caddy (120 s) keep their connections: if the
                // server closed first, a request could meet the close.
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
    /// Loads the configuration: defaults, then `file` (or `tollkeeper.toml` in the working folder, if it
    /// exists), then the variables of `environment` that start with `TOLLKEEPER_`.
    ///
    /// # Errors
    /// All unknown keys and wrong values.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        load::load(file, Path::new("tollkeeper.toml"), environment)
    }

    /// Returns the prefix of links, without a trailing slash: as configured, or the public listener's own
    /// address, with `https://` if it has a certificate.
    pub fn public_url(&self) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None if self.tls.certificate_file.is_some() => format!("https://{}", self.listen),
            None => format!("http://{}", self.listen),
        }
    }

    /// Returns the URL of the service listener, with `https://` if it has a certificate.
    pub fn service_url(&self) -> String {
        let scheme = if self.tls.service_certificate_file.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.service_listen)
    }

    /// Returns the database: as configured, or `tollkeeper.db` in the data folder.
    pub fn database_url_or_default(&self) -> DatabaseUrl {
        match &self.database_url {
            Some(url) => url.clone(),
            None => DatabaseUrl::Sqlite(self.data_dir.join("tollkeeper.db")),
        }
    }

    /// Returns the 32 bytes of `master_key`, if that is set.
    pub fn master_key_bytes(&self) -> Option<[u8; 32]> {
        self.master_key.as_ref().and_then(|key| types::decode_master_key(key.expose()))
    }

    /// Returns the file of the master key: as configured, or `master.key` in the data folder.
    pub fn master_key_file_or_default(&self) -> PathBuf {
        self.master_key_file.clone().unwrap_or_else(|| self.data_dir.join("master.key"))
    }

    /// Returns the effective configuration as TOML; secrets are shown as `***`.
    pub fn to_toml(&self) -> String {
        keys::to_toml(self)
    }

    /// Returns the effective configuration as JSON; secrets are shown as `***`, unset keys as null.
    pub fn to_json(&self) -> String {
        keys::to_json(self)
    }
}

/// The mistakes of a configuration, one per line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Each with its place and the expected value.
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
