//! The debts of months that aren't billed yet.

use std::collections::BTreeMap;

use crate::store;
use crate::store::wallets::Wallet;
use db::Tx;
use kernel::clock::Month;
use kernel::money::Nano;

/// Returns the debts of the months that aren't billed yet, whose sum is `not_billed`. A debt that belongs to
/// no month counts as a debt of the oldest month. `decreases` are the amounts by which daily rows were
/// lowered, but which aren't posted yet.
pub(super) async fn debts_of_open_months(
    tx: &mut Tx,
    wallet: &Wallet,
    not_billed: Nano,
    decreases: &BTreeMap<Month, Nano>,
) -> Result<BTreeMap<Month, Nano>, db::Error> {
    let mut debts = BTreeMap::new();
    if not_billed <= Nano::ZERO {
        return Ok(debts);
    }
    let (id, first) = (wallet.organization_id, wallet.open_month);
    let mut rest = not_billed.units();
    if store::months::has_later(tx, id, first).await? {
        for charged in store::months::charges_from(tx, id, first.plus(1)).await? {
            let decrease = decreases.get(&charged.month).copied().unwrap_or(Nano::ZERO);
            let debt = (charged.unpaid.units() + decrease.units()).clamp(0, rest);
            rest -= debt;
            debts.insert(charged.month, Nano::from_units(debt));
        }
    }
    debts.insert(first, Nano::from_units(rest));
    Ok(debts)
}
