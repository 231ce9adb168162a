//! Credit limits: the limit of new organizations, which is given once per user and mailbox and only to
//! verified users; and the limit of the built-in demo, whose calls cost nothing.

use kernel::money::Nano;

/// The amount that a user's first organization may spend while the built-in demo answers and no credit limit
/// is configured: 5 of the currency.
pub const DEMO_CREDIT: Nano = Nano::from_units(5_000_000_000);

/// The amount that organizations with the demo credit may currently spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DemoCredit(Nano);

impl DemoCredit {
    /// Returns the credit: zero unless the catalog in force is the built-in one and no credit limit is
    /// configured.
    pub const fn of(is_demo: bool, configured: Option<Nano>) -> Self {
        Self(if is_demo && configured.is_none() { DEMO_CREDIT } else { Nano::ZERO })
    }

    pub const fn amount(self) -> Nano {
        self.0
    }
}

/// The stored amount by which a wallet may go below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    /// The amount that was given with the organization, or set by an operator.
    pub granted: Nano,
    /// `true` if the wallet belongs to its creator's first organization, and no operator has set its limit.
    pub has_demo_credit: bool,
}

impl Credit {
    /// Returns the limit that applies now.
    pub fn limit(self, demo: DemoCredit) -> Nano {
        if self.has_demo_credit { self.granted.max(demo.amount()) } else { self.granted }
    }
}

/// The configured credit limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditLimits {
    /// For a user's first organization.
    pub first: Nano,
    /// For every further organization of that user.
    pub further: Nano,
}

/// The facts about the creator of an organization that determine its credit limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creator {
    /// `true` if the creator's address is verified.
    pub is_verified: bool,
    /// `true` if an organization of the creator, or of another account with the same mailbox, already had the
    /// first credit limit, even if it was deleted.
    pub had_credit: bool,
}

/// The credit limit of a new organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditLimit {
    /// The limit of a user's first organization, which can't be given again.
    First(Nano),
    Other(Nano),
}

impl CreditLimit {
    /// Returns the credit limit of an organization with this creator. Without a verified address it is 0: the
    /// first organization that still exists gets its limit when the address is verified.
    pub fn of(limits: CreditLimits, maker: Creator) -> Self {
        match maker {
            Creator { is_verified: false, .. } => Self::Other(Nano::ZERO),
            Creator { had_credit: false, .. } => Self::First(limits.first),
            Creator { had_credit: true, .. } => Self::Other(limits.further),
        }
    }

    /// Returns the amount by which the new wallet may go below zero.
    pub const fn credit(self) -> Credit {
        match self {
            Self::First(granted) => Credit { granted, has_demo_credit: true },
            Self::Other(granted) => Credit { granted, has_demo_credit: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_organization_of_a_verified_user_gets_credit() {
        let limits = CreditLimits { first: Nano::from_units(9), further: Nano::from_units(7) };
        let of = |is_verified, had_credit| CreditLimit::of(limits, Creator { is_verified, had_credit });
        assert_eq!(of(true, false), CreditLimit::First(Nano::from_units(9)));
        assert_eq!(of(true, false).credit(), Credit { granted: Nano::from_units(9), has_demo_credit: true });
        assert_eq!(of(true, true), CreditLimit::Other(Nano::from_units(7)));
        assert_eq!(of(true, true).credit(), Credit { granted: Nano::from_units(7), has_demo_credit: false });
        assert_eq!(of(false, false), CreditLimit::Other(Nano::ZERO));
        assert_eq!(of(false, true), CreditLimit::Other(Nano::ZERO));
    }

    #[test]
    fn demo_credit_ends_with_the_demo_and_by_a_setting() {
        let zero = Some(Nano::ZERO);
        assert_eq!(DemoCredit::of(true, None).amount(), DEMO_CREDIT);
        for (is_demo, configured) in [(false, None), (true, zero), (false, zero), (true, Some(DEMO_CREDIT))] {
            assert_eq!(DemoCredit::of(is_demo, configured).amount(), Nano::ZERO, "{is_demo} {configured:?}");
        }
    }

    #[test]
    fn demo_credit_is_for_first_organizations_and_lowers_no_limit() {
        let demo = DemoCredit::of(true, None);
        let limit = |granted, has_demo_credit| Credit { granted, has_demo_credit }.limit(demo);
        assert_eq!(limit(Nano::ZERO, true), DEMO_CREDIT);
        assert_eq!(limit(Nano::ZERO, false), Nano::ZERO);
        let more = Nano::from_units(DEMO_CREDIT.units() + 1);
        assert_eq!([limit(more, true), limit(more, false)], [more, more]);
        assert_eq!(
            Credit { granted: Nano::ZERO, has_demo_credit: true }.limit(DemoCredit::of(false, None)),
            Nano::ZERO
        );
    }
}
