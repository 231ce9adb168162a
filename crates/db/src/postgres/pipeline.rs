//! Sends several statements at once.

use std::future::{Future, poll_fn};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::future::maybe_done;
use tokio_postgres::Statement as Prepared;

use super::session::PoolMode;
use super::{Failure, RESPONSE_TIMEOUT, types, with_timeout};
use crate::statement::{Answer, Statement, Want};

/// Statements that are sent at once. The server runs them in order.
pub(super) struct Pipeline<'a> {
    /// The text that begins a transaction, and the timeout of its result.
    pub(super) begin: Option<(&'static str, Duration)>,
    pub(super) statements: &'a [Statement],
    /// The part of the last statement's result to return.
    pub(super) want: Want,
    pub(super) commit: Commit,
}

/// The end of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    No,
    Yes,
}

/// A message to the server.
#[derive(Clone, Copy)]
enum Message<'a> {
    /// SQL without parameters and result, and its timeout.
    Plain(&'a str, Duration),
    Prepared(&'a Prepared, &'a Statement, Want),
    Unprepared(&'a Statement, Want),
}

impl Message<'_> {
    fn timeout(self) -> Duration {
        if let Self::Plain(_, timeout) = self { timeout } else { RESPONSE_TIMEOUT }
    }

    /// Sends the message, at the first poll.
    async fn send(self, client: &ClientWrapper) -> Result<Option<Answer>, tokio_postgres::Error> {
        match self {
            Self::Plain(text, _) => client.batch_execute(text).await.map(|()| None),
            Self::Prepared(prepared, statement, want) => {
                types::run_prepared(client, prepared, statement, want).await.map(Some)
            }
            Self::Unprepared(statement, want) => {
                types::run_unprepared(client, statement, want).await.map(Some)
            }
        }
    }
}

impl Pipeline<'_> {
    /// Sends everything. Returns the result of the last statement, or the first error. On a shared
    /// connection, `sending` prevents messages of other tasks from being sent in between.
    pub(super) async fn send(
        &self,
        client: &ClientWrapper,
        pool_mode: PoolMode,
        sending: Option<&Mutex<()>>,
    ) -> Result<Answer, Failure> {
        // Prepared before anything is sent: preparing may take a round trip, and later messages would
        // overtake it.
        let mut prepared = Vec::new();
        if pool_mode == PoolMode::Session {
            prepared.reserve_exact(self.statements.len());
            for statement in self.statements {
                prepared.push(with_timeout(RESPONSE_TIMEOUT, types::prepare(client, statement)).await?);
            }
        }
        let messages = self.messages(&prepared);
        if let [only] = messages[..] {
            return Ok(with_timeout(only.timeout(), only.send(client)).await?.unwrap_or_default());
        }
        let mut sent: Vec<_> =
            messages.iter().map(|message| Box::pin(maybe_done(message.send(client)))).collect();
        // The first poll of each future sends its message. The results are awaited below.
        poll_fn(|context| {
            let _sending = sending.map(|sending| sending.lock().unwrap_or_else(PoisonError::into_inner));
            for one in &mut sent {
                let _ready = one.as_mut().poll(context);
            }
            Poll::Ready(())
        })
        .await;
        let mut answer = None;
        for (message, mut one) in messages.iter().zip(sent) {
            let done = async {
                one.as_mut().await;
                one.as_mut().take_output().unwrap_or(Ok(None))
            };
            answer = with_timeout(message.timeout(), done).await?.or(answer);
        }
        Ok(answer.unwrap_or_default())
    }

    /// Returns the messages in order. Statements that aren't in `prepared` are sent as SQL.
    fn messages<'a>(&'a self, prepared: &'a [Prepared]) -> Vec<Message<'a>> {
        let mut messages = Vec::with_capacity(self.statements.len() + 2);
        messages.extend(self.begin.map(|(text, timeout)| Message::Plain(text, timeout)));
        for (place, statement) in self.statements.iter().enumerate() {
            let want = if place + 1 == self.statements.len() { self.want } else { Want::Count };
            messages.push(match prepared.get(place) {
                Some(prepared) => Message::Prepared(prepared, statement, want),
                None => Message::Unprepared(statement, want),
            });
        }
        if self.commit == Commit::Yes {
            messages.push(Message::Plain("COMMIT", RESPONSE_TIMEOUT));
        }
        messages
    }
}
