//! The money of organizations that come and go: what tenants asks of billing, within its transactions.

use std::sync::{Arc, OnceLock, Weak};

use crate::config;
use crate::db::Tx;
use crate::error::Error;
use crate::jobs::billing::{closing, settling};
use crate::live::books::booking::Booking;
use crate::money::Nano;
use crate::rules::credit_limits::{CreditLimit, Maker};
use crate::rules::settlement;
use crate::store;
use crate::tenants::{Closing, Founding, MoneyHooks};

use super::{App, Parts};

/// The application, once it is there: billing still takes it whole.
pub type Later = Arc<OnceLock<Weak<Parts>>>;

/// The hooks by which organizations get their wallet and are settled.
pub fn hooks(billing: config::Billing, app: Later) -> MoneyHooks {
    let billing = Arc::new(billing);
    MoneyHooks {
        open: Box::new(move |tx, founding| {
            let billing = Arc::clone(&billing);
            Box::pin(async move { open(&billing, tx, founding).await })
        }),
        settle: Box::new(move |tx, closing| {
            let app = app.get().and_then(Weak::upgrade);
            Box::pin(async move {
                let app = app.ok_or_else(|| Error::internal("there is no application to settle with"))?;
                settle(&App(app), tx, closing).await
            })
        }),
    }
}

/// Gives a new organization its wallet, with the credit limit that its maker's standing brings.
async fn open(billing: &config::Billing, tx: &mut Tx, founding: Founding) -> Result<(), Error> {
    let Founding { organization_id, user_id, is_verified, had_credit, now } = founding;
    let credit_limit = CreditLimit::of(billing, Maker { is_verified, had_credit });
    store::wallets::insert(tx, organization_id, &billing.currency, credit_limit.amount(), now).await?;
    if let CreditLimit::First(_) = credit_limit {
        store::users::set_credit_granted(tx, user_id, now).await?;
    }
    Ok(())
}

/// Makes sure that nothing is owed on either side and no call is under way, and keeps the name for the last invoice. The months up to this
/// one are closed at once, and what is too little to be paid is written off, so that an organization that paid everything can go.
async fn settle(app: &App, tx: &mut Tx, closing: Closing<'_>) -> Result<(), Error> {
    let Closing { organization_id: id, name, trail, now } = closing;
    let booking = Booking { app, trail, now };
    let wallet = booking.lock(tx, id).await?;
    let mut wallet = wallet.ok_or_else(|| Error::internal("an organization without a wallet"))?;
    // Nothing is closed and written off for an organization that can't go anyway.
    if wallet.reserved == Nano::ZERO {
        app.clock_guard.require()?;
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
