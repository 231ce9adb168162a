//! POST /service/v1/reservations/{reservation_id}/extend
//! DELETE /service/v1/reservations/{reservation_id}
//!
//! A reservation ends by itself when nothing is heard of its call for a while: a stream that goes on extends it, a call that
//! failed releases it. A call that was answered captures it by its usage event.

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::ReservationScope;
use billing::{Billing, reservations};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::ReservationId;
use kernel::money::Nano;
use web::input::NoInput;
use web::reply::Bare;

/// Money set aside for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Reservation {
    /// By which it is captured, extended and released.
    pub id: ReservationId,
    /// How much, in the organization's currency.
    pub amount: Nano,
    /// When it ends by itself.
    pub expires_at: Time,
}

impl From<reservations::Reservation> for Reservation {
    fn from(reservation: reservations::Reservation) -> Self {
        let reservations::Reservation { id, amount, expires_at } = reservation;
        Self { id, amount, expires_at }
    }
}

/// A reservation that is no more.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Released {
    id: ReservationId,
    /// Always true.
    released: bool,
}

/// Extend a reservation.
///
/// It lives for a whole lifetime from now.
pub async fn extend(
    billing: Billing,
    scope: ReservationScope,
    _: NoInput,
) -> Result<Bare<Reservation>, Error> {
    Ok(Bare(reservations::extend(&billing, scope.id()).await?.into()))
}

/// Release a reservation.
///
/// Its money is free again.
pub async fn delete(billing: Billing, scope: ReservationScope, _: NoInput) -> Result<Bare<Released>, Error> {
    reservations::release(&billing, scope.id()).await?;
    Ok(Bare(Released { id: scope.id(), released: true }))
}
