//! The credit limit of new organizations: it is given once per user, and to verified users only.

use kernel::money::Nano;

/// The configured credit limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditLimits {
    /// For a user's first organization.
    pub first: Nano,
    /// For every further organization of that user.
    pub further: Nano,
}

/// The facts about the creator of an organization that decide about its credit limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creator {
    /// The creator's address is verified.
    pub is_verified: bool,
    /// An organization of theirs had the first credit limit before, even if it was deleted.
    pub had_credit: bool,
}

/// The credit limit of a new organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditLimit {
    /// The limit of a user's first organization, which is now used.
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

    pub const fn amount(self) -> Nano {
        match self {
            Self::First(amount) | Self::Other(amount) => amount,
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
        assert_eq!(of(true, false).amount(), Nano::from_units(9));
        assert_eq!(of(true, true), CreditLimit::Other(Nano::from_units(7)));
        assert_eq!(of(true, true).amount(), Nano::from_units(7));
        assert_eq!(of(false, false), CreditLimit::Other(Nano::ZERO));
        assert_eq!(of(false, true), CreditLimit::Other(Nano::ZERO));
    }
}
