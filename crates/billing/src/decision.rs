//! May this credential make this model call? The one decision behind `authorize` and `forward-auth`.
//!
//! The caller is held against restrictions, catalog and request rates; then the largest possible price of the call is set
//! aside.

mod reserving;

use std::net::IpAddr;
use std::sync::Arc;

use crate::Billing;
use crate::books::Reservation;
use catalog::{Kind, Model};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::limiter;
use kernel::limiter::Subject;
use kernel::money::Pico;
use keys::Keys;
use keys::model_callers;
use keys::model_callers::ModelCaller;
use keys::rules::permissions::Permission;
use keys::uses::RemainingRate;

pub use reserving::CONCURRENCY_RETRY_MS;

/// What is asked.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// An API key or an access token.
    pub credential: &'a str,
    /// From where the call comes, when that is known.
    pub client_address: Option<IpAddr>,
    /// What the call does.
    pub operation: Permission,
    /// Which model it is for; chat and embeddings always name one.
    pub model: Option<&'a str>,
    /// The most tokens that the call asks for.
    pub max_tokens: Option<i64>,
    /// The organization that a person calls for; a key's own, if it is named.
    pub organization: Option<&'a str>,
    /// The project in it, in the same way.
    pub project: Option<&'a str>,
    /// Tokens of its prompt, about; the model's most when nobody says.
    pub estimated_prompt_tokens: Option<i64>,
    /// Answers that it asks for.
    pub choices: i64,
    /// Texts of an embeddings call.
    pub inputs: i64,
    /// The gateway's own name for it: asked again by that name, it is answered with the same reservation.
    pub request_id: Option<&'a str>,
    /// Whether money is to be set aside for it; it has no meaning for what costs nothing.
    pub reserve: bool,
}

/// A call that may be made.
#[derive(Debug)]
pub struct Granted {
    /// The caller.
    pub calling: ModelCaller,
    /// The most tokens that the call may use, where something limits them.
    pub max_tokens: Option<i64>,
    /// What is left of the rates that it counted against.
    pub rates: Rates,
    /// The money that was set aside for it, if any was to be.
    pub reservation: Option<Reservation>,
}

/// What is left of rates; none where nothing limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// The key's own.
    pub api_key: Option<RemainingRate>,
    /// The model's, for the whole organization.
    pub model: Option<RemainingRate>,
}

/// A call that may not.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub error: Error,
    /// The caller, once known.
    pub calling: Option<ModelCaller>,
}

/// Decides.
///
/// # Errors
/// A refusal, or our own trouble.
pub async fn decide(billing: &Billing, keys: &Keys, question: Question<'_>) -> Result<Granted, Refused> {
    let _span = telemetry::span("decision");
    let now = billing.clock.now();
    if question.reserve && kind_of(question.operation).is_some() {
        // By a wrong time keys have expired, prices don't hold yet, and reservations are over.
        billing.clock_guard.require().map_err(|error| Refused { error, calling: None })?;
    }
    let Question { credential, organization, project, .. } = question;
    let calling = model_callers::find(keys, credential, organization, project, now).await;
    let calling = calling.map_err(|error| Refused { error, calling: None })?;
    telemetry::note_organization(calling.organization_id());
    let Admitted { max_tokens, rates, model, most } =
        match admit(billing, keys, &question, &calling, now).await {
            Ok(admitted) => admitted,
            Err(error) => return Err(Refused { error, calling: Some(calling) }),
        };
    let mut reservation = None;
    if let Some((model, most)) = model.zip(most).filter(|_| question.reserve) {
        // Boxed: a call that reserves nothing, the fast one, is not made to carry what this needs.
        match Box::pin(reserving::reserve(billing, &question, &calling, &model, most, now)).await {
            Ok(reserving) => {
                if reserving.is_repeated {
                    // The first time has taken a place already.
                    give_rates_back(keys, &calling, &model, now);
                }
                reservation = Some(reserving.reservation);
            }
            Err(error) => {
                give_rates_back(keys, &calling, &model, now);
                return Err(Refused { error, calling: Some(calling) });
            }
        }
    }
    if let Some(key) = calling.key() {
        // Not before: what is refused for want of money is no use either.
        keys.note_use(key, now);
    }
    Ok(Granted { calling, max_tokens, rates, reservation })
}

