//! Assembles the handles of the subjects.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{database, hooks};
use crate::config::{self, Config, DatabaseUrl};
use accounts::Accounts;
use accounts::hasher::Hasher;
use api::Api;
use billing::books::Books;
use billing::metrics::Counters;
use billing::usage_refusals::UsageRefusals;
use billing::{Billing, tenant_hooks};
use call_log::CallLog;
use catalog::{Catalogs, CurrentCatalog};
use cluster::clock_guard::ClockGuard;
use cluster::feed::{CatalogChange, Feed};
use db::Db;
use gateway::{Gateway, MediaLoader};
use idempotency::Idempotency;
use kernel::clock::Clock;
use kernel::limiter::Limiter;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;
use kernel::secrets::{Secret, files};
use keys::Keys;
use mail::bounds::Bounds;
use mail::posting::Outbox;
use mail::{Mail, Mailer};
use metrics::Metrics;
use monitor::Monitor;
use operators::Operators;
use outbound::{Dialer, Network};
use payments::Payments;
use sign_on::Providers;
use telemetry::Tracer;
use tenants::Tenants;
use tenants::mails::MailWriter;
use web::Frame;
use webhooks::Webhooks;
use webhooks::client::Client;

/// Parts shared by several subjects.
pub(super) struct Base {
    pub(super) db: Db,
    pub(super) clock: Clock,
    pub(super) clock_guard: Arc<ClockGuard>,
    pub(super) random: Random,
    pub(super) feed: Arc<Feed>,
    pub(super) catalog: Arc<CurrentCatalog>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) providers: Arc<Providers>,
}

impl Base {
    pub(super) fn open(config: &Config, clock: Clock, random: Random) -> Result<Self, String> {
        let sealer = Arc::new(load_sealer(config, &random)?);
        let catalog = CurrentCatalog::load(config.catalog_file.clone(), &config.billing.currency);
        let db = open_database(config)?;
        let metrics = Arc::new(Metrics::default());
        let catalog = Arc::new(catalog.map_err(|error| error.to_string())?);
        let outbox = Outbox::new(random.clone(), Bounds::from_limits(&config.limits), Arc::clone(&metrics));
        let providers = load_providers(config, &clock, &random)?;
        Ok(Self {
            clock_guard: Arc::new(ClockGuard::new(db.clone(), clock.clone())),
            feed: follow_changes(&db, &clock, &catalog, &providers),
            limiter: Arc::new(Limiter::new()),
            outbox: Arc::new(outbox),
            db,
            clock,
            random,
            catalog,
            sealer,
            metrics,
            providers,
        })
    }

    pub(super) fn mail(&self, config: &Config) -> Result<Mail, String> {
        let shared = mail::Shared {
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            metrics: Arc::clone(&self.metrics),
            outbox: Arc::clone(&self.outbox),
        };
        let letters = MailWriter {
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            public_url: config.public_url(),
        };
        Ok(Mail::new(shared, Mailer::new(&config.mail, &config.data_dir)?, letters.into_writer()))
    }

    pub(super) fn catalogs(&self, config: &Config) -> Catalogs {
        Catalogs::new(
            self.db.clone(),
            catalog::Shared {
                clock: self.clock.clone(),
                random: self.random.clone(),
                current: Arc::clone(&self.catalog),
                currency: config.billing.currency.clone(),
            },
        )
    }

    pub(super) fn billing(&self, config: &Config) -> Billing {
        Billing::new(
            self.db.clone(),
            billing::Parts {
                clock: self.clock.clone(),
                clock_guard: Arc::clone(&self.clock_guard),
                random: self.random.clone(),
                feed: Arc::clone(&self.feed),
                catalog: Arc::clone(&self.catalog),
                books: Books::new(),
                call_log: CallLog::new(self.db.clone(), self.clock.clone(), config.calls),
                metrics: Counters::new(&self.metrics.registered),
                refusals: UsageRefusals::default(),
                settings: config.billing.clone(),
                audit: config.audit.clone(),
                exports: config.exports.clone(),
            },
        )
    }

    pub(super) fn tenants(&self, config: &Config, billing: Billing) -> Tenants {
        Tenants::new(
            self.db.clone(),
            tenants::Parts {
                clock: self.clock.clone(),
                random: self.random.clone(),
                outbox: Arc::clone(&self.outbox),
                limits: config.limits.clone(),
                providers: Arc::clone(&self.providers),
                money: tenant_hooks::hooks(billing),
            },
        )
    }

