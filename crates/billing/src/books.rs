//! The write queue. It collects the reservations, extensions, releases and usage of all requests, and
//! writes them to the database in batches.
//!
//! While one transaction commits, further requests are queued. The request that finds no writer running
//! starts one, which runs until the queue is empty. A request is answered after the commit that its result
//! depends on. If its client disconnects, its operation is still done.

mod batch;
pub mod booking;
mod call_costs;
mod call_rows;
mod corrections;
mod counted;
mod credit_notes;
mod debts;
mod events;
mod extensions;
pub(crate) mod locked_budgets;
mod locked_wallets;
mod open_months;
mod operations;
mod queue;
mod splitting;
mod top_ups;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use batch::BatchError;
use operations::{Answers, Batch, NotDone, Queued, send};
pub use operations::{
    BudgetRefusal, CallCost, CallReservation, Extension, Lifetime, Operation, Outcome, Record, Release,
    Reservation, Reserve, ReserveError, UsageEvent,
};
use queue::{Entry, Queue};

use crate::Billing;
use crate::rules::events::{self as rules, Refusal};
use crate::store::usage::recording::{self, Payer};
use kernel::clock::Month;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, ProjectId, UserId};
use kernel::stopwatch::Stopwatch;
use metrics::seconds_of_ns;
use telemetry::QueueSpan;

const TIMEOUTS: Timeouts = Timeouts { queued: Duration::from_secs(10), answer: Duration::from_secs(20) };
/// Maximum number of times that the writer yields to other tasks before it begins a transaction.
const MAX_YIELDS: usize = 128;
/// Maximum number of yields in a row in which no operation arrives, after a large batch.
const MAX_IDLE_YIELDS: usize = 32;
/// Number of operations at which a batch counts as large.
const LARGE_BATCH: usize = 8;
/// Capacity of each cache, in entries of about 100 bytes.
const CACHE_CAPACITY: usize = 1 << 18;

/// The write queue, and caches of the organizations that operations belong to.
pub struct Books {
    queue: Mutex<State>,
    /// The payer of each API key, which never changes.
    payers: Cache<u128, Payer>,
    /// The payer of each pair of project and user, which never changes, even if the project or the user is
    /// deleted.
    user_payers: Cache<(u128, u128), Payer>,
    /// The first open month of each organization. Only a hint: the month may have been closed since.
    open_months: Cache<u128, Month>,
}

#[derive(Default)]
struct State {
    queue: Queue<QueuedOperation>,
    /// `true` while a task writes, or is about to.
    has_writer: bool,
}

/// The timeouts of [`submit`].
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Maximum time until a transaction takes the operation. After that, the operation isn't done.
    pub queued: Duration,
    /// Maximum time from then until the answer. After that, the caller gets an error because the outcome is
    /// unknown, and the transaction continues. The database limits the time of each statement, but not their
    /// total.
    pub answer: Duration,
}

/// A queued operation with a span of its request's trace. The span ends when this is dropped.
struct QueuedOperation {
    operation: Queued,
    span: Option<Box<QueueSpan>>,
}

impl QueuedOperation {
    /// Ends the span, and returns the operation.
    fn ended(self) -> Queued {
        self.operation
    }
}

impl Entry for QueuedOperation {
    fn memory(&self) -> usize {
        self.operation.memory()
    }

    fn event_count(&self) -> usize {
        self.operation.events().len()
    }
}

impl Books {
    pub fn new() -> Self {
        Self {
            queue: Mutex::default(),
            payers: Cache::new(CACHE_CAPACITY),
            user_payers: Cache::new(CACHE_CAPACITY),
            open_months: Cache::new(CACHE_CAPACITY),
        }
    }

    /// Returns the length of the queue in operations and in bytes, each with its maximum.
    pub fn load(&self) -> [(usize, usize); 2] {
        let queue = &self.state().queue;
        [(queue.len(), queue::MAX_OPERATIONS), (queue.bytes(), queue::MAX_BYTES)]
    }

    /// Returns the number of cached payers and of cached open months.
    pub fn cached(&self) -> (usize, usize) {
        (self.payers.len() + self.user_payers.len(), self.open_months.len())
    }

    /// Returns the number of queued operations.
    pub fn len(&self) -> usize {
        self.state().queue.len()
    }

