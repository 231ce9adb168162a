//! Which credit limit an organization gets: credit is given once a person, and to verified people only.

use crate::config::Billing;
use crate::money::Nano;

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
    /// `billing.credit_limit`, which the maker has had then.
    First(Nano),
    /// Another one.
    Other(Nano),
}

impl CreditLimit {
    /// Of an organization that this person makes. Without a verified address it has none: the first that still exists gets its
    /// own when the address is verified.
    pub fn of(billing: &Billing, maker: Maker) -> Self {
        match maker {
            Maker { is_verified: false, .. } => Self::Other(Nano::ZERO),
            Maker { had_credit: false, .. } => Self::First(billing.credit_limit),
            Maker { had_credit: true, .. } => Self::Other(billing.further_credit_limit),
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
    use crate::config::Config;

    #[test]
    fn the_first_of_somebody_verified_is_given_credit() {
        let billing = Billing { further_credit_limit: Nano::from_units(7), ..Config::default().billing };
        let of = |is_verified, had_credit| CreditLimit::of(&billing, Maker { is_verified, had_credit });
        assert_eq!(of(true, false), CreditLimit::First(billing.credit_limit));
        assert_eq!(of(true, true), CreditLimit::Other(Nano::from_units(7)));
        assert_eq!(of(false, false), CreditLimit::Other(Nano::ZERO));
        assert_eq!(of(false, true), CreditLimit::Other(Nano::ZERO));
    }
}
