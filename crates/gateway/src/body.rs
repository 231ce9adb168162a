//! The body of an upstream's response.

use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use kernel::shares::Permit;
use tokio::time::{sleep, timeout};

use crate::demo::DemoAnswer;

/// How long the end of a body may take after its last event.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory that a body of unknown length waits for.
const UNKNOWN_BYTES: usize = 64 << 10;
/// The time between two attempts to take memory.
const MEMORY_RETRY: Duration = Duration::from_millis(20);

/// A body as it arrives. Dropping it closes the connection to the upstream.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http(Incoming),
    Demo(DemoAnswer),
}

impl UpstreamBody {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The connection ends too early, with the reason.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Demo(answer) => Ok(answer.next_chunk()),
            Self::Http(body) => loop {
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
            Self::Http(body) => body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()),
            Self::Demo(_) => None,
        }
    }

    /// Reads what follows the last event, so that the connection can serve another call.
    pub(crate) fn finish(mut self) {
        if self.next_chunk().now_or_never().is_none() {
            drop(tokio::spawn(async move { timeout(FINISH_TIMEOUT, self.next_chunk()).await }));
        }
    }

    /// Reads the whole body, once there is memory for it and a copy of it.
    ///
    /// # Errors
    /// It is too long, or the connection ends too early.
    pub(crate) async fn read_all(mut self, max_bytes: usize, memory: &mut Permit) -> Result<Bytes, String> {
        // One whose length isn't known waits for more memory than it takes, and gives it back.
        let length = self.length().unwrap_or(UNKNOWN_BYTES);
        let too_long = || format!("its answer has more than {max_bytes} bytes");
        if length > max_bytes {
            return Err(too_long());
        }
        wait_for_memory(memory, 2 * length).await;
        let Some(first) = self.next_chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next_chunk().await? else { return Ok(first) };
        let mut whole = Vec::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.next_chunk().await? {
            if whole.len() + chunk.len() > max_bytes {
                return Err(too_long());
            }
            wait_for_memory(memory, 2 * (whole.len() + chunk.len())).await;
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }
}

/// Takes this much memory as soon as there is. The answer stays at the upstream meanwhile, which has its own deadline.
async fn wait_for_memory(memory: &mut Permit, bytes: usize) {
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
