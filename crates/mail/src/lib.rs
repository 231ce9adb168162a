//! E-mail: a queue in the database, so that no e-mail is lost.
//!
//! * [`posting`]: the [`posting::Outbox`]. An e-mail is queued in the same transaction as the change that
//!   causes it, after it was counted against the limits of [`bounds`].
//! * [`sending`]: takes e-mails that are due, writes them with [`WriteMail`], sends them, and retries
//!   failures.
//! * [`templates`]: the text of each e-mail.
//! * [`Mailer`] and [`smtp`]: delivery to a folder or to a mail server.
//!
//! A queued e-mail contains no token. The function that writes the e-mail creates the token when the e-mail
//! is sent. This function is passed to [`Mail`], because it needs the tables of accounts and organizations,
//! and this crate doesn't depend on their crates.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use lettre::message::Mailbox;
use serde::{Deserialize, Deserializer, Serialize};

use crate::store::outbox::QueuedMail;
use db::Db;
use kernel::clock::{Clock, Time};
use kernel::document::values;
use kernel::error::Error;
use kernel::random::Random;
use metrics::Metrics;
use posting::Outbox;

pub mod bounds;
mod delivery;
mod kinds;
pub mod posting;
pub mod sending;
pub mod smtp;
pub mod store;
pub mod templates;
mod unlinked;
mod url;

pub use delivery::Mailer;
pub use url::{MailUrl, SmtpLogin, SmtpServer, SmtpTls};

/// The table `mail` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The destination of e-mails.
    pub url: MailUrl,
    /// The sender: an address with or without a name.
    #[serde(deserialize_with = "sender")]
    pub from: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { url: MailUrl::File, from: "Tollkeeper <tollkeeper@localhost>".to_owned() }
    }
}

fn sender<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    values::text(deserializer, "a sender such as \"Tollkeeper <noreply@example.com>\"", |text| {
        text.parse::<Mailbox>().ok().map(|_| text.to_owned())
    })
}

/// The function that writes a queued e-mail, with a new token if it needs one. Returns `None` if the e-mail
/// has no recipient or is no longer needed.
pub type WriteMail =
    Arc<dyn for<'a> Fn(&'a QueuedMail) -> BoxFuture<'a, Result<Option<Message>, Error>> + Send + Sync>;

/// The handle of e-mail; cheap to clone.
#[derive(Clone)]
pub struct Mail(Arc<Parts>);

/// The parts of [`Mail`].
pub struct Parts {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) metrics: Arc<Metrics>,
    /// The queue.
    pub outbox: Arc<Outbox>,
    /// Delivers e-mails.
    pub(crate) mailer: Mailer,
    pub(crate) write: WriteMail,
    stopping: AtomicBool,
}

impl Deref for Mail {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The parts that e-mail shares with other subjects.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// The counters of e-mails.
    pub metrics: Arc<Metrics>,
    /// The queue.
    pub outbox: Arc<Outbox>,
}

impl Mail {
    /// Creates a handle that sends the e-mails in the outbox.
    pub fn new(shared: Shared, mailer: Mailer, write: WriteMail) -> Self {
        let Shared { db, clock, random, metrics, outbox } = shared;
        let stopping = AtomicBool::new(false);
        Self(Arc::new(Parts { db, clock, random, metrics, outbox, mailer, write, stopping }))
    }

    /// Begins the shutdown: e-mails that are being sent are finished, and no more are taken from the queue.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.outbox.notify_one();
    }

    /// Returns `true` after [`Mail::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Removes the files of e-mails written before this time, and returns their number. Always returns 0 if
    /// e-mails are sent to a mail server.
    ///
    /// # Errors
    /// The folder can't be read or written.
    pub async fn remove_files_before(&self, before: Time) -> Result<u64, Error> {
        self.mailer.remove_files_before(before).await
    }
}

/// An e-mail to one recipient.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The recipient's address.
    pub to: String,
    /// The subject line.
    pub subject: String,
    /// The plain text part.
    pub text: String,
    /// The HTML part.
    pub html: String,
    /// The link in the e-mail, if any. Anyone who has the link can use it.
    pub link: Option<String>,
}

impl fmt::Debug for Message {
    /// Formats only the fields that don't contain the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("to", &self.to)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// The reason why an e-mail wasn't delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryError {
    /// A later attempt may succeed.
    Temporary(String),
    /// No attempt will succeed, for example because the server refused the recipient or the address is
    /// invalid.
    Permanent(String),
}

impl DeliveryError {
    /// Returns `true` if no attempt will succeed.
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Permanent(_))
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary(what) | Self::Permanent(what) => f.write_str(what),
        }
    }
}

/// Returns the text without control characters, so that it can't begin a new line or header.
fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().filter(|c| !breaks(*c)).collect()
}

#[cfg(test)]
mod tests;
