//! Delivery of e-mails to a folder or to a mail server.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, SinglePart};
use tokio::fs::{DirBuilder, OpenOptions};
use tokio::io::AsyncWriteExt;

use super::smtp::Smtp;
use super::{DeliveryError, MailUrl, Message, Settings, one_line};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::random::Random;

/// The maximum length of a line in an e-mail, in bytes (RFC 5322, section 2.1.1).
const MAX_LINE_BYTES: usize = 998;

/// Delivers e-mails.
#[derive(Debug)]
pub enum Mailer {
    /// Writes each e-mail to an `.eml` file, for development, tests and installations without a mail server.
    Folder {
        /// The folder, which is created if it doesn't exist.
        dir: PathBuf,
        /// The sender, such as `Tollkeeper <no-reply@example.org>`.
        from: String,
    },
    /// Sends e-mails to a mail server.
    Smtp {
        /// The server.
        server: Box<Smtp>,
        /// The sender.
        from: String,
    },
}

impl Mailer {
    /// Creates the mailer for the configured destination.
    ///
    /// # Errors
    /// The settings aren't valid. The error is a message for the operator.
    pub fn new(settings: &Settings, data_dir: &Path) -> Result<Self, String> {
        let from = settings.from.clone();
        Ok(match &settings.url {
            MailUrl::File => Self::Folder { dir: data_dir.join("mail"), from },
            MailUrl::Smtp(server) => Self::Smtp { server: Box::new(Smtp::new(server.clone(), &from)?), from },
        })
    }

    /// Delivers an e-mail. The folder mailer also logs the recipient and the link; the SMTP mailer logs
    /// nothing.
    ///
    /// # Errors
    /// The reason for the failure, and whether a later attempt may succeed. A retry may send the e-mail
    /// twice.
    pub async fn deliver(&self, message: &Message, now: Time, random: &Random) -> Result<(), DeliveryError> {
        let id = format!("{:032x}", u128::from_be_bytes(random.bytes()));
        let (Self::Folder { from, .. } | Self::Smtp { from, .. }) = self;
        let mail = compose(message, from, now, &id).map_err(DeliveryError::Permanent)?;
        match self {
            Self::Smtp { server, .. } => server.deliver(&mail).await,
            Self::Folder { dir, .. } => {
                // Lines in the file end with `\n`, so that text tools can read it. Mail programs read both
                // line endings.
                let mail: Vec<u8> = mail.formatted().into_iter().filter(|byte| *byte != b'\r').collect();
                let file = dir.join(file_name(now, &id));
                write(dir, &file, &mail)
                    .await
                    .map_err(|error| DeliveryError::Temporary(format!("{}: {error}", file.display())))?;
                let link = message.link.as_deref().unwrap_or_default();
                tracing::info!(to = message.to, subject = message.subject, link, "mail written");
                Ok(())
            }
        }
    }

    /// Removes the files of e-mails written before this time, and returns their number. Always returns 0 if
    /// e-mails are sent to a mail server.
    ///
    /// # Errors
    /// The folder can't be read or written.
    pub async fn remove_files_before(&self, before: Time) -> Result<u64, Error> {
        match self {
            Self::Folder { dir, .. } => remove_files(dir.clone(), before).await,
            Self::Smtp { .. } => Ok(0),
        }
    }
}

/// Returns a file name that sorts by time: `20260131T093000123Z-….eml`.
fn file_name(now: Time, id: &str) -> String {
    let time: String = now.to_string().chars().filter(|c| !matches!(c, '-' | ':' | '.')).collect();
    format!("{time}-{id}.eml")
}

/// Returns `true` if a file has the name of an e-mail that was written before `then`. Returns `false` for any
/// other file.
fn was_written_before(name: &str, then: Time) -> bool {
    let Some((time, id)) = name.strip_suffix(".eml").and_then(|name| name.split_once('-')) else {
        return false;
    };
    // The times in all names have the same length, so they can be compared as text.
    let limit = file_name(then, id);
    let limit = limit.split_once('-').map_or("", |(limit, _)| limit);
    let is_ours =
        time.len() == limit.len() && id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours && time < limit
}

