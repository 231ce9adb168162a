//! `tollkeeper health`: a check for supervisors that can run a program but have no HTTP client, such as in a
//! container without a shell.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kernel::certificates::AnyCertificate;
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::config::Config;

/// Timeout of the connection and of each read: below the 30 seconds after which container runtimes give up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes to read. A response has a few hundred.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024;

pub fn run(config: &Config, as_json: bool) -> Result<(), String> {
    let address = reachable(config.listen);
    let outcome = if address.port() == 0 {
        Err("`listen` has port 0, so the server's port is unknown".to_owned())
    } else {
        let has_tls = config.tls.certificate_file.is_some();
        ask(address, has_tls).map_err(|error| format!("no server answers: {error}"))
    };
    let (status, body) = match &outcome {
        Ok((status, body)) => (Some(*status), body.clone()),
        Err(_) => (None, Value::Null),
    };
    let reason = match &outcome {
        Ok((200, _)) => None,
        Ok((status, body)) => Some(match body.pointer("/error/message").and_then(Value::as_str) {
            Some(message) => format!("{status}: {message}"),
            None => {
                format!("{status}, which is not a response of tollkeeper: another program may have the port")
            }
        }),
        Err(reason) => Some(reason.clone()),
    };
    if as_json {
        let version = body.get("version");
        super::print(
            &json!({"ready": reason.is_none(), "address": address.to_string(), "status": status,
                    "version": version, "reason": reason})
            .to_string(),
        );
    }
    if let Some(reason) = reason {
        return Err(format!("the server at {address} isn't ready: {reason}"));
    }
    if !as_json {
        super::print(&format!("The server at {address} is ready."));
    }
    Ok(())
}

/// Returns the address of a listener, as reached from the same machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Returns the status and the body of `GET /readyz`.
fn ask(address: SocketAddr, has_tls: bool) -> std::io::Result<(u16, Value)> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    if !has_tls {
        return exchange(stream, address);
    }
    let provider = Arc::new(default_provider());
    // The server is on this machine, its certificate is for its public name and not for this address, and no
    // secret is sent.
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    exchange(StreamOwned::new(connection, stream), address)
}

fn exchange(mut stream: impl Read + Write, address: SocketAddr) -> std::io::Result<(u16, Value)> {
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    match stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer) {
        // A TLS connection may close without its closing message.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    let answer = String::from_utf8_lossy(&answer);
    let not_http = || std::io::Error::other("the response isn't HTTP: another program may have the port");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(not_http)?;
    let version = head.strip_prefix("HTTP/1.1 ").ok_or_else(not_http)?;
    let status = version.split(' ').next().and_then(|word| word.parse().ok()).ok_or_else(not_http)?;
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_is_reached_on_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("192.0.2.1:8080", "192.0.2.1:8080"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), reached);
        }
    }
}
