//! The wallets of one transaction: locked together, changed in memory, written once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::booking::{Booking, Refund};
use super::counted::CountedEvent;
use super::credit_notes::{self, CreditedMonth};
use super::locked_budgets::LockedBudgets;
use super::operations::{CallReservation, Lifetime, Reservation, Reserve, ReserveError};
use crate::rules::books::{self, Source};
use crate::rules::budgets::Spender;
use crate::rules::credit_limits::DemoCredit;
use crate::{Billing, store};
use db::Tx;
use kernel::clock::{Day, Month, Time};
use kernel::ids::OrganizationId;
use kernel::money::{Nano, Pico};

use crate::store::ledger::{Account, Movement};
use crate::store::reservations::{NewReservation, ReservedAmount, StoredReservation};
use crate::store::usage::days::DailySums;
use crate::store::usage::sums::SumKey;
use crate::store::usage::totals::{Subject, Totals};
use crate::store::wallets::Wallet;
use trail::Trail;

/// The charges and refunds of wallets, with the usage that causes them.
#[derive(Default)]
pub(super) struct Charges<'a> {
    /// The increase of the posted amounts of the daily rows of a billed month; negative for corrections.
    pub(super) increases: BTreeMap<(OrganizationId, Month), i128>,
    /// Usage of closed months that is taken back.
    pub(super) credited: BTreeMap<(OrganizationId, Month), CreditedMonth>,
    /// The usage to add to the sums of days, by model and by caller.
    pub(super) sums: BTreeMap<SumKey<'a>, DailySums>,
    /// The amounts to add to the total usage of projects and API keys.
    pub(super) totals: BTreeMap<(OrganizationId, Subject), Totals>,
    /// The list price of the usage of each caller and day, for budgets.
    pub(super) spent: BTreeMap<(Spender, Day), Pico>,
}

/// Locked wallets.
pub(super) struct LockedWallets<'a> {
    booking: Booking<'a>,
    wallets: BTreeMap<OrganizationId, LockedWallet>,
    /// The time of the last lock, which decides when reservations end.
    locked_at: Time,
}

/// The answers to requests for reservations.
pub(super) struct NewReservations {
    pub(super) answers: Vec<Result<CallReservation, ReserveError>>,
    /// The sum of expired reservations that ended because their request was repeated, in nano.
    pub(super) freed: i128,
}

struct LockedWallet {
    wallet: Wallet,
    changed: bool,
}

impl<'a> LockedWallets<'a> {
    /// Locks the wallets of these organizations in the order of their ids, and ends their expired credits.
    pub(super) async fn lock(
        billing: &'a Billing,
        trail: &'a Trail,
        tx: &mut Tx,
        organizations: BTreeSet<OrganizationId>,
        now: Time,
    ) -> Result<Self, db::Error> {
        let booking = Booking { billing, trail, now };
        let mut locked = Self { booking, wallets: BTreeMap::new(), locked_at: now };
        for id in organizations {
            let mut wallet = store::wallets::lock_existing(tx, id, &billing.clock_guard).await?;
            locked.locked_at = wallet.locked_at;
            require_currency(billing, &wallet)?;
            if billing.books.open_months.get(&id.as_u128()) != Some(wallet.open_month) {
                billing.books.open_months.insert(id.as_u128(), wallet.open_month);
            }
            let changed = locked.booking.expire_credits(tx, &mut wallet).await? > 0;
            locked.wallets.insert(id, LockedWallet { wallet, changed });
        }
        Ok(locked)
    }

