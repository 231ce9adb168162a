//! The two listeners: from a socket to [`Entrance`] and back, until the end.

mod access_line;
mod connection;
mod entrance;
mod head_scan;
mod protocol;
pub mod settings;
#[cfg(test)]
mod testing;
mod tls;
mod watch;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

pub use entrance::Entrance;

use crate::app::App;
use crate::jobs;

use crate::routes::Listener;
use connection::Client;
use metrics::Traffic;
use tls::Certificate;
use watch::Patience;

/// How long the end waits for the last traces to leave.
const LAST_TRACES: Duration = Duration::from_secs(2);

/// Serves both listeners until `shutdown` resolves, then lets requests in flight finish within the grace time.
///
/// # Errors
/// A sentence for the operator: an address that can't be listened on, or a database that will never do.
pub async fn run_until(app: App, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    let certificates = tls::Certificates::load(&app.config.tls)?;
    let public = bind("listen", app.config.listen).await?;
    let service = bind("service_listen", app.config.service_listen).await?;
    let mut boot = tokio::spawn({
        let app = app.clone();
        async move { app.boot_until_ready().await }
    });
    // Requests that come while a short start is still going on wait in the socket's queue instead of meeting a 503.
    let booted = tokio::time::timeout(Duration::from_secs(2), &mut boot).await;
    let mut still_booting = match booted {
        Ok(outcome) => outcome.map_err(|error| error.to_string())?.map(|()| false)?,
        Err(_) => true,
    };
    tracing::info!(public = %app.config.listen, service = %app.config.service_listen, "listening");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut jobs = AbortOnDrop(tokio::spawn(jobs::run(app.clone())));
    let public = Socket::new(&app, Listener::Public, public, certificates.public.clone());
    let service = Socket::new(&app, Listener::Service, service, certificates.service.clone());
    let _certificates = AbortOnDrop(tokio::spawn(certificates.keep_fresh()));
    let (served, done) = tokio::sync::watch::channel(false);
    let mut traces = AbortOnDrop(tokio::spawn(telemetry::run(app.tracer.clone(), done)));
    let mut public = tokio::spawn(public.serve(stopped.clone()));
    let mut service = tokio::spawn(service.serve(stopped));
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            outcome = &mut boot, if still_booting => {
                outcome.map_err(|error| error.to_string())??;
                still_booting = false;
            }
            outcome = &mut public => return Err(format!("the public listener ended: {outcome:?}")),
            outcome = &mut service => return Err(format!("the service listener ended: {outcome:?}")),
        }
    }
    tracing::info!("stopping: no new connections, requests in flight finish");
    app.stop();
    stop.send_replace(true);
    let grace_ms = app.config.shutdown_grace_ms;
    let deadline = Instant::now() + Duration::from_millis(u64::from(grace_ms));
    if timeout_at(deadline, async { tokio::join!(&mut public, &mut service) }).await.is_err() {
        tracing::warn!(grace_ms, "some requests did not finish in time and were cut off");
    }
    // A mail that is being handed over would come twice: what the mail server has, and nobody noted, is sent again.
    if timeout_at(deadline, &mut jobs.0).await.is_err() {
        tracing::warn!(
            grace_ms,
            "mails on their way did not leave in time and were cut off: they leave again in two minutes, perhaps a second time"
        );
    }
    served.send_replace(true);
    if tokio::time::timeout(LAST_TRACES, &mut traces.0).await.is_err() {
        tracing::warn!("the last traces are lost: the collector takes too long");
    }
    tracing::info!("stopped");
    Ok(())
}

/// A task that ends with what it serves.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

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

/// The most connections that are taken from the socket's queue at a stop: it isn't longer (`SOMAXCONN` and what std asks for).
const QUEUED_AT_MOST: usize = 4096;

/// A listener.
struct Socket {
    app: App,
    which: Listener,
    listener: TcpListener,
    hall: Hall,
    max_connections: u32,
}

