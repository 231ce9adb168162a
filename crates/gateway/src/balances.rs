//! The last known balances of organizations, which let a call start before its money is reserved.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kernel::ids::OrganizationId;
use kernel::money::Nano;

/// The number of calls of the same price that an organization must be able to pay for so that a call may
/// start early.
const AMPLE_CALLS: i128 = 20;
/// The maximum number of organizations that are remembered.
const MAX_ORGANIZATIONS: usize = 65_536;

/// The amounts that organizations could spend when they last reserved money.
#[derive(Debug, Default)]
pub(crate) struct SeenBalances(Mutex<HashMap<OrganizationId, Nano>>);

impl SeenBalances {
    /// Notes the amount that an organization can spend in addition to its reservations.
    pub(crate) fn note(&self, organization: OrganizationId, left: Nano) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_ORGANIZATIONS && !seen.contains_key(&organization) {
            seen.clear();
        }
        seen.insert(organization, left);
    }

    /// Forgets the amount that an organization could spend, because a reservation was refused.
    pub(crate) fn forget(&self, organization: OrganizationId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&organization);
    }

    /// Returns `true` if an organization could pay for many calls of this price when its balance was last
    /// seen.
    pub(crate) fn are_ample(&self, organization: OrganizationId, price: Nano) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&organization).is_some_and(|left| left.units() >= price.units().saturating_mul(AMPLE_CALLS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::Time;
    use kernel::random::Random;

    #[test]
    fn twenty_calls_are_ample() {
        let seen = SeenBalances::default();
        let organization = OrganizationId::new(Time::from_unix_ms(0), &Random::system());
        let price = Nano::from_units(100);
        assert!(!seen.are_ample(organization, price), "not seen yet");
        seen.note(organization, Nano::from_units(2_000));
        assert!(seen.are_ample(organization, price) && seen.are_ample(organization, Nano::ZERO));
        seen.note(organization, Nano::from_units(1_999));
        assert!(!seen.are_ample(organization, price));
        seen.note(organization, Nano::from_units(i64::MAX.into()));
        seen.forget(organization);
        assert!(!seen.are_ample(organization, Nano::ZERO));
    }
}
