//! The steps of tenants, keys and billing in the transactions of accounts.

use crate::accounts::hooks::Hooks;
use crate::api::organizations::invitations::acceptance;
use crate::billing::first_credit;
use crate::keys::reclaiming::reclaim;
use crate::money::Nano;
use crate::random::Random;

/// The steps; `credit_limit` is that of a person's first organization.
pub(super) fn hooks(random: &Random, credit_limit: Nano) -> Hooks {
    let (for_acceptance, for_reclaim) = (random.clone(), random.clone());
    Hooks {
        accept_invitations: Box::new(move |tx, trail, user, now| {
            let random = for_acceptance.clone();
            Box::pin(async move { acceptance::accept_all(&random, tx, trail, user, now).await })
        }),
        reclaim: Box::new(move |tx, trail, user, now| {
            let random = for_reclaim.clone();
            Box::pin(async move { reclaim(tx, trail, user, now, &random).await })
        }),
        give_first_credit: Box::new(move |tx, verified, now| {
            Box::pin(first_credit::give(tx, verified, credit_limit, now))
        }),
    }
}
