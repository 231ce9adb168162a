//! The client of a call, which waits for an answer, gets comments in the meantime, and may leave.

use std::mem;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::{Answer, AnswerBody};
use crate::admission::Admitted;
use crate::opening::Opened;
use crate::operation::Operation;
use crate::streaming::{self, COMMENT, COMMENT_INTERVAL, Events};
use kernel::error::Error;

/// Maximum wait for the first event. Then the client's answer begins with a comment, because load balancers
/// close idle connections after a minute or less.
const FIRST_COMMENT_AFTER: Duration = Duration::from_secs(10);

/// The client of a call, until its answer begins.
pub(super) type Client = oneshot::Sender<Result<Answer, Error>>;

/// The client of a call.
pub(super) enum Recipient {
    /// The client's answer hasn't begun.
    Waiting(Client),
    /// The client gets a stream, which has begun with comments.
    Streaming(mpsc::Sender<Bytes>),
    /// The client has its answer.
    Answered,
}

impl Recipient {
    /// Waits for the beginning of the answer. If it takes a long time, the client's answer begins with
    /// comments, so that proxies don't consider the connection dead.
    ///
    /// Returns `None` if the client has left and the answer isn't awaited: no upstream has the request, or
    /// the upstream doesn't report usage after a disconnect.
    pub(super) async fn wait_for(
        &mut self,
        mut opening: Pin<Box<impl Future<Output = Result<Opened, Error>>>>,
        call: &Admitted,
        begun: impl Fn(bool, AnswerBody) -> Answer,
    ) -> Option<Result<Opened, Error>> {
        let is_stream = call.request.is_stream;
        if let Self::Waiting(client) = self {
            tokio::select! {
                biased;
                () = client.closed() => return finish_without_client(call, opening).await,
                opened = &mut opening => return Some(opened),
                () = sleep(FIRST_COMMENT_AFTER), if is_stream => {}
            }
        }
        let sender = self.stream(|events| begun(false, AnswerBody::Stream(events)));
        loop {
            // If the channel is full, skip this comment.
            drop(sender.try_send(COMMENT));
            tokio::select! {
                biased;
                () = sender.closed() => return finish_without_client(call, opening).await,
                opened = &mut opening => return Some(opened),
                () = sleep(COMMENT_INTERVAL) => {}
            }
        }
    }

    pub(super) fn has_left(&self) -> bool {
        match self {
            Self::Waiting(client) => client.is_closed(),
            Self::Streaming(sender) => sender.is_closed(),
            Self::Answered => false,
        }
    }

    /// Sends a complete answer.
    pub(super) fn answer(self, answer: Answer) {
        if let Self::Waiting(client) = self {
            send(client, Ok(answer));
        }
    }

    /// Begins a stream, unless it has begun already.
    pub(super) fn stream(&mut self, begun: impl FnOnce(Events) -> Answer) -> mpsc::Sender<Bytes> {
        match mem::replace(self, Self::Answered) {
            Self::Streaming(sender) => {
                *self = Self::Streaming(sender.clone());
                sender
            }
            Self::Waiting(client) => {
                let (sender, events) = streaming::channel();
                send(client, Ok(begun(events)));
                *self = Self::Streaming(sender.clone());
                sender
            }
            // Nothing reads from this channel.
            Self::Answered => streaming::channel().0,
        }
    }

    /// Sends an error, as an event if a stream has begun.
    pub(super) async fn fail(self, operation: Operation, error: Error) {
        match self {
            Self::Waiting(client) => send(client, Err(error)),
            Self::Streaming(sender) => {
                streaming::send_last(&sender, streaming::error_event(operation, &error)).await;
            }
            Self::Answered => {}
        }
    }
}

/// Sends the answer. Does nothing if the client has left.
fn send(client: Client, answer: Result<Answer, Error>) {
    client.send(answer).unwrap_or_default();
}

/// Waits for the beginning of an answer whose client has left, to get its usage, because clients that leave
/// pay for the upstream's work, too. Returns `None` if the answer isn't awaited.
///
/// An answer that isn't streamed is awaited to its end. Some servers, such as vLLM, would stop at a
/// disconnect, but they wouldn't report their usage.
async fn finish_without_client(
    call: &Admitted,
    opening: Pin<Box<impl Future<Output = Result<Opened, Error>>>>,
) -> Option<Result<Opened, Error>> {
    call.stage.leave();
    if call.stage.is_awaited() { Some(opening.await) } else { None }
}
