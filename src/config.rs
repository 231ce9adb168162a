//! The configuration: built-in defaults, then a TOML file, then environment variables
//! (docs/contract/operators.md#configuration).
//!
//! [`Config`] lists all keys, and defines how each of them is read and shown. An invalid key or value aborts
//! the start. The error contains the file, the line, and the expected value, or the variable. No error
//! contains a secret.

mod load;
mod shown;
mod types;
mod warnings;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use kernel::document::values::{hidden, path, table, whole};

pub use ::accounts::settings::{RegistrationMode, SecondFactorFor, SignIn};
pub use ::api::settings::Console;
pub use ::call_log::settings::Settings as Calls;
pub use ::keys::settings::{Management, Settings as ApiKeys};
pub use billing::settings::{AuditSettings as Audit, ExportSettings as Exports, Settings as Billing};
pub use kernel::document::variable;
pub use kernel::limits::Limits;
pub use logging::settings::{Format as LogFormat, Settings as Log};
pub use mail::{MailUrl, SmtpLogin, SmtpServer, SmtpTls};
pub use shown::names;
pub use types::{DatabaseUrl, Header, PublicUrl};
pub use warnings::warnings;
pub use web::settings::{Server, Tls};

use kernel::secrets::Secret;

/// The effective configuration, in display order: the keys of the root table come first, as TOML requires.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The public listener.
    #[serde(deserialize_with = "types::address")]
    pub listen: SocketAddr,
    /// The service listener, for the platform's own inference servers.
    #[serde(deserialize_with = "types::address")]
    pub service_listen: SocketAddr,
    /// The bearer token of the service listener; `None` creates one at the first start, as `service.token` in
    /// the data folder.
    #[serde(deserialize_with = "types::service_token", serialize_with = "hidden")]
    pub service_token: Option<Secret>,
    /// The folder for the SQLite file, the master key, and the e-mail files.
    #[serde(deserialize_with = "path")]
    pub data_dir: PathBuf,
    /// The database; `None` means an SQLite file in the data folder.
    pub database_url: Option<DatabaseUrl>,
    /// A standby of the PostgreSQL server, for reports; `None` reads reports from the primary.
    #[serde(deserialize_with = "types::replica")]
    pub database_replica_url: Option<DatabaseUrl>,
    /// Maximum lag of the standby, in seconds. Above it, reports are read from the primary.
    #[serde(deserialize_with = "whole::<3, 3_600, _, _>")]
    pub database_replica_max_lag_seconds: u32,
    /// Whether to start on a PostgreSQL server with `fsync = off`. For throwaway test databases.
    pub database_allow_fsync_off: bool,
    /// Encrypts API keys and signing keys: 32 bytes in base64, already validated. See
    /// [`Config::master_key_bytes`].
    #[serde(deserialize_with = "types::master_key", serialize_with = "hidden")]
    pub master_key: Option<Secret>,
    /// The file with the master key; `None` means `master.key` in the data folder.
    #[serde(deserialize_with = "types::key_path")]
    pub master_key_file: Option<PathBuf>,
    /// The master key being replaced: decrypts older secrets, but doesn't encrypt new ones.
    #[serde(deserialize_with = "types::master_key", serialize_with = "hidden")]
    pub master_key_previous: Option<Secret>,
    /// The file with the master key being replaced, if any.
    #[serde(deserialize_with = "types::key_path")]
    pub master_key_previous_file: Option<PathBuf>,
    /// The prefix of links in e-mails, and the issuer of tokens. See [`Config::public_url`].
    pub public_url: Option<PublicUrl>,
    /// Whether login requires a verified email address.
    pub require_verified_email: bool,
    /// Restriction on registration.
    pub registration: RegistrationMode,
    /// The model catalog; `None` means the built-in one.
    #[serde(deserialize_with = "path")]
    pub catalog_file: Option<PathBuf>,
    /// Peers whose `X-Forwarded-For` is trusted.
    #[serde(deserialize_with = "types::ranges")]
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the public listener from a browser; empty means none.
    #[serde(deserialize_with = "types::origins")]
    pub cors_origins: Vec<String>,
    /// Grace period for requests in flight after the stop signal, in milliseconds.
    #[serde(deserialize_with = "whole::<0, 600_000, _, _>")]
    pub shutdown_grace_ms: u32,
    #[serde(deserialize_with = "table")]
    pub server: Server,
    #[serde(deserialize_with = "table")]
    pub tls: Tls,
    /// Delivery of mail.
    #[serde(deserialize_with = "table")]
    pub mail: mail::Settings,
    #[serde(deserialize_with = "table")]
    pub log: Log,
    /// Rate limits and bounds.
    #[serde(deserialize_with = "table")]
    pub limits: Limits,
    /// Retention of data.
    #[serde(deserialize_with = "table")]
    pub retention: Retention,
    #[serde(deserialize_with = "table")]
    pub billing: Billing,
    #[serde(deserialize_with = "table")]
    pub api_keys: ApiKeys,
    /// Password hashing.
    #[serde(deserialize_with = "table")]
    pub passwords: Passwords,
    /// Sign-in methods.
    #[serde(deserialize_with = "table")]
    pub sign_in: SignIn,
    #[serde(deserialize_with = "table")]
    pub console: Console,
    /// The log of model calls.
    #[serde(deserialize_with = "table")]
    pub calls: Calls,
    #[serde(deserialize_with = "table")]
    pub audit: Audit,
    #[serde(deserialize_with = "table")]
    pub exports: Exports,
    #[serde(deserialize_with = "table")]
    pub webhooks: webhooks::Settings,
    #[serde(deserialize_with = "table")]
    pub gateway: gateway::Settings,
    /// Payments through Stripe.
    #[serde(deserialize_with = "table")]
    pub payments: payments::settings::Settings,
    #[serde(deserialize_with = "table")]
    pub telemetry: telemetry::Settings,
}

