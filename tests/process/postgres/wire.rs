//! A proxy in front of PostgreSQL that can cut, hold and delay connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::database_of;

/// A loopback port that forwards to the socket of a cluster. Its threads end with the test's process.
pub struct Wire {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether all traffic is held in both directions.
    held: AtomicBool,
    /// The delay of everything that the server sends, in milliseconds.
    delay_ms: AtomicU64,
    open: Mutex<Vec<(TcpStream, UnixStream)>>,
}

/// Returns the URL of the same database through the proxy.
pub fn through(wire: &Wire, url: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{}/{}", wire.port, database_of(url))
}

impl Wire {
    pub fn to(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let (shared, socket) = (Arc::clone(&state), PathBuf::from(socket));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server is down, the connection is closed, as with a closed port.
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                shared.join(client, server);
            }
        });
        Self { port, state }
    }

    /// Ends every connection. Returns their number.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.state.open.lock().unwrap());
        for (client, server) in &open {
            // Connections that have already ended return an error, which doesn't matter.
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
        open.len()
    }

    /// Holds all traffic, or releases it.
    pub fn hold(&self, held: bool) {
        self.state.held.store(held, Ordering::SeqCst);
    }

    /// Delays everything that the server sends.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }
}

impl State {
    fn join(self: &Arc<Self>, client: TcpStream, server: UnixStream) {
        client.set_nodelay(true).unwrap();
        self.open.lock().unwrap().push((client.try_clone().unwrap(), server.try_clone().unwrap()));
        let (client_again, server_again) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || {
            there.copy(&client, &server, false);
            let _ = server.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            back.copy(&server_again, &client_again, true);
            let _ = client_again.shutdown(Shutdown::Both);
        });
    }

    fn copy(&self, mut from: impl Read, mut to: impl Write, delayed: bool) {
        let mut bytes = [0; 16_384];
        loop {
            let Ok(count @ 1..) = from.read(&mut bytes) else { return };
            if delayed {
                std::thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            }
            while self.held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if to.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    }
}
