//! The body of an upstream's response.

use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::time::timeout;

use crate::demo::DemoAnswer;

/// How long the end of a body may take after its last event.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

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

    /// Reads what follows the last event, so that the connection can serve another call.
    pub(crate) fn finish(mut self) {
        if self.next_chunk().now_or_never().is_none() {
            drop(tokio::spawn(async move { timeout(FINISH_TIMEOUT, self.next_chunk()).await }));
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// It is too long, or the connection ends too early.
    pub(crate) async fn read_all(mut self, max_bytes: usize) -> Result<Bytes, String> {
        let Some(first) = self.next_chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next_chunk().await? else { return Ok(first) };
        let mut whole = Vec::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.next_chunk().await? {
            if whole.len() + chunk.len() > max_bytes {
                return Err(format!("its answer has more than {max_bytes} bytes"));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }
}
