//! The decision whether a credential may make a model call, for `authorize` and `forward-auth`.
//!
//! The caller is checked against its restrictions, the catalog and the request rates. Then the highest price
//! that the call can have is reserved.

mod refusals;
mod reservation;

use std::net::IpAddr;
use std::sync::Arc;

use crate::Billing;
use crate::books::{Lifetime, Reservation};
use catalog::{Kind, MaxTokensPolicy, Model};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::limiter::{self, Subject};
use kernel::money::{Nano, Pico};
use keys::Keys;
use keys::model_callers::{self, Credential, ModelCaller};
use keys::rules::permissions::Permission;
use keys::uses::RemainingRate;

pub use refusals::LoggedRequest;
pub use reservation::CONCURRENCY_RETRY_MS;

/// A request for permission to make a model call.
#[derive(Clone, Copy)]
pub struct CallRequest<'a> {
    pub credential: Credential<'a>,
    /// The client's address, if it is known.
    pub client_address: Option<IpAddr>,
    pub operation: Permission,
    /// The model's id. Chat and embeddings always have one.
    pub model: Option<&'a str>,
    /// Maximum number of tokens that the call requests.
    pub max_tokens: Option<i64>,
    /// `true` if the caller of this function can lower the limit. A limit above the limit of the key or the
    /// model is then lowered, unless the model's policy is to refuse such a call.
    pub can_lower_max_tokens: bool,
    /// The organization on whose behalf a user calls. For an API key, it must be the key's own organization.
    pub organization: Option<&'a str>,
    /// The project on whose behalf a user calls. For an API key, it must be the key's own project.
    pub project: Option<&'a str>,
    /// Estimated number of prompt tokens; if it is unknown, the model's maximum is used.
    pub estimated_prompt_tokens: Option<i64>,
    /// The number of answers that the call requests.
    pub choices: i64,
    /// The number of inputs of an embeddings call.
    pub inputs: i64,
    /// Maximum number of searches that the upstream makes for an answer.
    pub searches: i64,
    /// Maximum number of seconds of audio or video that the upstream counts.
    pub seconds: i64,
    /// The gateway's id of the call. A repeated request with the same id gets the same reservation.
    pub request_id: Option<&'a str>,
    /// The lifetime of the reservation.
    pub lifetime: Lifetime,
    /// `true` to reserve money for the call. Has no effect on calls that cost nothing.
    pub reserve: bool,
    /// Further facts for the log; `None` if they aren't known.
    pub logged: Option<LoggedRequest<'a>>,
}

/// A permitted call.
#[derive(Debug)]
pub struct PermittedCall {
    pub caller: ModelCaller,
    /// Maximum number of tokens that the call may use, if limited.
    pub max_tokens: Option<i64>,
    /// The remaining rates, for the limits that the call counted against.
    pub rates: RemainingRates,
    /// The reservation, if one was requested.
    pub reservation: Option<Reservation>,
    /// The amount that the organization can still spend, including its credit limit; zero if it wasn't looked
    /// up.
    pub left: Nano,
}

/// The remaining rates; `None` for a rate without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemainingRates {
    /// The rate of the key.
    pub api_key: Option<RemainingRate>,
    /// The rate of the model, for the whole organization.
    pub model: Option<RemainingRate>,
}

/// A refused call.
#[derive(Debug)]
pub struct RefusedCall {
    pub error: Error,
    /// The caller, if it is known.
    pub caller: Option<ModelCaller>,
}

/// Decides whether the call may be made, and reserves money for it.
///
/// # Errors
/// The refusal, or a failure of the service.
pub async fn decide(
    billing: &Billing,
    keys: &Keys,
    request: CallRequest<'_>,
) -> Result<PermittedCall, RefusedCall> {
    let _span = telemetry::span("decision");
    let checked = check(billing, keys, request).await?;
    checked.reserve(billing, keys).await
}

/// A call that passed all checks except the reservation of money.
pub struct CheckedRequest<'a> {
    request: CallRequest<'a>,
    caller: ModelCaller,
    checked: CheckedCall,
    now: Time,
}

