//! The queue of writes: reservations, extensions, releases and usage of all requests go through it, and into
//! the database many at a time.
//!
//! While one transaction commits, further requests are queued. The request that finds no writer running
//! starts one, which runs until the queue is empty. A request is answered after the commit that its result
//! depends on. If its client disconnects, its work is done all the same.

mod assumptions;
pub mod booking;
mod careful;
mod corrections;
mod crediting;
mod events;
mod purses;
mod round;
mod work;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::sync::oneshot;
use tokio::time::timeout;

use round::Stopped;
pub use work::{Answer, Outcome, Refused, Reservation, Reserving, UsageEvent, Work};

use crate::Billing;
use crate::rules::events::{self as rules, Refusal};
use crate::store::usage::recording::{self, Payer};
use kernel::clock::Month;
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, ProjectId, UserId};
use kernel::stopwatch::Stopwatch;
use telemetry::QueueSpan;

/// Maximum number of queued works.
const CAPACITY: usize = 10_000;
/// Maximum memory of queued works, in bytes. A single larger one is accepted if the queue is empty.
const CAPACITY_BYTES: usize = 64 << 20;
/// Maximum number of works in one transaction.
const MOST_PIECES: usize = 1_000;
/// Maximum number of usage events in one transaction, unless a single work has more.
const MOST_EVENTS: usize = 2_000;
const PATIENCE: Patience = Patience { turn: Duration::from_secs(10), answer: Duration::from_secs(20) };
/// Maximum number of times that the writer yields to other tasks before it begins a transaction.
const MOST_TURNS: usize = 128;
/// Maximum number of yields in a row in which no work arrives, after a large batch.
const IDLE_TURNS: usize = 32;
/// Number of works from which on a batch is large.
const MANY: usize = 8;
/// Capacity of each cache, in entries of about 100 bytes.
const REMEMBERED: usize = 1 << 18;

/// The queue of writes, and caches of the organizations that they are for.
pub struct Books {
    queue: Mutex<Queue>,
    /// The payer of each API key. It never changes.
    payers: Cache<u128, Payer>,
    /// The payer of each pair of project and user. It never changes: projects and users that existed once
    /// stay known.
    person_payers: Cache<(u128, u128), Payer>,
    /// The first open month of each organization. Only a hint: the month may have been closed since.
    open_months: Cache<u128, Month>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Piece>,
    bytes: usize,
    /// The number of the last queued work.
    last: u64,
    /// A task writes, or is about to.
    led: bool,
}

/// How long the caller of [`submit`] waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until a transaction takes the work. After this the work is not done.
    pub turn: Duration,
    /// From then until the answer. After this the caller learns that the outcome is unknown, and the
    /// transaction goes on. The database limits the time of each statement, but not of all of them together.
    pub answer: Duration,
}

/// A work with the channel to its caller.
struct Piece {
    number: u64,
    work: Work,
    bytes: usize,
    /// A span of the request's trace; it ends when this is dropped.
    traced: Option<Box<QueueSpan>>,
    answer: oneshot::Sender<Result<Answer, db::Error>>,
}

impl Books {
    pub fn new() -> Self {
        Self {
            queue: Mutex::default(),
            payers: Cache::new(REMEMBERED),
            person_payers: Cache::new(REMEMBERED),
            open_months: Cache::new(REMEMBERED),
        }
    }

    /// Returns the length of the queue in works and in bytes, each with its maximum.
    pub fn load(&self) -> [(usize, usize); 2] {
        let queue = self.queue();
        [(queue.waiting.len(), CAPACITY), (queue.bytes, CAPACITY_BYTES)]
    }

    /// Returns the number of cached payers and of cached open months.
    pub fn remembered(&self) -> (usize, usize) {
        (self.payers.len() + self.person_payers.len(), self.open_months.len())
    }