    /// Returns `true` if the assumed months of all organizations with new events are the open ones.
    pub(super) fn have_assumed_months(
        &self,
        counted: &[CountedEvent<'_>],
        months: &BTreeMap<OrganizationId, Month>,
    ) -> bool {
        counted.iter().all(|counted| {
            let id = counted.event.payer.organization_id;
            self.wallets.get(&id).map(|locked| locked.wallet.open_month) == months.get(&id).copied()
        })
    }

    /// Returns the end of a reservation that this transaction makes or extends.
    pub(super) fn reservation_end(&self, lifetime: Lifetime) -> Time {
        self.locked_at.plus_ms(lifetime.ms(&self.booking.billing.settings))
    }

    /// Returns the organizations that have budgets.
    pub(super) fn with_budgets(&self) -> BTreeSet<OrganizationId> {
        let with_budgets = self.wallets.iter().filter(|(_, locked)| locked.wallet.budgets > 0);
        with_budgets.map(|(id, _)| *id).collect()
    }

    /// Returns `true` if every wallet can hold its charges and refunds.
    pub(super) fn can_hold(&self, charges: &Charges<'_>) -> bool {
        let fits = |nano: i128| i64::try_from(nano).is_ok() && i64::try_from(-nano).is_ok();
        let mut sums: BTreeMap<OrganizationId, [i128; 2]> = BTreeMap::new();
        let credited = charges.credited.iter().map(|((id, _), credited)| {
            (*id, credited.used.iter().map(|used| used.posted.units()).sum::<i128>())
        });
        let increases = charges.increases.iter().map(|((id, _), increase)| (*id, *increase));
        for (id, nano) in increases.chain(credited) {
            // Charges and refunds must also fit separately, because either may be posted first.
            let [charged, refunded] = sums.entry(id).or_default();
            *(if nano > 0 { charged } else { refunded }) += nano;
        }
        sums.iter().all(|(id, [charged, refunded])| {
            let posted = self.wallets.get(id).map_or(0, |locked| locked.wallet.posted.units());
            [*charged, *refunded, posted - charged, posted - refunded].into_iter().all(fits)
        })
    }

    fn get(&mut self, id: OrganizationId) -> Result<&mut LockedWallet, db::Error> {
        self.wallets.get_mut(&id).ok_or_else(|| store::wallets::missing(id))
    }

    /// Frees the money of an ended reservation.
    pub(super) fn free(&mut self, reserved: &ReservedAmount) -> Result<(), db::Error> {
        let locked = self.get(reserved.organization_id)?;
        locked.set_reserved(locked.wallet.reserved.units() - reserved.amount.units());
        Ok(())
    }

    /// Posts the increases of the daily rows, one movement for each organization and month, and creates the
    /// credit notes.
    pub(super) async fn charge(
        &mut self,
        tx: &mut Tx,
        charges: &Charges<'_>,
        captured: &BTreeMap<OrganizationId, i128>,
    ) -> Result<(), db::Error> {
        let mut decreases: BTreeMap<OrganizationId, BTreeMap<Month, Nano>> = BTreeMap::new();
        for ((id, month), increase) in charges.increases.iter().filter(|(_, increase)| **increase != 0) {
            let reserved = Nano::from_units(captured.get(id).copied().unwrap_or_default());
            let locked = self.wallets.get_mut(id).ok_or_else(|| store::wallets::missing(*id))?;
            locked.changed = true;
            if *increase < 0 {
                decreases.entry(*id).or_default().insert(*month, Nano::from_units(-increase));
                continue;
            }
            let increase = Nano::from_units(*increase);
            charge(&self.booking, tx, &mut locked.wallet, *month, increase, reserved).await?;
        }
        for (id, decreases) in decreases {
            let locked = self.wallets.get_mut(&id).ok_or_else(|| store::wallets::missing(id))?;
            refund_decreases(&self.booking, tx, &mut locked.wallet, &decreases).await?;
        }
        for ((id, month), credited) in &charges.credited {
            let locked = self.wallets.get_mut(id).ok_or_else(|| store::wallets::missing(*id))?;
            credit_notes::take_back(&self.booking, tx, &mut locked.wallet, *month, credited).await?;
            locked.changed = true;
        }
        // Expire credits that were kept for ended calls, before any other amount is reserved.
        for locked in self.wallets.values_mut() {
            locked.changed |= self.booking.expire_credits(tx, &mut locked.wallet).await? > 0;
        }
        Ok(())
    }

    /// Decides on reservations in order, and adds those that can be made.
    pub(super) async fn reserve(
        &mut self,
        tx: &mut Tx,
        reserves: &[&Reserve],
        budgets: &mut LockedBudgets,
    ) -> Result<NewReservations, db::Error> {
        let demo = self.booking.billing.demo_credit();
        let (mut answers, mut added): (_, Vec<(&NewReservation, Time)>) = (Vec::new(), Vec::new());
        let mut freed = 0;
        let mut in_progress: BTreeMap<(OrganizationId, &str), i64> = BTreeMap::new();
        for Reserve { new, max_concurrent, lifetime } in reserves.iter().copied() {
            let expires_at = self.reservation_end(*lifetime);
            if let Some(request_id) = &new.request_id {
                let same = added.iter().find(|(added, _)| {
                    added.request_id.as_ref() == Some(request_id)
                        && added.organization_id == new.organization_id
                });
                let existing = match same {
                    Some((added, expires_at)) => {
                        Some(StoredReservation { call: added.call(), id: added.id, expires_at: *expires_at })
                    }
                    None => {
                        let (live, ended) = self.end_repeated(tx, new, request_id, budgets).await?;
                        freed += ended.units();
                        live
                    }
                };
                if let Some(existing) = existing {
                    answers.push(existing.answer_to(new));
                    continue;
                }
            }
            let calls = match in_progress.entry((new.organization_id, &new.model)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(store::reservations::count(tx, new.organization_id, &new.model).await?)
                }
            };
            if *calls >= i64::from(*max_concurrent) {
                answers.push(Err(ReserveError::ConcurrencyLimit(*max_concurrent)));
                continue;
            }
            let locked = self.get(new.organization_id)?;
            let left = match locked.may_reserve(new, demo) {
                Ok(()) => budgets.check(tx, new).await?,
                Err(error) => Err(error),
            };
            let left_of_budgets = match left {
                Ok(left) => left,
                Err(error) => {
                    answers.push(Err(error));
                    continue;
                }
            };
            let left_of_wallet = locked.reserve(new, demo);
            budgets.reserve(new)?;
            let left = left_of_budgets.map_or(left_of_wallet, |left| left.min(left_of_wallet));
            *calls += 1;
            added.push((new, expires_at));
            let reservation = Reservation { id: new.id, amount: new.amount, expires_at };
            answers.push(Ok(CallReservation { reservation, is_repeated: false, left }));
        }
        store::reservations::insert(tx, &added, self.booking.now).await?;
        Ok(NewReservations { answers, freed })
    }

