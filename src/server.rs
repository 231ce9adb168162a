//! The two listeners: from a socket to [`Entrance`] and back, until the end.

mod access_line;
mod entrance;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

pub use entrance::Entrance;

use crate::app::App;
use crate::input::RequestBody;
use crate::jobs;
use crate::routes::Listener;

/// Serves both listeners until `shutdown` resolves, then lets requests in flight finish within the grace time.
///
/// # Errors
/// A sentence for the operator: an address that can't be listened on, or a database that will never do.
pub async fn run_until(app: App, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
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
    let _jobs = AbortOnDrop(tokio::spawn(jobs::run(app.clone())));
    let mut public =
        tokio::spawn(serve_listener(public, Entrance::new(&app, Listener::Public), stopped.clone()));
    let mut service = tokio::spawn(serve_listener(service, Entrance::new(&app, Listener::Service), stopped));
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
    stop.send_replace(true);
    let grace = Duration::from_millis(u64::from(app.config.shutdown_grace_ms));
    if tokio::time::timeout(grace, async { tokio::join!(&mut public, &mut service) }).await.is_err() {
        tracing::warn!(
            grace_ms = app.config.shutdown_grace_ms,
            "some requests did not finish in time and were cut off"
        );
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

/// Accepts connections until the stop, then waits for the requests in flight.
async fn serve_listener(
    listener: TcpListener,
    entrance: Entrance,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) {
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that the sender is gone, which is a stop as well.
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => serve_connection(stream, peer, &entrance, &connections),
            Err(error) => after_failed_accept(&error).await,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    entrance: &Entrance,
    connections: &GracefulShutdown,
) {
    // Without it the second packet of an answer would wait for the client to have seen the first. Where it can't be set,
    // answers are late, not lost.
    stream.set_nodelay(true).ok();
    let entrance = entrance.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let entrance = entrance.clone();
        async move {
            let request = request.map(RequestBody::Incoming);
            Ok::<_, Infallible>(entrance.answer(request, peer.ip()).await)
        }
    });
    // Answers are small: one buffer and one plain write for head and body.
    let connection = http1::Builder::new().writev(false).serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            // A client that hangs up or talks nonsense is no event of ours.
            tracing::debug!(%peer, "a connection ended early: {error}");
        }
    });
}

/// A client that is gone already is none of our business; where files run out, some may come back in a second.
async fn after_failed_accept(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("can't accept connections: {error}; trying again in a second");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
