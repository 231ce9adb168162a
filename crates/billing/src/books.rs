//! The way to the books: reservations, captures, usage, extensions and releases of all connections go through one queue, and
//! into the database many at a time.
//!
//! While one transaction commits, the next requests gather. Whoever comes while nobody writes starts the one that does (the
//! leader), which goes on until the queue is empty. An answer leaves after the commit that it depends on; a caller that
//! goes away changes nothing about its work.

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

/// Pieces of work that may wait.
const CAPACITY: usize = 10_000;
/// What they may take in memory, in bytes; one piece always finds its place.
const CAPACITY_BYTES: usize = 64 << 20;
/// Pieces of work of one transaction.
const MOST_PIECES: usize = 1_000;
/// Usage events of one transaction, unless a single piece has more.
const MOST_EVENTS: usize = 2_000;
/// How long a piece of work waits.
const PATIENCE: Patience = Patience { turn: Duration::from_secs(10), answer: Duration::from_secs(20) };
/// Turns of the other tasks for which a transaction that could begin waits at most.
const MOST_TURNS: usize = 128;
/// How many of them in a row may bring nobody, after a transaction for [`MANY`].
const IDLE_TURNS: usize = 32;
/// Pieces of work that make a transaction one for many.
const MANY: usize = 8;
/// Keys and people whose payer is remembered, and organizations whose first open month is; about 100 bytes each.
const REMEMBERED: usize = 1 << 18;

/// The queue, and what is remembered of those whose books they are.
pub struct Books {
    queue: Mutex<Queue>,
    /// A key never changes its project, nor a project its organization.
    payers: Cache<u128, Payer>,
    /// A person's by project and person: accounts and projects that were there once are known for good.
    person_payers: Cache<(u128, u128), Payer>,
    /// Only a hint: what was open when somebody looked may be closed now.
    open_months: Cache<u128, Month>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Piece>,
    bytes: usize,
    /// The number of the last one.
    last: u64,
    /// Whether somebody writes.
    led: bool,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until a transaction takes the work: after that it isn't done.
    pub turn: Duration,
    /// From then on: after that the caller is told that nobody knows, and the transaction goes on. The database bounds each of
    /// its statements, not all of them together.
    pub answer: Duration,
}

/// A piece of work, and who waits for it.
struct Piece {
    number: u64,
    work: Work,
    bytes: usize,
    /// For its request's trace; it ends when this is dropped.
    traced: Option<Box<QueueSpan>>,
    answer: oneshot::Sender<Result<Answer, db::Error>>,
}

impl Books {
    /// Nothing waits.
    pub fn new() -> Self {
        Self {
            queue: Mutex::default(),
            payers: Cache::new(REMEMBERED),
            person_payers: Cache::new(REMEMBERED),
            open_months: Cache::new(REMEMBERED),
        }
    }

    /// What waits, in pieces of work and in bytes, and the most of both.
    pub fn load(&self) -> [(usize, usize); 2] {
        let queue = self.queue();
        [(queue.waiting.len(), CAPACITY), (queue.bytes, CAPACITY_BYTES)]
    }

    /// Keys and people whose payer is remembered, and organizations whose first open month is.
    pub fn remembered(&self) -> (usize, usize) {
        (self.payers.len() + self.person_payers.len(), self.open_months.len())
    }

    /// How many pieces of work wait.
    pub fn len(&self) -> usize {
        self.queue().waiting.len()
    }

    /// How many pieces of work have come so far.
    pub fn submitted(&self) -> u64 {
        self.queue().last
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of what waits now, and whether the caller has to find somebody to lead.
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

    /// Takes a piece out again; `false` when a transaction has it.
    fn take_back(&self, number: u64) -> bool {
        let mut queue = self.queue();
        let Ok(place) = queue.waiting.binary_search_by_key(&number, |piece| piece.number) else {
            return false;
        };
        let taken = queue.waiting.remove(place);
        queue.bytes = queue.bytes.saturating_sub(taken.as_ref().map_or(0, |piece| piece.bytes));
        taken.is_some()
    }

    /// What the next transaction is for; `None`, and nobody leads any more, when nothing waits.
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
        // A panic between whole operations of a queue leaves nothing half done.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Books {
    fn default() -> Self {
        Self::new()
    }
}

/// Does a piece of work; what came of it is durable when this returns.
///
/// # Errors
/// 503 `books_queue_full` when too much waits already, or its turn doesn't come within ten seconds: the work was not done.
/// 503 as well when the database is away, or too slow to answer within twenty seconds more: the work was not done unless
/// the database went away within its commit, or is done after all where it was slow. The same ids may be sent again.
pub async fn submit(billing: &Billing, work: Work) -> Result<Answer, Error> {
    submit_within(billing, work, PATIENCE).await
}

/// The same, with so much time.
///
/// # Errors
/// As of [`submit`].
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
        // A transaction has it: only that one can say what becomes of it.
        Err(_) => timeout(patience.answer, answered).await.map_err(|_| too_slow())?,
    };
    Ok(answered.map_err(|_| Error::internal("the task that writes the books ended"))??)
}

/// The payer of what is used with this key; `None` for an unknown key. A known key costs no query.
///
/// # Errors
/// The database can't say.
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

/// The payer of a person's calls in a project, or why there is none. A known person costs no query.
///
/// # Errors
/// The database can't say.
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
    // Somebody else may lead by now.
    std::mem::forget(leading);
}

/// Lets those in whose requests have arrived and only wait for this thread: a commit for many costs hardly more than one
/// for a few. After a transaction for many there are some turns of the other tasks more, in which those whose clients ask
/// at once again come back; that takes some ten microseconds.
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

/// Lets somebody else lead when the leader ends before its time; those who wait are told.
struct Leading<'a>(&'a Books);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        *queue = Queue { last: queue.last, ..Queue::default() };
    }
}

/// Does these pieces of work in one transaction; when that can't be, each by itself, so that one that can't be done keeps
/// no other from being done. Of usage for which there is no room only what doesn't fit is refused.
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

/// Does a piece of work in a transaction of its own.
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
    // Who has gone away isn't told.
    drop(piece.answer.send(answer));
}
