//! Money for a call: its largest possible price is set aside before it may be made.

use super::Question;
use crate::access::Calling;
use crate::app::App;
use crate::catalog::Model;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::ReservationId;
use crate::live::books::{Answer, Refused, Reservation, Work};
use crate::money::Nano;
use crate::rules::reserving;
use crate::store::reservations::NewReservation;

/// How long to wait before a model may take another call, in milliseconds; nobody knows when one ends.
pub(super) const CONCURRENCY_RETRY_MS: i64 = 1_000;

/// Sets aside what this call may cost at most.
///
/// # Errors
/// 429 when there is no money for it, or as many calls to the model are under way as it takes.
pub(super) async fn reserve(
    app: &App,
    question: &Question<'_>,
    calling: &Calling,
    model: &Model,
    max_tokens: Option<i64>,
    now: Time,
) -> Result<Reservation, Error> {
    let price = model.price_at(now).ok_or(Code::ModelNotFound)?;
    let prompt_tokens = question.estimated_prompt_tokens.unwrap_or(model.max_tokens);
    let amount = reserving::largest_price(price, prompt_tokens, max_tokens.unwrap_or(model.max_tokens));
    let new = NewReservation {
        id: ReservationId::new(now, &app.random),
        organization_id: calling.organization_id(),
        project_id: calling.project_id(),
        api_key_id: calling.key().map(|key| key.id),
        model: model.id.clone(),
        amount,
    };
    let work = Work::Reserve { new, most_at_once: model.max_concurrent_requests };
    match app.books.submit(app, work).await? {
        Answer::Reserved(Ok(reservation)) => Ok(reservation),
        Answer::Reserved(Err(refused)) => Err(refusal(refused, amount)),
        other => Err(Error::internal(format!("a reservation was answered by {other:?}"))),
    }
}

fn refusal(refused: Refused, amount: Nano) -> Error {
    match refused {
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
