//! Reservation of money for a call: the highest price that the call can have.

use super::CallRequest;
use crate::Billing;
use crate::books::{self, BudgetRefusal, CallReservation, Reserve, ReserveError};
use crate::rules::call_price::{self, CallSize};
use crate::rules::events::MAX_CALL_PRICE;
use crate::store::reservations::NewReservation;
use catalog::Model;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{CallerId, ModelCallId, ReservationId};
use kernel::money::{Nano, Pico};
use keys::model_callers::ModelCaller;

/// The time that a client should wait when a model's concurrency limit is reached, in milliseconds. It is a
/// guess, because the end of a running call isn't known.
pub const CONCURRENCY_RETRY_MS: i64 = 1_000;

/// Returns the highest price that the call can have.
///
/// # Errors
/// 400 if the price exceeds the maximum of a usage event, because the call couldn't be billed.
pub(super) fn highest_price(
    request: &CallRequest<'_>,
    model: &Model,
    max_tokens: Option<i64>,
    now: Time,
) -> Result<Pico, Error> {
    let size = CallSize {
        prompt_tokens: request.estimated_prompt_tokens,
        max_tokens: max_tokens.unwrap_or(model.max_tokens),
        choices: request.choices,
        inputs: request.inputs,
        searches: request.searches,
        seconds: request.seconds,
    };
    let highest_price = call_price::highest_price(model, now, size).ok_or(Code::ModelNotFound)?;
    if highest_price > MAX_CALL_PRICE {
        let message = format!(
            "This call could cost {highest_price}, but a call may cost at most {MAX_CALL_PRICE}: request \
             fewer tokens, choices or inputs."
        );
        return Err(Error::new(Code::AmountOutOfRange).message(message));
    }
    Ok(highest_price)
}

/// Reserves the highest price of the call, rounded up to whole nanos.
///
/// # Errors
/// 429 if the balance is too low or the model's concurrency limit is reached; 409 if the request id belongs
/// to another call.
pub(super) async fn reserve(
    billing: &Billing,
    request: &CallRequest<'_>,
    caller: &ModelCaller,
    model: &Model,
    highest_price: Pico,
    now: Time,
) -> Result<CallReservation, Error> {
    let amount = highest_price.ceil_nano();
    // The id of a call of the gateway contains the time at which it was admitted.
    let call_id = request.request_id.and_then(ModelCallId::parse);
    let new = NewReservation {
        id: ReservationId::new(now, &billing.random),
        organization_id: caller.organization_id(),
        project_id: caller.project_id(),
        caller: caller.key().map_or_else(|| CallerId::User(caller.user_id()), |key| CallerId::ApiKey(key.id)),
        model: model.id.clone(),
        amount,
        request_id: request.request_id.map(str::to_owned),
        began_at: call_id.map_or(now, ModelCallId::created_at),
    };
    let operation =
        Reserve { new, max_concurrent: model.max_concurrent_requests, lifetime: request.lifetime };
    let reserved = books::submit(billing, operation).await?;
    reserved.map_err(|error| refusal(error, amount, &billing.settings.currency))
}

fn refusal(error: ReserveError, amount: Nano, currency: &str) -> Error {
    match error {
        ReserveError::RequestIdConflict => Error::new(Code::RequestIdConflict).param("request_id"),
        ReserveError::ConcurrencyLimit(max) => Error::new(Code::ModelConcurrencyLimited).message(format!(
            "This organization has {max} calls to this model in progress, which is the maximum: try again in \
             a moment."
        )),
        ReserveError::InsufficientFunds { available, credit_limit, currency } => {
            Error::new(Code::InsufficientQuota).message(format!(
                "This call needs up to {amount} {currency}, but the organization has {available} {currency} \
                 available and a credit limit of {credit_limit} {currency}: add credit."
            ))
        }
        ReserveError::Budget(BudgetRefusal { name, period, limit, left }) => {
            let left = left.max(Nano::ZERO);
            Error::new(Code::BudgetExceeded).message(format!(
                "This call needs up to {amount} {currency}, but the budget \"{name}\" ({period}) has {left} of \
                 {limit} {currency} left: ask an owner of the organization."
            ))
        }
    }
}
