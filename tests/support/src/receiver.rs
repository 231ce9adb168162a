//! A receiver of webhooks on this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A placeholder for an answer that is never sent.
pub const NEVER: &str = "never";
/// The answer of a receiver that accepts every request.
pub const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    /// The headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Received {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Returns the type of the event.
    pub fn event(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A running receiver. It stops when this value is dropped.
pub struct Receiver {
    pub port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Mutex<&'static str>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver that answers every request with these bytes.
    pub async fn start(answer: &'static str) -> Self {
        Self::start_with(answer, 0, None).await
    }

    /// Starts a receiver on this port.
    pub async fn start_on(port: u16, answer: &'static str) -> Self {
        Self::start_with(answer, port, None).await
    }

    /// Starts a receiver that uses TLS, with `server.pem` and `server.key` from a folder.
    pub async fn start_with_tls(answer: &'static str, folder: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(chain, key).unwrap();
        Self::start_with(answer, 0, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_with(answer: &'static str, port: u16, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (received, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(answer)));
        let (to, of) = (Arc::clone(&received), Arc::clone(&answer));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (to, of, tls) = (Arc::clone(&to), Arc::clone(&of), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &to, &of).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &to, &of).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, received, answer, task }
    }

    /// Returns the URL of the receiver, without TLS.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/events", self.port)
    }

    /// Sets the answer to later requests.
    pub fn answer(&self, answer: &'static str) {
        *self.answer.lock().unwrap() = answer;
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the requests received so far and clears them.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }

    /// Waits until this many requests have been received, and returns them.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        for _ in 0..1_200 {
            let received = self.received();
            if received.len() >= count {
                return received;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("{} of {count} requests have arrived", self.received().len());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    received: &Mutex<Vec<Received>>,
    answer: &Mutex<&'static str>,
) {
    let Some(request) = read(&mut stream).await else { return };
    received.lock().unwrap().push(request);
    let answer = *answer.lock().unwrap();
    if answer == NEVER {
        // Waits until the client closes the connection.
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok();
        return;
    }
    stream.write_all(answer.as_bytes()).await.ok();
    stream.shutdown().await.ok();
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4_096];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&part[..read]),
        }
        let text = String::from_utf8(bytes.clone()).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let headers: BTreeMap<_, _> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        if headers.get("content-length")?.parse::<usize>().ok()? == body.len() {
            return Some(Received { path, headers, body: body.to_owned() });
        }
    }
}
