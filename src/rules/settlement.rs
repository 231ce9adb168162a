//! When an organization is even with us, so that it may go (decisions, sections 3 and 8).

use crate::error::{Code, Error};
use crate::money::{Nano, Pico};

/// Pico in a nano.
const PICO_PER_NANO: i128 = 1_000;

/// What an organization's account stands at. All that moves it so far is usage, which is debited at once; of a part of a
/// nano nothing is due.
pub fn balance(used: Pico) -> Nano {
    Nano::from_units(-used.units().div_euclid(PICO_PER_NANO))
}

/// Whether an organization whose account stands at this may be deleted.
///
/// # Errors
/// 409 while it owes something, or has something left.
pub fn may_delete(balance: Nano) -> Result<(), Error> {
    if balance == Nano::ZERO {
        return Ok(());
    }
    Err(Code::UnsettledBalance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_even_may_go() {
        for (pico, nano) in [(0, 0), (999, 0), (1_000, -1), (1_999, -1), (-1_000, 1)] {
            let balance = balance(Pico::from_units(pico));
            assert_eq!(balance, Nano::from_units(nano), "{pico}");
            assert_eq!(may_delete(balance).is_ok(), nano == 0, "{pico}");
        }
    }
}
