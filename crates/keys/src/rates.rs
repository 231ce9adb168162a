//! Request rates of API keys and of models, shared by all replicas.
//!
//! On SQLite there is one server, and its own meters (`live::limiter`) are the truth: nothing here costs a query. On
//! PostgreSQL the truth is a row of `rate_meters` (`rules::rates::Pool`, which also says why all replicas together keep to
//! the limit). A replica borrows a few requests at a time and counts calls against them without a query; the next time it
//! says how many it has used. How many it borrows follows from how many it used lately, from one to what the rate gives in
//! five seconds. A lease is held for five seconds. What is left of it then goes back, by [`Rates::give_leases_back`] if nobody
//! asks before.
//!
//! One asks at a time for a meter, the others wait for that. A lease that is nearly used up is renewed while the rest of it
//! is used. When nothing is to be had, the meter as it was found there says until when, and until then calls are
//! refused without a query.
//!
//! While the database can't be asked, each replica counts for itself: a limit must not become an outage.

mod share;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use self::share::{Asked, Checked, Share};
use crate::rules::rate_pool::{Loan, Pool};
use crate::store;
use db::Db;
use kernel::clock::{Clock, MINUTE_MS, SECOND_MS, Time};
use kernel::error::RateLimit;
use kernel::limiter::{Limiter, Shards};
use kernel::rates::Allowance;

/// How long a call waits for the database before it is decided without.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the database is left alone after it could not be asked, in milliseconds.
const LEFT_ALONE_MS: i64 = SECOND_MS;
/// How long a shared meter is kept that no call uses, in milliseconds: it has been empty for a while by then.
const KEPT_MS: i64 = 2 * MINUTE_MS;
/// Meters that can be asked for at the same time.
const TURNS: usize = 256;

/// What this replica holds of the shared rates.
pub struct Rates {
    db: Db,
    clock: Clock,
    /// Decides where there are no other replicas.
    limiter: Arc<Limiter>,
    shares: Shards<Share>,
    /// By meter: who holds one is on the way to the database.
    turns: Vec<Mutex<()>>,
    /// Unix milliseconds when the database last could not be asked; [`NEVER`] after it could.
    failed_at_ms: AtomicI64,
}

const NEVER: i64 = i64::MIN;

impl Rates {
    /// Holds nothing yet.
    pub fn new(db: Db, clock: Clock, limiter: Arc<Limiter>) -> Self {
        Self {
            db,
            clock,
            limiter,
            shares: Shards::default(),
            turns: (0..TURNS).map(|_| Mutex::new(())).collect(),
            failed_at_ms: AtomicI64::new(NEVER),
        }
    }

    /// Forgets meters that have run empty.
    pub fn sweep(&self, now: Time) {
        self.shares.sweep(now.unix_ms(), Share::is_used);
    }

