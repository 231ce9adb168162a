//! Extensions of reservations, with the progress of the gateway's calls.

use std::collections::BTreeMap;

use super::locked_wallets::LockedWallets;
use super::operations::{Extension, Lifetime, Reservation};
use crate::store::call_progress::{self, Progress};
use crate::store::reservations::{self, ReservedAmount};
use db::Tx;
use kernel::ids::ReservationId;

/// The extensions of one transaction that set the same end.
#[derive(Default)]
struct Group {
    plain: Vec<ReservationId>,
    with_progress: Vec<(ReservationId, Progress)>,
}

/// Extends the reservations that weren't ended by another operation. If a reservation has several extensions,
/// the last one counts.
pub(super) async fn run(
    tx: &mut Tx,
    extensions: &[Extension],
    ended: &BTreeMap<ReservationId, ReservedAmount>,
    wallets: &LockedWallets<'_>,
) -> Result<BTreeMap<ReservationId, Reservation>, db::Error> {
    let mut extended = BTreeMap::new();
    for (lifetime, group) in group(extensions, ended) {
        let expires_at = wallets.reservation_end(lifetime);
        let mut found = reservations::extend(tx, &group.plain, expires_at).await?;
        found.extend(call_progress::write(tx, &group.with_progress, expires_at).await?);
        let found = found
            .into_iter()
            .map(|ReservedAmount { id, amount, .. }| (id, Reservation { id, amount, expires_at }));
        extended.extend(found);
    }
    Ok(extended)
}

fn group(
    extensions: &[Extension],
    ended: &BTreeMap<ReservationId, ReservedAmount>,
) -> BTreeMap<Lifetime, Group> {
    let mut last: BTreeMap<ReservationId, Extension> = BTreeMap::new();
    for extension in extensions {
        if ended.contains_key(&extension.id) {
            continue;
        }
        let before = last.get(&extension.id).and_then(|before| before.progress);
        last.insert(extension.id, Extension { progress: extension.progress.or(before), ..*extension });
    }
    let mut groups: BTreeMap<Lifetime, Group> = BTreeMap::new();
    for Extension { id, lifetime, progress } in last.into_values() {
        let group = groups.entry(lifetime).or_default();
        match progress {
            Some(progress) => group.with_progress.push((id, progress)),
            None => group.plain.push(id),
        }
    }
    groups
}
