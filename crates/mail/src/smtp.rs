//! Sends mails to a mail server (RFC 5321) as one of its users (RFC 6409).
//!
//! lettre implements the protocol. Its steps are called here one by one, because the meaning of a refusal
//! depends on the step: a refused login has to be fixed by the operator and may work later, a refused
//! recipient won't.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use lettre::address::Envelope;
use lettre::message::Mailbox;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{DeliveryError, SmtpServer, SmtpTls, one_line};
use kernel::clock::{MINUTE_MS, Time};

/// How long the server may take for one answer; connecting, including TLS, counts as one.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole delivery may take: well below the lease of the outbox, so that no other replica sends the
/// mail meanwhile.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for the end of a connection.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection is kept for the next mail, in milliseconds. Servers close idle ones after a few
/// minutes.
const IDLE_MS: i64 = MINUTE_MS;
/// The most characters of a server's answer that are quoted in errors.
const MAX_QUOTE_CHARS: usize = 200;

/// A mail server, with idle connections to it.
pub struct Smtp {
    server: SmtpServer,
    tls: Option<TlsParameters>,
    hello: ClientId,
    idle: Mutex<Vec<IdleConnection>>,
}

struct IdleConnection {
    connection: AsyncSmtpConnection,
    since: Time,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Smtp {
    /// Reads the machine's certificates; doesn't connect yet.
    ///
    /// # Errors
    /// An error message for the operator.
    pub fn new(server: SmtpServer, from: &str) -> Result<Self, String> {
        let tls = match server.tls {
            SmtpTls::None => None,
            SmtpTls::StartTls | SmtpTls::Implicit => {
                let tls = TlsParameters::new(server.host.clone());
                Some(tls.map_err(|error| format!("TLS for the mail server can't be set up: {error}"))?)
            }
        };
        let from: Mailbox = from.parse().map_err(|error| format!("`mail.from`: {error}"))?;
        // The sender's domain identifies this installation better than the name of the machine.
        let hello = Some(from.email.domain()).filter(|domain| domain.is_ascii());
        let hello = hello.map_or_else(ClientId::default, |domain| ClientId::Domain(domain.to_owned()));
        Ok(Self { server, tls, hello, idle: Mutex::default() })
    }

    /// Sends one mail.
    ///
    /// # Errors
    /// The reason, which contains neither the recipient nor any part of the mail.
    pub async fn deliver(&self, mail: &lettre::Message, now: Time) -> Result<(), DeliveryError> {
        let content = mail.formatted();
        match timeout(DELIVERY_TIMEOUT, self.send(mail.envelope(), &content, now)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = DELIVERY_TIMEOUT.as_secs();
                Err(DeliveryError::Temporary(format!("the mail server took more than {seconds} s in all")))
            }
        }
    }

    /// Closes connections that have been idle for a while.
    pub async fn close_idle(&self, now: Time) {
        let is_old = |idle: &mut IdleConnection| now >= idle.since.plus_ms(IDLE_MS);
        let old: Vec<_> = self.idle.lock().await.extract_if(.., is_old).collect();
        for idle in old {
            quit(idle.connection).await;
        }
    }

    async fn send(&self, envelope: &Envelope, content: &[u8], now: Time) -> Result<(), DeliveryError> {
        let mut connection = self.connection().await?;
        match send_envelope_and_content(&mut connection, envelope, content).await {
            Ok(()) => {
                self.idle.lock().await.push(IdleConnection { connection, since: now });
                Ok(())
            }
            Err(error) => {
                quit(connection).await;
                Err(error)
            }
        }
    }

    /// Returns an idle connection that still answers, or a new one.
    async fn connection(&self) -> Result<AsyncSmtpConnection, DeliveryError> {
        loop {
            let idle = self.idle.lock().await.pop();
            let Some(IdleConnection { mut connection, .. }) = idle else { return self.connect().await };
            if timeout(QUIT_TIMEOUT, connection.test_connected()).await == Ok(true) {
                return Ok(connection);
            }
        }
    }

    /// Opens a connection, encrypted as configured and logged in.
    async fn connect(&self) -> Result<AsyncSmtpConnection, DeliveryError> {
        let (address, tls) = ((self.server.host.as_str(), self.server.port), self.tls.clone());
        let (at_once, later) = match self.server.tls {
            SmtpTls::Implicit => (tls, None),
            SmtpTls::StartTls | SmtpTls::None => (None, tls),
        };
        let connecting =
            AsyncSmtpConnection::connect_tokio1(address, Some(STEP_TIMEOUT), &self.hello, at_once, None);
        let mut connection = Step::Connect.run(connecting).await?;
        if let Some(tls) = later {
            if !connection.can_starttls() {
                quit(connection).await;
                return Err(DeliveryError::Temporary(
                    "the mail server does not offer STARTTLS, so nothing was sent; where it has a TLS port, \
                     `mail.url` is smtps://…"
                        .to_owned(),
                ));
            }
            Step::StartTls.run(connection.starttls(tls, &self.hello)).await?;
        }
        if let Some(login) = &self.server.login {
            let credentials = Credentials::new(login.user.clone(), login.password.expose().to_owned());
            let outcome = Step::Login.run(connection.auth(DEFAULT_MECHANISMS, &credentials)).await;
            if let Err(error) = outcome {
                quit(connection).await;
                return Err(error);
            }
        }
        Ok(connection)
    }
}

