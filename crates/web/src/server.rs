//! The two listeners, from a socket to the [`Dispatcher`] and back, until the server stops.

mod access_line;
mod connection;
mod dispatcher;
mod head_scan;
mod protocol;
#[cfg(test)]
mod testing;
mod tls;
mod watchdog;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub use dispatcher::Dispatcher;

use crate::frame::Frame;
use crate::route::{Listener, Route, State};
use crate::settings::Tls;
use connection::Client;
use metrics::Traffic;
use tls::{Certificate, Certificates};
use watchdog::Timeouts;

/// The addresses of the listeners.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub public: SocketAddr,
    pub service: SocketAddr,
}

/// Both listeners, bound but not accepting yet. Connections wait in the sockets' queues.
#[derive(Debug)]
pub struct BoundListeners {
    public: TcpListener,
    service: TcpListener,
    certificates: Certificates,
}

impl BoundListeners {
    /// Binds both listeners and reads their certificates.
    ///
    /// # Errors
    /// A message for the operator: an address that can't be bound, or an invalid certificate.
    pub async fn bind(addresses: Addresses, tls: &Tls) -> Result<Self, String> {
        let certificates = Certificates::load(tls)?;
        let public = bind("listen", addresses.public).await?;
        let service = bind("service_listen", addresses.service).await?;
        Ok(Self { public, service, certificates })
    }

    /// Starts accepting connections.
    pub fn serve<S: State>(self, state: &S, routes: &[Route<S>]) -> RunningListeners {
        let [public, service] =
            [Listener::Public, Listener::Service].map(|listener| Dispatcher::new(state, routes, listener));
        self.start(public, service)
    }

    /// Starts accepting connections for these dispatchers. This function has no type parameter, so that the
    /// server is compiled only once, in this crate.
    fn start(self, to_public: Dispatcher, to_service: Dispatcher) -> RunningListeners {
        let Self { public, service, certificates } = self;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let public = Acceptor::new(to_public, public, certificates.public.clone());
        let service = Acceptor::new(to_service, service, certificates.service.clone());
        RunningListeners {
            public: tokio::spawn(public.serve(stopped.clone())),
            service: tokio::spawn(service.serve(stopped)),
            stop,
            _certificates: AbortOnDrop(tokio::spawn(certificates.reload_on_change())),
        }
    }
}

/// Both listeners, accepting connections.
#[derive(Debug)]
pub struct RunningListeners {
    public: JoinHandle<()>,
    service: JoinHandle<()>,
    stop: Sender<bool>,
    _certificates: AbortOnDrop,
}

impl RunningListeners {
    /// Waits until a listener ends without being stopped. Returns a message for the operator.
    pub async fn failure(&mut self) -> String {
        tokio::select! {
            outcome = &mut self.public => format!("the public listener ended: {outcome:?}"),
            outcome = &mut self.service => format!("the service listener ended: {outcome:?}"),
        }
    }

    /// Stops accepting connections and waits for requests in progress. Returns `false` if some haven't
    /// finished at the deadline.
    pub async fn stop(&mut self, deadline: Instant) -> bool {
        self.stop.send_replace(true);
        let Self { public, service, .. } = self;
        timeout_at(deadline, async { tokio::join!(public, service) }).await.is_ok()
    }
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(pub JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn bind(key: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!(
            "can't listen on {address}: {error}; set `{key}` to another address (TOLLKEEPER_{})",
            key.to_uppercase()
        )
    })
}

/// The maximum number of connections that are taken from the socket's queue during a stop. The queue is never
/// longer (`SOMAXCONN`, and the backlog that std passes).
const MAX_QUEUED_CONNECTIONS: usize = 4096;

/// A listener that accepts connections.
struct Acceptor {
    listener: TcpListener,
    connections: Connections,
    max_connections: u32,
}

/// The shared parts of a listener's connections, and the permits that limit their number.
struct Connections {
    certificate: Option<Arc<Certificate>>,
    dispatcher: Dispatcher,
    timeouts: Timeouts,
    permits: Arc<Semaphore>,
}

/// Returns the counters of a listener.
fn traffic(frame: &Frame, which: Listener) -> &Traffic {
    if which == Listener::Service { &frame.metrics.service } else { &frame.metrics.public }
}