/// What was found out about a call that may be made, as far as money doesn't decide.
struct Admitted {
    /// The most tokens that it may use, where something limits them.
    max_tokens: Option<i64>,
    /// What is left of the rates.
    rates: Rates,
    model: Option<Arc<Model>>,
    /// The most that it may cost; none for what costs nothing.
    most: Option<Pico>,
}

async fn admit(
    billing: &Billing,
    keys: &Keys,
    question: &Question<'_>,
    calling: &ModelCaller,
    now: Time,
) -> Result<Admitted, Error> {
    let key = calling.key();
    if let Some(key) = key {
        key.admit_address(question.client_address)?;
        key.admit_permission(question.operation)?;
    }
    let model = match question.model {
        Some(id) => Some(usable(billing, id, question.operation, now)?),
        None => None,
    };
    if let (Some(key), Some(model)) = (key, &model) {
        key.admit_model(&model.id)?;
    }
    let own_most = key.and_then(|key| key.max_tokens);
    let model_most = model.as_ref().map(|model| model.max_tokens);
    let max_tokens = match (question.max_tokens, own_most.into_iter().chain(model_most).min()) {
        (Some(tokens), most) => {
            if let Some(key) = key {
                key.admit_tokens(tokens)?;
            }
            if let Some(most) = most.filter(|most| tokens > *most) {
                let message = format!("This model allows at most {most} tokens for one request.");
                return Err(Error::new(Code::MaxTokensExceeded).param("max_tokens").message(message));
            }
            Some(tokens)
        }
        (None, most) => most,
    };
    let most = match &model {
        Some(model) if kind_of(question.operation).is_some() => {
            Some(reserving::most(question, model, max_tokens, now)?)
        }
        _ => None,
    };
    // Last, so that a refused call doesn't use a rate up.
    let rates = take_rates(keys, calling, model.as_deref(), now).await?;
    Ok(Admitted { max_tokens, rates, model, most })
}

/// The model, when it can be used for this.
fn usable(billing: &Billing, id: &str, operation: Permission, now: Time) -> Result<Arc<Model>, Error> {
    let catalog = billing.catalog.now();
    let model = catalog.get(id).ok_or_else(|| Error::new(Code::ModelNotFound).param("model"))?;
    let right_kind = kind_of(operation).is_none_or(|kind| kind == model.kind);
    if !right_kind || model.price_at(now).is_none() {
        let message = format!("The model `{}` can't be used for {}.", model.id, operation.as_str());
        return Err(Error::new(Code::ModelNotFound).param("model").message(message));
    }
    Ok(Arc::clone(model))
}

/// Which kind of model an operation needs.
pub const fn kind_of(operation: Permission) -> Option<Kind> {
    match operation {
        Permission::Chat => Some(Kind::Chat),
        Permission::Embeddings => Some(Kind::Embeddings),
        Permission::Models | Permission::Files => None,
    }
}

/// Counts the call against the key's rate and the model's; against neither when one refuses it. The key's comes first,
/// so that a key beyond its own rate takes no place from its organization's other keys.
async fn take_rates(
    keys: &Keys,
    calling: &ModelCaller,
    model: Option<&Model>,
    now: Time,
) -> Result<Rates, Error> {
    let key = calling.key();
    let of_key = match key {
        Some(key) => keys.take_rate(key, now).await?,
        None => None,
    };
    let of_model = match model {
        Some(model) => Some(take_model_rate(keys, calling.organization_id(), model, now).await),
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
    Ok(Rates { api_key: of_key, model: of_model })
}

/// A model's own rate holds for each organization (docs/contract/service.md#model-limits).
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

/// What a call took that isn't made after all.
fn give_rates_back(keys: &Keys, calling: &ModelCaller, model: &Model, now: Time) {
    if let Some(key) = calling.key() {
        keys.give_rate_back(key, now);
    }
    keys.rates.give_back(model_meter(calling.organization_id(), model), now);
}

fn model_meter(organization_id: OrganizationId, model: &Model) -> u128 {
    limiter::key_for("model", Subject::Within(organization_id.as_u128(), &model.id))
}
