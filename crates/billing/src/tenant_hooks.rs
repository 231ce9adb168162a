//! The wallets of organizations that are created and deleted: billing's steps in the transactions of
//! `tenants`.

use crate::rules::credit_limits::{Creator, CreditLimit};
use crate::store;
use crate::{Billing, settlement};
use db::Tx;
use kernel::error::Error;

use tenants::{Founding, MoneyHooks};

/// Returns the hooks by which a new organization gets its wallet and a deleted one is settled.
pub fn hooks(billing: Billing) -> MoneyHooks {
    let opening = billing.clone();
    MoneyHooks {
        open: Box::new(move |tx, founding| {
            let billing = opening.clone();
            Box::pin(async move { open(&billing, tx, founding).await })
        }),
        settle: Box::new(move |tx, closing| {
            let billing = billing.clone();
            Box::pin(async move {
                let id = closing.organization_id;
                settlement::settle(&billing, tx, closing.trail, id, closing.name, closing.now).await
            })
        }),
    }
}

/// Adds the wallet of a new organization, with the credit limit that its creator is entitled to.
async fn open(billing: &Billing, tx: &mut Tx, founding: Founding) -> Result<(), Error> {
    let Founding { organization_id, user_id, is_verified, had_credit, now } = founding;
    let settings = &billing.settings;
    let credit_limit = CreditLimit::of(settings.credit_limits(), Creator { is_verified, had_credit });
    store::wallets::insert(tx, organization_id, &settings.currency, credit_limit.amount(), now).await?;
    if let CreditLimit::First(_) = credit_limit {
        accounts::store::users::set_credit_granted(tx, user_id, now).await?;
    }
    Ok(())
}