/// Sends envelope and content (RFC 5321, section 3.3).
async fn send_envelope_and_content(
    connection: &mut AsyncSmtpConnection,
    envelope: &Envelope,
    content: &[u8],
) -> Result<(), DeliveryError> {
    let mut parameters = Vec::new();
    let offers = |extension| connection.server_info().supports_feature(extension);
    let addresses = envelope.from().into_iter().chain(envelope.to());
    if !addresses.map(AsRef::<str>::as_ref).all(str::is_ascii) {
        if !offers(Extension::SmtpUtfEight) {
            let what = "the mail server does not take addresses with letters beyond ASCII (SMTPUTF8)";
            return Err(DeliveryError::Permanent(what.to_owned()));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !content.is_ascii() && offers(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Step::Sender.run(connection.command(Mail::new(envelope.from().cloned(), parameters))).await?;
    for recipient in envelope.to() {
        Step::Recipient.run(connection.command(Rcpt::new(recipient.clone(), Vec::new()))).await?;
    }
    // Any other code than 354 means that answers no longer match commands: an answer was injected.
    if !Step::Content.run(connection.command(Data)).await?.has_code(354) {
        return Err(DeliveryError::Temporary(format!("{}: unexpected answer", Step::Content.words())));
    }
    Step::Content.run(connection.message(content)).await?;
    Ok(())
}

async fn quit(mut connection: AsyncSmtpConnection) {
    // It makes no difference whether the server answers.
    timeout(QUIT_TIMEOUT, connection.abort()).await.ok();
}

/// A step of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Connect,
    StartTls,
    Login,
    Sender,
    Recipient,
    Content,
}

impl Step {
    /// Runs the step, with a timeout.
    async fn run<T>(self, work: impl Future<Output = Result<T, Error>>) -> Result<T, DeliveryError> {
        match timeout(STEP_TIMEOUT, work).await {
            Ok(outcome) => outcome.map_err(|error| self.failure(&error)),
            Err(_) => {
                let (words, seconds) = (self.words(), STEP_TIMEOUT.as_secs());
                Err(DeliveryError::Temporary(format!("{words}: no answer within {seconds} s")))
            }
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Connect => "connecting to the mail server",
            Self::StartTls => "starting TLS with the mail server",
            Self::Login => "logging in at the mail server",
            Self::Sender => "naming the sender to the mail server",
            Self::Recipient => "naming the recipient to the mail server",
            Self::Content => "handing the mail to the mail server",
        }
    }

    /// Returns `true` if the server hasn't seen the login, the recipient or the link yet, so that its answer
    /// can't contain them.
    const fn may_be_quoted(self) -> bool {
        matches!(self, Self::Connect | Self::StartTls)
    }

    fn failure(self, error: &Error) -> DeliveryError {
        let words = self.words();
        let Some(code) = error.status() else {
            let why =
                if error.is_response() { "an answer that is not SMTP".into() } else { error.to_string() };
            return DeliveryError::Temporary(format!("{words}: {}", quote(&why)));
        };
        let said = error.source().map(ToString::to_string).unwrap_or_default();
        let said = if self.may_be_quoted() { quote(&said) } else { enhanced_code(&said).to_owned() };
        let reason = format!("{words}: {code} {said}").trim_end().to_owned();
        // 530 asks for a login or for TLS (RFC 4954, RFC 3207): at any step the operator has to fix that.
        let is_final =
            matches!(self, Self::Recipient | Self::Content) && error.is_permanent() && u16::from(code) != 530;
        if is_final { DeliveryError::Permanent(reason) } else { DeliveryError::Temporary(reason) }
    }
}

/// Returns the `5.1.1` of `5.1.1 No such user` (RFC 3463); empty if there is none.
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
    fn quotes_are_short_and_on_one_line() {
        assert_eq!(quote("4.7.0 one\r\n4.7.0 two\u{1b}[2J"), "4.7.0 one  4.7.0 two[2J");
        assert_eq!(quote(&"é".repeat(1_000)).chars().count(), MAX_QUOTE_CHARS);
    }
}