/// Table `retention`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Retention of accounts that were never verified, used, or added as a member, in days; 0 means forever.
    #[serde(deserialize_with = "whole::<0, 36_500, _, _>")]
    pub unverified_accounts_days: u32,
    /// Retention of audit entries, in days; 0 means forever.
    #[serde(deserialize_with = "types::audit_log_days")]
    pub audit_log_days: u32,
    /// Retention of mail files, in days; 0 means forever.
    #[serde(deserialize_with = "whole::<0, 36_500, _, _>")]
    pub mail_files_days: u32,
    /// Retention of webhook deliveries, in days; 0 means forever.
    #[serde(deserialize_with = "whole::<0, 36_500, _, _>")]
    pub webhook_deliveries_days: u32,
}

/// Table `passwords`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Passwords {
    /// Number of threads that hash passwords.
    #[serde(deserialize_with = "whole::<1, 256, _, _>")]
    pub hash_threads: usize,
    /// Maximum number of passwords waiting for a thread. Beyond it, requests get a 429.
    #[serde(deserialize_with = "whole::<1, 100_000, _, _>")]
    pub queue: usize,
}

impl Default for Retention {
    fn default() -> Self {
        // Audit entries of a whole year are still available a month after its end.
        Self {
            unverified_accounts_days: 30,
            audit_log_days: 400,
            mail_files_days: 30,
            webhook_deliveries_days: 30,
        }
    }
}

impl Default for Passwords {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Leave one core free for everything else.
        Self { hash_threads: cores.saturating_sub(1).max(1), queue: 128 }
    }
}

impl Default for Config {
    fn default() -> Self {
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
            registration: RegistrationMode::Open,
            catalog_file: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            // Below the 10 seconds after which container runtimes kill the process.
            shutdown_grace_ms: 8_000,
            server: Server::default(),
            tls: Tls::default(),
            mail: mail::Settings::default(),
            log: Log::default(),
            limits: Limits::default(),
            retention: Retention::default(),
            billing: Billing::default(),
            api_keys: ApiKeys::default(),
            passwords: Passwords::default(),
            sign_in: SignIn::default(),
            console: Console::default(),
            calls: Calls::default(),
            audit: Audit::default(),
            exports: Exports::default(),
            webhooks: webhooks::Settings::default(),
            gateway: gateway::Settings::default(),
            payments: payments::settings::Settings::default(),
            telemetry: telemetry::Settings::default(),
        }
    }
}

impl Config {
    /// Loads the configuration: defaults, then `file` (or `tollkeeper.toml` in the working directory, if it
    /// exists), then the variables in `environment` that start with `TOLLKEEPER_`.
    ///
    /// # Errors
    /// The first unknown key or invalid value.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
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
        shown::to_toml(self)
    }

    /// Returns the effective configuration as JSON; secrets are shown as `***`, unset keys as null.
    pub fn to_json(&self) -> String {
        shown::to_json(self)
    }
}

#[cfg(test)]
mod tests;
