//! The wallets of one transaction: locked together, looked at, written once.

use std::collections::{BTreeMap, BTreeSet};

use super::assumptions::missing;
use super::booking::{Booking, Refund};
use super::crediting;
use super::events::Counted;
use super::round::Charges;
use super::work::{Refused, Reservation, Work};
use crate::access::Trail;
use crate::app::App;
use crate::clock::{Month, Time};
use crate::db::{self, Tx};
use crate::ids::OrganizationId;
use crate::money::Nano;
use crate::rules::books::{self, Source};
use crate::store;
use crate::store::ledger::{Account, Movement};
use crate::store::reservations::{NewReservation, Reserved};
use crate::store::wallets::Wallet;

/// Locked wallets.
pub(super) struct Purses<'a> {
    booking: Booking<'a>,
    purses: BTreeMap<OrganizationId, Purse>,
}

struct Purse {
    wallet: Wallet,
    changed: bool,
}

impl<'a> Purses<'a> {
    /// Locks the wallets of these organizations, in the order of their ids, and ends the credits in them whose time is over.
    pub(super) async fn lock(
        app: &'a App,
        trail: &'a Trail,
        tx: &mut Tx,
        organizations: BTreeSet<OrganizationId>,
        now: Time,
    ) -> Result<Self, db::Error> {
        let mut locked = Self { booking: Booking { app, trail, now }, purses: BTreeMap::new() };
        for id in organizations {
            let mut wallet = store::wallets::lock(tx, id, now).await?.ok_or_else(|| missing(id))?;
            if app.books.open_months.get(&id.as_u128()) != Some(wallet.open_month) {
                app.books.open_months.insert(id.as_u128(), wallet.open_month);
            }
            let changed = locked.booking.end_credits(tx, &mut wallet).await? > 0;
            locked.purses.insert(id, Purse { wallet, changed });
        }
        Ok(locked)
    }

    /// Returns `true` if the months that were assumed of those whose usage counts are the open ones.
    pub(super) fn hold(&self, counted: &[Counted<'_>], months: &BTreeMap<OrganizationId, Month>) -> bool {
        counted.iter().all(|counted| {
            let id = counted.event.payer.organization_id;
            self.purses.get(&id).map(|purse| purse.wallet.open_month) == months.get(&id).copied()
        })
    }

    fn get(&mut self, id: OrganizationId) -> Result<&mut Purse, db::Error> {
        self.purses.get_mut(&id).ok_or_else(|| missing(id))
    }

    /// What was set aside is free again.
    pub(super) fn give_back(&mut self, reserved: &Reserved) -> Result<(), db::Error> {
        let purse = self.get(reserved.organization_id)?;
        purse.set_reserved(purse.wallet.reserved.units() - reserved.amount.units());
        Ok(())
    }

    /// Moves by how much what is posted of the days rose, one movement for each organization and month, and makes the credit notes.
    pub(super) async fn charge(
        &mut self,
        tx: &mut Tx,
        charges: &Charges,
        captured: &BTreeMap<OrganizationId, i128>,
    ) -> Result<(), db::Error> {
        let mut falls: BTreeMap<OrganizationId, BTreeMap<Month, Nano>> = BTreeMap::new();
        for ((id, month), rise) in charges.rises.iter().filter(|(_, rise)| **rise != 0) {
            let held = Nano::from_units(captured.get(id).copied().unwrap_or_default());
            let purse = self.purses.get_mut(id).ok_or_else(|| missing(*id))?;
            purse.changed = true;
            if *rise < 0 {
                falls.entry(*id).or_default().insert(*month, Nano::from_units(-rise));
                continue;
            }
            let rise = Nano::from_units(*rise);
            charge(&self.booking, tx, &mut purse.wallet, *month, rise, held).await?;
        }
        for (id, falls) in falls {
            let purse = self.purses.get_mut(&id).ok_or_else(|| missing(id))?;
            lower(&self.booking, tx, &mut purse.wallet, &falls).await?;
        }
        for ((id, month), credited) in &charges.credited {
            let purse = self.purses.get_mut(id).ok_or_else(|| missing(*id))?;
            crediting::take_back(&self.booking, tx, &mut purse.wallet, *month, credited).await?;
            purse.changed = true;
        }
        // What was kept of credits for calls that are over now ends before anything else can be reserved.
        for purse in self.purses.values_mut() {
            purse.changed |= self.booking.end_credits(tx, &mut purse.wallet).await? > 0;
        }
        Ok(())
    }

    /// Decides over reservations in their order, and makes those that may be.
    pub(super) async fn reserve(
        &mut self,
        tx: &mut Tx,
        works: &[&Work],
        now: Time,
        expires_at: Time,
    ) -> Result<Vec<Result<Reservation, Refused>>, db::Error> {
        let (mut answers, mut made) = (Vec::new(), Vec::new());
        let mut under_way: BTreeMap<(OrganizationId, &str), i64> = BTreeMap::new();
        for work in works {
            let Work::Reserve { new, most_at_once } = work else { continue };
            let calls = match under_way.entry((new.organization_id, &new.model)) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(store::reservations::count(tx, new.organization_id, &new.model).await?)
                }
            };
            if *calls >= i64::from(*most_at_once) {
                answers.push(Err(Refused::Concurrency(*most_at_once)));
                continue;
            }
            let purse = self.get(new.organization_id)?;
            if let Err(refused) = purse.reserve(new) {
                answers.push(Err(refused));
                continue;
            }
            *calls += 1;
            made.push(new);
            answers.push(Ok(Reservation { id: new.id, amount: new.amount, expires_at }));
        }
        store::reservations::insert(tx, &made, now, expires_at).await?;
        Ok(answers)
    }

    /// Writes the wallets that are another now.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), db::Error> {
        for purse in self.purses.values().filter(|purse| purse.changed) {
            store::wallets::write(tx, &purse.wallet).await?;
        }
        Ok(())
    }
}

