//! Connections that record whether all received data was read, and that let other tasks run during large
//! transfers.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use kernel::io_turns::{IoTurn, MAX_TURN_BYTES};
use tower_service::Service;

type TcpSocket = <HttpConnector as Service<Uri>>::Response;
type ConnectError = <HttpConnector as Service<Uri>>::Error;

/// The state of a connection's reads, which is in the extensions of each response.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketState(Arc<Reads>);

#[derive(Debug, Default)]
struct Reads {
    /// `true` if the last read found no data.
    is_drained: AtomicBool,
    /// The number of reads that found no data.
    empty: AtomicU64,
}

impl SocketState {
    /// Returns `true` if the last read found no data, so all earlier data was handed over.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.is_drained.load(Ordering::Acquire)
    }

    /// Returns the number of reads that found no data.
    pub(crate) fn empty_reads(&self) -> u64 {
        self.0.empty.load(Ordering::Acquire)
    }

    fn note(&self, has_found: bool) {
        if !has_found {
            self.0.empty.fetch_add(1, Ordering::Release);
        }
        self.0.is_drained.store(!has_found, Ordering::Release);
    }
}

/// A connector whose connections have a [`SocketState`].
#[derive(Clone, Debug)]
pub(crate) struct SocketConnector(pub(crate) HttpConnector);

impl Service<Uri> for SocketConnector {
    type Response = Socket;
    type Error = ConnectError;
    type Future = BoxFuture<'static, std::result::Result<Socket, ConnectError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), ConnectError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        self.0.call(address).map_ok(Socket::new).boxed()
    }
}

/// A TCP connection that records when it has no data to read.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpSocket,
    state: SocketState,
    write_turn: IoTurn,
}

impl Socket {
    fn new(tcp: TcpSocket) -> Self {
        Self { tcp, state: SocketState::default(), write_turn: IoTurn::default() }
    }

    /// Notes the number of bytes written.
    fn note_write(&mut self, outcome: Poll<Result<usize>>) -> Poll<Result<usize>> {
        match &outcome {
            Poll::Pending => self.write_turn.end(),
            Poll::Ready(Ok(written)) => self.write_turn.note(*written),
            Poll::Ready(Err(_)) => {}
        }
        outcome
    }
}

#[cfg(test)]
impl Socket {
    pub(super) fn tcp(&self) -> &tokio::net::TcpStream {
        self.tcp.inner()
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.tcp.connected().extra(self.state.clone())
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        self.state.note(outcome.is_ready());
        if outcome.is_ready() {
            // Many small requests aren't a large transfer, because the peer answers each of them.
            self.write_turn.end();
        }
        outcome
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        if self.write_turn.is_over(cx) {
            return Poll::Pending;
        }
        let bytes = self.write_turn.part(bytes);
        let outcome = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.note_write(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        if self.write_turn.is_over(cx) {
            return Poll::Pending;
        }
        let is_large = |slice: &IoSlice<'_>| slice.len() >= MAX_TURN_BYTES;
        let outcome = match slices {
            // A large piece is written separately, in parts.
            [first, ..] if is_large(first) => {
                let part = self.write_turn.part(first);
                Pin::new(&mut self.tcp).poll_write(cx, part)
            }
            _ => {
                let small = slices.split(is_large).next().unwrap_or(slices);
                Pin::new(&mut self.tcp).poll_write_vectored(cx, small)
            }
        };
        self.note_write(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::future::poll_fn;

    /// Without turns, a single write could hand megabytes to the kernel, and other tasks would wait.
    #[tokio::test]
    async fn other_tasks_run_between_parts_of_a_large_body() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut socket = SocketConnector(HttpConnector::new()).call(address).await.unwrap();
        let (head, body) = (b"head".as_slice(), vec![0; 3 * MAX_TURN_BYTES]);
        let mut write = async |slices: &[&[u8]]| {
            let slices: Vec<_> = slices.iter().map(|bytes| IoSlice::new(bytes)).collect();
            let mut written = poll_fn(|cx| Pin::new(&mut socket).poll_write_vectored(cx, &slices));
            match poll!(&mut written) {
                Poll::Ready(written) => Some(written.unwrap()),
                Poll::Pending => None,
            }
        };
        assert_eq!(write(&[head, &body]).await, Some(head.len()));
        assert_eq!(write(&[&body]).await, Some(MAX_TURN_BYTES - head.len()));
        assert_eq!(write(&[&body]).await, None, "others have their turn");
        assert_eq!(write(&[&body]).await, Some(MAX_TURN_BYTES));
        assert_eq!(write(&[head, head]).await, None);
        assert_eq!(write(&[head, head]).await, Some(2 * head.len()));
    }
}