/// Where its connections are: what each of them gets, and the places that there are.
struct Hall {
    certificate: Option<Arc<Certificate>>,
    entrance: Entrance,
    patience: Patience,
    places: Arc<Semaphore>,
}

/// Where what comes through a listener is counted.
fn traffic(app: &App, which: Listener) -> &Traffic {
    if which == Listener::Service { &app.metrics.service } else { &app.metrics.public }
}

/// A listener's name, for logs and metrics.
fn name(which: Listener) -> &'static str {
    if which == Listener::Service { "service" } else { "public" }
}

impl Socket {
    fn new(app: &App, which: Listener, listener: TcpListener, certificate: Option<Arc<Certificate>>) -> Self {
        let max_connections = app.config.server.max_connections;
        let places = Arc::new(Semaphore::new(usize::try_from(max_connections).unwrap_or_default()));
        traffic(app, which).set_connections(&places, max_connections);
        let hall = Hall {
            certificate,
            entrance: Entrance::new(app, which),
            patience: Patience::new(&app.config.server),
            places,
        };
        Self { app: app.clone(), which, listener, hall, max_connections }
    }

    /// Accepts connections until the stop, then waits for the requests in flight.
    async fn serve(self, mut stopped: Receiver<bool>) {
        let mut told = None;
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&mut told) => accepted,
                // An error means that the sender is gone, which is a stop as well.
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, peer, place)) => self.hall.welcome(stream, peer, place, stopped.clone()),
                Err(error) => after_failed_accept(&error).await,
            }
        }
        let Self { listener, hall, max_connections, .. } = self;
        let queued = queued(&listener);
        drop(listener);
        for (stream, peer) in queued {
            if let Ok(place) = Arc::clone(&hall.places).acquire_owned().await {
                hall.welcome(stream, peer, place, stopped.clone());
            }
        }
        // Every connection has given its place back when it has ended.
        hall.places.acquire_many(max_connections).await.ok();
    }

    /// The next connection, once there is a place for it. Until then it waits in the socket's queue.
    async fn accept(
        &self,
        told: &mut Option<Instant>,
    ) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        if self.hall.places.available_permits() == 0 {
            traffic(&self.app, self.which).full.fetch_add(1, Ordering::Relaxed);
            if told.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                *told = Some(Instant::now());
                tracing::warn!(
                    listener = name(self.which),
                    max_connections = self.max_connections,
                    "all connections are taken: new ones wait until one ends"
                );
            }
        }
        let place = Arc::clone(&self.hall.places).acquire_owned().await.map_err(std::io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        Ok((stream, peer, place))
    }
}

/// What waits in the socket's queue. These clients have been told that their connections stand, so they may have sent
/// requests, which would be lost with the listener.
fn queued(listener: &TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(same) = listener.as_fd().try_clone_to_owned() else { return Vec::new() };
    let same = std::net::TcpListener::from(same);
    let mut queued = Vec::new();
    // It doesn't block: an error is the end of the queue, or a client that is gone.
    for accepted in same.incoming().take(QUEUED_AT_MOST) {
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

impl Hall {
    fn welcome(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        stopped: Receiver<bool>,
    ) {
        // Without it the second packet of an answer would wait for the client to have seen the first. Where it can't be
        // set, answers are late, not lost.
        stream.set_nodelay(true).ok();
        let client = Client { peer: peer.ip(), entrance: self.entrance.clone(), patience: self.patience };
        match self.certificate.clone() {
            None => drop(tokio::spawn(async move {
                client.serve(stream, stopped).await;
                drop(place);
            })),
            Some(certificate) => drop(tokio::spawn(async move {
                certificate.serve(client, stream, stopped).await;
                drop(place);
            })),
        }
    }
}

/// A client that is gone already is none of our business; where files run out, some may come back in a second.
async fn after_failed_accept(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("can't accept connections: {error}; trying again in a second");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
