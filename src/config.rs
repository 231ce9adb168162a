//! The configuration: built-in defaults, then a TOML file, then environment variables
//! (docs/contract/operators.md#configuration).
//!
//! `config/keys.rs` is the table of all keys: how each is read and shown. A wrong key or value stops the start
//! with the file, the line and what would be right, or with the variable's name; every mistake is reported at
//! once, and none of the errors holds the value of a secret.

pub mod document;
mod keys;
mod load;
mod readers;
mod shown;
mod types;
pub mod values;
mod warnings;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::rules::credit_limits;
use kernel::money::Nano;
use mail::bounds::Bounds;

pub use keys::{names, variable};
pub use mail::{MailUrl, SmtpLogin, SmtpServer, SmtpTls};
pub use types::{DatabaseUrl, Header, LogFormat, Management, PublicUrl};
pub use warnings::warnings;

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

/// Table `log`.
#[derive(Clone, Debug)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// A level, or a level for each part of the program: `info,tollkeeper::live=debug`.
    pub level: String,
    /// Whether every request gets a line.
    pub access: bool,
}

/// Table `limits`. Restrictions of API keys hold whether it is enabled or not.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Whether anything of this table holds.
    pub enabled: bool,
    /// Management calls that only read, a minute and caller.
    pub reads_per_minute: u32,
    /// Management calls that write, a minute and caller.
    pub writes_per_minute: u32,
    /// Login attempts, a minute and client address.
    pub logins_per_minute: u32,
    /// Registrations, a minute and client address.
    pub registrations_per_minute: u32,
    /// Requests for a password reset, an hour and e-mail address.
    pub password_resets_per_hour: u32,
    /// Failed logins of an account from one network before the waits begin.
    pub login_failures: u32,
    /// Failed logins of an account from all networks without a good login, before the waits of all of these begin.
    pub login_failures_all_networks: u32,
    /// Unknown API keys and wrong service tokens, a minute and client network.
    pub bad_credentials_per_minute: u32,
    /// Mails that verify an e-mail address, an hour and address.
    pub verifications_per_hour: u32,
    /// Mails besides resets and verifications, an hour and e-mail address.
    pub mails_per_recipient_hour: u32,
    /// Mails that a person causes, an hour; their API keys count as they do.
    pub mails_per_account_hour: u32,
    /// Mails caused from a client address, an hour.
    pub mails_per_address_hour: u32,
    /// Organizations that a person has made and that still exist.
    pub organizations_per_person: u32,
    /// Projects of an organization.
    pub projects_per_organization: u32,
    /// Open invitations of an organization.
    pub open_invitations_per_organization: u32,
    /// API keys of a project.
    pub api_keys_per_project: u32,
    /// Changes of an account's password, an hour.
    pub password_changes_per_hour: u32,
    /// Live sessions of a person; a login too many ends the oldest.
    pub sessions_per_person: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enabled: true,
            reads_per_minute: 1_200,
            writes_per_minute: 600,
            logins_per_minute: 300,
            registrations_per_minute: 60,
            password_resets_per_hour: 5,
            login_failures: 10,
            login_failures_all_networks: 100,
            bad_credentials_per_minute: 600,
            verifications_per_hour: 5,
            mails_per_recipient_hour: 20,
            mails_per_account_hour: 200,
            mails_per_address_hour: 3_600,
            organizations_per_person: 20,
            projects_per_organization: 200,
            open_invitations_per_organization: 200,
            api_keys_per_project: 1_000,
            password_changes_per_hour: 5,
            sessions_per_person: 50,
        }
    }
}

impl Limits {
    /// The limits of mails; `None` while this table is switched off.
    pub fn mail_bounds(&self) -> Option<Bounds> {
        self.enabled.then_some(Bounds {
            account: self.mails_per_account_hour,
            address: self.mails_per_address_hour,
            recipient: self.mails_per_recipient_hour,
            password_resets: self.password_resets_per_hour,
            verifications: self.verifications_per_hour,
        })
    }
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

/// Table `billing`.
#[derive(Clone, Debug)]
pub struct Billing {
    /// How much a person's first organization may spend before it must pay; 0: strictly prepaid.
    pub credit_limit: Nano,
    /// The same of every further organization of that person.
    pub further_credit_limit: Nano,
    /// The currency of new organizations, an ISO 4217 code.
    pub currency: String,
    /// How long money stays set aside for a call that isn't heard of, in minutes.
    pub reservation_minutes: i64,
    /// Who issues invoices; `None`: it isn't said on them.
    pub issuer_name: Option<String>,
    /// Where they are, on lines of its own.
    pub issuer_address: Option<String>,
}

impl Billing {
    /// The credit limits of new organizations.
    pub const fn credit_limits(&self) -> credit_limits::Limits {
        credit_limits::Limits { first: self.credit_limit, further: self.further_credit_limit }
    }
}

/// Table `api_keys`.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// What API keys may do on management endpoints.
    pub management: Management,
    /// What new keys start with.
    pub prefix: String,
    /// Whether a key's secret is kept sealed, so that a rotation can return the previous one.
    pub keep_sealed: bool,
    /// How long the previous secret of a rotated key stays good, in hours.
    pub rotation_grace_hours: u32,
}

/// Table `passwords`.
#[derive(Clone, Debug)]
pub struct Passwords {
    /// Threads that hash passwords.
    pub hash_threads: usize,
    /// Passwords that may wait for a thread; past it the answer is 429.
    pub queue: usize,
}

/// Table `audit`.
#[derive(Clone, Debug)]
pub struct Audit {
    /// How often the server checks the books by itself, in hours; 0: never.
    pub every_hours: u32,
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
