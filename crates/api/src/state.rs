//! The state of the handlers.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use accounts::Accounts;
use billing::Billing;
use catalog::CurrentCatalog;
use cluster::feed::Feed;
use gateway::Gateway;
use hyper::body::Bytes;
use idempotency::Idempotency;
use kernel::clock::Clock;
use kernel::limiter::Limiter;
use kernel::limits::Limits;
use kernel::secrets::Secret;
use keys::Keys;
use metrics::Metrics;
use monitor::Monitor;
use operators::Operators;
use payments::Payments;
use tenants::Tenants;
use web::Frame;
use webhooks::Webhooks;

use crate::pages::docs::rendered::Docs;
use crate::settings::Console;

/// A row of the table of routes.
pub type Route = web::route::Route<Api>;

/// The handles of all subjects; cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Parts>);

/// The parts of [`Api`].
pub struct Parts {
    /// The state that both listeners share.
    pub frame: Arc<Frame>,
    /// The answers to requests with idempotency keys.
    pub idempotency: Idempotency,
    pub clock: Clock,
    pub accounts: Accounts,
    pub tenants: Tenants,
    pub keys: Keys,
    pub billing: Billing,
    /// Webhooks and their deliveries.
    pub webhooks: Webhooks,
    /// Payments through Stripe.
    pub payments: Payments,
    /// Model calls.
    pub gateway: Gateway,
    /// The handle of the operators' functions.
    pub operators: Operators,
    /// The current models and prices.
    pub catalog: Arc<CurrentCatalog>,
    /// Readiness and metrics of the process.
    pub monitor: Monitor,
    /// The feed of changes, which shows whether a credential in memory is still valid.
    pub feed: Arc<Feed>,
    /// The request rates, which each replica counts separately.
    pub limiter: Arc<Limiter>,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    /// The bearer token of the service listener.
    pub service_token: Secret,
    /// The prefix of links and the issuer of tokens, without a trailing slash.
    pub public_url: String,
    /// The settings of the console.
    pub console: Console,
    /// The URL of the service listener.
    pub service_url: String,
    /// The console's pages with a link in its navigation, in the order of the links.
    pub navigation: Vec<Route>,
    /// The table of routes, which the document and the reference describe.
    pub table: fn() -> Vec<Route>,
    /// The OpenAPI document, rendered when it is first read.
    pub openapi: OnceLock<Bytes>,
    /// The pages of the API reference, rendered when one is first read.
    pub docs: OnceLock<Docs>,
}

impl Api {
    /// Returns the state with these parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Api {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl From<Api> for Accounts {
    fn from(api: Api) -> Self {
        api.accounts.clone()
    }
}

impl From<Api> for Tenants {
    fn from(api: Api) -> Self {
        api.tenants.clone()
    }
}

impl From<Api> for Keys {
    fn from(api: Api) -> Self {
        api.keys.clone()
    }
}

impl From<Api> for Billing {
    fn from(api: Api) -> Self {
        api.billing.clone()
    }
}

impl From<Api> for Webhooks {
    fn from(api: Api) -> Self {
        api.webhooks.clone()
    }
}

impl From<Api> for Payments {
    fn from(api: Api) -> Self {
        api.payments.clone()
    }
}

impl From<Api> for Monitor {
    fn from(api: Api) -> Self {
        api.monitor.clone()
    }
}
