//! The body of a request while it arrives.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use kernel::shares::{Holder, Permit};
use tokio::time::timeout;

use crate::body_budget::{BodyBudget, BodyPermit};
use crate::body_limit::BodyLimit;
use crate::content_coding::{ContentCoding, DecodeError};

/// The step by which a body's part of the budget grows.
const BUDGET_STEP_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that are decoded immediately, which takes about a millisecond. Larger bodies
/// wait for a turn.
const MAX_DECODED_AT_ONCE: usize = 256 * 1024;
/// The maximum number of encoded bytes that are decoded immediately.
const MAX_CODED_AT_ONCE: usize = 64 * 1024;
/// The UTF-8 byte order mark, which some programs write. A JSON parser may ignore it (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// An arriving body. If it isn't read to the end, the rest is returned to its connection.
#[derive(Debug)]
struct IncomingBody {
    body: Option<Incoming>,
    unread: Arc<UnreadBody>,
}

/// The slot that returns a body to its connection if a handler didn't read it to the end.
#[derive(Debug, Default)]
pub struct UnreadBody(Mutex<Option<Incoming>>);

/// The reason why a body couldn't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    TooLong,
    /// The body took too long to arrive.
    Timeout,
    /// The connection ended, or violated the protocol, before the end of the body.
    Incomplete,
    /// Other unfinished bodies use up the budget.
    BudgetExhausted,
    /// The body isn't valid in its content coding.
    Undecodable(ContentCoding),
    /// The decoder failed for a reason other than the body.
    Failed,
}

/// A complete body, with its part of the budget.
#[derive(Debug)]
pub struct ReceivedBody<'a> {
    bytes: Bytes,
    permit: Option<BodyPermit<'a>>,
}

impl ReceivedBody<'_> {
    /// Removes a leading byte order mark.
    #[must_use]
    pub fn without_byte_order_mark(self) -> Self {
        if !self.bytes.starts_with(BYTE_ORDER_MARK) {
            return self;
        }
        Self { bytes: self.bytes.slice(BYTE_ORDER_MARK.len()..), ..self }
    }

    /// Returns the bytes and releases the part of the budget, which is only for bodies that are still
    /// arriving.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl Deref for ReceivedBody<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl UnreadBody {
    /// Takes the unread body, if any.
    pub fn take(&self) -> Option<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the body of a request on a connection. If it isn't read to the end, the rest is stored in
/// `unread`.
pub fn incoming(body: Incoming, unread: &Arc<UnreadBody>) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    Body::new(IncomingBody { body: Some(body), unread: Arc::clone(unread) })
}

impl HttpBody for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

/// Reads a whole body, within its limit. The body may take up to `body_timeout` to arrive. Only bytes that
/// have arrived count in the holder's part of the budget; a declared length takes no memory.
///
/// # Errors
/// An error if the body isn't complete. The rest is then returned to its connection.
pub async fn read(
    mut body: Body,
    limit: BodyLimit,
    body_timeout: Duration,
    budget: &BodyBudget,
    holder: Holder,
) -> Result<ReceivedBody<'_>, BodyError> {
    let declared_length = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut buffer = BodyBuffer::new(declared_length, limit.max_bytes);
    // Most bodies arrive with the head, and need neither a timer nor a part of the budget.
    let permit = match buffer.fill(&mut body, None).now_or_never() {
        Some(outcome) => {
            outcome?;
            None
        }
        None => {
            let taken = budget.try_take(holder, due(buffer.length()));
            let mut permit = taken.ok_or(BodyError::BudgetExhausted)?;
            let whole = async {
                permit.keep_pace(buffer.length()).await;
                buffer.fill(&mut body, Some(&mut permit)).await
            };
            timeout(body_timeout.min(limit.timeout), whole).await.unwrap_or(Err(BodyError::Timeout))?;
            Some(permit)
        }
    };
    Ok(ReceivedBody { bytes: buffer.into_bytes(), permit })
}

