//! TLS on the listeners, with certificates that are reloaded without a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ring::digest;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::Receiver;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::connection::Client;
use crate::settings;
use kernel::error::{Code, Error};

/// The interval at which the files are checked without a signal, so that programs that renew certificates
/// needn't send a signal.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);
/// The first byte of a TLS handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The certificates of both listeners. A listener without a certificate uses plain HTTP.
#[derive(Debug)]
pub struct Certificates {
    pub public: Option<Arc<Certificate>>,
    pub service: Option<Arc<Certificate>>,
}

impl Certificates {
    /// Reads all files.
    ///
    /// # Errors
    /// A message for the operator, with the file and the configuration key.
    pub fn load(config: &settings::Tls) -> Result<Self, String> {
        let pair = |certificate: &Option<PathBuf>, key: &Option<PathBuf>, keys: [&'static str; 2]| {
            let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
            let files = [certificate, key].map(Clone::clone);
            Certificate::load(CertificateFiles { paths: files, keys }).map(|loaded| Some(Arc::new(loaded)))
        };
        let public =
            pair(&config.certificate_file, &config.key_file, ["tls.certificate_file", "tls.key_file"])?;
        let service = pair(
            &config.service_certificate_file,
            &config.service_key_file,
            ["tls.service_certificate_file", "tls.service_key_file"],
        )?;
        Ok(Self { public, service })
    }

    /// Reloads the files when they change. Checks them every minute, and immediately on SIGHUP, after which
    /// the result is always logged. Runs until the future is dropped.
    pub async fn reload_on_change(self) {
        let mut hangups = match signal(SignalKind::hangup()) {
            Ok(hangups) => hangups,
            Err(error) => return tracing::error!("certificates are not reloaded: {error}"),
        };
        let all: Vec<_> = self.public.into_iter().chain(self.service).collect();
        if all.is_empty() {
            return;
        }
        loop {
            let is_requested = tokio::select! {
                hangup = hangups.recv() => hangup.is_some(),
                () = tokio::time::sleep(RELOAD_INTERVAL) => false,
            };
            let all = all.clone();
            // Reading may block on a slow disk.
            let looking =
                tokio::task::spawn_blocking(move || all.iter().for_each(|one| one.reload(is_requested)));
            if let Err(error) = looking.await {
                tracing::error!("the certificates were not reloaded: {error}");
            }
        }
    }
}

/// The certificate and key of one listener, as last loaded.
#[derive(Debug)]
pub struct Certificate {
    files: CertificateFiles,
    config: ArcSwap<ServerConfig>,
    /// The digest of the files' contents at the last check, valid or not.
    digest: ArcSwap<digest::Digest>,
}

/// The paths of a certificate and its key, and the configuration keys that name them.
#[derive(Clone, Debug)]
struct CertificateFiles {
    paths: [PathBuf; 2],
    keys: [&'static str; 2],
}

impl CertificateFiles {
    /// Warns if other users can read the private key.
    fn warn_of_readable_key(&self) {
        let ([_, file], [_, key]) = (&self.paths, self.keys);
        let mode = file.metadata().map_or(0, |file| file.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            tracing::warn!(
                file = %file.display(),
                "the private key of `{key}` is open to other users (mode {mode:o}): `chmod 600` it"
            );
        }
    }
}

impl Certificate {
    fn load(files: CertificateFiles) -> Result<Self, String> {
        let contents = files.read()?;
        let config = files.parse(&contents)?;
        files.warn_of_readable_key();
        Ok(Self { config: ArcSwap::new(config), digest: ArcSwap::from_pointee(digest_of(&contents)), files })
    }

    /// Loads the files if they have changed. On an error, logs it and keeps the previous certificate. An
    /// error for unchanged files is logged again only on request.
    fn reload(&self, is_requested: bool) {
        let file = self.files.display_path(0);
        let contents = self.files.read();
        let digest = digest_of(contents.as_ref().map_or(&[Vec::new(), Vec::new()], |contents| contents));
        if self.digest.load().as_ref().as_ref() == digest.as_ref() && !is_requested {
            return;
        }
        let changed = self.digest.swap(Arc::new(digest)).as_ref().as_ref() != digest.as_ref();
        match contents.and_then(|contents| self.files.parse(&contents)) {
            Ok(config) => {
                self.config.store(config);
                if changed {
                    tracing::info!(%file, "the certificate was reloaded: new connections use it");
                } else {
                    tracing::info!(%file, "the certificate was reloaded: nothing has changed");
                }
            }
            Err(why) => {
                tracing::error!("the certificate is refused, the previous one stays in use: {why}");
            }
        }
    }

