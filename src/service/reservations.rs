//! POST /service/v1/reservations/{reservation_id}/extend
//! DELETE /service/v1/reservations/{reservation_id}
//!
//! A reservation ends by itself when nobody hears of its call for a while: a stream that goes on extends it, a call that
//! failed releases it. A call that was answered captures it by its usage event.

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::ReservationScope;
use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::ReservationId;
use crate::input::Nothing;
use crate::live::books::{self, Answer, Reservation, Work};
use crate::reply::Bare;

/// A reservation that is no more.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Released {
    id: ReservationId,
    /// Always true.
    released: bool,
}

/// Lets it live on for a whole lifetime from now.
pub async fn extend(app: App, scope: ReservationScope, _: Nothing) -> Result<Bare<Reservation>, Error> {
    match books::submit(&app.billing, Work::Extend(scope.id())).await? {
        Answer::Extended(Some(reservation)) => Ok(Bare(reservation)),
        Answer::Extended(None) => Err(Code::ReservationNotFound.into()),
        other => Err(Error::internal(format!("an extension was answered by {other:?}"))),
    }
}

/// Frees its money.
pub async fn delete(app: App, scope: ReservationScope, _: Nothing) -> Result<Bare<Released>, Error> {
    match books::submit(&app.billing, Work::Release(scope.id())).await? {
        Answer::Released(true) => Ok(Bare(Released { id: scope.id(), released: true })),
        Answer::Released(false) => Err(Code::ReservationNotFound.into()),
        other => Err(Error::internal(format!("a release was answered by {other:?}"))),
    }
}
