//! The wallets of one transaction: locked together, looked at, written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::assumptions::missing;
use super::deposits::Depositing;
use super::events::Counted;
use super::work::{Refused, Reservation, Reserving, Work};
use crate::access::Trail;
use crate::app::App;
use crate::clock::{Month, Time};
use crate::db::{self, Tx};
use crate::ids::{CreditId, LedgerTransactionId, OrganizationId};
use crate::money::Nano;
use crate::rules::books::{self, Credit, Source};
use crate::secrets::sha256;
use crate::store::ledger::{Account, Movement, Transfer};
use crate::store::reservations::{Asked, NewReservation, Reserved};
use crate::store::wallets::Wallet;
use crate::store::{self, credits, ledger};

/// Locked wallets.
pub(super) struct Purses(BTreeMap<OrganizationId, Purse>);

struct Purse {
    wallet: Wallet,
    changed: bool,
}

impl Purses {
    /// Locks the wallets of these organizations, in the order of their ids.
    pub(super) async fn lock(
        app: &App,
        tx: &mut Tx,
        organizations: BTreeSet<OrganizationId>,
        now: Time,
    ) -> Result<Self, db::Error> {
        let mut purses = BTreeMap::new();
        for id in organizations {
            let wallet = store::wallets::lock(tx, id, now).await?.ok_or_else(|| missing(id))?;
            if app.books.open_months.get(&id.as_u128()) != Some(wallet.open_month) {
                app.books.open_months.insert(id.as_u128(), wallet.open_month);
            }
            purses.insert(id, Purse { wallet, changed: false });
        }
        Ok(Self(purses))
    }

    /// Whether what was assumed of their months is true.
    pub(super) fn hold(&self, months: &BTreeMap<OrganizationId, Month>) -> bool {
        months.iter().all(|(id, month)| self.0.get(id).is_some_and(|purse| purse.wallet.open_month == *month))
    }

    /// `true` if each wallet can take by how much what is posted of its days rose.
    pub(super) fn have_room(&self, rises: &BTreeMap<OrganizationId, i128>) -> bool {
        rises.iter().all(|(id, rise)| {
            let posted = self.0.get(id).map_or(0, |purse| purse.wallet.posted.units());
            [*rise, -*rise, posted - *rise].into_iter().all(|nano| i64::try_from(nano).is_ok())
        })
    }

    fn get(&mut self, id: OrganizationId) -> Result<&mut Purse, db::Error> {
        self.0.get_mut(&id).ok_or_else(|| missing(id))
    }

    /// What was set aside is free again.
    pub(super) fn give_back(&mut self, reserved: &Reserved) -> Result<(), db::Error> {
        let purse = self.get(reserved.organization_id)?;
        purse.set_reserved(purse.wallet.reserved.units() - reserved.amount.units());
        Ok(())
    }