/// Decodes a body, within the limit for unencoded bodies. Decoded bytes count in the budget as they are
/// produced, like arriving bytes. A large body is decoded when it is the holder's turn. During a turn, the
/// encoded body and the decoder's window use memory that isn't counted, for one body per processor.
///
/// # Errors
/// An error if the body is invalid, or too long when it is decoded. Decoding stops there.
pub async fn decode<'a>(
    body: ReceivedBody<'a>,
    coding: ContentCoding,
    limit: BodyLimit,
    budget: &'a BodyBudget,
    holder: Holder,
) -> Result<ReceivedBody<'a>, BodyError> {
    let ReceivedBody { bytes, permit } = body;
    let taken = permit.or_else(|| budget.try_take(holder, due(bytes.len())));
    let mut permit = taken.ok_or(BodyError::BudgetExhausted)?;
    let at_once = limit.max_bytes.min(MAX_DECODED_AT_ONCE);
    let mut decoded = Err(BodyError::TooLong);
    if bytes.len() <= MAX_CODED_AT_ONCE {
        decoded = permit.at_once(|permit| decode_within(at_once, &bytes, coding, permit));
    }
    if decoded == Err(BodyError::TooLong) && (at_once < limit.max_bytes || bytes.len() > MAX_CODED_AT_ONCE) {
        let work = move |permit: &mut Permit| decode_within(limit.max_bytes, &bytes, coding, permit);
        (permit, decoded) = permit.in_turn_aside(work).await.ok_or(BodyError::Failed)?;
    }
    if decoded == Err(BodyError::BudgetExhausted) {
        permit.note_refusal();
    }
    Ok(ReceivedBody { bytes: decoded?.into(), permit: Some(permit) })
}

/// Decodes a body into at most `max_bytes` bytes.
fn decode_within(
    max_bytes: usize,
    body: &[u8],
    coding: ContentCoding,
    permit: &mut Permit,
) -> Result<Vec<u8>, BodyError> {
    let mut decoded = Vec::new();
    let take = |piece: &[u8]| {
        let length = decoded.len() + piece.len();
        if length > max_bytes {
            return Err(BodyError::TooLong);
        }
        if !permit.grow_to(due(length)) {
            return Err(BodyError::BudgetExhausted);
        }
        decoded.extend_from_slice(piece);
        Ok(())
    };
    match coding.decode(body, take) {
        Ok(()) => Ok(decoded),
        Err(DecodeError::Invalid) => Err(BodyError::Undecodable(coding)),
        Err(DecodeError::Refused(error)) => Err(error),
    }
}

/// Returns the size of the part of the budget for this many bytes.
fn due(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(BUDGET_STEP_BYTES)
}

/// The received part of a body. Most bodies arrive in one frame, which is then the whole body and isn't
/// copied.
struct BodyBuffer {
    first: Bytes,
    whole: Vec<u8>,
    declared_length: Option<usize>,
    max_bytes: usize,
}

impl BodyBuffer {
    fn new(declared_length: Option<usize>, max_bytes: usize) -> Self {
        Self { first: Bytes::new(), whole: Vec::new(), declared_length, max_bytes }
    }

    fn length(&self) -> usize {
        self.first.len().max(self.whole.len())
    }

    fn into_bytes(self) -> Bytes {
        if self.whole.is_empty() { self.first } else { self.whole.into() }
    }

    /// Reads the body to its end. If this future is dropped early, the received bytes stay in the buffer.
    async fn fill(
        &mut self,
        body: &mut Body,
        mut permit: Option<&mut BodyPermit<'_>>,
    ) -> Result<(), BodyError> {
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| BodyError::Incomplete)?.into_data() else {
                continue;
            };
            let length = self.length() + piece.len();
            if length > self.max_bytes {
                return Err(BodyError::TooLong);
            }
            match &mut permit {
                None => self.add(piece),
                Some(permit) => {
                    if !permit.grow_to(due(length)) {
                        return Err(BodyError::BudgetExhausted);
                    }
                    permit.keep_pace(piece.len()).await;
                    permit.in_turn(|| self.add(piece)).await;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, piece: Bytes) {
        if self.length() == 0 {
            self.first = piece;
            return;
        }
        if self.whole.is_empty() {
            // Reserving memory is cheap, because memory that isn't written isn't used.
            let declared_length = self.declared_length.unwrap_or(0).min(self.max_bytes);
            self.whole.reserve_exact(declared_length.max(self.first.len() + piece.len()));
            self.whole.extend_from_slice(&self.first);
            self.first = Bytes::new();
        }
        self.whole.extend_from_slice(&piece);
    }
}

#[cfg(test)]
mod tests;
