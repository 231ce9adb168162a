//! The application: the handles of all subjects, built once and shared.

mod assembly;
mod hooks;

use std::fs::DirBuilder;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use assembly::{Base, Subjects};

use crate::config::{Config, DatabaseUrl};
use accounts::{Accounts, address_folding};
use api::Api;
use api::routes::{Dispatcher, Route};
use billing::Billing;
use billing::bookkeeping::closing;
use catalog::{Catalogs, CurrentCatalog};
use cluster::leases::Leases;
use db::{Db, MigrateError};
use gateway::Gateway;
use kernel::clock::Clock;
use kernel::error::{Code, Error};
use keys::Keys;

use accounts::hasher::Hasher;
use cluster::clock_guard::ClockGuard;
use cluster::feed::Feed;
use kernel::limiter::Limiter;
use kernel::random::Random;
use kernel::secrets::files;
use kernel::secrets::sealing::Sealer;
use mail::Mail;
use mail::posting::Outbox;
use metrics::Metrics;
use operators::{Operators, first_account};
use payments::Payments;
use tenants::Tenants;
use web::Frame;
use web::route::Listener;
use webhooks::Webhooks;

/// Application handle; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The parts of [`App`].
pub struct Parts {
    /// The effective configuration.
    pub config: Config,
    /// The clock of the whole process.
    pub clock: Clock,
    /// Checks the clock against other clocks.
    pub clock_guard: Arc<ClockGuard>,
    /// The source of randomness of the whole process.
    pub random: Random,
    pub db: Db,
    /// The models and their prices.
    pub catalog: Arc<CurrentCatalog>,
    /// Accounts, passwords and sessions.
    pub accounts: Accounts,
    /// Activates catalogs.
    pub catalogs: Catalogs,
    /// Encrypts secrets with the master key.
    pub sealer: Arc<Sealer>,
    /// Delivers mail.
    pub mail: Mail,
    /// The feed of changes to cached data.
    pub feed: Arc<Feed>,
    /// Organizations, projects, members and invitations.
    pub tenants: Tenants,
    pub keys: Keys,
    /// Request rates counted by this replica alone.
    pub limiter: Arc<Limiter>,
    /// Usage and money.
    pub billing: Billing,
    /// Webhook endpoints of organizations and the installation.
    pub webhooks: Webhooks,
    /// Payments through Stripe.
    pub payments: Payments,
    /// Model calls to upstreams.
    pub gateway: Gateway,
    /// Operations for operators.
    pub operators: Operators,
    /// Leases of jobs that run on one replica at a time.
    pub leases: Leases,
    /// Queues outgoing mail.
    pub outbox: Arc<Outbox>,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// The state that both listeners share.
    pub frame: Arc<Frame>,
    /// The state of the handlers.
    pub api: Api,
}

impl Deref for App {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The reason why the start failed.
#[derive(Debug)]
pub enum BootError {
    /// The database is unavailable. A retry may succeed.
    Unavailable(String),
    /// A retry won't help.
    Fatal(String),
}

impl App {
    /// Builds the application from its configuration: reads or creates the secrets and reads the catalog.
    /// Doesn't use the database yet.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new(config: Config, clock: Clock) -> Result<Self, String> {
        let random = Random::system();
        let hasher = Hasher::new(config.passwords.hash_threads, config.passwords.queue, random.clone());
        Self::with_hasher(config, clock, random, hasher)
    }