    pub(super) fn accounts(
        &self,
        config: &Config,
        hasher: Hasher,
        (tenants, billing): (Tenants, Billing),
    ) -> Accounts {
        let shared = accounts::Shared {
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            feed: Arc::clone(&self.feed),
            limiter: Arc::clone(&self.limiter),
            sealer: Arc::clone(&self.sealer),
            outbox: Arc::clone(&self.outbox),
            metrics: Arc::clone(&self.metrics),
            providers: Arc::clone(&self.providers),
        };
        let settings = accounts::Settings {
            public_url: config.public_url(),
            require_verified_email: config.require_verified_email,
            browser_idle_hours: config.console.idle_hours,
            registration: config.registration,
            sign_in: config.sign_in.clone(),
            limits: config.limits.clone(),
        };
        let hooks = hooks::hooks(&self.random, tenants, billing);
        Accounts::new(shared, hasher, settings, hooks)
    }

    pub(super) fn operators(
        &self,
        config: &Config,
        (accounts, billing): (&Accounts, &Billing),
        catalogs: &Catalogs,
        mail: &Mail,
    ) -> Operators {
        Operators::new(operators::Parts {
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            accounts: accounts.clone(),
            billing: billing.clone(),
            catalogs: catalogs.clone(),
            mail: mail.clone(),
            public_url: config.public_url(),
            first_account_file: config.data_dir.join("first-account.token"),
            has_console: config.console.enabled,
            settings: config.to_toml(),
        })
    }

    fn idempotency(&self) -> Idempotency {
        let (clock, random) = (self.clock.clone(), self.random.clone());
        Idempotency::new(self.db.clone(), clock, random, Arc::clone(&self.sealer))
    }

    pub(super) fn gateway(&self, config: &Config, keys: Keys, billing: Billing) -> Gateway {
        let dialer = Dialer::new(config.gateway.allow_private_media, Network::of_machine(), None);
        Gateway::new(gateway::Parts {
            clock: self.clock.clone(),
            random: self.random.clone(),
            catalog: Arc::clone(&self.catalog),
            keys,
            billing,
            metrics: Arc::clone(&self.metrics),
            media: MediaLoader::new(dialer),
            cache_salts: self.sealer.derive("prefix caches"),
        })
    }

    pub(super) fn webhooks(&self, config: &Config, tenants: Tenants) -> Webhooks {
        let shared = webhooks::Shared {
            db: self.db.clone(),
            clock: self.clock.clone(),
            clock_guard: Arc::clone(&self.clock_guard),
            random: self.random.clone(),
            sealer: Arc::clone(&self.sealer),
            tenants,
            metrics: Arc::clone(&self.metrics),
        };
        let client = Client::new(config.webhooks.allow_private, Network::of_machine(), None);
        Webhooks::new(shared, config.webhooks, client)
    }

    pub(super) fn payments(
        &self,
        config: &Config,
        billing: Billing,
        tenants: Tenants,
    ) -> Result<Payments, String> {
        let url = config.public_url();
        // Without a console, customers return to the API reference, because the console's pages don't exist.
        let return_url = if config.console.enabled {
            [format!("{url}/console/organizations/"), "/billing/".to_owned()]
        } else {
            [format!("{url}/docs#"), "/".to_owned()]
        };
        let shared = payments::Shared {
            db: self.db.clone(),
            clock: self.clock.clone(),
            clock_guard: Arc::clone(&self.clock_guard),
            random: self.random.clone(),
            billing,
            tenants,
            metrics: Arc::clone(&self.metrics),
            return_url,
        };
        Payments::new(shared, config.payments.clone())
    }

    pub(super) fn keys(&self, config: &Config, accounts: Accounts) -> Keys {
        let shared = keys::Shared {
            accounts,
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            feed: Arc::clone(&self.feed),
            limiter: Arc::clone(&self.limiter),
            sealer: Arc::clone(&self.sealer),
        };
        Keys::new(shared, config.api_keys.clone(), config.limits.clone())
    }
}

/// The handles used by the handlers.
pub(super) struct Subjects {
    pub(super) accounts: Accounts,
    pub(super) tenants: Tenants,
    pub(super) keys: Keys,
    pub(super) billing: Billing,
    pub(super) webhooks: Webhooks,
    pub(super) payments: Payments,
    pub(super) gateway: Gateway,
    pub(super) operators: Operators,
}

impl Base {
    pub(super) fn frame(&self, config: &Config) -> Result<Arc<Frame>, String> {
        let settings = web::settings::Settings {
            server: config.server.clone(),
            trusted_proxies: config.trusted_proxies.clone(),
            cors_origins: config.cors_origins.clone(),
            allows_model_calls_from_browsers: config.gateway.allow_browsers,
            log_access: config.log.access,
        };
        let tracer = Tracer::new(&config.telemetry, &self.random)?.map(Arc::new);
        let metrics = Arc::clone(&self.metrics);
        Ok(Arc::new(Frame::new(settings, self.clock.clone(), &self.random, metrics, tracer)))
    }