    /// Returns the number of operations that were queued since the start.
    pub fn submitted(&self) -> u64 {
        self.state().queue.last()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an operation. Returns its number, and `true` if the caller must start a writer. If the queue is
    /// full, the newest operation of the organization with the longest queue is displaced.
    fn push(&self, operation: Queued) -> Result<(u64, bool), Error> {
        let (group, span) = (operation.organization_id(), telemetry::queue_span());
        let entry = QueuedOperation { operation, span };
        let mut state = self.state();
        let pushed = state.queue.push(group, entry, Instant::now());
        let (number, gave_way) = pushed.ok_or(Code::BooksQueueFull)?;
        let must_start_writer = !std::mem::replace(&mut state.has_writer, true);
        drop(state);
        if let Some(gave_way) = gave_way {
            gave_way.operation.fail(NotDone::Displaced);
        }
        Ok((number, must_start_writer))
    }

    /// Removes an operation from the queue. Returns `false` if a transaction has already taken it.
    fn withdraw(&self, number: u64) -> bool {
        self.state().queue.withdraw(number)
    }

    /// Takes the operations of the next transaction. If the queue is empty, returns `None` and marks the
    /// writer as ended.
    fn next_batch(&self) -> Option<Vec<QueuedOperation>> {
        let mut state = self.state();
        let entries = state.queue.take_batch(Instant::now());
        state.has_writer = !entries.is_empty();
        state.has_writer.then_some(entries)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic can't leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Books {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs an operation. Its result is durable when this returns.
///
/// # Errors
/// 503 `books_queue_full` if the queue is full or no transaction takes the operation within ten seconds; then
/// the operation wasn't done. 503 if the database fails, or doesn't answer within another twenty seconds;
/// then the operation may have been done. It can be sent again with the same ids.
pub async fn submit<O: Operation>(billing: &Billing, operation: O) -> Result<O::Answer, Error> {
    submit_with_timeouts(billing, operation, TIMEOUTS).await
}

/// Runs an operation like [`submit`], with other timeouts.
///
/// # Errors
/// The errors of [`submit`].
pub async fn submit_with_timeouts<O: Operation>(
    billing: &Billing,
    operation: O,
    timeouts: Timeouts,
) -> Result<O::Answer, Error> {
    let books = &billing.books;
    let refused = |error: Error| {
        billing.metrics.books.refused.fetch_add(1, Ordering::Relaxed);
        error
    };
    let (answer, mut answered) = oneshot::channel();
    let (number, must_start_writer) = books.push(operation.queued(answer)).map_err(refused)?;
    if must_start_writer {
        start_writer(billing.clone());
    }
    let answered = match timeout(timeouts.queued, &mut answered).await {
        Ok(answered) => answered,
        Err(_) if books.withdraw(number) => return Err(refused(Code::BooksQueueFull.into())),
        // The operation is part of a running transaction, so wait for its outcome.
        Err(_) => timeout(timeouts.answer, answered).await.map_err(|_| too_slow())?,
    };
    match answered.map_err(|_| Error::internal("the task that writes the books ended"))? {
        Ok(answer) => Ok(answer),
        Err(NotDone::Displaced) => Err(refused(Code::BooksQueueFull.into())),
        Err(NotDone::Failed(error)) => Err(error.into()),
    }
}

/// Starts the task that writes. This isn't `async`, so that the writer is compiled once
/// ([`kernel::futures::BoxFuture`]).
fn start_writer(billing: Billing) {
    drop(tokio::spawn(run_writer(billing)));
}

/// Returns the organization and project of an API key; `None` if the key never existed. Cached keys need no
/// query.
///
/// # Errors
/// The database fails.
pub async fn payer(billing: &Billing, api_key_id: ApiKeyId) -> Result<Option<Payer>, Error> {
    if let Some(payer) = billing.books.payers.get(&api_key_id.as_u128()) {
        return Ok(Some(payer));
    }
    let payer = recording::payer(&mut billing.db().read().await?, api_key_id).await?;
    if let Some(payer) = payer {
        billing.books.payers.insert(api_key_id.as_u128(), payer);
    }
    Ok(payer)
}

/// Returns the payer of a user's calls in a project, or the reason why the pair has none. Cached pairs need
/// no query.
///
/// # Errors
/// The database fails.
pub async fn user_payer(
    billing: &Billing,
    project_id: ProjectId,
    user_id: UserId,
) -> Result<Result<Payer, Refusal>, Error> {
    let key = (project_id.as_u128(), user_id.as_u128());
    if let Some(payer) = billing.books.user_payers.get(&key) {
        return Ok(Ok(payer));
    }
    let found = recording::user_payer(&mut billing.db().read().await?, project_id, user_id).await?;
    Ok(match found {
        None => Err(rules::unknown_project(project_id)),
        Some((_, false)) => Err(rules::unknown_user(user_id)),
        Some((payer, true)) => {
            billing.books.user_payers.insert(key, payer);
            Ok(payer)
        }
    })
}

async fn run_writer(billing: Billing) {
    let guard = WriterGuard(&billing.books);
    let mut batch_size = 0;
    loop {
        await_more_operations(&billing.books, batch_size).await;
        let Some(entries) = billing.books.next_batch() else { break };
        batch_size = entries.len();
        run_batch(&billing, entries).await;
    }
    // Another task may be the writer by now.
    std::mem::forget(guard);
}

/// Yields to requests that are ready to be queued, because a commit of many operations costs hardly more than
/// a commit of a few. After a large batch, this yields more often, so that the next requests of fast clients
/// are included. That takes about ten microseconds.
async fn await_more_operations(books: &Books, batch_size: usize) {
    let (mut queued, mut idle) = (books.len(), 0);
    let max_idle = if batch_size >= LARGE_BATCH { MAX_IDLE_YIELDS } else { 1 };
    for _ in 0..MAX_YIELDS {
        if queued >= queue::MAX_BATCH_OPERATIONS || (idle > 0 && queued >= batch_size) {
            return;
        }
        tokio::task::yield_now().await;
        let now_queued = books.len();
        idle = if now_queued > queued { 0 } else { idle + 1 };
        if idle >= max_idle {
            return;
        }
        queued = now_queued;
    }
}

/// A guard for a panic of the writer: fails the queued operations and lets the next request start a new
/// writer.
struct WriterGuard<'a>(&'a Books);

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.queue.clear();
        state.has_writer = false;
    }
}