impl Purse {
    fn set_reserved(&mut self, nano: i128) {
        self.wallet.reserved = Nano::from_units(nano);
        self.changed = true;
    }

    fn reserve(&mut self, new: &NewReservation) -> Result<(), Refused> {
        let wallet = &self.wallet;
        let after = wallet.reserved.units() + new.amount.units();
        let fits = Nano::from_units(after).to_i64().is_some();
        if !fits || !books::may_reserve(wallet.posted, wallet.reserved, wallet.credit_limit, new.amount) {
            return Err(Refused::Money {
                available: wallet.available(),
                credit_limit: wallet.credit_limit,
                currency: wallet.currency.clone(),
            });
        }
        self.set_reserved(after);
        Ok(())
    }
}

/// Takes a rise of what is posted of a month from a wallet, credits first.
async fn charge(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    month: Month,
    rise: Nano,
    held: Nano,
) -> Result<(), db::Error> {
    booking.pay(tx, wallet, month, rise, held).await?;
    let to_wallet = Nano::from_units(-rise.units());
    let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, to_wallet);
    booking.post(tx, wallet, &transfer).await
}

/// Gives back by how much what is posted of open months fell: it lowers their debts, and goes back into the credits that paid.
async fn lower(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    falls: &BTreeMap<Month, Nano>,
) -> Result<(), db::Error> {
    let debts = booking.debts(tx, wallet, falls).await?;
    let mut refunds = Vec::new();
    for (month, fall) in falls {
        let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, *fall);
        booking.post(tx, wallet, &transfer).await?;
        let debt = debts.get(month).copied().unwrap_or(Nano::ZERO);
        let amount = Nano::from_units((fall.units() - debt.units()).max(0));
        let reference = format!("correction:{}", transfer.id);
        refunds.push(Refund {
            month: *month,
            earlier: Vec::new(),
            amount,
            source: Source::Correction,
            reference,
        });
    }
    for refund in refunds {
        booking.refund(tx, wallet, refund).await?;
    }
    Ok(())
}