    /// Moves by how much what is posted of the days rose, one movement for each organization.
    pub(super) async fn charge(
        &mut self,
        app: &App,
        tx: &mut Tx,
        rises: &BTreeMap<OrganizationId, i128>,
        counted: &[Counted<'_>],
        now: Time,
    ) -> Result<(), db::Error> {
        for theirs in counted.chunk_by(|a, b| a.event.payer.organization_id == b.event.payer.organization_id)
        {
            let Some(id) = theirs.first().map(|first| first.event.payer.organization_id) else { continue };
            let rise = rises.get(&id).copied().unwrap_or_default();
            if rise != 0 {
                let key = idempotency_key(theirs);
                self.get(id)?.charge(app, tx, Nano::from_units(rise), key, now).await?;
            }
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
    ) -> Result<Vec<Result<Reserving, Refused>>, db::Error> {
        let (mut answers, mut made): (_, Vec<&NewReservation>) = (Vec::new(), Vec::new());
        let mut under_way: BTreeMap<(OrganizationId, &str), i64> = BTreeMap::new();
        for work in works {
            let Work::Reserve { new, most_at_once } = work else { continue };
            if let Some(request_id) = &new.request_id {
                let same = made.iter().find(|made| {
                    made.request_id.as_ref() == Some(request_id)
                        && made.organization_id == new.organization_id
                });
                let before = match same {
                    Some(made) => Some(Asked { call: made.call(), id: made.id, expires_at }),
                    None => self.asked_before(tx, new.organization_id, request_id, now).await?,
                };
                if let Some(before) = before {
                    answers.push(before.again(new));
                    continue;
                }
            }
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
            let reservation = Reservation { id: new.id, amount: new.amount, expires_at };
            answers.push(Ok(Reserving { reservation, is_repeated: false }));
        }
        store::reservations::insert(tx, &made, now, expires_at).await?;
        Ok(answers)
    }

    /// The reservation that a question with this id made, if it still lives. One whose time is over is ended here: the job
    /// hasn't been there yet.
    async fn asked_before(
        &mut self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        request_id: &str,
        now: Time,
    ) -> Result<Option<Asked>, db::Error> {
        let Some(asked) = store::reservations::asked(tx, organization_id, request_id).await? else {
            return Ok(None);
        };
        if asked.expires_at > now {
            return Ok(Some(asked));
        }
        if let Some(ended) = store::reservations::expire(tx, asked.id, now).await? {
            self.give_back(&ended)?;
        }
        Ok(None)
    }

    /// Writes the wallets that are another now.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), db::Error> {
        for purse in self.0.values().filter(|purse| purse.changed) {
            store::wallets::write(tx, &purse.wallet).await?;
        }
        Ok(())
    }
}

impl Asked {
    /// The answer to the same question, or to another with its id.
    fn again(&self, new: &NewReservation) -> Result<Reserving, Refused> {
        if self.call != new.call() {
            return Err(Refused::RequestId);
        }
        let reservation = Reservation { id: self.id, amount: new.amount, expires_at: self.expires_at };
        Ok(Reserving { reservation, is_repeated: true })
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

    /// Takes this much, from credits first; a negative amount comes in.
    async fn charge(
        &mut self,
        app: &App,
        tx: &mut Tx,
        amount: Nano,
        idempotency_key: String,
        now: Time,
    ) -> Result<(), db::Error> {
        let organization_id = self.wallet.organization_id;
        let to_wallet = Nano::from_units(-amount.units());
        if to_wallet > Nano::ZERO {
            self.take_in(app, tx, to_wallet, &idempotency_key, now).await?;
        } else if self.wallet.posted > Nano::ZERO {
            // Otherwise no credit is left that could be used: what comes in covers what is owed first.
            let left = credits::left(tx, organization_id).await?;
            for (credit_id, remaining) in books::charge(&left, amount, now) {
                credits::set_remaining(tx, credit_id, remaining).await?;
            }
        }
        let transfer = Transfer {
            id: LedgerTransactionId::new(now, &app.random),
            organization_id,
            movement: Movement::Usage,
            idempotency_key,
            account: Account::Usage,
            to_wallet,
        };
        ledger::record(tx, &transfer, now).await?;
        self.wallet.posted = Nano::from_units(self.wallet.posted.units() + to_wallet.units());
        self.changed = true;
        Ok(())
    }

    /// What corrections give back covers what is owed, and is a credit otherwise.
    async fn take_in(
        &self,
        app: &App,
        tx: &mut Tx,
        amount: Nano,
        reference: &str,
        now: Time,
    ) -> Result<(), db::Error> {
        let organization_id = self.wallet.organization_id;
        let owed = books::owed(self.wallet.posted, &credits::left(tx, organization_id).await?);
        let remaining = books::left_after_debts(owed, amount);
        if owed > Nano::ZERO {
            let still_owed = Nano::from_units(owed.units() - (amount.units() - remaining.units()));
            let trail = Trail::system();
            Depositing { app, trail: &trail, now }.cover_excess(tx, organization_id, still_owed).await?;
        }
        if remaining == Nano::ZERO {
            return Ok(());
        }
        let credit = Credit {
            id: CreditId::new(now, &app.random),
            source: Source::Correction,
            reference: format!("correction:{}", reference.trim_start_matches("usage:")),
            amount,
            remaining,
            created_at: now,
            expires_at: None,
        };
        credits::insert(tx, organization_id, &credit).await
    }
}

/// A name for just these events: they are counted once, so the movement that pays for them is made once.
fn idempotency_key(counted: &[Counted<'_>]) -> String {
    let mut list = Vec::new();
    for Counted { event, .. } in counted {
        // Lengths stand before texts, so that no two lists look alike.
        for text in [&event.source, &event.event_id] {
            list.extend_from_slice(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            list.extend_from_slice(text.as_bytes());
        }
    }
    let mut key = String::from("usage:");
    for byte in sha256(&list) {
        // Writing to a string can't fail.
        write!(key, "{byte:02x}").ok();
    }
    key
}
