//! Reservations: money set aside for calls that are under way.

use crate::Billing;
use crate::books;
use crate::books::{Answer, Work};
use crate::store;
use kernel::clock::MINUTE_MS;
use kernel::error::{Code, Error};
use kernel::ids::ReservationId;

pub use crate::books::Reservation;

/// How far the clocks of replicas may lie apart, in milliseconds.
const CLOCKS_DIFFER_MS: i64 = MINUTE_MS;

/// Lets a reservation live on for a whole lifetime from now.
///
/// # Errors
/// 404 when it is over; 503 as of [`books::submit`].
pub async fn extend(billing: &Billing, id: ReservationId) -> Result<Reservation, Error> {
    match books::submit(billing, Work::Extend(id)).await? {
        Answer::Extended(Some(reservation)) => Ok(reservation),
        Answer::Extended(None) => Err(Code::ReservationNotFound.into()),
        other => Err(Error::internal(format!("an extension was answered by {other:?}"))),
    }
}

/// Frees a reservation's money.
///
/// # Errors
/// 404 when it is over; 503 as of [`books::submit`].
pub async fn release(billing: &Billing, id: ReservationId) -> Result<(), Error> {
    match books::submit(billing, Work::Release(id)).await? {
        Answer::Released(true) => Ok(()),
        Answer::Released(false) => Err(Code::ReservationNotFound.into()),
        other => Err(Error::internal(format!("a release was answered by {other:?}"))),
    }
}

/// Shortens reservations that a clock ahead of the others has let live for too long.
///
/// # Errors
/// The database can't be written.
pub async fn shorten(billing: &Billing) -> Result<(), Error> {
    if !billing.clock_guard.is_trusted() {
        return Ok(());
    }
    let lives_ms = billing.settings.reservation_minutes.saturating_mul(MINUTE_MS);
    let now = billing.clock_guard.shared_now();
    let latest = now.plus_ms(lives_ms.saturating_mul(2).saturating_add(CLOCKS_DIFFER_MS));
    let mut tx = billing.db.write().await?;
    store::reservations::shorten(&mut tx, now.plus_ms(lives_ms), latest).await?;
    tx.commit().await?;
    Ok(())
}