    /// Returns the number of queued works.
    pub fn len(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Returns the number of works that were ever queued.
    pub fn submitted(&self) -> u64 {
        self.queue().last
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a work. Returns its number, and `true` if the caller must start a writer.
    fn push(
        &self,
        work: Work,
        answer: oneshot::Sender<Result<Answer, db::Error>>,
    ) -> Result<(u64, bool), Error> {
        let bytes = work.memory();
        let mut queue = self.queue();
        let full = queue.waiting.len() >= CAPACITY || queue.bytes.saturating_add(bytes) > CAPACITY_BYTES;
        if full && !queue.waiting.is_empty() {
            return Err(Code::BooksQueueFull.into());
        }
        queue.bytes += bytes;
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push_back(Piece { number, work, bytes, traced: telemetry::queue_span(), answer });
        Ok((number, !std::mem::replace(&mut queue.led, true)))
    }

    /// Removes a work from the queue; `false` if a transaction has taken it.
    fn take_back(&self, number: u64) -> bool {
        let mut queue = self.queue();
        let Ok(place) = queue.waiting.binary_search_by_key(&number, |piece| piece.number) else {
            return false;
        };
        let taken = queue.waiting.remove(place);
        queue.bytes = queue.bytes.saturating_sub(taken.as_ref().map_or(0, |piece| piece.bytes));
        taken.is_some()
    }

    /// Takes the works of the next transaction. If there are none, returns `None` and marks the writer as
    /// ended.
    fn next_pieces(&self) -> Option<Vec<Piece>> {
        let mut queue = self.queue();
        let (mut pieces, mut events) = (Vec::new(), 0);
        while let Some(next) = queue.waiting.front() {
            events += next.work.events().len();
            if pieces.len() >= MOST_PIECES || (events > MOST_EVENTS && !pieces.is_empty()) {
                break;
            }
            queue.bytes = queue.bytes.saturating_sub(next.bytes);
            pieces.extend(queue.waiting.pop_front());
        }
        queue.led = !pieces.is_empty();
        queue.led.then_some(pieces)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic can't leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Books {
    fn default() -> Self {
        Self::new()
    }
}

/// Does a work. Its result is durable when this returns.
///
/// # Errors
/// 503 `books_queue_full` if the queue is full or no transaction takes the work within ten seconds: it was
/// not done. Also 503 if the database fails, or doesn't answer within another twenty seconds: the work may
/// have been done. It can be sent again with the same ids.
pub async fn submit(billing: &Billing, work: Work) -> Result<Answer, Error> {
    submit_within(billing, work, PATIENCE).await
}

/// Does the same as [`submit`] with other timeouts.
///
/// # Errors
/// Those of [`submit`].
pub async fn submit_within(billing: &Billing, work: Work, patience: Patience) -> Result<Answer, Error> {
    let books = &billing.books;
    let refused = |error: Error| {
        billing.metrics.books.refused.fetch_add(1, Ordering::Relaxed);
        error
    };
    let (answer, mut answered) = oneshot::channel();
    let (number, must_lead) = books.push(work, answer).map_err(refused)?;
    if must_lead {
        drop(tokio::spawn(lead(billing.clone())));
    }
    let answered = match timeout(patience.turn, &mut answered).await {
        Ok(answered) => answered,
        Err(_) if books.take_back(number) => return Err(refused(Code::BooksQueueFull.into())),
        // A transaction has taken it, so only that one knows the outcome.
        Err(_) => timeout(patience.answer, answered).await.map_err(|_| too_slow())?,
    };
    Ok(answered.map_err(|_| Error::internal("the task that writes the books ended"))??)
}

/// Returns the organization and project of an API key; `None` if the key never existed. Cached keys cost no
/// query.
///
/// # Errors
/// The database fails.
pub async fn payer(billing: &Billing, api_key_id: ApiKeyId) -> Result<Option<Payer>, Error> {
    if let Some(payer) = billing.books.payers.get(&api_key_id.as_u128()) {
        return Ok(Some(payer));
    }
    let payer = recording::payer(&mut billing.db.read().await?, api_key_id).await?;
    if let Some(payer) = payer {
        billing.books.payers.insert(api_key_id.as_u128(), payer);
    }
    Ok(payer)
}

/// Returns the payer of a user's calls in a project, or why there is none. Cached pairs cost no query.
///
/// # Errors
/// The database fails.
pub async fn person_payer(
    billing: &Billing,
    project_id: ProjectId,
    user_id: UserId,
) -> Result<Result<Payer, Refusal>, Error> {
    let key = (project_id.as_u128(), user_id.as_u128());
    if let Some(payer) = billing.books.person_payers.get(&key) {
        return Ok(Ok(payer));
    }
    let found = recording::person_payer(&mut billing.db.read().await?, project_id, user_id).await?;
    Ok(match found {
        None => Err(rules::unknown_project(project_id)),
        Some((_, false)) => Err(rules::unknown_user(user_id)),
        Some((payer, true)) => {
            billing.books.person_payers.insert(key, payer);
            Ok(payer)
        }
    })
}

async fn lead(billing: Billing) {
    let leading = Leading(&billing.books);
    let mut before = 0;
    loop {
        gather(&billing.books, before).await;
        let Some(pieces) = billing.books.next_pieces() else { break };
        before = pieces.len();
        write(&billing, pieces).await;
    }
    // Another task may write by now.
    std::mem::forget(leading);
}

/// Waits for requests that have arrived and only wait for this thread: a commit for many costs hardly more
/// than one for a few. After a large batch it yields more often, so that clients which send their next
/// request at once are included; that takes about ten microseconds.
async fn gather(books: &Books, before: usize) {
    let (mut waiting, mut idle) = (books.len(), 0);
    let patience = if before >= MANY { IDLE_TURNS } else { 1 };
    for _ in 0..MOST_TURNS {
        if waiting >= MOST_PIECES || (idle > 0 && waiting >= before) {
            return;
        }
        tokio::task::yield_now().await;
        let now_waiting = books.len();
        idle = if now_waiting > waiting { 0 } else { idle + 1 };
        if idle >= patience {
            return;
        }
        waiting = now_waiting;
    }
}

/// If the writer panics, fails the queued works and lets the next request start a new writer.
struct Leading<'a>(&'a Books);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        *queue = Queue { last: queue.last, ..Queue::default() };
    }
}

