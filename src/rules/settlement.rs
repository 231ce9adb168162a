//! When an organization is even with us, so that it may go (decisions, sections 3 and 8).

use crate::error::{Code, Error};
use crate::money::Nano;

/// Whether an organization whose wallet stands at this, with so many open invoices, may be deleted.
///
/// # Errors
/// 409 while it owes something, or has something left.
pub fn may_delete(posted: Nano, open_invoices: i64) -> Result<(), Error> {
    if posted == Nano::ZERO && open_invoices == 0 {
        return Ok(());
    }
    Err(Code::UnsettledBalance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_even_may_go() {
        for (nano, open, may) in [(0, 0, true), (-1, 0, false), (1, 0, false), (0, 1, false)] {
            assert_eq!(may_delete(Nano::from_units(nano), open).is_ok(), may, "{nano} {open}");
        }
    }
}
