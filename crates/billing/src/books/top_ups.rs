//! Automatic top-ups. A write that lowers a wallet below its threshold requests a top-up in the same
//! transaction.

use crate::books::booking::Booking;
use crate::store;
use crate::store::wallets::Wallet;
use db::Tx;
use kernel::ids::PaymentId;
use kernel::money::Nano;

impl Booking<'_> {
    /// Writes a locked wallet, and requests an automatic top-up if its available amount is below the
    /// threshold.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write(&self, tx: &mut Tx, wallet: &mut Wallet) -> Result<(), db::Error> {
        store::wallets::write(tx, wallet, self.billing.demo_credit(), self.now, &self.billing.random).await?;
        if wallet.top_up_below.is_some_and(|below| wallet.available() < below) {
            let id = PaymentId::new(self.now, &self.billing.random);
            store::auto_top_ups::request(tx, wallet, id, self.now).await?;
            wallet.top_up_below = None;
        }
        Ok(())
    }

    /// Sets the threshold of automatic top-ups of a locked wallet; `None` turns them off. Requests a top-up
    /// immediately if the available amount is below the threshold.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_top_up_threshold(
        &self,
        tx: &mut Tx,
        wallet: &mut Wallet,
        below: Option<Nano>,
    ) -> Result<(), db::Error> {
        if wallet.top_up_below != below {
            wallet.top_up_below = below;
            store::auto_top_ups::set_threshold(tx, wallet.organization_id, below).await?;
        }
        self.write(tx, wallet).await
    }
}