/// Runs all checks of a call, except the reservation of money.
///
/// # Errors
/// The refusal, or a failure of the service.
pub async fn check<'a>(
    billing: &Billing,
    keys: &Keys,
    request: CallRequest<'a>,
) -> Result<CheckedRequest<'a>, RefusedCall> {
    let now = billing.clock.now();
    if request.reserve && kind_of(request.operation).is_some() {
        // With a wrong clock, keys and reservations would expire and prices change at the wrong time.
        billing.clock_guard.require().map_err(|error| RefusedCall { error, caller: None })?;
    }
    let CallRequest { credential, organization, project, .. } = request;
    let caller = model_callers::find(keys, credential, organization, project, now).await;
    let caller = caller.map_err(|error| RefusedCall { error, caller: None })?;
    telemetry::note_organization(caller.organization_id());
    match check_call(billing, keys, &request, &caller, now).await {
        Ok(checked) => Ok(CheckedRequest { request, caller, checked, now }),
        Err(error) => {
            refusals::note(billing, &request, &caller, &error, now);
            Err(RefusedCall { error, caller: Some(caller) })
        }
    }
}

impl CheckedRequest<'_> {
    /// Returns the caller.
    pub fn caller(&self) -> &ModelCaller {
        &self.caller
    }

    /// Returns the maximum number of tokens that the call may use, if limited.
    pub fn max_tokens(&self) -> Option<i64> {
        self.checked.max_tokens
    }

    /// Returns the remaining rates, for the limits that the call counted against.
    pub fn rates(&self) -> RemainingRates {
        self.checked.rates
    }

    /// Returns the amount to reserve; `None` for a call that costs nothing.
    pub fn amount(&self) -> Option<Nano> {
        self.checked.highest_price.filter(|_| self.request.reserve).map(Pico::ceil_nano)
    }

    /// Reserves money for the call.
    ///
    /// # Errors
    /// The refusal, or a failure of the service.
    pub async fn reserve(self, billing: &Billing, keys: &Keys) -> Result<PermittedCall, RefusedCall> {
        let Self { request, caller, checked: CheckedCall { max_tokens, rates, model, highest_price }, now } =
            self;
        let (mut reservation, mut left) = (None, Nano::ZERO);
        if let Some((model, highest_price)) = model.zip(highest_price).filter(|_| request.reserve) {
            // Boxed, to keep its state out of the calls that reserve nothing.
            match Box::pin(reservation::reserve(billing, &request, &caller, &model, highest_price, now)).await
            {
                Ok(reserving) => {
                    if reserving.is_repeated {
                        // The first request was already counted.
                        give_rates_back(keys, &caller, &model, now);
                    }
                    reservation = Some(reserving.reservation);
                    left = reserving.left;
                }
                Err(error) => {
                    give_rates_back(keys, &caller, &model, now);
                    refusals::note(billing, &request, &caller, &error, now);
                    return Err(RefusedCall { error, caller: Some(caller) });
                }
            }
        }
        if let Some(key) = caller.key() {
            // This is recorded only now: a call that is refused for lack of money isn't a use of the key.
            keys.note_use(key, now);
        }
        Ok(PermittedCall { caller, max_tokens, rates, reservation, left })
    }
}

/// The result of all checks except the reservation of money.
struct CheckedCall {
    /// Maximum number of tokens that the call may use, if limited.
    max_tokens: Option<i64>,
    rates: RemainingRates,
    model: Option<Arc<Model>>,
    /// The highest possible price; `None` for a call that costs nothing.
    highest_price: Option<Pico>,
}

/// Admits a call that costs nothing, such as a count of tokens. The call is checked like any other, but
/// without rates, a token limit and a reservation.
///
/// # Errors
/// The refusal, or a failure of the service.
pub async fn admit_free(
    billing: &Billing,
    keys: &Keys,
    request: &CallRequest<'_>,
) -> Result<(ModelCaller, Arc<Model>), Error> {
    let now = billing.clock.now();
    let CallRequest { credential, organization, project, .. } = *request;
    let caller = model_callers::find(keys, credential, organization, project, now).await?;
    telemetry::note_organization(caller.organization_id());
    let model = check_access(billing, request, &caller, now)?;
    Ok((caller, model.ok_or_else(|| Error::new(Code::ModelNotFound).param("model"))?))
}

/// Checks the caller's address, permission and model. Returns the model that the call names, if any.
fn check_access(
    billing: &Billing,
    request: &CallRequest<'_>,
    caller: &ModelCaller,
    now: Time,
) -> Result<Option<Arc<Model>>, Error> {
    let key = caller.key();
    if let Some(key) = key {
        key.admit_address(request.client_address)?;
        key.admit_permission(request.operation)?;
    }
    let model = match request.model {
        Some(id) => Some(find_usable_model(billing, id, request.operation, now)?),
        None => None,
    };
    if let (Some(key), Some(model)) = (key, &model) {
        key.admit_model(&model.id)?;
    }
    Ok(model)
}

