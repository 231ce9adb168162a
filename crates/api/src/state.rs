//! The state of the handlers.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use accounts::Accounts;
use billing::Billing;
use catalog::CurrentCatalog;
use cluster::feed::Feed;
use gateway::Gateway;
use http::{Method, Response};
use hyper::body::Bytes;
use idempotency::Idempotency;
use kernel::clock::Clock;
use kernel::error::{Code, Error};
use kernel::ids::RequestId;
use kernel::limiter::Limiter;
use kernel::limits::Limits;
use kernel::secrets::Secret;
use kernel::shares::Holder;
use keys::Keys;
use metrics::Metrics;
use monitor::Monitor;
use operators::Operators;
use payments::Payments;
use tenants::Tenants;
use web::Frame;
use web::body_limit::BodyLimit;
use web::reply::Body;
use web::route::{ErrorShape, State};
use webhooks::Webhooks;

use crate::gate::{self, Call, Credential};
use crate::pages::docs::Docs;
use crate::settings::Console;
use crate::{pages, routes};

/// The handles of the subjects; cheap to clone.
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
    /// Addresses that get events.
    pub webhooks: Webhooks,
    /// Payments by Stripe.
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
    /// The request rates that this replica counts alone.
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
    /// The OpenAPI document, made when it is first read.
    pub openapi: OnceLock<Bytes>,
    /// The pages of the API reference, made when one is first read.
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

impl State for Api {
    type Credential = Credential;

    fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    async fn check_again(&self, call: &mut Call) -> Result<(), Error> {
        gate::check_again(self, call).await
    }

    async fn confirm(&self) -> Result<(), Error> {
        Ok(self.monitor.db.confirm().await?)
    }

    fn holder(&self, call: &Call) -> Holder {
        call.credential.holder().unwrap_or(Holder::Network(call.address))
    }

    fn error_shape(path: &str) -> ErrorShape {
        routes::error_shape(path)
    }

    fn no_route(code: Code, method: &Method, path: &str) -> Error {
        routes::no_route(code, method, path)
    }

    fn is_model_path(path: &str) -> bool {
        routes::is_model_path(path)
    }

    fn error_page(error: &Error, request_id: RequestId) -> Response<Body> {
        pages::error_response(error, request_id)
    }

    fn body_limit(path: &str) -> BodyLimit {
        routes::body_limit(path)
    }
}
