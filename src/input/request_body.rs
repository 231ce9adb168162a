//! What a request carries, as it comes in.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};

/// A request's body, not read yet.
#[derive(Debug)]
pub enum RequestBody {
    /// From a connection, piece by piece.
    Incoming {
        /// The pieces.
        body: Incoming,
        /// How long all of them may take to come.
        patience: Duration,
    },
    /// Here already.
    Whole(Bytes),
}

/// Why a body couldn't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// It is longer than the limit.
    TooLong,
    /// It took too long to come.
    TooSlow,
    /// The connection ended, or broke the protocol, before the body did.
    Broken,
}

impl RequestBody {
    /// The whole of it, but no more than `limit` bytes.
    pub async fn read(self, limit: usize) -> Result<Bytes, BodyError> {
        match self {
            Self::Whole(bytes) if bytes.len() > limit => Err(BodyError::TooLong),
            Self::Whole(bytes) => Ok(bytes),
            Self::Incoming { body, patience } => {
                let mut whole = pin!(collect(body, limit));
                // Most bodies came along with the head: those cost no timer.
                if let Some(outcome) = whole.as_mut().now_or_never() {
                    return outcome;
                }
                tokio::time::timeout(patience, whole).await.unwrap_or(Err(BodyError::TooSlow))
            }
        }
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    // Most bodies come in one piece, which is then the whole and need not be copied. Memory that is only announced is not used.
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
            continue;
        };
        if first.len().max(whole.len()) + piece.len() > limit {
            return Err(BodyError::TooLong);
        }
        if first.is_empty() {
            first = piece;
            continue;
        }
        if whole.is_empty() {
            whole.reserve_exact(announced.min(limit).max(first.len() + piece.len()));
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

impl Default for RequestBody {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}