/// Writes the file completely or not at all, so that a program that watches the folder for `.eml` files never
/// reads a partial e-mail.
async fn write(dir: &Path, file: &Path, content: &[u8]) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).await?;
    let temporary = file.with_extension("tmp");
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).await?;
    let write_all = async {
        opened.write_all(content).await?;
        opened.sync_all().await?;
        tokio::fs::rename(&temporary, file).await
    };
    let outcome = write_all.await;
    if outcome.is_err() {
        // An error of the removal is ignored, because a leftover `.tmp` file does no harm.
        tokio::fs::remove_file(&temporary).await.ok();
    }
    outcome
}

/// Composes the e-mail (RFC 5322), with plain text and HTML as alternatives. Errors don't contain the
/// recipient, because they are logged.
pub(super) fn compose(message: &Message, from: &str, now: Time, id: &str) -> Result<lettre::Message, String> {
    let from: Mailbox = from.parse().map_err(|error| format!("`mail.from`: {error}"))?;
    let to: lettre::Address =
        message.to.parse().map_err(|error| format!("the recipient's address: {error}"))?;
    let message_id = format!("<{id}@{}>", from.email.domain());
    let since_1970 = Duration::from_millis(u64::try_from(now.unix_ms()).unwrap_or(0));
    // This header prevents automatic replies (RFC 3834, section 5).
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    let part = |kind: ContentType, text: &str| SinglePart::builder().header(kind).body(encode(text));
    let parts = MultiPart::alternative()
        .boundary(format!("=_{id}"))
        .singlepart(part(ContentType::TEXT_PLAIN, &message.text))
        .singlepart(part(ContentType::TEXT_HTML, &message.html));
    lettre::Message::builder()
        .from(from)
        .to(Mailbox::new(None, to))
        .subject(one_line(&message.subject))
        .date(SystemTime::UNIX_EPOCH + since_1970)
        .message_id(Some(message_id))
        .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
        .multipart(parts)
        .map_err(|error| error.to_string())
}

/// Encodes a text part. ASCII text is left unchanged, so that links in the file aren't split. Other text is
/// encoded as quoted-printable and never as base64, so that the token can still be found.
fn encode(text: &str) -> Body {
    // A carriage return alone also counts as a line ending here. E-mails must not contain it (RFC 5322,
    // section 2.3), and mail servers handle it differently.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text: String = text.lines().flat_map(|line| [line, "\r\n"]).collect();
    let is_plain = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r' | b'\n');
    if text.bytes().all(is_plain) && text.lines().all(|line| line.len() <= MAX_LINE_BYTES) {
        return Body::dangerous_pre_encoded(text.into_bytes(), ContentTransferEncoding::SevenBit);
    }
    Body::new_with_encoding(text, ContentTransferEncoding::QuotedPrintable)
        .unwrap_or_else(|text| Body::dangerous_pre_encoded(text, ContentTransferEncoding::EightBit))
}

/// Removes old files, and returns their number.
async fn remove_files(dir: PathBuf, before: Time) -> Result<u64, Error> {
    let folder = dir.display().to_string();
    let task = tokio::task::spawn_blocking(move || remove_files_now(&dir, before));
    let removed = task.await.map_err(Error::internal)?;
    removed.map_err(|error| Error::internal(format!("old mails in {folder}: {error}")))
}

fn remove_files_now(dir: &Path, before: Time) -> std::io::Result<u64> {
    let mut removed = 0;
    let files = match std::fs::read_dir(dir) {
        // No e-mail has been written yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        files => files?,
    };
    for file in files {
        let file = file?;
        let is_old = file.file_name().to_str().is_some_and(|name| was_written_before(name, before));
        if is_old {
            match std::fs::remove_file(file.path()) {
                // Another server with the same folder has already removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                done => done?,
            }
            removed += 1;
        }
    }
    Ok(removed)
}
