//! The body of a response that is complete in memory, but sent in pieces.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// The maximum number of bytes that a connection gets at a time. A connection copies the bytes that it is
/// about to send, so without this limit, each client that reads nothing would hold a copy of a large body.
const PIECE_BYTES: usize = 32 * 1024;

/// Returns the body of a response that is complete in memory.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Body::new(Pieces(bytes.into()))
}

/// A body that is sent in pieces.
struct Pieces(Bytes);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.0.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.0.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn body_is_sent_in_pieces() {
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
            let whole: Vec<u8> = (0_u8..=250).cycle().take(length).collect();
            let mut body = super::whole(whole.clone());
            assert_eq!(HttpBody::size_hint(&body).exact(), Some(u64::try_from(length).unwrap()));
            let (mut read, mut pieces) = (Vec::new(), 0);
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!((1..=PIECE_BYTES).contains(&piece.len()));
                read.extend_from_slice(&piece);
                pieces += 1;
            }
            assert!(read == whole && pieces == length.div_ceil(PIECE_BYTES));
        }
    }
}
