//! TLS to servers that are verified by the machine's certificate authorities.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns the authorities of the operating system, or the authorities in `SSL_CERT_FILE`.
pub fn of_machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Returns the settings of a client that trusts these authorities.
///
/// # Errors
/// The TLS versions can't be used. The error is a sentence for the operator.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