    /// Returns the live reservation that was made for this request id, and an amount that was freed. If the
    /// reservation has expired and no job has ended it yet, it is ended here and its amount is freed, unless
    /// the progress of its call will be charged.
    async fn end_repeated(
        &mut self,
        tx: &mut Tx,
        new: &NewReservation,
        request_id: &str,
        budgets: &mut LockedBudgets,
    ) -> Result<(Option<StoredReservation>, Nano), db::Error> {
        let stored = store::reservations::by_request_id(tx, new.organization_id, request_id).await?;
        let Some(stored) = stored else { return Ok((None, Nano::ZERO)) };
        if stored.expires_at > self.locked_at {
            return Ok((Some(stored), Nano::ZERO));
        }
        let Some(ended) = store::reservations::expire(tx, stored.id, self.locked_at).await? else {
            return Ok((Some(stored), Nano::ZERO));
        };
        self.free(&ended)?;
        budgets.load(tx, [Spender::from(&ended)]).await?;
        budgets.free(&ended)?;
        Ok((None, ended.amount))
    }

    /// Returns the sum of the reserved amounts, in nano.
    pub(super) fn reserved(&self) -> i128 {
        self.wallets.values().map(|locked| locked.wallet.reserved.units()).sum()
    }

    /// Writes the wallets that changed.
    pub(super) async fn write(&mut self, tx: &mut Tx) -> Result<(), db::Error> {
        for locked in self.wallets.values_mut().filter(|locked| locked.changed) {
            self.booking.write(tx, &mut locked.wallet).await?;
        }
        Ok(())
    }
}

/// Refuses a wallet whose currency differs from the currency of the prices.
fn require_currency(billing: &Billing, wallet: &Wallet) -> Result<(), db::Error> {
    let own = &billing.settings.currency;
    if wallet.currency == *own && !billing.catalog.has_wrong_currency() {
        return Ok(());
    }
    let message = format!(
        "This server's prices are in {own}, but some organizations use a different currency. Nothing was \
         done."
    );
    Err(db::Error::NotReady(message))
}

impl StoredReservation {
    /// Returns the answer to a repeated request, or the conflict error if the request is for another call.
    fn answer_to(&self, new: &NewReservation) -> Result<CallReservation, ReserveError> {
        if self.call != new.call() {
            return Err(ReserveError::RequestIdConflict);
        }
        let reservation = Reservation { id: self.id, amount: new.amount, expires_at: self.expires_at };
        Ok(CallReservation { reservation, is_repeated: true, left: Nano::ZERO })
    }
}

impl LockedWallet {
    fn set_reserved(&mut self, nano: i128) {
        self.wallet.reserved = Nano::from_units(nano);
        self.changed = true;
    }

    /// Refuses an amount that the balance and the credit limit don't cover.
    fn may_reserve(&self, new: &NewReservation, demo: DemoCredit) -> Result<(), ReserveError> {
        let wallet = &self.wallet;
        let after = wallet.reserved.units() + new.amount.units();
        let fits = Nano::from_units(after).to_i64().is_some();
        let credit_limit = wallet.credit_limit(demo);
        if !fits || !books::may_reserve(wallet.posted, wallet.reserved, credit_limit, new.amount) {
            return Err(ReserveError::InsufficientFunds {
                available: wallet.available(),
                credit_limit,
                currency: wallet.currency.clone(),
            });
        }
        Ok(())
    }

    /// Reserves the amount. Returns the amount that can still be spent.
    fn reserve(&mut self, new: &NewReservation, demo: DemoCredit) -> Nano {
        self.set_reserved(self.wallet.reserved.units() + new.amount.units());
        self.wallet.spendable(demo)
    }
}

/// Charges a wallet for a month, and pays from its credits.
async fn charge(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    month: Month,
    increase: Nano,
    reserved: Nano,
) -> Result<(), db::Error> {
    booking.pay_from_credits(tx, wallet, month, increase, reserved).await?;
    let to_wallet = Nano::from_units(-increase.units());
    let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, to_wallet);
    booking.post(tx, wallet, &transfer).await
}

/// Refunds the decreases of open months: lowers their debts, and returns the rest to the credits that paid.
async fn refund_decreases(
    booking: &Booking<'_>,
    tx: &mut Tx,
    wallet: &mut Wallet,
    decreases: &BTreeMap<Month, Nano>,
) -> Result<(), db::Error> {
    let debts = booking.open_month_debts(tx, wallet, decreases).await?;
    let mut refunds = Vec::new();
    for (month, decrease) in decreases {
        let transfer = booking.transfer(wallet, Movement::Usage, Account::Usage, *decrease);
        booking.post(tx, wallet, &transfer).await?;
        let debt = debts.get(month).copied().unwrap_or(Nano::ZERO);
        let amount = Nano::from_units((decrease.units() - debt.units()).max(0));
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