async fn check_call(
    billing: &Billing,
    keys: &Keys,
    request: &CallRequest<'_>,
    caller: &ModelCaller,
    now: Time,
) -> Result<CheckedCall, Error> {
    let key = caller.key();
    let model = check_access(billing, request, caller, now)?;
    let key_max = key.and_then(|key| key.max_tokens);
    let model_max = model.as_ref().map(|model| model.max_tokens);
    let default = model.as_ref().and_then(|model| model.default_max_tokens);
    let policy = model.as_ref().map(|model| model.max_tokens_policy);
    let lowers = request.can_lower_max_tokens && policy == Some(MaxTokensPolicy::Lower);
    let max_tokens = match (request.max_tokens, key_max.into_iter().chain(model_max).min()) {
        (Some(tokens), Some(max)) if lowers => Some(tokens.min(max)),
        (Some(tokens), max) => {
            if let Some(key) = key {
                key.admit_tokens(tokens)?;
            }
            if let Some(max) = max.filter(|max| tokens > *max) {
                let message = format!("This model allows at most {max} tokens for one request.");
                return Err(Error::new(Code::MaxTokensExceeded).param("max_tokens").message(message));
            }
            Some(tokens)
        }
        (None, max) => max.into_iter().chain(default).min(),
    };
    let highest_price = match &model {
        Some(model) if kind_of(request.operation).is_some() => {
            Some(reservation::highest_price(request, model, max_tokens, now)?)
        }
        _ => None,
    };
    // This check comes last, so that a refused call doesn't count against a rate.
    let rates = take_rates(keys, caller, model.as_deref(), now).await?;
    Ok(CheckedCall { max_tokens, rates, model, highest_price })
}

/// Returns the model if it can be used for this operation now.
fn find_usable_model(
    billing: &Billing,
    id: &str,
    operation: Permission,
    now: Time,
) -> Result<Arc<Model>, Error> {
    let catalog = billing.catalog.now();
    let model = catalog.find(id).ok_or_else(|| Error::new(Code::ModelNotFound).param("model"))?;
    let right_kind = kind_of(operation).is_none_or(|kind| kind == model.kind);
    if !right_kind || model.price_at(now).is_none() {
        let message = format!("The model `{}` can't be used for {}.", model.id, operation.as_str());
        return Err(Error::new(Code::ModelNotFound).param("model").message(message));
    }
    Ok(Arc::clone(model))
}

/// Returns the kind of model that an operation needs.
pub const fn kind_of(operation: Permission) -> Option<Kind> {
    match operation {
        Permission::Chat => Some(Kind::Chat),
        Permission::Embeddings => Some(Kind::Embeddings),
        Permission::Models | Permission::Files => None,
    }
}

/// Counts the call against the key's rate and the model's rate, or against neither if one refuses it. The
/// key's rate comes first, so that a key that exceeds its own rate doesn't use up the model's rate of its
/// organization.
async fn take_rates(
    keys: &Keys,
    caller: &ModelCaller,
    model: Option<&Model>,
    now: Time,
) -> Result<RemainingRates, Error> {
    let key = caller.key();
    let of_key = match key {
        Some(key) => keys.take_rate(key, now).await?,
        None => None,
    };
    let of_model = match model {
        Some(model) => Some(take_model_rate(keys, caller.organization_id(), model, now).await),
        None => None,
    };
    let of_model = match of_model {
        Some(Err(error)) => {
            if let Some(key) = key {
                keys.give_rate_back(key, now);
            }
            return Err(error);
        }
        Some(Ok(left)) => Some(left),
        None => None,
    };
    Ok(RemainingRates { api_key: of_key, model: of_model })
}

/// Counts the call against the model's rate, which applies to each organization
/// (docs/contract/service.md#model-limits).
async fn take_model_rate(
    keys: &Keys,
    organization_id: OrganizationId,
    model: &Model,
    now: Time,
) -> Result<RemainingRate, Error> {
    let meter = model_meter(organization_id, model);
    let limit = model.max_requests_per_min;
    match keys.rates.take(meter, limit, now).await {
        Ok(allowed) => Ok(RemainingRate { limit, allowed }),
        Err(limit) => Err(Error { rate_limit: Some(limit), ..Error::new(Code::ModelRateLimited) }),
    }
}

/// Takes back the counts of a call that isn't made.
fn give_rates_back(keys: &Keys, caller: &ModelCaller, model: &Model, now: Time) {
    if let Some(key) = caller.key() {
        keys.give_rate_back(key, now);
    }
    keys.rates.give_back(model_meter(caller.organization_id(), model), now);
}

fn model_meter(organization_id: OrganizationId, model: &Model) -> u128 {
    limiter::key_for("model", Subject::Within(organization_id.as_u128(), &model.id))
}