    /// Removes shared meters that no call uses any more; how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn remove_unused(&self) -> Result<u64, db::Error> {
        let mut tx = self.db.write().await?;
        let before = self.clock.now().plus_ms(-KEPT_MS);
        let removed = store::rate_meters::remove_unused_since(&mut tx, before).await?;
        tx.commit().await?;
        Ok(removed)
    }

    /// How many meters are held.
    pub fn len(&self) -> usize {
        self.shares.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there may be other replicas.
    fn is_shared(&self) -> bool {
        self.db.is_postgres()
    }

    /// Does something with what is held of a meter.
    fn with<T>(
        &self,
        key: u128,
        per_minute: u32,
        now_ms: i64,
        act: impl FnOnce(&mut Share) -> T,
    ) -> Option<T> {
        let mut shard = self.shares.of(key)?;
        shard.sweep_when_due(now_ms, Share::is_used);
        Some(act(shard.entry(key).or_insert_with(|| Share::new(per_minute, now_ms))))
    }

    fn check(&self, key: u128, per_minute: u32, now: Time) -> Checked {
        let now_ms = now.unix_ms();
        let checked = self.with(key, per_minute, now_ms, |share| share.check(per_minute, now_ms));
        checked.unwrap_or(Checked::Ask)
    }

    fn check_alone(&self, key: u128, per_minute: u32, now: Time) -> Result<Allowance, RateLimit> {
        let now_ms = now.unix_ms();
        let checked = self.with(key, per_minute, now_ms, |share| share.check_alone(per_minute, now_ms));
        // There always is a place for it; were there none, refusing everybody would be the worse mistake.
        checked.unwrap_or(Ok(Allowance { remaining: 0, reset_ms: 0 }))
    }

    /// Whether to ask the database: during an outage one call a second tries.
    fn may_ask(&self, now: Time) -> bool {
        let (failed_at, now_ms) = (self.failed_at_ms.load(Ordering::SeqCst), now.unix_ms());
        if failed_at == NEVER {
            return true;
        }
        !(0..LEFT_ALONE_MS).contains(&now_ms.saturating_sub(failed_at))
            && self
                .failed_at_ms
                .compare_exchange(failed_at, now_ms, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    fn succeeded(&self) {
        if self.failed_at_ms.load(Ordering::SeqCst) != NEVER
            && self.failed_at_ms.swap(NEVER, Ordering::SeqCst) != NEVER
        {
            tracing::info!("request rates are shared with other replicas again");
        }
    }

    fn failed(&self, now: Time, why: &str) {
        if self.failed_at_ms.swap(now.unix_ms(), Ordering::SeqCst) == NEVER {
            tracing::warn!(
                "request rates can't be shared: this replica counts for itself until they can: {why}"
            );
        }
    }

    /// Counts one request of the meter `key` (see `limiter::key_for`) against `per_minute` requests a minute.
    ///
    /// # Errors
    /// The limit is used up, as in `Limiter::check`.
    pub async fn take(
        self: &Arc<Self>,
        key: u128,
        per_minute: u32,
        now: Time,
    ) -> Result<Allowance, RateLimit> {
        if !self.is_shared() {
            return self.limiter.check(key, per_minute, now);
        }
        match self.decided(key, per_minute, now) {
            Some(result) => result,
            // Boxed: what a query needs would make every call's future large, and futures are moved.
            None => Box::pin(self.ask(key, per_minute)).await,
        }
    }

    /// What can be decided without asking.
    fn decided(
        self: &Arc<Self>,
        key: u128,
        per_minute: u32,
        now: Time,
    ) -> Option<Result<Allowance, RateLimit>> {
        match self.check(key, per_minute, now) {
            Checked::Done(result) => Some(result),
            Checked::Renew(allowed) => {
                tokio::spawn(Arc::clone(self).renew_soon(key, per_minute));
                Some(Ok(allowed))
            }
            Checked::Ask => None,
        }
    }

    /// Takes a request back that [`Rates::take`] has let through and that came to nothing.
    pub fn give_back(&self, key: u128, now: Time) {
        if !self.is_shared() {
            return self.limiter.give_back(key, now);
        }
        let Some(mut shard) = self.shares.of(key) else { return };
        if let Some(share) = shard.entries.get_mut(&key) {
            share.give_back(now.unix_ms());
        }
    }

    /// Gives back what is left of leases that have lapsed, or of `all`; how many meters that concerns. What can't be given back
    /// counts as used a few seconds later.
    pub async fn give_leases_back(&self, all: bool) -> usize {
        let now = self.clock.now();
        let mut due = Vec::new();
        for mut shard in self.shares.each() {
            for (key, share) in &mut shard.entries {
                due.extend(share.returned(all, now.unix_ms()).map(|asked| (*key, share.per_minute(), asked)));
            }
        }
        let count = due.len();
        for (key, per_minute, asked) in due {
            if !self.may_ask(now) {
                break;
            }
            let told = self.exchange(key, per_minute, asked, now).await;
            if told.is_none() {
                break;
            }
        }
        count
    }

    async fn ask(self: &Arc<Self>, key: u128, per_minute: u32) -> Result<Allowance, RateLimit> {
        let _turn = self.turn(key).await;
        let now = self.clock.now();
        // Whoever had the turn before may have borrowed for all.
        if let Some(result) = self.decided(key, per_minute, now) {
            return result;
        }
        let asked = self.renew(key, per_minute, true, now).await;
        // Nothing was lent when all is used, and then that is known here now.
        let result = if asked { self.decided(key, per_minute, now) } else { None };
        result.unwrap_or_else(|| self.check_alone(key, per_minute, now))
    }

    async fn renew_soon(self: Arc<Self>, key: u128, per_minute: u32) {
        let _turn = self.turn(key).await;
        let now = self.clock.now();
        let is_due = self.with(key, per_minute, now.unix_ms(), |share| share.is_renewing());
        if is_due == Some(true) {
            self.renew(key, per_minute, false, now).await;
        }
    }

    async fn turn(&self, key: u128) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let turns = u128::try_from(self.turns.len()).ok()?;
        let index = usize::try_from(key.checked_rem(turns)?).ok()?;
        match self.turns.get(index) {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    /// Borrows anew; whether the database could be asked.
    async fn renew(&self, key: u128, per_minute: u32, call_waits: bool, now: Time) -> bool {
        let now_ms = now.unix_ms();
        let asked = if self.may_ask(now) {
            self.with(key, per_minute, now_ms, |share| share.ask(call_waits, now_ms))
        } else {
            None
        };
        let lent = match asked {
            Some(asked) => self.exchange(key, per_minute, asked, now).await,
            None => None,
        };
        self.with(key, per_minute, now_ms, |share| match &lent {
            Some((pool, loan)) => share.settle(pool, *loan, now_ms),
            None => share.give_up(),
        });
        lent.is_some()
    }

    /// One exchange with the pool: reports, and what was wanted. `None` when the database can't be asked.
    async fn exchange(&self, key: u128, per_minute: u32, asked: Asked, now: Time) -> Option<(Pool, Loan)> {
        let done = tokio::time::timeout(PATIENCE, self.lend(key, per_minute, asked, now)).await;
        match done {
            Ok(Ok(lent)) => {
                self.succeeded();
                Some(lent)
            }
            Ok(Err(error)) => {
                self.failed(self.clock.now(), &error.to_string());
                None
            }
            Err(_) => {
                self.failed(self.clock.now(), "the database takes too long");
                None
            }
        }
    }

    async fn lend(
        &self,
        key: u128,
        per_minute: u32,
        asked: Asked,
        now: Time,
    ) -> Result<(Pool, Loan), db::Error> {
        // A crash of the database may lose it: a second of some meters.
        let mut tx = self.db.write_behind().await?;
        let mut pool = store::rate_meters::lock(&mut tx, key, per_minute, now).await?;
        let loan = asked.of(&mut pool, per_minute, now.unix_ms());
        store::rate_meters::set(&mut tx, key, &pool).await?;
        tx.commit().await?;
        Ok((pool, loan))
    }
}