/// Returns a listener's name, for logs and metrics.
fn listener_name(which: Listener) -> &'static str {
    if which == Listener::Service { "service" } else { "public" }
}

impl Acceptor {
    fn new(dispatcher: Dispatcher, listener: TcpListener, certificate: Option<Arc<Certificate>>) -> Self {
        let frame = dispatcher.frame();
        let max_connections = frame.settings.server.max_connections;
        let permits = Arc::new(Semaphore::new(usize::try_from(max_connections).unwrap_or_default()));
        traffic(frame, dispatcher.listener()).set_connections(&permits, max_connections);
        let timeouts = Timeouts::new(&frame.settings.server);
        let connections = Connections { certificate, dispatcher, timeouts, permits };
        Self { listener, connections, max_connections }
    }

    /// Accepts connections until the stop, then waits for requests in progress.
    async fn serve(self, mut stopped: Receiver<bool>) {
        let mut warned_at = None;
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&mut warned_at) => accepted,
                // An error means that the sender was dropped, which is treated as a stop.
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, peer, permit)) => self.connections.accept(stream, peer, permit, stopped.clone()),
                Err(error) => handle_accept_error(&error).await,
            }
        }
        let Self { listener, connections, max_connections, .. } = self;
        let queued = drain_accept_queue(&listener);
        drop(listener);
        for (stream, peer) in queued {
            if let Ok(permit) = Arc::clone(&connections.permits).acquire_owned().await {
                connections.accept(stream, peer, permit, stopped.clone());
            }
        }
        // Every connection returns its permit when it ends.
        connections.permits.acquire_many(max_connections).await.ok();
    }

    /// Waits for a permit, then for the next connection. Until then, connections wait in the socket's queue.
    async fn accept(
        &self,
        warned_at: &mut Option<Instant>,
    ) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let dispatcher = &self.connections.dispatcher;
        if self.connections.permits.available_permits() == 0 {
            traffic(dispatcher.frame(), dispatcher.listener()).full.fetch_add(1, Ordering::Relaxed);
            if warned_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                *warned_at = Some(Instant::now());
                tracing::warn!(
                    listener = listener_name(dispatcher.listener()),
                    max_connections = self.max_connections,
                    "all connections are taken: new ones wait until one ends"
                );
            }
        }
        let permit =
            Arc::clone(&self.connections.permits).acquire_owned().await.map_err(std::io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        Ok((stream, peer, permit))
    }
}

/// Takes the connections that wait in the socket's queue. Their clients see them as established, and requests
/// already sent on them would be lost with the listener.
fn drain_accept_queue(listener: &TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(same) = listener.as_fd().try_clone_to_owned() else { return Vec::new() };
    let same = std::net::TcpListener::from(same);
    let mut queued = Vec::new();
    // The socket doesn't block: `WouldBlock` marks the end of the queue. Other errors are from clients that
    // have disconnected.
    for accepted in same.incoming().take(MAX_QUEUED_CONNECTIONS) {
        match accepted.and_then(|stream| Ok((stream.peer_addr()?, stream))) {
            Ok((peer, stream)) => {
                let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                queued.extend(ready.ok().map(|stream| (stream, peer)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(_) => {}
        }
    }
    queued
}

impl Connections {
    fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        stopped: Receiver<bool>,
    ) {
        send_at_once(&stream);
        let client = Client { peer: peer.ip(), dispatcher: self.dispatcher.clone(), timeouts: self.timeouts };
        match self.certificate.clone() {
            None => drop(tokio::spawn(async move {
                client.serve(stream, stopped).await;
                drop(permit);
            })),
            Some(certificate) => drop(tokio::spawn(async move {
                certificate.serve(client, stream, stopped).await;
                drop(permit);
            })),
        }
    }
}

/// Disables Nagle's algorithm, so that each piece of a response is sent immediately. Otherwise the second
/// piece could wait up to 40 ms for the client's acknowledgment of the first. If the option can't be set,
/// responses are only late.
fn send_at_once(stream: &TcpStream) {
    stream.set_nodelay(true).ok();
}

/// Ignores errors of clients that have already disconnected. After other errors, such as too many open files,
/// waits a second.
async fn handle_accept_error(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("can't accept connections: {error}; trying again in a second");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_each_piece_at_once() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(!stream.nodelay().unwrap());
        send_at_once(&stream);
        assert!(stream.nodelay().unwrap());
    }
}
