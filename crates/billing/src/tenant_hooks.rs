//! The wallets of organizations that are created and deleted: billing's steps in the transactions of
//! `tenants`.

use crate::rules::credit_limits::{Creator, CreditLimit};
use crate::{Billing, settlement, store};
use db::Tx;
use kernel::error::Error;

use tenants::{MoneyHooks, TenantOpening};

/// Returns the hooks that create and settle the wallet of an organization.
pub fn hooks(billing: Billing) -> MoneyHooks {
    let for_opening = billing.clone();
    MoneyHooks {
        open: Box::new(move |tx, opening| {
            let billing = for_opening.clone();
            Box::pin(async move { open(&billing, tx, opening).await })
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

/// Creates the wallet of a new organization, with the credit limit that its creator qualifies for.
async fn open(billing: &Billing, tx: &mut Tx, opening: TenantOpening) -> Result<(), Error> {
    let TenantOpening { organization_id, user_id, mailbox, is_verified, had_credit, now } = opening;
    let settings = &billing.settings;
    let takes_first = is_verified && !had_credit;
    let had_credit = if takes_first {
        accounts::store::users::set_credit_granted(tx, user_id, now).await?;
        !store::first_credits::take(tx, &mailbox, now).await?
    } else {
        had_credit
    };
    let credit_limit = CreditLimit::of(settings.credit_limits(), Creator { is_verified, had_credit });
    store::wallets::insert(tx, organization_id, &settings.currency, credit_limit.credit(), now).await?;
    Ok(())
}
