//! POST /service/v1/reservations/{reservation_id}/extend
//! DELETE /service/v1/reservations/{reservation_id}
//!
//! A reservation expires if its call is silent for too long. A gateway extends it while a stream continues,
//! and releases it if the call fails. The usage event of a completed call captures it.

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

/// Money reserved for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Reservation {
    /// The id by which it is captured, extended and released.
    pub id: ReservationId,
    /// The amount, in the organization's currency.
    pub amount: Nano,
    /// When it expires.
    pub expires_at: Time,
}

impl From<reservations::Reservation> for Reservation {
    fn from(reservation: reservations::Reservation) -> Self {
        let reservations::Reservation { id, amount, expires_at } = reservation;
        Self { id, amount, expires_at }
    }
}

/// A released reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Released {
    id: ReservationId,
    /// Always `true`.
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
