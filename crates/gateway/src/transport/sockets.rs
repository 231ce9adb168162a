//! Connections that tell whether all that has arrived on them was read.

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
use tower_service::Service;

type TcpSocket = <HttpConnector as Service<Uri>>::Response;
type ConnectError = <HttpConnector as Service<Uri>>::Error;

/// Whether a connection waits for its peer. It is among the extensions of each response.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketState(Arc<Reads>);

#[derive(Debug, Default)]
struct Reads {
    /// The last one found nothing.
    is_drained: AtomicBool,
    /// How many found nothing.
    empty: AtomicU64,
}

impl SocketState {
    /// Returns `true` if the last read found nothing: all that had arrived then was handed over.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.is_drained.load(Ordering::Acquire)
    }

    /// Returns how many reads have found nothing.
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

/// Opens connections that have a [`SocketState`].
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
        self.0.call(address).map_ok(|tcp| Socket { tcp, state: SocketState::default() }).boxed()
    }
}

/// A TCP connection that notes when it has nothing to read.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpSocket,
    state: SocketState,
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
        outcome
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
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
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }
}
