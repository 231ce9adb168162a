//! Hands mails to a mail server (RFC 5321), as one of its users (RFC 6409).
//!
//! lettre speaks the protocol; its steps are taken here one by one, because what a refusal means depends on the step:
//! a refused login is the operator's to mend and may work later, a refused recipient won't.

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

/// How long the server may take for one answer; connecting, with all that belongs to it, counts as one.
const STEP: Duration = Duration::from_secs(10);
/// How long a whole delivery may take: well below the lease of the outbox, so that nobody else sends it meanwhile.
const DELIVERY: Duration = Duration::from_secs(30);
/// How long we wait for a goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long a connection is kept for the next mail, in milliseconds. Servers close idle ones after a few minutes.
const IDLE_MS: i64 = MINUTE_MS;
/// How much of a server's words is told, in characters.
const LONGEST_QUOTE: usize = 200;

/// A mail server, and connections to it that wait for the next mail.
pub struct Smtp {
    server: SmtpServer,
    tls: Option<TlsParameters>,
    hello: ClientId,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: AsyncSmtpConnection,
    since: Time,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Smtp {
    /// Reads the machine's certificates; connects to nobody yet.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new(server: SmtpServer, from: &str) -> Result<Self, String> {
        let tls = match server.tls {
            SmtpTls::None => None,
            SmtpTls::StartTls | SmtpTls::Implicit => {
                let tls = TlsParameters::new(server.host.clone());
                Some(tls.map_err(|error| format!("TLS for the mail server can't be set up: {error}"))?)
            }
        };
        let from: Mailbox = from.parse().map_err(|error| format!("`mail.from`: {error}"))?;
        // The sender's domain is the nearest thing to a name of this machine that means something to a stranger.
        let hello = Some(from.email.domain()).filter(|domain| domain.is_ascii());
        let hello = hello.map_or_else(ClientId::default, |domain| ClientId::Domain(domain.to_owned()));
        Ok(Self { server, tls, hello, idle: Mutex::default() })
    }

    /// Hands one mail over.
    ///
    /// # Errors
    /// Why not. The reason holds neither the recipient nor anything of the mail.
    pub async fn deliver(&self, mail: &lettre::Message, now: Time) -> Result<(), DeliveryError> {
        let content = mail.formatted();
        match timeout(DELIVERY, self.hand_over(mail.envelope(), &content, now)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = DELIVERY.as_secs();
                Err(DeliveryError::Temporary(format!("the mail server took more than {seconds} s in all")))
            }
        }
    }

    /// Says goodbye on connections that nobody has used for a while.
    pub async fn close_idle(&self, now: Time) {
        let is_old = |idle: &mut Idle| now >= idle.since.plus_ms(IDLE_MS);
        let old: Vec<_> = self.idle.lock().await.extract_if(.., is_old).collect();
        for idle in old {
            quit(idle.connection).await;
        }
    }

    async fn hand_over(&self, envelope: &Envelope, content: &[u8], now: Time) -> Result<(), DeliveryError> {
        let mut connection = self.connection().await?;
        match speak(&mut connection, envelope, content).await {
            Ok(()) => {
                self.idle.lock().await.push(Idle { connection, since: now });
                Ok(())
            }
            Err(error) => {
                quit(connection).await;
                Err(error)
            }
        }
    }

    /// One that waited and still answers, or a new one.
    async fn connection(&self) -> Result<AsyncSmtpConnection, DeliveryError> {
        loop {
            let idle = self.idle.lock().await.pop();
            let Some(Idle { mut connection, .. }) = idle else { return self.connect().await };
            if timeout(GOODBYE, connection.test_connected()).await == Ok(true) {
                return Ok(connection);
            }
        }
    }

    /// Connected, encrypted as configured, and logged in.
    async fn connect(&self) -> Result<AsyncSmtpConnection, DeliveryError> {
        let (address, tls) = ((self.server.host.as_str(), self.server.port), self.tls.clone());
        let (at_once, later) = match self.server.tls {
            SmtpTls::Implicit => (tls, None),
            SmtpTls::StartTls | SmtpTls::None => (None, tls),
        };
        let connecting = AsyncSmtpConnection::connect_tokio1(address, Some(STEP), &self.hello, at_once, None);
        let mut connection = Step::Connect.take(connecting).await?;
        if let Some(tls) = later {
            if !connection.can_starttls() {
                quit(connection).await;
                return Err(DeliveryError::Temporary(
                    "the mail server does not offer STARTTLS, so nothing was sent; where it has a TLS port, \
                     `mail.url` is smtps://…"
                        .to_owned(),
                ));
            }
            Step::StartTls.take(connection.starttls(tls, &self.hello)).await?;
        }
        if let Some(login) = &self.server.login {
            let credentials = Credentials::new(login.user.clone(), login.password.expose().to_owned());
            let outcome = Step::Login.take(connection.auth(DEFAULT_MECHANISMS, &credentials)).await;
            if let Err(error) = outcome {
                quit(connection).await;
                return Err(error);
            }
        }
        Ok(connection)
    }
}

/// Envelope and content (RFC 5321, section 3.3).
async fn speak(
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
    Step::Sender.take(connection.command(Mail::new(envelope.from().cloned(), parameters))).await?;
    for recipient in envelope.to() {
        Step::Recipient.take(connection.command(Rcpt::new(recipient.clone(), Vec::new()))).await?;
    }
    // Anything but 354 means that answers and commands have come apart: somebody slipped an answer in.
    if !Step::Content.take(connection.command(Data)).await?.has_code(354) {
        return Err(DeliveryError::Temporary(format!("{}: unexpected answer", Step::Content.words())));
    }
    Step::Content.take(connection.message(content)).await?;
    Ok(())
}

async fn quit(mut connection: AsyncSmtpConnection) {
    // Whether the server says goodbye as well makes no difference.
    timeout(GOODBYE, connection.abort()).await.ok();
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
    /// Waits for it, but not for ever.
    async fn take<T>(self, work: impl Future<Output = Result<T, Error>>) -> Result<T, DeliveryError> {
        match timeout(STEP, work).await {
            Ok(outcome) => outcome.map_err(|error| self.failure(&error)),
            Err(_) => {
                let (words, seconds) = (self.words(), STEP.as_secs());
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

    /// Whether the server can't have seen the login, the recipient or the link yet, so that its words don't hold them.
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
        // 530 asks for a login or for TLS (RFC 4954, RFC 3207): the operator's to mend, whatever the step.
        let is_final =
            matches!(self, Self::Recipient | Self::Content) && error.is_permanent() && u16::from(code) != 530;
        if is_final { DeliveryError::Permanent(reason) } else { DeliveryError::Temporary(reason) }
    }
}

/// The `5.1.1` of `5.1.1 No such user` (RFC 3463); empty when there is none.
fn enhanced_code(text: &str) -> &str {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let is_code = first.split('.').count() == 3 && first.split('.').all(is_number);
    if is_code { first } else { "" }
}

fn quote(text: &str) -> String {
    one_line(&text.replace(['\r', '\n'], " ")).chars().take(LONGEST_QUOTE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_code_is_a_code() {
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
        assert_eq!(quote(&"é".repeat(1_000)).chars().count(), LONGEST_QUOTE);
    }
}
