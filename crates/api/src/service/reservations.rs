//! POST /service/v1/reservations/{reservation_id}/extend
//! DELETE /service/v1/reservations/{reservation_id}
//!
//! A reservation expires if its call is silent for too long. A gateway extends it while a stream continues,
//! and releases it if the call fails. The usage event of a completed call captures it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::{Call, ServiceScope};
use billing::{Billing, reservations};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::ReservationId;
use kernel::money::Nano;
use web::input::{Description, Input};
use web::reply::Bare;
use web::route::Operation;

/// Money reserved for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Reservation {
    /// The id by which the reservation is captured, extended and released.
    pub id: ReservationId,
    /// The amount, in the organization's currency.
    pub amount: Nano,
    /// The time when the reservation expires.
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
#[schemars(rename = "ReleasedReservation")]
pub struct Released {
    /// The reservation's id.
    id: ReservationId,
    /// Always `true`.
    released: bool,
}

/// The id of a reservation in the path.
#[derive(Clone, Copy, Debug)]
pub struct ReservationPath(ReservationId);

impl Input<Api> for ReservationPath {
    const READS_BODY: bool = false;

    async fn read(_: &Api, call: &mut Call) -> Result<Self, Error> {
        let id = ReservationId::parse(call.path("reservation_id"));
        Ok(Self(id.ok_or(Code::ReservationNotFound)?))
    }
    fn describe() -> Description {
        Description::default()
    }
}

pub const EXTEND: Operation =
    Operation { errors: &[Code::BooksQueueFull], ..Operation::new("extend_reservation") };

/// Extend a reservation.
///
/// The reservation then expires after its full lifetime, counted from now.
pub async fn extend(
    billing: Billing,
    _: ServiceScope,
    ReservationPath(id): ReservationPath,
) -> Result<Bare<Reservation>, Error> {
    Ok(Bare(reservations::extend(&billing, id).await?.into()))
}

pub const DELETE: Operation =
    Operation { errors: &[Code::BooksQueueFull], ..Operation::new("delete_reservation") };

/// Release a reservation.
///
/// Its money becomes available again.
pub async fn delete(
    billing: Billing,
    _: ServiceScope,
    ReservationPath(id): ReservationPath,
) -> Result<Bare<Released>, Error> {
    reservations::release(&billing, id).await?;
    Ok(Bare(Released { id, released: true }))
}
