//! The conditions for deleting an organization (docs/contract/organizations.md#settlement).

use kernel::error::{Code, Error};
use kernel::money::Nano;

/// Checks that an organization with this wallet and this number of open invoices may be deleted.
///
/// # Errors
/// 409 while it has a debt or a balance, or while calls are in progress that will be paid from reserved
/// money.
pub fn may_delete(posted: Nano, reserved: Nano, open_invoices: i64) -> Result<(), Error> {
    if posted != Nano::ZERO || open_invoices != 0 {
        return Err(Code::UnsettledBalance.into());
    }
    if reserved != Nano::ZERO {
        return Err(Code::CallsInProgress.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settled_organizations_may_be_deleted() {
        let cases = [
            // Posted, reserved, open invoices.
            (0, 0, 0, None),
            (-1, 0, 0, Some(Code::UnsettledBalance)),
            (1, 0, 0, Some(Code::UnsettledBalance)),
            (0, 0, 1, Some(Code::UnsettledBalance)),
            (0, 1, 0, Some(Code::CallsInProgress)),
            (1, 1, 0, Some(Code::UnsettledBalance)),
        ];
        for (posted, reserved, open, refused) in cases {
            let [posted, reserved] = [posted, reserved].map(Nano::from_units);
            let code = may_delete(posted, reserved, open).err().map(|error| error.code);
            assert_eq!(code, refused, "{posted} {reserved} {open}");
        }
    }
}