/// Runs a batch of operations in one transaction. If that fails, runs each operation alone, so that an
/// impossible one doesn't block the others. If an amount overflows, only the events that don't fit are
/// refused.
async fn run_batch(billing: &Billing, mut entries: Vec<QueuedOperation>) {
    let count = entries.len();
    entries.iter_mut().filter_map(|entry| entry.span.as_mut()).for_each(|span| span.begin_write(count));
    let batch = Batch::of(entries.iter().map(|entry| &entry.operation));
    match run_measured(billing, &batch).await {
        Ok(answers) => answers.send(entries.into_iter().map(QueuedOperation::ended)),
        Err(failure) if failure.is_permanent(count) => {
            let error = failure.into_error();
            for entry in entries {
                entry.ended().fail(NotDone::Failed(error.clone()));
            }
        }
        Err(failure) => {
            let error = failure.into_error();
            tracing::warn!(operations = count, "a batch failed, so its operations run one by one: {error}");
            for entry in entries {
                run_alone(billing, entry).await;
            }
        }
    }
}

/// Runs an operation in its own transaction.
async fn run_alone(billing: &Billing, entry: QueuedOperation) {
    let outcome = run_measured(billing, &Batch::of([&entry.operation])).await;
    match (outcome, entry.ended()) {
        (Ok(answers), operation) => answers.send([operation]),
        (Err(BatchError::Overflow), Queued::Record(Record(events), caller)) => {
            send(caller, splitting::record(billing, &events).await.map_err(NotDone::Failed));
        }
        (Err(failure), operation) => operation.fail(NotDone::Failed(failure.into_error())),
    }
}

async fn run_measured(billing: &Billing, operations: &Batch<'_>) -> Result<Answers, BatchError> {
    let (metrics, watch) = (&billing.metrics.books, Stopwatch::start());
    let answers = batch::run(billing, operations).await;
    metrics.durations.observe(seconds_of_ns(watch.elapsed_ns()));
    metrics.sizes.observe(f64::from(u32::try_from(operations.len()).unwrap_or(u32::MAX)));
    if answers.is_err() {
        metrics.failed.inc();
    }
    answers
}

fn too_slow() -> Error {
    let message = "The database didn't answer in time, and the request may still be booked. Send it again \
                   with the same ids.";
    Error::new(Code::DatabaseUnavailable).message(message)
}
