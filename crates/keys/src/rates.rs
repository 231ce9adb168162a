//! Request rates of API keys and of models, shared by all replicas.
//!
//! On SQLite, only one server exists, and its own [`Limiter`] decides without a query. On PostgreSQL, a row
//! of `rate_meters` decides. [`Pool`] explains why all replicas together keep to the limit. A replica borrows
//! a few requests at a time and counts calls against them without a query; at the next exchange, it reports
//! the number used. It borrows between one request and the rate of five seconds, depending on its recent use.
//! A lease lasts for five seconds. Then its unused rest is returned with the next exchange, or by
//! [`Rates::return_leases`] if no call arrives.
//!
//! One call at a time queries the database for a meter, and the others wait for the result. A lease that is
//! nearly used up is renewed while its rest is being used. If the pool has nothing to lend, the meter that
//! was read determines when it can lend again, and until then calls are refused without a query.
//!
//! While the database can't be reached, each replica counts separately, so that the limit doesn't cause an
//! outage.

mod share;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use self::share::{Decision, PoolRequest, Share};
use crate::rules::rate_pool::{Loan, Pool};
use crate::store;
use db::Db;
use kernel::clock::{Clock, MINUTE_MS, SECOND_MS, Time};
use kernel::error::RateLimit;
use kernel::futures::BoxFuture;
use kernel::limiter::{Limiter, Shards};
use kernel::rates::Allowance;

/// Maximum time for which a call waits for the database before it is decided locally.
const DATABASE_TIMEOUT: Duration = Duration::from_millis(500);
/// The time after a failure during which the database isn't queried, in milliseconds.
const RETRY_AFTER_FAILURE_MS: i64 = SECOND_MS;
/// The time for which an unused shared meter is kept, in milliseconds. By then, it has been empty for a
/// while.
const UNUSED_METER_RETENTION_MS: i64 = 2 * MINUTE_MS;
/// The number of locks, and therefore of meters that can be queried at the same time.
const METER_LOCKS: usize = 256;

/// The request rates of keys and models.
pub struct Rates {
    db: Db,
    clock: Clock,
    /// The limiter that decides if no other replicas exist.
    limiter: Arc<Limiter>,
    shares: Shards<Share>,
    /// Locks by meter, held during an exchange with the database.
    meter_locks: Vec<Mutex<()>>,
    /// The time of the database's last failure, in Unix milliseconds; [`NEVER`] after a success.
    failed_at_ms: AtomicI64,
}

const NEVER: i64 = i64::MIN;

impl Rates {
    /// Returns rates without any leases.
    pub fn new(db: Db, clock: Clock, limiter: Arc<Limiter>) -> Self {
        Self {
            db,
            clock,
            limiter,
            shares: Shards::default(),
            meter_locks: (0..METER_LOCKS).map(|_| Mutex::new(())).collect(),
            failed_at_ms: AtomicI64::new(NEVER),
        }
    }

    /// Removes empty meters from memory.
    pub fn sweep(&self, now: Time) {
        self.shares.sweep(now.unix_ms(), Share::is_used);
    }