    /// Builds the application with this hasher.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn with_hasher(config: Config, clock: Clock, random: Random, hasher: Hasher) -> Result<Self, String> {
        make_data_dir(&config)?;
        let service_token = files::load_or_create_service_token(
            config.service_token.as_ref(),
            &config.data_dir.join("service.token"),
            &random,
        )?;
        let base = Base::open(&config, clock, random)?;
        let billing = base.billing(&config);
        let tenants = base.tenants(&config, billing.clone());
        let accounts = base.accounts(&config, hasher, (tenants.clone(), billing.clone()));
        let keys = base.keys(&config, accounts.clone());
        let mail = base.mail(&config)?;
        let catalogs = base.catalogs(&config);
        let leases = Leases::new(&base.db, &base.clock_guard, &base.random, &base.metrics.jobs);
        let frame = base.frame(&config)?;
        let gateway = base.gateway(&config, keys.clone(), billing.clone());
        let operators = base.operators(&config, (&accounts, &billing), &catalogs, &mail);
        let webhooks = base.webhooks(&config, tenants.clone());
        let payments = base.payments(&config, billing.clone(), tenants.clone())?;
        let subjects = Subjects { accounts, tenants, keys, billing, webhooks, payments, gateway, operators };
        let api = base.api(&config, &subjects, &frame, service_token);
        let Subjects { accounts, tenants, keys, billing, webhooks, payments, gateway, operators } = subjects;
        let Base { db, clock, clock_guard, random, feed, catalog, limiter, sealer, outbox, metrics, .. } =
            base;
        Ok(Self(Arc::new(Parts {
            accounts,
            tenants,
            keys,
            catalog,
            catalogs,
            billing,
            webhooks,
            payments,
            gateway,
            operators,
            mail,
            leases,
            db,
            clock,
            clock_guard,
            random,
            feed,
            limiter,
            sealer,
            outbox,
            metrics,
            frame,
            api,
            config,
        })))
    }

    /// Starts the application: migrates the database, activates the catalog, finds the position in the feed
    /// of changes, and creates a signing key if necessary. Afterwards the application is ready.
    pub async fn boot(&self) -> Result<(), BootError> {
        self.boot_with(true).await
    }

    /// Starts the application for a command: uses the database's catalog and doesn't activate another one.
    pub async fn boot_for_command(&self) -> Result<(), BootError> {
        self.boot_with(false).await
    }

    async fn boot_with(&self, activates_catalog: bool) -> Result<(), BootError> {
        self.refuse_fsync_off().await?;
        let migrated = self.db.migrate().await.map_err(|error| match error {
            MigrateError::Database(db::Error::Unavailable(what)) => BootError::Unavailable(what),
            other => BootError::Fatal(other.to_string()),
        })?;
        tracing::info!(schema = migrated.to, applied = migrated.applied.len(), "database is ready");
        let boot_error = |error: Error| match error.code {
            Code::DatabaseUnavailable => BootError::Unavailable(error.to_string()),
            _ => BootError::Fatal(error.to_string()),
        };
        self.clock_guard.check().await.map_err(boot_error)?;
        address_folding::fold_all(&self.accounts).await.map_err(boot_error)?;
        closing::add_missing_issuers(&self.billing).await.map_err(boot_error)?;
        if activates_catalog {
            catalog::activation::put_in_force_at_start(&self.catalogs).await.map_err(
                |problem| match problem {
                    catalog::activation::ActivationError::Refused(error) => {
                        BootError::Fatal(error.to_string())
                    }
                    catalog::activation::ActivationError::Failed(error) => boot_error(error),
                },
            )?;
        } else {
            catalog::activation::read_book(&self.catalogs).await.map_err(boot_error)?;
        }
        // The first read of the feed clears all caches, so the signing keys are loaded after it.
        self.feed.catch_up().await.map_err(boot_error)?;
        self.accounts.signing_keys.load_or_create(&self.accounts).await.map_err(boot_error)?;
        if activates_catalog {
            self.billing.call_log.begin().await.map_err(boot_error)?;
            first_account::prepare(&self.operators).await.map_err(boot_error)?;
        }
        self.frame.set_ready();
        Ok(())
    }

    /// Rejects a PostgreSQL server with `fsync = off`, which may lose commits, unless the configuration
    /// allows it.
    async fn refuse_fsync_off(&self) -> Result<(), BootError> {
        if self.config.database_allow_fsync_off {
            return Ok(());
        }
        match self.db.syncs_to_disk().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(BootError::Fatal(
                "`database_url`: the PostgreSQL server runs with `fsync = off`, so a crash of its machine loses or \
                 damages what was answered, money too: `ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();` turns \
                 it on. For a throwaway database of tests set `database_allow_fsync_off = true` \
                 (TOLLKEEPER_DATABASE_ALLOW_FSYNC_OFF)"
                    .to_owned(),
            )),
            Err(db::Error::Unavailable(what)) => Err(BootError::Unavailable(what)),
            Err(error) => Err(BootError::Fatal(error.to_string())),
        }
    }

    /// Starts the application, retrying while the database is unavailable.
    ///
    /// # Errors
    /// The first error that a retry won't solve.
    pub async fn boot_until_ready(&self) -> Result<(), String> {
        let mut wait_ms = 100;
        loop {
            match self.boot().await {
                Ok(()) => return Ok(()),
                Err(BootError::Fatal(what)) => return Err(what),
                Err(BootError::Unavailable(what)) => {
                    tracing::warn!(retry_in_ms = wait_ms, "waiting for the database: {what}");
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    wait_ms = (wait_ms * 2).min(2_000);
                }
            }
        }
    }

    /// Returns the routes of both listeners, with the console if it is enabled.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = api::routes::table();
        if self.config.console.enabled {
            routes.extend(console::routes::table());
        }
        routes
    }

    /// Returns the dispatcher of a listener.
    pub fn dispatcher(&self, listener: Listener) -> Dispatcher {
        api::routes::dispatcher_of(&self.api, &self.routes(), listener)
    }

    /// Prepares the stop: mail and event deliveries stop, and `/readyz` fails.
    pub fn stop(&self) {
        self.frame.set_stopping();
        self.mail.stop();
        self.webhooks.stop();
    }
}

/// Creates the data folder, if missing, accessible to its owner only. Rejects a folder that every user can
/// write to.
///
/// # Errors
/// A sentence for the operator.
pub fn make_data_dir(config: &Config) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&config.data_dir);
    let folder = config.data_dir.display();
    let mode =
        made.and_then(|()| config.data_dir.metadata()).map(|folder| folder.permissions().mode() & 0o7777);
    let mode = mode.map_err(|error| {
        format!(
            "data folder {folder}: {error}; set `data_dir` to a folder that exists or can be created \
             (TOLLKEEPER_DATA_DIR)"
        )
    })?;
    if mode & 0o002 != 0 {
        return Err(format!(
            "data folder {folder}: every user of this machine can write to it (mode {mode:o}) and replace the master \
             key or the database; `chmod 700` it, or set `data_dir` to a subfolder, which will be created with \
             access for you only (TOLLKEEPER_DATA_DIR)"
        ));
    }
    if mode & 0o077 != 0 {
        tracing::warn!(%folder, "other users can access the data folder (mode {mode:o}): `chmod 700` it");
    }
    Ok(())
}

/// Returns the database settings of the configuration.
pub fn database(config: &Config) -> db::Settings {
    match config.database_url_or_default() {
        DatabaseUrl::Sqlite(path) => db::Settings::Sqlite { path },
        DatabaseUrl::Postgres(url) => db::Settings::Postgres { url },
    }
}