    pub(super) fn api(
        &self,
        config: &Config,
        subjects: &Subjects,
        frame: &Arc<Frame>,
        service_token: Secret,
    ) -> Api {
        Api::new(api::state::Parts {
            frame: Arc::clone(frame),
            idempotency: self.idempotency(),
            clock: self.clock.clone(),
            accounts: subjects.accounts.clone(),
            tenants: subjects.tenants.clone(),
            keys: subjects.keys.clone(),
            billing: subjects.billing.clone(),
            webhooks: subjects.webhooks.clone(),
            payments: subjects.payments.clone(),
            gateway: subjects.gateway.clone(),
            operators: subjects.operators.clone(),
            catalog: Arc::clone(&self.catalog),
            monitor: self.monitor(subjects, frame),
            feed: Arc::clone(&self.feed),
            limiter: Arc::clone(&self.limiter),
            limits: config.limits.clone(),
            metrics: Arc::clone(&self.metrics),
            service_token,
            public_url: config.public_url(),
            console: config.console.clone(),
            service_url: config.service_url(),
            navigation: console::routes::navigation(),
            table: api::routes::table,
            openapi: OnceLock::new(),
            docs: OnceLock::new(),
        })
    }

    fn monitor(&self, subjects: &Subjects, frame: &Arc<Frame>) -> Monitor {
        Monitor::new(monitor::Parts {
            db: self.db.clone(),
            clock: self.clock.clone(),
            clock_guard: Arc::clone(&self.clock_guard),
            feed: Arc::clone(&self.feed),
            frame: Arc::clone(frame),
            metrics: Arc::clone(&self.metrics),
            limiter: Arc::clone(&self.limiter),
            catalog: Arc::clone(&self.catalog),
            accounts: subjects.accounts.clone(),
            keys: subjects.keys.clone(),
            billing: subjects.billing.clone(),
            started_at: self.clock.now(),
        })
    }
}

/// Returns the feed of changes. Changes announced by a transaction are applied to caches as part of its
/// commit, so handlers don't have to.
fn follow_changes(
    db: &Db,
    clock: &Clock,
    catalog: &Arc<CurrentCatalog>,
    providers: &Arc<Providers>,
) -> Arc<Feed> {
    let (catalog, providers) = (Arc::clone(catalog), Arc::clone(providers));
    let feed = Feed::new(db.clone(), clock.clone(), move |changed| {
        match changed {
            CatalogChange::Certain => catalog.request_reload(),
            CatalogChange::Possible => catalog.request_check(),
        }
        // The same change requests a reload of both files.
        providers.request_check();
    });
    let epochs = Arc::clone(&feed.epochs);
    db.on_commit(move |changes| changes.iter().for_each(|change| epochs.apply(*change)));
    Arc::new(feed)
}

/// Reads the providers file, if one is configured.
fn load_providers(config: &Config, clock: &Clock, random: &Random) -> Result<Arc<Providers>, String> {
    let file = config.sign_in.providers_file.clone();
    Providers::load(file, &config.public_url(), clock.clone(), random.clone()).map(Arc::new)
}

/// Reads the master keys, and creates the current one if it's missing.
fn load_sealer(config: &Config, random: &Random) -> Result<Sealer, String> {
    let file = config.master_key_file_or_default();
    let key = files::load_or_create_master_key(config.master_key.as_ref(), &file, random)?;
    let previous = files::load_previous_master_key(
        config.master_key_previous.as_ref(),
        config.master_key_previous_file.as_deref(),
    )?;
    match previous {
        Some(previous) if previous == key => {
            Err("`master_key_previous_file` contains the same key as `master_key_file`: remove the setting, \
                 or put the new key into `master_key_file`"
                .to_owned())
        }
        Some(previous) => Ok(Sealer::new(key).with_previous(previous)),
        None => Ok(Sealer::new(key)),
    }
}

/// Opens the configured database with its standby.
fn open_database(config: &Config) -> Result<Db, String> {
    let describe = |key: &str, error: &db::Error| {
        let what = match error {
            db::Error::Internal(what) => what.clone(),
            other => other.to_string(),
        };
        format!("`{key}`: {what} ({})", config::variable(key))
    };
    let db = Db::open(&database(config)).map_err(|error| describe("database_url", &error))?;
    let Some(DatabaseUrl::Postgres(url)) = &config.database_replica_url else { return Ok(db) };
    let max_lag = Duration::from_secs(config.database_replica_max_lag_seconds.into());
    db.with_standby(url, max_lag).map_err(|error| describe("database_replica_url", &error))
}
