//! Reads of one row each, many in one statement.
//!
//! To take a statement in and to answer it costs a server many times what it costs to find a row by its key. So of each text
//! that is marked with [`Statement::batched`] one statement is under way at a time, always on the same connection. Who comes
//! meanwhile waits, and all who wait go out together, as one statement, when the answer is there. Nobody waits for company: where
//! none is under way a read goes out at once, by itself. Each sees what was committed when its statement ran, which is after it
//! came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::types::{Kind, Type};

use super::shared::Slot;
use super::{ANSWER_PATIENCE, Failure, types, within};
use crate::Error;
use crate::statement::{Place, Statement, Want, parameters};
use crate::value::Row;

/// The most reads in one statement; the others go with the next.
const MOST: usize = 128;
/// The most reads that wait for a text: more than there are connections that could ask.
const MOST_WAITING: usize = 65_536;

/// What is under way and who waits for it, by text.
#[derive(Default)]
pub(super) struct Lanes {
    of: Mutex<HashMap<Place, Lane>>,
    /// Reads that were answered together with others.
    answered: AtomicU64,
}

#[derive(Default)]
struct Lane {
    /// The number of the text: they come to the connections in turn.
    number: usize,
    under_way: bool,
    waiting: Vec<Waiting>,
    /// The text for many; `None` in it when there can be none.
    text: Option<Option<Arc<str>>>,
}

/// Who waits.
struct Waiting {
    statement: Arc<Statement>,
    reply: oneshot::Sender<Reply>,
}

/// What becomes of one who waits.
pub(super) enum Reply {
    /// The row, if one was found.
    Found(Option<Row>),
    /// Together it didn't work.
    AskAlone,
    /// Nobody answers.
    Failed(Error),
}

impl Waiting {
    /// Whoever asked may have left.
    fn reply(self, reply: Reply) {
        drop(self.reply.send(reply));
    }
}

/// How one comes in.
pub(super) enum Entry {
    /// Nothing of this text is under way: ask now, and hold this meanwhile.
    Now(Turn, Statement),
    /// The reply comes with those to others.
    Later(Arc<Statement>, oneshot::Receiver<Reply>),
    /// Too many wait.
    Full,
}

/// That a text is under way. Who waits at its end goes next.
pub(super) struct Turn {
    lanes: Arc<Lanes>,
    slot: Arc<Slot>,
    place: Place,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Lane>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads that were answered together with others.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Comes in with a statement of the program's own text. There must be a connection.
    pub(super) fn enter(self: &Arc<Self>, slots: &[Arc<Slot>], place: Place, statement: Statement) -> Entry {
        let mut lanes = self.lock();
        let number = lanes.len();
        let lane = lanes.entry(place).or_insert_with(|| Lane { number, ..Lane::default() });
        if !lane.under_way
            && let Some(slot) = slots.get(lane.number % slots.len().max(1))
        {
            lane.under_way = true;
            return Entry::Now(Turn { lanes: Arc::clone(self), slot: Arc::clone(slot), place }, statement);
        }
        if lane.waiting.len() >= MOST_WAITING {
            lane.waiting.retain(|one| !one.reply.is_closed());
            if lane.waiting.len() >= MOST_WAITING {
                return Entry::Full;
            }
        }
        let (reply, receiver) = oneshot::channel();
        let statement = Arc::new(statement);
        lane.waiting.push(Waiting { statement: Arc::clone(&statement), reply });
        Entry::Later(statement, receiver)
    }

    /// The text for many, made at first by `make`.
    fn text(&self, place: Place, make: impl FnOnce() -> Option<String>) -> Option<Arc<str>> {
        let mut lanes = self.lock();
        lanes.entry(place).or_default().text.get_or_insert_with(|| make().map(Arc::from)).clone()
    }
}

impl Turn {
    /// Where to ask.
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Those who wait now, the first first.
    fn waiting(&self) -> Vec<Waiting> {
        let mut lanes = self.lanes.lock();
        let waiting = &mut lanes.entry(self.place).or_default().waiting;
        waiting.retain(|one| !one.reply.is_closed());
        let rest = waiting.split_off(waiting.len().min(MOST));
        std::mem::replace(waiting, rest)
    }

