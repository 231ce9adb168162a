//! Batching of reads of one row each into one statement.
//!
//! Receiving a statement and answering it costs a server many times what finding a row by its key does. So
//! for each text that is marked with [`Statement::batched`], one statement is in flight at a time, always on
//! the same connection. Reads that arrive meanwhile are queued, and sent together as one statement when the
//! result is there. No read waits for others to come: if none is in flight, it is sent at once. Each read
//! sees what was committed when its statement ran, which is after its arrival.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::types::{Kind, Type};

use super::shared::Slot;
use super::{Failure, RESPONSE_TIMEOUT, types, with_timeout};
use crate::Error;
use crate::statement::{Statement, TextId, Want, parameters};
use crate::value::Row;

/// Maximum number of reads in one statement; more go with the next one.
const MAX_BATCH: usize = 128;
/// Maximum number of queued reads per text: more than there can be client connections.
const MAX_QUEUED: usize = 65_536;

/// A queue per text.
#[derive(Default)]
pub(super) struct Batcher {
    queues: Mutex<HashMap<TextId, Queue>>,
    /// Reads that were answered together with others.
    batched: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// The number of the text, by which texts are spread over the connections.
    number: usize,
    in_flight: bool,
    reads: Vec<QueuedRead>,
    /// The batch text, once it is made; `None` in it if the statement can't be batched.
    batch_text: Option<Option<Arc<str>>>,
}

struct QueuedRead {
    statement: Arc<Statement>,
    reply: oneshot::Sender<Reply>,
}

/// The outcome of a queued read.
pub(super) enum Reply {
    /// The row, if there is one.
    Found(Option<Row>),
    /// The batch failed: the read must be sent by itself.
    Retry,
    /// The server doesn't respond.
    Failed(Error),
}

impl QueuedRead {
    /// Replies; no effect if the caller was cancelled.
    fn reply(self, reply: Reply) {
        drop(self.reply.send(reply));
    }
}

/// The answer to a new read.
pub(super) enum Entry {
    /// Send the statement, and keep the guard until it is answered.
    Send(InFlight, Statement),
    /// Queued: wait for the reply.
    Queued(Arc<Statement>, oneshot::Receiver<Reply>),
    /// The queue is full.
    Full,
}

/// A statement in flight. Dropping it sends the reads that are queued.
pub(super) struct InFlight {
    batcher: Arc<Batcher>,
    slot: Arc<Slot>,
    text: TextId,
}

impl Batcher {
    fn lock(&self) -> MutexGuard<'_, HashMap<TextId, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of reads that were answered together with others.
    pub(super) fn batched(&self) -> u64 {
        self.batched.load(Ordering::Relaxed)
    }

    /// Takes a read in. `slots` must not be empty.
    pub(super) fn enter(self: &Arc<Self>, slots: &[Arc<Slot>], text: TextId, statement: Statement) -> Entry {
        let mut queues = self.lock();
        let number = queues.len();
        let queue = queues.entry(text).or_insert_with(|| Queue { number, ..Queue::default() });
        if !queue.in_flight
            && let Some(slot) = slots.get(queue.number % slots.len().max(1))
        {
            queue.in_flight = true;
            let guard = InFlight { batcher: Arc::clone(self), slot: Arc::clone(slot), text };
            return Entry::Send(guard, statement);
        }
        if queue.reads.len() >= MAX_QUEUED {
            queue.reads.retain(|read| !read.reply.is_closed());
            if queue.reads.len() >= MAX_QUEUED {
                return Entry::Full;
            }
        }
        let (reply, receiver) = oneshot::channel();
        let statement = Arc::new(statement);
        queue.reads.push(QueuedRead { statement: Arc::clone(&statement), reply });
        Entry::Queued(statement, receiver)
    }

    /// Returns the batch text, which `make` makes at the first call.
    fn batch_text(&self, text: TextId, make: impl FnOnce() -> Option<String>) -> Option<Arc<str>> {
        let mut queues = self.lock();
        queues.entry(text).or_default().batch_text.get_or_insert_with(|| make().map(Arc::from)).clone()
    }
}

impl InFlight {
    /// The connection to use.
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Takes the reads of the next batch from the queue.
    fn take_batch(&self) -> Vec<QueuedRead> {
        let mut queues = self.batcher.lock();
        let reads = &mut queues.entry(self.text).or_default().reads;
        reads.retain(|read| !read.reply.is_closed());
        let rest = reads.split_off(reads.len().min(MAX_BATCH));
        std::mem::replace(reads, rest)
    }