    /// Removes unused shared meters from the database; returns the number removed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn remove_unused(&self) -> Result<u64, db::Error> {
        let mut tx = self.db.write().await?;
        let before = self.clock.now().plus_ms(-UNUSED_METER_RETENTION_MS);
        let removed = store::rate_meters::remove_unused_since(&mut tx, before).await?;
        tx.commit().await?;
        Ok(removed)
    }

    /// Returns the number of meters in memory.
    pub fn len(&self) -> usize {
        self.shares.len()
    }

    /// Returns `true` if no meter is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if other replicas may exist.
    fn is_shared(&self) -> bool {
        self.db.is_postgres()
    }

    /// Runs `act` on the share of a meter.
    fn with_share<T>(
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

    fn check(&self, key: u128, per_minute: u32, now: Time) -> Decision {
        let now_ms = now.unix_ms();
        let decision = self.with_share(key, per_minute, now_ms, |share| share.check(per_minute, now_ms));
        decision.unwrap_or(Decision::Borrow)
    }

    fn check_locally(&self, key: u128, per_minute: u32, now: Time) -> Result<Allowance, RateLimit> {
        let now_ms = now.unix_ms();
        let result =
            self.with_share(key, per_minute, now_ms, |share| share.check_locally(per_minute, now_ms));
        // The default is unreachable, because every meter has a shard. Refusing every call would be worse.
        result.unwrap_or(Ok(Allowance { remaining: 0, reset_ms: 0 }))
    }

    /// Returns `true` if the database may be queried. During an outage, one call per second tries.
    fn may_query(&self, now: Time) -> bool {
        let (failed_at, now_ms) = (self.failed_at_ms.load(Ordering::SeqCst), now.unix_ms());
        if failed_at == NEVER {
            return true;
        }
        !(0..RETRY_AFTER_FAILURE_MS).contains(&now_ms.saturating_sub(failed_at))
            && self
                .failed_at_ms
                .compare_exchange(failed_at, now_ms, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    fn note_success(&self) {
        if self.failed_at_ms.load(Ordering::SeqCst) != NEVER
            && self.failed_at_ms.swap(NEVER, Ordering::SeqCst) != NEVER
        {
            tracing::info!("request rates are shared with other replicas again");
        }
    }

    fn note_failure(&self, now: Time, reason: &str) {
        if self.failed_at_ms.swap(now.unix_ms(), Ordering::SeqCst) == NEVER {
            tracing::warn!(
                "request rates can't be shared: this replica counts for itself until they can: {reason}"
            );
        }
    }

    /// Counts one request of the meter `key` (see [`kernel::limiter::key_for`]) against `per_minute` requests
    /// per minute.
    ///
    /// # Errors
    /// The limit is used up, as in [`Limiter::check`].
    pub async fn take(
        self: &Arc<Self>,
        key: u128,
        per_minute: u32,
        now: Time,
    ) -> Result<Allowance, RateLimit> {
        if !self.is_shared() {
            return self.limiter.check(key, per_minute, now);
        }
        match self.decide_locally(key, per_minute, now) {
            Some(result) => result,
            // `borrow_and_decide` boxes its future: the state of a query would make every call's future
            // large.
            None => self.borrow_and_decide(key, per_minute).await,
        }
    }

    /// Decides without the database, if that is possible.
    fn decide_locally(
        self: &Arc<Self>,
        key: u128,
        per_minute: u32,
        now: Time,
    ) -> Option<Result<Allowance, RateLimit>> {
        match self.check(key, per_minute, now) {
            Decision::Final(result) => Some(result),
            Decision::Renew(allowed) => {
                tokio::spawn(Arc::clone(self).renew_in_background(key, per_minute));
                Some(Ok(allowed))
            }
            Decision::Borrow => None,
        }
    }

    /// Undoes a request that [`Rates::take`] has admitted and that wasn't executed.
    pub fn give_back(&self, key: u128, now: Time) {
        if !self.is_shared() {
            return self.limiter.give_back(key, now);
        }
        let Some(mut shard) = self.shares.of(key) else { return };
        if let Some(share) = shard.entries.get_mut(&key) {
            share.give_back(now.unix_ms());
        }
    }

    /// Gives the unused rest of lapsed leases, or of `all` leases, back to the pool. Returns the number of
    /// affected meters. A remainder that can't be returned counts as used a few seconds later.
    pub async fn return_leases(&self, all: bool) -> usize {
        let now = self.clock.now();
        let mut due = Vec::new();
        for mut shard in self.shares.each() {
            for (key, share) in &mut shard.entries {
                due.extend(
                    share
                        .return_lapsed(all, now.unix_ms())
                        .map(|request| (*key, share.per_minute(), request)),
                );
            }
        }
        let count = due.len();
        for (key, per_minute, request) in due {
            if !self.may_query(now) {
                break;
            }
            let settled = self.exchange(key, per_minute, request, now).await;
            if settled.is_none() {
                break;
            }
        }
        count
    }

    fn borrow_and_decide(
        self: &Arc<Self>,
        key: u128,
        per_minute: u32,
    ) -> BoxFuture<'_, Result<Allowance, RateLimit>> {
        Box::pin(self.borrow_under_lock(key, per_minute))
    }

    async fn borrow_under_lock(self: &Arc<Self>, key: u128, per_minute: u32) -> Result<Allowance, RateLimit> {
        let _lock = self.lock_meter(key).await;
        let now = self.clock.now();
        // The previous holder of the lock may have borrowed enough.
        if let Some(result) = self.decide_locally(key, per_minute, now) {
            return result;
        }
        let is_renewed = self.renew(key, per_minute, true, now).await;
        // If nothing was lent because the limit is used up, the share can decide now.
        let result = if is_renewed { self.decide_locally(key, per_minute, now) } else { None };
        result.unwrap_or_else(|| self.check_locally(key, per_minute, now))
    }

    async fn renew_in_background(self: Arc<Self>, key: u128, per_minute: u32) {
        let _lock = self.lock_meter(key).await;
        let now = self.clock.now();
        let is_due = self.with_share(key, per_minute, now.unix_ms(), |share| share.is_renewing());
        if is_due == Some(true) {
            self.renew(key, per_minute, false, now).await;
        }
    }

    async fn lock_meter(&self, key: u128) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let count = u128::try_from(self.meter_locks.len()).ok()?;
        let index = usize::try_from(key.checked_rem(count)?).ok()?;
        match self.meter_locks.get(index) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Borrows a new lease. Returns `true` if the database answered.
    async fn renew(&self, key: u128, per_minute: u32, call_waits: bool, now: Time) -> bool {
        let now_ms = now.unix_ms();
        let request = if self.may_query(now) {
            self.with_share(key, per_minute, now_ms, |share| share.request(call_waits, now_ms))
        } else {
            None
        };
        let lent = match request {
            Some(request) => self.exchange(key, per_minute, request, now).await,
            None => None,
        };
        self.with_share(key, per_minute, now_ms, |share| match &lent {
            Some((pool, loan)) => share.settle(pool, *loan, now_ms),
            None => share.give_up(),
        });
        lent.is_some()
    }

    /// Reports to the pool and borrows from it. Returns `None` if the database doesn't answer.
    async fn exchange(
        &self,
        key: u128,
        per_minute: u32,
        request: PoolRequest,
        now: Time,
    ) -> Option<(Pool, Loan)> {
        let outcome = tokio::time::timeout(DATABASE_TIMEOUT, self.lend(key, per_minute, request, now)).await;
        match outcome {
            Ok(Ok(lent)) => {
                self.note_success();
                Some(lent)
            }
            Ok(Err(error)) => {
                self.note_failure(self.clock.now(), &error.to_string());
                None
            }
            Err(_) => {
                self.note_failure(self.clock.now(), "the database takes too long");
                None
            }
        }
    }

    async fn lend(
        &self,
        key: u128,
        per_minute: u32,
        request: PoolRequest,
        now: Time,
    ) -> Result<(Pool, Loan), db::Error> {
        // A crash of the database may lose this write, which concerns a second of a few meters.
        let mut tx = self.db.write_behind().await?;
        let mut pool = store::rate_meters::lock(&mut tx, key, per_minute, now).await?;
        let loan = request.apply(&mut pool, per_minute, now.unix_ms());
        store::rate_meters::set(&mut tx, key, &pool).await?;
        tx.commit().await?;
        Ok((pool, loan))
    }
}