    /// Answers all who wait by one statement; where that is refused, each asks alone.
    async fn answer(self) {
        let waiting = self.waiting();
        match self.find(&waiting).await {
            Ok(Some(rows)) => {
                let together = if rows.len() > 1 { u64::try_from(rows.len()).unwrap_or(u64::MAX) } else { 0 };
                self.lanes.answered.fetch_add(together, Ordering::Relaxed);
                waiting.into_iter().zip(rows).for_each(|(one, row)| one.reply(Reply::Found(row)));
            }
            Err(Failure::Silent(error)) => {
                waiting.into_iter().for_each(|one| one.reply(Reply::Failed(error.clone())));
            }
            outcome => {
                if let Err(Failure::Refused(error)) = &outcome
                    && waiting.len() > 1
                {
                    let reads = waiting.len();
                    tracing::warn!("{reads} reads were refused together, each is tried alone: {error}");
                }
                waiting.into_iter().for_each(|one| one.reply(Reply::AskAlone));
            }
        }
    }

    /// The rows that they find, in their order; `None` where they can't be asked together.
    async fn find(&self, waiting: &[Waiting]) -> Result<Option<Vec<Option<Row>>>, Failure> {
        let Some(first) = waiting.first() else { return Ok(None) };
        if waiting.len() == 1 {
            let mut answer = self.slot.read(&first.statement, Want::First).await?;
            return Ok(Some(vec![answer.rows.pop()]));
        }
        let client = self.slot.client().await.map_err(Failure::Silent)?;
        let statements: Vec<&Statement> = waiting.iter().map(|one| &*one.statement).collect();
        let found = async {
            let one = types::prepare(&client, &first.statement).await?;
            let columns = one.columns().iter().map(tokio_postgres::Column::name);
            let make = || for_many(&first.statement.text, one.params(), columns);
            let Some(text) = self.lanes.text(self.place, make) else { return Ok(None) };
            types::run_many(&client, &text, &statements).await.map(Some)
        };
        let found = within(ANSWER_PATIENCE, found).await;
        if matches!(found, Err(Failure::Gone(_) | Failure::Silent(_))) {
            self.slot.discard(&client);
        }
        found
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(self.place).or_default();
        lane.under_way = false;
        if lane.waiting.is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                lane.under_way = true;
                drop(lanes);
                let next =
                    Self { lanes: Arc::clone(&self.lanes), slot: Arc::clone(&self.slot), place: self.place };
                runtime.spawn(next.answer());
            }
            // The program ends. Who still waits is told by the other end of the channel.
            Err(_) => lane.waiting.clear(),
        }
    }
}

/// The statement for many, from that for one, the types of its parameters and the names of its columns: each parameter becomes
/// an array, each row says at its end for which place in the arrays it is. `None` when a type has no name that a cast understands.
///
/// An array goes through a subquery, so that the server can't see how long it is and thinks one plan as good as another: it would
/// plan short ones anew each time.
fn for_many<'a>(text: &str, types: &[Type], columns: impl Iterator<Item = &'a str>) -> Option<String> {
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
    fn each_parameter_becomes_an_array() {
        let text = "SELECT a, '$1' AS b FROM t WHERE id = $2 AND n > $1";
        let many = for_many(text, &[Type::INT8, Type::TEXT], ["a", "b"].into_iter()).unwrap();
        assert_eq!(
            many,
            "SELECT one.a, one.b, many.place FROM unnest((SELECT CAST($1 AS int8[])), (SELECT CAST($2 AS text[]))) \
             WITH ORDINALITY AS many(p1, p2, place)
         CROSS JOIN LATERAL (SELECT a, '$1' AS b FROM t WHERE id = many.p2 AND n > many.p1 LIMIT 1) one"
        );
        let of = |text, types: &[Type]| for_many(text, types, ["a"].into_iter());
        assert_eq!(of("SELECT 1 AS a", &[]), None, "without parameters there is nothing to tell apart");
        assert_eq!(of("SELECT $1 AS a", &[Type::INT8_ARRAY]), None);
    }
}