    /// Completes the TLS handshake and serves the connection.
    pub async fn serve(&self, client: Client, stream: TcpStream, mut stopped: Receiver<bool>) {
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(client.timeouts.head, self.handshake(&client, stream)) => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok(Some(stream)) => client.serve(stream, stopped).await,
            Ok(None) => {}
            Err(_) => tracing::debug!(peer = %client.peer, "a TLS handshake took too long"),
        }
    }

    async fn handshake(&self, client: &Client, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let mut first = [0; 1];
        if stream.peek(&mut first).await.is_ok_and(|count| count == 1) && first != [HANDSHAKE_RECORD] {
            // A letter is probably the start of a plain HTTP request, so the client gets an error response.
            if first.iter().all(u8::is_ascii_alphabetic) {
                let error =
                    Error::new(Code::MalformedRequest).message("This port accepts only TLS. Use https.");
                client.close(stream, Some(error)).await;
            }
            return None;
        }
        match TlsAcceptor::from(self.config.load_full()).accept(stream).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(peer = %client.peer, "a TLS handshake failed: {error}");
                None
            }
        }
    }
}

impl CertificateFiles {
    fn display_path(&self, index: usize) -> String {
        self.paths.get(index).map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Returns an error message about one of the two files.
    fn problem(&self, index: usize, what: impl std::fmt::Display) -> String {
        let key = self.keys.get(index).copied().unwrap_or_default();
        format!(
            "{}: {what}; it is named by `{key}` ({})",
            self.display_path(index),
            kernel::document::variable(key)
        )
    }

    fn read(&self) -> Result<[Vec<u8>; 2], String> {
        let [certificate, key] = &self.paths;
        let read = |index: usize, path: &Path| {
            std::fs::read(path)
                .map_err(|error| self.problem(index, format!("the file can't be read: {error}")))
        };
        Ok([read(0, certificate)?, read(1, key)?])
    }

    fn parse(&self, [certificate, key]: &[Vec<u8>; 2]) -> Result<Arc<ServerConfig>, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| self.problem(0, format!("this is not PEM: {error}")))?;
        if chain.is_empty() {
            return Err(self.problem(0, "it contains no certificate (`-----BEGIN CERTIFICATE-----`)"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            self.problem(1, "it contains no readable private key (PEM, without a passphrase)")
        })?;
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&versions)
            .map_err(|error| self.problem(0, error))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                self.problem(1, format!("the key doesn't belong to the certificate {}", self.display_path(0)))
            }
            rustls::Error::InvalidCertificate(_) => {
                self.problem(0, format!("the certificate is broken: {error}"))
            }
            other => self.problem(1, format!("the key can't be used: {other}")),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn digest_of(contents: &[Vec<u8>; 2]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for content in contents {
        context.update(&content.len().to_be_bytes());
        context.update(content);
    }
    context.finish()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::server::testing::{LogBuffer, TempDir};

    /// Calls the check that runs every minute in production.
    #[test]
    fn changed_files_are_reloaded_and_a_broken_pair_is_logged_once() {
        let folder = TempDir::new();
        let make = |name: &str| {
            let line = format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -days 2 \
                 -keyout {name}.key -out {name}.pem"
            );
            Command::new("openssl").args(line.split_whitespace()).current_dir(&folder.0).output()
        };
        if make("one").is_err() {
            eprintln!("SKIPPED: `openssl` is not installed");
            return;
        }
        make("two").unwrap();
        let put = |from: &str, to: &str| std::fs::copy(folder.0.join(from), folder.0.join(to)).unwrap();
        put("one.pem", "x.pem");
        put("one.key", "x.key");
        let paths = ["x.pem", "x.key"].map(|name| folder.0.join(name));
        let keys = ["tls.certificate_file", "tls.key_file"];
        let one = Certificate::load(CertificateFiles { paths, keys }).unwrap();
        let lines = LogBuffer::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        let _log = tracing::subscriber::set_default(log.finish());
        let reload = |is_requested: bool| {
            let before = one.config.load_full();
            one.reload(is_requested);
            (!Arc::ptr_eq(&before, &one.config.load_full()), lines.take())
        };
        assert_eq!(reload(false), (false, String::new()));
        put("two.pem", "x.pem");
        let (is_loaded, log) = reload(false);
        assert!(
            !is_loaded && log.contains("refused") && log.contains("doesn't belong to the certificate"),
            "{log}"
        );
        assert_eq!(reload(false), (false, String::new()), "logged once");
        let (is_loaded, log) = reload(true);
        assert!(!is_loaded && log.contains("refused"), "logged again on request: {log}");
        put("two.key", "x.key");
        let (is_loaded, log) = reload(false);
        assert!(is_loaded && log.contains("new connections use it"), "{log}");
        std::fs::remove_file(folder.0.join("x.key")).unwrap();
        let (is_loaded, log) = reload(false);
        assert!(!is_loaded && log.contains("can't be read"), "{log}");
        assert_eq!(reload(false), (false, String::new()));
    }
}