/// Does a batch of works in one transaction. If that fails, does each one alone, so that a work that can't be
/// done doesn't block the others. If an amount overflows, only the events that don't fit are refused.
async fn write(billing: &Billing, mut pieces: Vec<Piece>) {
    let count = pieces.len();
    pieces.iter_mut().filter_map(|piece| piece.traced.as_mut()).for_each(|traced| traced.begin_write(count));
    let works: Vec<&Work> = pieces.iter().map(|piece| &piece.work).collect();
    match measured(billing, &works).await {
        Ok(answers) => {
            for (piece, answer) in pieces.into_iter().zip(answers) {
                tell(piece, Ok(answer));
            }
        }
        Err(stopped) if stopped.is_final(count) => {
            let error = stopped.into_error();
            for piece in pieces {
                tell(piece, Err(error.clone()));
            }
        }
        Err(stopped) => {
            let error = stopped.into_error();
            tracing::warn!(pieces = pieces.len(), "the books are written one by one: {error}");
            for piece in pieces {
                let answer = alone(billing, &piece.work).await;
                tell(piece, answer);
            }
        }
    }
}

/// Does a work in a transaction of its own.
async fn alone(billing: &Billing, work: &Work) -> Result<Answer, db::Error> {
    match measured(billing, &[work]).await {
        Ok(mut answers) => {
            answers.pop().ok_or_else(|| db::Error::Internal("a piece of work has no answer".to_owned()))
        }
        Err(Stopped::NoRoom) => careful::record(billing, work.events()).await,
        Err(stopped) => Err(stopped.into_error()),
    }
}

async fn measured(billing: &Billing, works: &[&Work]) -> Result<Vec<Answer>, Stopped> {
    let (rounds, watch) = (&billing.metrics.books, Stopwatch::start());
    let answers = round::run(billing, works).await;
    rounds.durations.note_ns(watch.elapsed_ns());
    rounds.sizes.note(works.len());
    if answers.is_err() {
        rounds.failed.fetch_add(1, Ordering::Relaxed);
    }
    answers
}

fn too_slow() -> Error {
    let message =
        "The database takes too long, and this may still be booked: send it again, with the same ids.";
    Error::new(Code::DatabaseUnavailable).message(message)
}

fn tell(piece: Piece, answer: Result<Answer, db::Error>) {
    drop(piece.traced);
    // No effect if the caller is gone.
    drop(piece.answer.send(answer));
}
