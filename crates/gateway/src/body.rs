//! The body of an upstream's response.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use kernel::shares::Permit;
use kernel::turns::Turns;
use tokio::time::{sleep, timeout};

use crate::demo::DemoAnswer;
use crate::transport::sockets::SocketState;

/// How long the end of a body may take after its last event.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory that a body of unknown length waits for.
const UNKNOWN_BYTES: usize = 64 << 10;
/// The bytes that are kept of a body that is too long.
const TAIL_BYTES: usize = 16 << 10;
/// The time between two attempts to take memory.
const MEMORY_RETRY: Duration = Duration::from_millis(20);

/// A body as it arrives. Dropping it closes the connection to the upstream.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http(Incoming, SocketState),
    Demo(DemoAnswer),
}

/// A body that was read to its end.
#[derive(Debug)]
pub(crate) enum Whole {
    Body(Bytes),
    /// It had too many bytes: these are the last ones.
    TooLong {
        tail: Bytes,
    },
}

impl UpstreamBody {
    /// Returns the body of a response.
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self::Http(body, head.extensions.get().cloned().unwrap_or_default())
    }

    /// Returns `true` if all that has arrived was handed over, apart from what [`Self::next_chunk`] returns at once.
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Http(_, socket) => socket.is_drained(),
            Self::Demo(_) => true,
        }
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The connection ends too early, with the reason.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Demo(answer) => Ok(answer.next_chunk()),
            Self::Http(body, _) => loop {
                match body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(error.to_string()),
                    // Trailers are of no use here.
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
        }
    }

    /// Returns the number of bytes, if it is known.
    fn length(&self) -> Option<usize> {
        match self {
            Self::Http(body, _) => body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()),
            Self::Demo(_) => None,
        }
    }

    /// Reads what follows the last event, so that the connection can serve another call.
    pub(crate) fn finish(mut self) {
        if self.next_chunk().now_or_never().is_none() {
            drop(tokio::spawn(async move { timeout(FINISH_TIMEOUT, self.next_chunk()).await }));
        }
    }

    /// Reads the whole body, once there is memory for it and a copy of it. One that is too long is read to its end, too,
    /// for what it says there.
    ///
    /// # Errors
    /// The connection ends too early, with the reason.
    pub(crate) async fn read_all(
        mut self,
        max_bytes: usize,
        memory: &mut Permit,
        turns: &Arc<Turns>,
    ) -> Result<Whole, String> {
        // One whose length isn't known waits for more memory than it takes, and gives it back.
        let length = self.length().unwrap_or(UNKNOWN_BYTES);
        if length > max_bytes {
            return self.read_tail(Vec::new()).await;
        }
        wait_for_memory(memory, 2 * length).await;
        let Some(first) = self.next_chunk().await? else { return Ok(Whole::Body(Bytes::new())) };
        let Some(second) = self.next_chunk().await? else { return Ok(Whole::Body(first)) };
        let mut whole = Vec::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.next_chunk().await? {
            if whole.len() + chunk.len() > max_bytes {
                memory.shrink_to(0);
                whole.extend_from_slice(&chunk);
                return self.read_tail(whole).await;
            }
            wait_for_memory(memory, 2 * (whole.len() + chunk.len())).await;
            turns.run(memory.holder(), || whole.extend_from_slice(&chunk)).await;
        }
        Ok(Whole::Body(whole.into()))
    }

    /// Reads to the end, and keeps only the last bytes.
    async fn read_tail(mut self, mut tail: Vec<u8>) -> Result<Whole, String> {
        loop {
            if tail.len() > TAIL_BYTES {
                tail.drain(..tail.len() - TAIL_BYTES);
                tail.shrink_to(2 * TAIL_BYTES);
            }
            match self.next_chunk().await? {
                Some(chunk) => tail.extend_from_slice(&chunk),
                None => return Ok(Whole::TooLong { tail: tail.into() }),
            }
        }
    }
}

/// Takes this much memory as soon as there is. The answer stays at the upstream meanwhile, which has its own deadline.
pub(crate) async fn wait_for_memory(memory: &mut Permit, bytes: usize) {
    while !memory.grow_to(bytes) {
        sleep(MEMORY_RETRY).await;
    }
}

/// An answer with its memory, until the last of it is written.
struct HeldAnswer {
    body: Bytes,
    _memory: Permit,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns a body that gives its memory back once it is dropped, with each part of it.
pub(crate) fn holding(body: Bytes, mut memory: Permit) -> Bytes {
    memory.shrink_to(body.len());
    Bytes::from_owner(HeldAnswer { body, _memory: memory })
}
