//! The end of an organization's books, when it is deleted.

use crate::Billing;
use crate::bookkeeping::{closing, settling};
use crate::books::booking::Booking;
use crate::rules::settlement;
use crate::store;
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::money::Nano;

use trail::Trail;

/// Makes sure that nothing is owed on either side and no call is under way, and keeps the name for the last invoice. The
/// months up to this one are closed at once, and what is too little to be paid is written off, so that an organization that
/// has paid everything can go. It belongs into the transaction that deletes the organization.
///
/// # Errors
/// 409 while something is owed or calls are under way, 503 while the clock isn't trusted; the database's.
pub async fn settle(
    billing: &Billing,
    tx: &mut Tx,
    trail: &Trail,
    id: OrganizationId,
    name: &str,
    now: Time,
) -> Result<(), Error> {
    let booking = Booking { billing, trail, now };
    let wallet = booking.lock(tx, id).await?;
    let mut wallet = wallet.ok_or_else(|| Error::internal("an organization without a wallet"))?;
    // Nothing is closed and written off for an organization that can't go anyway.
    if wallet.reserved == Nano::ZERO {
        billing.clock_guard.require()?;
        while wallet.open_month <= now.day().month() {
            closing::close_locked(&booking, tx, &mut wallet).await?;
        }
        settling::write_off_dust(&booking, tx, &mut wallet).await?;
    }
    store::wallets::write(tx, &wallet).await?;
    settlement::may_delete(wallet.posted, wallet.reserved, store::invoices::open_count(tx, id).await?)?;
    store::wallets::keep_name(tx, id, name).await?;
    Ok(())
}
