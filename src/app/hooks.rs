//! The hooks of accounts: steps of tenants, keys and billing that run in the transactions of accounts.

use accounts::hooks::Hooks;
use billing::{Billing, first_credit};
use kernel::random::Random;
use keys::reclaiming::reclaim;
use tenants::{Tenants, invitations, sign_ons};

/// Returns the hooks.
pub(super) fn hooks(random: &Random, tenants: Tenants, billing: Billing) -> Hooks {
    let (for_reclaim, for_sign_ons) = (random.clone(), tenants.clone());
    Hooks {
        is_invited: Box::new(|tx, email_folded, now| {
            Box::pin(async move { invitations::is_invited(tx, email_folded, now).await })
        }),
        accept_invitations: Box::new(move |tx, trail, user, now| {
            let tenants = tenants.clone();
            Box::pin(async move {
                let person = (user.id, user.email_folded.as_str());
                invitations::accept_all(&tenants, tx, trail, person, now).await
            })
        }),
        reclaim: Box::new(move |tx, trail, user, now| {
            let random = for_reclaim.clone();
            Box::pin(async move { reclaim(tx, trail, user, now, &random).await })
        }),
        apply_sign_on: Box::new(move |tx, trail, user, grant, now| {
            let tenants = for_sign_ons.clone();
            Box::pin(async move { sign_ons::apply(&tenants, tx, trail, user, grant, now).await })
        }),
        give_first_credit: Box::new(move |tx, verified, now| {
            let billing = billing.clone();
            Box::pin(async move { first_credit::grant(&billing, tx, verified, now).await })
        }),
    }
}
