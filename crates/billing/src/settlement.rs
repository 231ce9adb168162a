//! The closing of an organization's books when it is deleted.

use crate::bookkeeping::{closing, invoice_changes};
use crate::books::booking::Booking;
use crate::rules::settlement;
use crate::{Billing, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::money::Nano;

use trail::Trail;

/// Checks that neither side owes money and that no call is in progress, and stores the name for the last
/// invoice. All months up to the current one are closed immediately, and a balance that is too small to be
/// paid is written off, so that a fully paid organization can be deleted. Call this in the transaction that
/// deletes the organization.
///
/// # Errors
/// 409 while money is owed or a call is in progress; 503 while the clock isn't trusted; the database fails.
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
    // No month is closed or written off for an organization that can't be deleted.
    if wallet.reserved == Nano::ZERO {
        billing.clock_guard.require()?;
        while wallet.open_month <= now.day().month() {
            closing::close_locked(&booking, tx, &mut wallet).await?;
        }
        invoice_changes::write_off_dust(&booking, tx, &mut wallet).await?;
    }
    booking.write(tx, &mut wallet).await?;
    settlement::may_delete(wallet.posted, wallet.reserved, store::invoices::open_count(tx, id).await?)?;
    store::wallets::set_former_name(tx, id, name).await?;
    store::budgets::delete_all(tx, id).await?;
    store::auto_top_ups::remove(tx, id).await?;
    store::payment_pages::end_all(tx, id, now).await?;
    Ok(())
}
