//! Delivery of e-mails to a mail server (RFC 5321, RFC 6409), with the `lettre` library and its connection
//! pool.

use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Severity;
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, Error, PoolConfig};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use tokio::time::timeout;

use super::{DeliveryError, SmtpServer, SmtpTls, one_line};

/// The timeout for connecting to an address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for a whole delivery. It is much shorter than the lease of an e-mail, so that no other replica
/// sends the e-mail in the meantime.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which an idle connection is closed. The pool checks at this interval, so a connection may
/// be idle for twice as long. Servers close idle connections after a few minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a quoted error, in characters.
const MAX_QUOTE_CHARS: usize = 200;

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// A mail server, with a pool of connections to it.
pub struct Smtp {
    server: SmtpServer,
    builder: AsyncSmtpTransportBuilder,
    /// The pool. It is created with the first e-mail, because it is bound to the runtime in which it is first
    /// used.
    transport: Mutex<Option<Transport>>,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Smtp {
    /// Prepares connections, and reads the machine's certificate authorities. Doesn't connect yet.
    ///
    /// # Errors
    /// TLS can't be set up, or the sender isn't valid. The error is a message for the operator.
    pub fn new(server: SmtpServer, from: &str) -> Result<Self, String> {
        let parameters = || {
            TlsParameters::new(server.host.clone())
                .map_err(|error| format!("TLS for the mail server can't be set up: {error}"))
        };
        let tls = match server.tls {
            SmtpTls::None => Tls::None,
            SmtpTls::StartTls => Tls::Required(parameters()?),
            SmtpTls::Implicit => Tls::Wrapper(parameters()?),
        };
        let from: Mailbox = from.parse().map_err(|error| format!("`mail.from`: {error}"))?;
        // The sender's domain identifies this installation better than the name of the machine.
        let hello = Some(from.email.domain()).filter(|domain| domain.is_ascii());
        let hello = hello.map_or_else(ClientId::default, |domain| ClientId::Domain(domain.to_owned()));
        let pool = PoolConfig::new().idle_timeout(IDLE_TIMEOUT);
        let mut builder = Transport::builder_dangerous(&server.host)
            .port(server.port)
            .tls(tls)
            .hello_name(hello)
            .timeout(Some(CONNECT_TIMEOUT))
            .pool_config(pool);
        if let Some(login) = &server.login {
            let password = login.password.expose().to_owned();
            builder = builder.credentials(Credentials::new(login.user.clone(), password));
        }
        Ok(Self { server, builder, transport: Mutex::default() })
    }

    /// Sends one e-mail.
    ///
    /// # Errors
    /// The reason for the failure. It contains neither the recipient nor any part of the e-mail.
    pub async fn deliver(&self, mail: &lettre::Message) -> Result<(), DeliveryError> {
        let content = mail.formatted();
        let transport = self.transport();
        let Ok(outcome) = timeout(DELIVERY_TIMEOUT, transport.send_raw(mail.envelope(), &content)).await
        else {
            // The pool would reuse this connection, although its SMTP dialog isn't finished. So discard the
            // pool.
            self.transport.lock().unwrap_or_else(PoisonError::into_inner).take();
            let seconds = DELIVERY_TIMEOUT.as_secs();
            return Err(DeliveryError::Temporary(format!("the mail server took more than {seconds} s")));
        };
        match outcome {
            Ok(answer) if answer.code().severity == Severity::PositiveCompletion => Ok(()),
            // This is a response to another command, so the server may not have accepted the e-mail.
            Ok(answer) => Err(DeliveryError::Temporary(format!("unexpected response: {}", answer.code()))),
            Err(error) => Err(failure(&error)),
        }
    }

    fn transport(&self) -> Transport {
        let mut transport = self.transport.lock().unwrap_or_else(PoisonError::into_inner);
        transport.get_or_insert_with(|| self.builder.clone().build()).clone()
    }
}

/// Describes an error. The text of the server's response is left out, because it may contain the recipient or
/// the link.
fn failure(error: &Error) -> DeliveryError {
    let Some(code) = error.status() else {
        return DeliveryError::Temporary(if error.is_response() {
            "the mail server's response isn't SMTP".to_owned()
        } else {
            format!("sending to the mail server: {}", quote(&error.to_string()))
        });
    };
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    let enhanced = enhanced_code(&said);
    let reason = format!("the mail server refused: {code} {enhanced}").trim_end().to_owned();
    if is_final(code.into(), enhanced) {
        DeliveryError::Permanent(reason)
    } else {
        DeliveryError::Temporary(reason)
    }
}

/// Returns `true` if the server will never accept this e-mail, because it refuses the recipient's address
/// (RFC 3463, section 3.2), its mailbox (3.3) or the content (3.7). Without an enhanced code, only a refused
/// mailbox counts (RFC 5321, section 4.2.2). All other errors are about the sender, the login, the connection
/// or the server's policy, which the operator can fix.
fn is_final(code: u16, enhanced: &str) -> bool {
    match enhanced {
        "" => matches!(code, 550..=553),
        // Errors about the sender's address. Some servers use 5.1.0 for them.
        "5.1.0" | "5.1.7" | "5.1.8" => false,
        _ => code >= 500 && ["5.1.", "5.2.", "5.6."].iter().any(|subject| enhanced.starts_with(subject)),
    }
}

/// Returns the enhanced status code (RFC 3463) of a response, such as `5.1.1` in `5.1.1 No such user`; empty
/// if it has none.
fn enhanced_code(text: &str) -> &str {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let is_code = first.split('.').count() == 3 && first.split('.').all(is_number);
    if is_code { first } else { "" }
}

fn quote(text: &str) -> String {
    one_line(&text.replace(['\r', '\n'], " ")).chars().take(MAX_QUOTE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enhanced_code_parses_only_codes() {
        for (text, code) in [
            ("5.1.1 <ada@example.org>: no such user", "5.1.1"),
            ("5.7.750", "5.7.750"),
            ("<ada@example.org>: no such user", ""),
            ("ada@127.0.0.1", ""),
            ("5.1", ""),
            ("5.1.token", ""),
            ("", ""),
        ] {
            assert_eq!(enhanced_code(text), code, "{text}");
        }
    }

    #[test]
    fn only_recipient_and_content_are_refused_for_good() {
        for (code, enhanced, expected) in [
            (550, "5.1.1", true),
            (550, "", true),
            (552, "5.2.2", true),
            (553, "", true),
            (554, "5.6.0", true),
            (556, "5.1.10", true),
            // Errors about the sender's address, the permission to use it, the greeting, and the login.
            (550, "5.1.0", false),
            (553, "5.1.8", false),
            (553, "5.7.1", false),
            (550, "5.7.60", false),
            (554, "5.7.1", false),
            (554, "", false),
            (521, "", false),
            (530, "5.7.0", false),
            (535, "5.7.8", false),
            (535, "", false),
            (503, "5.5.1", false),
            (451, "4.7.1", false),
            (450, "4.2.1", false),
            (450, "5.2.1", false),
        ] {
            assert_eq!(is_final(code, enhanced), expected, "{code} {enhanced}");
        }
    }

    #[test]
    fn quotes_are_short_and_on_one_line() {
        assert_eq!(quote("4.7.0 one\r\n4.7.0 two\u{1b}[2J"), "4.7.0 one  4.7.0 two[2J");
        assert_eq!(quote(&"é".repeat(1_000)).chars().count(), MAX_QUOTE_CHARS);
    }
}
