//! TLS to the server by rustls: verification of certificates, and channel binding.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use ring::digest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::Error;

/// The servers that are trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Don't use TLS.
    NoTls,
    /// Any server.
    AnyServer,
    /// Servers with a certificate of these authorities, for any name.
    Authority(Roots),
    /// Servers with a certificate of these authorities, for the name of the host.
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

/// The TLS configuration. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// Reads the certificates of the authorities.
    pub(super) fn new(trust: &Trust) -> Result<Self, Error> {
        let provider = Arc::new(default_provider());
        let verifier = |roots: &Roots| {
            let builder = WebPkiServerVerifier::builder_with_provider(load(roots)?, Arc::clone(&provider));
            builder.build().map_err(|error| Error::Internal(format!("sslrootcert: {error}")))
        };
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::NoTls => return Ok(Self(None)),
            Trust::AnyServer => Arc::new(NoVerifier(Arc::clone(&provider))),
            Trust::Authority(roots) => Arc::new(AnyNameVerifier(verifier(roots)?)),
            Trust::AuthorityAndName(roots) => verifier(roots)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| Error::Internal(format!("TLS to the database: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Some(Arc::new(config))))
    }
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
                return Err(refused(
                    "there is no certificate in it (`-----BEGIN CERTIFICATE-----`)".to_owned(),
                ));
            }
            read
        }
    };
    // Unusable certificates are common among those of a system. In a file, they show at the first handshake.
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(Error::Internal("sslrootcert: there is no certificate that can be used".to_owned()));
    }
    Ok(Arc::new(store))
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = HandshakeError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, HandshakeError> {
        // The driver doesn't call this without a host name.
        Ok(Handshake { config: self.0.clone(), host: host.to_owned() })
    }
}

/// A handshake to be made.
pub(super) struct Handshake {
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = HandshakeError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, HandshakeError>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is switched off"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Stream(TlsConnector::from(config).connect(name, stream).await?))
        })
    }
}

/// The error of a handshake.
#[derive(Debug)]
pub(super) struct HandshakeError(io::Error);

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let cause = self.0.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            // A bad signature is that of another authority with the same name.
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => f.write_str(": no authority in sslrootcert has signed the server's certificate"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for HandshakeError {}

/// A TLS connection.
pub(super) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|certificate| end_point_digest(certificate)) {
            Some(digest) => ChannelBinding::tls_server_end_point(digest.as_ref().to_vec()),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Accepts any certificate whose private key the server has.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
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
            // The name is checked last, when all else is verified.
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

/// Returns the data of `tls-server-end-point` channel binding (RFC 5929, section 4.1): the certificate's
/// digest by the hash function of its signature, at least SHA-256. `None` for signatures without such a
/// function.
fn end_point_digest(certificate: &[u8]) -> Option<digest::Digest> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, … }, … }
    // (RFC 5280, 4.1)
    let (_, certificate_body, _) = element(certificate)?;
    let (_, _, behind_tbs) = element(certificate_body)?;
    let (_, algorithm, _) = element(behind_tbs)?;
    let (tag, oid, _) = element(algorithm)?;
    let function = match (tag, oid) {
        // PKCS #1 with MD5, SHA-1 and SHA-256, ECDSA with SHA-1 and SHA-256.
        (6, [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4 | 5 | 11])
        | (6, [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]) => {
            &digest::SHA256
        }
        (6, [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]) => {
            &digest::SHA384
        }
        (6, [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4]) => {
            &digest::SHA512
        }
        _ => return None,
    };
    Some(digest::digest(function, certificate))
}

/// Splits off the first element of DER: returns its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(b, _)| b.len() <= 4)?;
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((tag, inside, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The skeleton of a certificate with this signature algorithm.
    fn certificate(oid: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, inside: &[u8]| {
            let length = u16::try_from(inside.len()).unwrap().to_be_bytes();
            [&[tag, 0x82], &length[..], inside].concat()
        };
        let algorithm = wrap(0x30, &[&wrap(6, oid)[..], &[5, 0]].concat());
        wrap(0x30, &[wrap(0x30, &[7; 300]), algorithm, wrap(3, &[0; 64])].concat())
    }

    #[test]
    fn end_point_digest_uses_the_hash_of_the_signature() {
        let rsa = |last| vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last];
        let ecdsa = |last| vec![0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last];
        let cases = [
            (rsa(5), Some(32)),
            (rsa(11), Some(32)),
            (rsa(12), Some(48)),
            (rsa(13), Some(64)),
            (rsa(10), None), // RSASSA-PSS, whose function is a parameter.
            (ecdsa(2), Some(32)),
            (ecdsa(3), Some(48)),
            (ecdsa(4), Some(64)),
            (vec![0x2b, 0x65, 0x70], None), // Ed25519
        ];
        for (oid, length) in cases {
            let certificate = certificate(&oid);
            assert_eq!(
                end_point_digest(&certificate).map(|digest| digest.as_ref().len()),
                length,
                "{oid:x?}"
            );
            for cut in 0..certificate.len() {
                assert!(end_point_digest(&certificate[..cut]).is_none());
            }
        }
    }
}