    /// Answers the next batch by one statement. If the server refuses it, each read is retried by itself.
    async fn send_batch(self) {
        let reads = self.take_batch();
        match self.find(&reads).await {
            Ok(Some(rows)) => {
                let together = if rows.len() > 1 { u64::try_from(rows.len()).unwrap_or(u64::MAX) } else { 0 };
                self.batcher.batched.fetch_add(together, Ordering::Relaxed);
                reads.into_iter().zip(rows).for_each(|(read, row)| read.reply(Reply::Found(row)));
            }
            Err(Failure::Unresponsive(error)) => {
                reads.into_iter().for_each(|read| read.reply(Reply::Failed(error.clone())));
            }
            outcome => {
                if let Err(Failure::Refused(error)) = &outcome
                    && reads.len() > 1
                {
                    tracing::warn!("retrying {} reads of a refused batch one by one: {error}", reads.len());
                }
                reads.into_iter().for_each(|read| read.reply(Reply::Retry));
            }
        }
    }

    /// Returns the rows of the reads, in order; `None` if they can't be batched.
    async fn find(&self, reads: &[QueuedRead]) -> Result<Option<Vec<Option<Row>>>, Failure> {
        let Some(first) = reads.first() else { return Ok(None) };
        if reads.len() == 1 {
            let mut answer = self.slot.read(&first.statement, Want::First).await?;
            return Ok(Some(vec![answer.rows.pop()]));
        }
        let client = self.slot.client().await.map_err(Failure::Unresponsive)?;
        let statements: Vec<&Statement> = reads.iter().map(|read| &*read.statement).collect();
        let found = async {
            let single = types::prepare(&client, &first.statement).await?;
            let columns = single.columns().iter().map(tokio_postgres::Column::name);
            let make = || make_batch_text(&first.statement.text, single.params(), columns);
            let Some(text) = self.batcher.batch_text(self.text, make) else { return Ok(None) };
            types::run_batch(&client, &text, &statements).await.map(Some)
        };
        let found = with_timeout(RESPONSE_TIMEOUT, found).await;
        if matches!(found, Err(Failure::Disconnected(_) | Failure::Unresponsive(_))) {
            self.slot.discard(&client);
        }
        found
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut queues = self.batcher.lock();
        let queue = queues.entry(self.text).or_default();
        queue.in_flight = false;
        if queue.reads.is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                queue.in_flight = true;
                drop(queues);
                let (batcher, slot) = (Arc::clone(&self.batcher), Arc::clone(&self.slot));
                runtime.spawn(Self { batcher, slot, text: self.text }.send_batch());
            }
            // The runtime is shutting down: the reads fail, as their channels are closed.
            Err(_) => queue.reads.clear(),
        }
    }
}

/// Returns the batch text for a statement with these types of parameters and names of columns: each parameter
/// becomes an array, and each row ends with its position in the arrays. `None` if a type has no name that a
/// cast takes.
///
/// The arrays are subqueries, which hides their lengths from the planner: it would plan short ones again each
/// time.
fn make_batch_text<'a>(text: &str, types: &[Type], columns: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut arrays, mut names) = (Vec::new(), String::new());
    for (index, of) in types.iter().enumerate() {
        if *of.kind() != Kind::Simple {
            return None;
        }
        let number = index + 1;
        arrays.push(format!("(SELECT CAST(${number} AS {}[]))", of.name()));
        names.push_str(&format!("p{number}, "));
    }
    if arrays.is_empty() {
        return None;
    }
    let columns: String = columns.map(|column| format!("one.{column}, ")).collect();
    let (arrays, one) = (arrays.join(", "), parameters(text, "many.p"));
    Some(format!(
        "SELECT {columns}many.place FROM unnest({arrays}) WITH ORDINALITY AS many({names}place)
         CROSS JOIN LATERAL ({one} LIMIT 1) one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_text_takes_arrays() {
        let text = "SELECT a, '$1' AS b FROM t WHERE id = $2 AND n > $1";
        let many = make_batch_text(text, &[Type::INT8, Type::TEXT], ["a", "b"].into_iter()).unwrap();
        assert_eq!(
            many,
            "SELECT one.a, one.b, many.place \
             FROM unnest((SELECT CAST($1 AS int8[])), (SELECT CAST($2 AS text[]))) WITH ORDINALITY AS many(p1, p2, place)
         CROSS JOIN LATERAL (SELECT a, '$1' AS b FROM t WHERE id = many.p2 AND n > many.p1 LIMIT 1) one"
        );
        let of = |text, types: &[Type]| make_batch_text(text, types, ["a"].into_iter());
        assert_eq!(of("SELECT 1 AS a", &[]), None, "no parameters");
        assert_eq!(of("SELECT $1 AS a", &[Type::INT8_ARRAY]), None);
    }
}
