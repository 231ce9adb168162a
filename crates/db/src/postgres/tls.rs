//! TLS to the server: verifies its certificate as the URL requires.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::Error;
use kernel::certificates::AnyCertificate;

/// A TLS connection, with channel binding if the signature of the server's certificate allows it.
pub(super) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The trusted servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Doesn't use TLS.
    NoTls,
    /// Trusts any server.
    AnyServer,
    /// Trusts servers with a certificate of these authorities, for any name.
    Authority(Roots),
    /// Trusts servers with a certificate of these authorities, for the name of the host.
    AuthorityAndName(Roots),
}

/// Trusted authorities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Roots {
    /// The certificates in a PEM file.
    File(PathBuf),
    /// The authorities that the operating system trusts.
    System,
}

/// Reads the certificates of the authorities, and returns the connector for TLS connections. Cheap to clone.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(default_provider());
    let verifier = |roots: &Roots| {
        let builder = WebPkiServerVerifier::builder_with_provider(load(roots)?, Arc::clone(&provider));
        builder.build().map_err(|error| Error::Internal(format!("sslrootcert: {error}")))
    };
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        // With `sslmode=disable`, the driver doesn't use TLS.
        Trust::NoTls | Trust::AnyServer => Arc::new(AnyCertificate(Arc::clone(&provider))),
        Trust::Authority(roots) => Arc::new(AnyNameVerifier(verifier(roots)?)),
        Trust::AuthorityAndName(roots) => verifier(roots)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| Error::Internal(format!("TLS to the database: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn load(roots: &Roots) -> Result<Arc<RootCertStore>, Error> {
    let mut store = RootCertStore::empty();
    let certificates = match roots {
        Roots::System => rustls_native_certs::load_native_certs().certs,
        Roots::File(path) => {
            let refused = |what: String| Error::Internal(format!("sslrootcert: {}: {what}", path.display()));
            let text = std::fs::read(path).map_err(|error| refused(format!("it can't be read: {error}")))?;
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
            let read = read.map_err(|error| refused(format!("this is not PEM: {error}")))?;
            if read.is_empty() {
                return Err(refused("it contains no certificate (`-----BEGIN CERTIFICATE-----`)".to_owned()));
            }
            read
        }
    };
    // Unusable certificates are common in a system's list. In a file, they are noticed at the first
    // handshake.
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(Error::Internal("sslrootcert: it contains no usable certificate".to_owned()));
    }
    Ok(Arc::new(store))
}

/// Returns advice for the operator if the server's certificate is from an authority that isn't trusted.
pub(super) fn advice(error: &std::io::Error) -> Option<&'static str> {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        // A bad signature comes from another authority with the same name.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => Some("no authority in sslrootcert has signed the server's certificate"),
        _ => None,
    }
}

/// Verifies a certificate except for its name.
#[derive(Debug)]
struct AnyNameVerifier(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyNameVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is checked last, when everything else is verified.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
