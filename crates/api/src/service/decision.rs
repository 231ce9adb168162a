//! The decision of `authorize` and `forward-auth` as JSON, and the fields that their requests share.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::reservations::Reservation;
use crate::Api;
use billing::decision::{CONCURRENCY_RETRY_MS, PermittedCall, RefusedCall, kind_of};
use input::fields::{Field, Fields, Location, Problems};
use input::json::Json;
use input::types::{Integer, string};
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use keys::model_callers::ModelCaller;
use keys::rules::permissions::Permission;
use keys::uses::RemainingRate;

/// A number of tokens in a request.
pub type Tokens = Integer<0, 1_000_000_000>;
/// The number of answers that a chat requests, each of which may have `max_tokens` tokens.
pub type Choices = Integer<1, 128>;
/// The number of inputs in an embeddings call.
pub type Inputs = Integer<1, 2_048>;

/// A gateway's own id for a request: 1 to 128 characters without control characters.
#[derive(PartialEq, Eq, Debug)]
pub struct QuestionId(pub String);

impl Field for QuestionId {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        if !(1..=128).contains(&text.chars().count()) || text.chars().any(char::is_control) {
            let message = format!("`{}` must be 1 to 128 characters without control characters.", at.path);
            return problems.add(at, "invalid_text", message);
        }
        Some(Self(text.into_owned()))
    }
    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 128, "examples": ["call-1"]})
    }
}

/// Reports a missing `model` of an operation that needs one.
pub(super) fn require_model<T>(
    fields: &mut Fields<'_, Api>,
    operation: Option<Permission>,
    model: Option<&Option<T>>,
) {
    if let (Some(operation), Some(None)) = (operation, model)
        && kind_of(operation).is_some()
    {
        let message = "`model` is required for the operations chat and embeddings.";
        fields.problem::<()>("model", "required", message);
    }
}

/// The decision about a model call, with the caller of an allowed call and the reason of a refusal.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Decision {
    /// `true` if the call may be made.
    pub allowed: bool,
    /// The HTTP status for the client when the call is refused.
    pub status: u16,
    /// The error code of a refusal.
    pub code: Option<&'static str>,
    /// The message of a refusal.
    pub message: Option<String>,
    /// The organization of the call.
    pub organization_id: Option<OrganizationId>,
    /// The project of the call.
    pub project_id: Option<ProjectId>,
    /// The API key; null for an access token.
    pub api_key_id: Option<ApiKeyId>,
    /// The user who created the key, or the user of the access token.
    pub user_id: Option<UserId>,
    /// The requested model.
    pub model: Option<String>,
    /// The maximum number of tokens that the call may use: the lowest limit of the request, the key and the
    /// model.
    pub max_tokens: Option<i64>,
    /// The rates that the call counted against.
    pub limits: Limits,
    /// The money that is reserved for the call; null if none was requested.
    pub reservation: Option<Reservation>,
    /// The time after which a request is admitted again, in milliseconds, if a rate is used up.
    pub retry_after_ms: Option<i64>,
}

/// The rates that a call counted against. A rate is null if the call has no such limit, or was refused.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "RemainingRates")]
pub struct Limits {
    /// The key's own `rate_limit`.
    pub api_key: Option<Remaining>,
    /// The model's `max_requests_per_min`, for the whole organization.
    pub model: Option<Remaining>,
}

/// The state of a rate.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RemainingRate")]
pub struct Remaining {
    /// The limit in requests per minute.
    pub limit_requests: u32,
    /// The number of requests that would be admitted now.
    pub remaining_requests: u32,
    /// The time until the whole limit is available again, in milliseconds.
    pub reset_requests_ms: i64,
}

impl From<RemainingRate> for Remaining {
    fn from(left: RemainingRate) -> Self {
        Self {
            limit_requests: left.limit,
            remaining_requests: left.allowed.remaining,
            reset_requests_ms: left.allowed.reset_ms,
        }
    }
}

impl Decision {
    /// Returns the decision for an allowed call.
    pub fn granted(granted: PermittedCall, model: Option<String>) -> Self {
        let PermittedCall { caller, max_tokens, rates, reservation, .. } = granted;
        Self {
            allowed: true,
            status: 200,
            model,
            max_tokens,
            limits: Limits {
                api_key: rates.api_key.map(Remaining::from),
                model: rates.model.map(Remaining::from),
            },
            reservation: reservation.map(Reservation::from),
            ..about(Some(&caller))
        }
    }

    /// Returns the decision for a refused call.
    ///
    /// # Errors
    /// Server errors are returned as errors.
    pub fn refused(refused: RefusedCall, model: Option<String>) -> Result<Self, Error> {
        let RefusedCall { error, caller } = refused;
        if error.code.status().is_server_error() {
            return Err(error);
        }
        let message = match (error.rate_limit, error.code) {
            (None, _) => error.public_message(),
            (Some(_), Code::ModelRateLimited) => {
                "Too many requests from this organization to this model. Retry after `retry_after_ms` \
                 milliseconds."
            }
            (Some(_), _) => "Too many requests. Retry after `retry_after_ms` milliseconds.",
        };
        Ok(Self {
            status: error.code.status().as_u16(),
            code: Some(error.code.as_str()),
            message: Some(message.to_owned()),
            model,
            retry_after_ms: match error.code {
                Code::ModelConcurrencyLimited => Some(CONCURRENCY_RETRY_MS),
                _ => error.rate_limit.map(|limit| limit.retry_after_ms),
            },
            ..about(caller.as_ref())
        })
    }
}

fn about(caller: Option<&ModelCaller>) -> Decision {
    Decision {
        allowed: false,
        status: 0,
        code: None,
        message: None,
        organization_id: caller.map(ModelCaller::organization_id),
        project_id: caller.map(ModelCaller::project_id),
        api_key_id: caller.and_then(ModelCaller::key).map(|key| key.id),
        user_id: caller.map(ModelCaller::user_id),
        model: None,
        max_tokens: None,
        limits: Limits::default(),
        reservation: None,
        retry_after_ms: None,
    }
}
