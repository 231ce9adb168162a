//! Reservations: money that is set aside for calls in progress.

use crate::books::{self, Extension, Lifetime, Release};
use crate::{Billing, store};
use call_log::entries::NewCall;
use kernel::error::{Code, Error};
use kernel::ids::ReservationId;

pub use crate::books::Reservation;
pub use crate::store::call_progress::Progress;

/// Extends a reservation to a whole lifetime from now.
///
/// # Errors
/// 404 if it has ended; 503 as in [`books::submit`].
pub async fn extend(billing: &Billing, id: ReservationId) -> Result<Reservation, Error> {
    submit_extension(billing, Extension { id, lifetime: Lifetime::Reported, progress: None }).await
}

/// Extends the reservation of a call of the gateway, and records the progress of the call. If the reservation
/// expires, this progress is charged; without progress, the call costs nothing
/// (docs/contract/gateway.md#what-a-killed-server-costs).
///
/// # Errors
/// 404 if it has ended; 503 as in [`books::submit`].
pub async fn extend_call(
    billing: &Billing,
    id: ReservationId,
    progress: Option<Progress>,
) -> Result<Reservation, Error> {
    submit_extension(billing, Extension { id, lifetime: Lifetime::Gateway, progress }).await
}

async fn submit_extension(billing: &Billing, extension: Extension) -> Result<Reservation, Error> {
    books::submit(billing, extension).await?.ok_or_else(|| Code::ReservationNotFound.into())
}

/// Ends a reservation and frees its money.
///
/// # Errors
/// 404 if it has ended; 503 as in [`books::submit`].
pub async fn release(billing: &Billing, id: ReservationId) -> Result<(), Error> {
    end(billing, Release { id, call: None }).await
}

/// Ends the reservation of a call of the gateway that costs nothing, and logs the call.
///
/// # Errors
/// Those of [`release`].
pub async fn release_call(billing: &Billing, id: ReservationId, call: NewCall) -> Result<(), Error> {
    end(billing, Release { id, call: Some(Box::new(call)) }).await
}

async fn end(billing: &Billing, release: Release) -> Result<(), Error> {
    match books::submit(billing, release).await? {
        true => Ok(()),
        false => Err(Code::ReservationNotFound.into()),
    }
}

/// Shortens reservations that end later than twice the maximum lifetime from now, because the clock was set
/// back.
///
/// # Errors
/// The database fails.
pub async fn shorten(billing: &Billing) -> Result<(), Error> {
    if !billing.clock_guard.is_trusted() {
        return Ok(());
    }
    let lives_ms = [Lifetime::Reported, Lifetime::Gateway].map(|lifetime| lifetime.ms(&billing.settings));
    let lives_ms = lives_ms.into_iter().max().unwrap_or_default();
    let mut tx = billing.db().write().await?;
    let now = billing.clock_guard.time_in(&mut tx).await?;
    let end = now.plus_ms(lives_ms);
    store::reservations::shorten(&mut tx, end, end.plus_ms(lives_ms)).await?;
    tx.commit().await?;
    Ok(())
}
