//! Which credit limit an organization gets: credit is given once a person, and to verified people only.

use kernel::money::Nano;

/// How far organizations may go below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A person's first organization.
    pub first: Nano,
    /// Every further one of that person.
    pub further: Nano,
}

/// The facts that decide about the credit limit of a new organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maker {
    /// Whether the maker's address is verified.
    pub is_verified: bool,
    /// Whether an organization of theirs was given the first credit limit before, even if it is gone.
    pub had_credit: bool,
}

/// The credit limit of a new organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditLimit {
    /// The first one's, which the maker has had then.
    First(Nano),
    /// Another one.
    Other(Nano),
}

impl CreditLimit {
    /// Of an organization that this person makes. Without a verified address it has none: the first that still exists gets its
    /// own when the address is verified.
    pub fn of(limits: Limits, maker: Maker) -> Self {
        match maker {
            Maker { is_verified: false, .. } => Self::Other(Nano::ZERO),
            Maker { had_credit: false, .. } => Self::First(limits.first),
            Maker { had_credit: true, .. } => Self::Other(limits.further),
        }
    }

    /// How much it is.
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
    fn the_first_of_somebody_verified_is_given_credit() {
        let limits = Limits { first: Nano::from_units(9), further: Nano::from_units(7) };
        let of = |is_verified, had_credit| CreditLimit::of(limits, Maker { is_verified, had_credit });
        assert_eq!(of(true, false), CreditLimit::First(Nano::from_units(9)));
        assert_eq!(of(true, true), CreditLimit::Other(Nano::from_units(7)));
        assert_eq!(of(false, false), CreditLimit::Other(Nano::ZERO));
        assert_eq!(of(false, true), CreditLimit::Other(Nano::ZERO));
    }
}
