//! Reservation of money for a call: the highest price that it can have.

use super::Question;
use crate::Billing;
use crate::books;
use crate::books::{Answer, Refused, Reserving, Work};
use crate::rules::events::MOST_EXPENSIVE;
use crate::rules::reserving::{self, Size};
use crate::store::reservations::NewReservation;
use catalog::Model;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{CallerId, ReservationId};
use kernel::money::{Nano, Pico};
use keys::model_callers::ModelCaller;

/// How long a client should wait when a model takes no more calls, in milliseconds; it isn't known when one
/// ends.
pub const CONCURRENCY_RETRY_MS: i64 = 1_000;

/// Returns the highest price that the call can have.
///
/// # Errors
/// 400 if that is more than one usage event may cost: the call could be made, but not billed.
pub(super) fn most(
    question: &Question<'_>,
    model: &Model,
    max_tokens: Option<i64>,
    now: Time,
) -> Result<Pico, Error> {
    let price = model.price_at(now).ok_or(Code::ModelNotFound)?;
    let size = Size {
        prompt_tokens: question.estimated_prompt_tokens,
        max_tokens: max_tokens.unwrap_or(model.max_tokens),
        choices: question.choices,
        inputs: question.inputs,
    };
    let most = reserving::largest_price(model, price, size);
    if most > MOST_EXPENSIVE {
        let message = format!(
            "This call could cost {most}, and one call may cost at most {MOST_EXPENSIVE} of the currency: ask for fewer \
             tokens, choices or inputs."
        );
        return Err(Error::new(Code::AmountOutOfRange).message(message));
    }
    Ok(most)
}

/// Reserves the highest price of the call, rounded up to whole nanos.
///
/// # Errors
/// 429 if the balance is too low or the model takes no more calls at the same time; 409 if the request id
/// belongs to another call.
pub(super) async fn reserve(
    billing: &Billing,
    question: &Question<'_>,
    calling: &ModelCaller,
    model: &Model,
    most: Pico,
    now: Time,
) -> Result<Reserving, Error> {
    let amount = most.ceil_nano();
    let new = NewReservation {
        id: ReservationId::new(now, &billing.random),
        organization_id: calling.organization_id(),
        project_id: calling.project_id(),
        caller: calling
            .key()
            .map_or_else(|| CallerId::User(calling.user_id()), |key| CallerId::ApiKey(key.id)),
        model: model.id.clone(),
        amount,
        request_id: question.request_id.map(str::to_owned),
    };
    let work = Work::Reserve { new, most_at_once: model.max_concurrent_requests };
    match books::submit(billing, work).await? {
        Answer::Reserved(Ok(reserving)) => Ok(reserving),
        Answer::Reserved(Err(refused)) => Err(refusal(refused, amount)),
        other => Err(Error::internal(format!("a reservation was answered by {other:?}"))),
    }
}

fn refusal(refused: Refused, amount: Nano) -> Error {
    match refused {
        Refused::RequestId => Error::new(Code::RequestIdConflict).param("request_id"),
        Refused::Concurrency(most) => Error::new(Code::ModelConcurrencyLimited).message(format!(
            "{most} calls of this organization to this model are under way, as many as it takes: try again in a moment."
        )),
        Refused::Money { available, credit_limit, currency } => {
            Error::new(Code::InsufficientQuota).message(format!(
                "This call needs up to {amount} {currency}, but the organization has {available} {currency} available and a \
                 credit limit of {credit_limit} {currency}: add credit."
            ))
        }
    }
}
