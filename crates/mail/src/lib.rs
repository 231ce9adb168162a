//! Mail: a queue in the database that no mail is lost from.
//!
//! * [`posting`]: a mail is counted against the limits of mails and put into the [`posting::Outbox`], in the
//!   transaction of what it is about.
//! * `jobs::outbox`: the sending job takes due mails, has each written by [`WriteMail`], and tries again what doesn't leave.
//! * [`templates`]: the words of each mail.
//! * [`Mailer`] and [`smtp`]: how it leaves, as a file in a folder or to a mail server.
//!
//! A queued mail has no token in it: whoever writes it makes one when it leaves. That takes rows of accounts and
//! organizations, of which nothing is known here, so [`Mail`] is given the function that does it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;

use crate::store::outbox::QueuedMail;
use db::Db;
use kernel::clock::{Clock, Time};
use kernel::error::Error;
use kernel::random::Random;
use metrics::Metrics;
use posting::Outbox;

pub mod bounds;
mod delivery;
pub mod posting;
pub mod sending;
pub mod smtp;
pub mod store;
pub mod templates;
mod unlinked;
mod url;

pub use delivery::Mailer;
pub use url::{MailUrl, SmtpLogin, SmtpServer, SmtpTls};

/// Table `mail`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where mail goes.
    pub url: MailUrl,
    /// The sender, an address with or without a name.
    pub from: String,
}

/// Writes a queued mail, with a fresh token where it needs one; `None` when there is nobody or nothing to write to.
pub type WriteMail =
    Arc<dyn for<'a> Fn(&'a QueuedMail) -> BoxFuture<'a, Result<Option<Message>, Error>> + Send + Sync>;

/// The handle of mail; cheap to clone.
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
    /// How mail leaves.
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

/// The parts that [`Mail`] shares with others.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of chance.
    pub random: Random,
    /// The counters of mails.
    pub metrics: Arc<Metrics>,
    /// The queue.
    pub outbox: Arc<Outbox>,
}

impl Mail {
    /// A handle that sends what is in the outbox.
    pub fn new(shared: Shared, mailer: Mailer, write: WriteMail) -> Self {
        let Shared { db, clock, random, metrics, outbox } = shared;
        let stopping = AtomicBool::new(false);
        Self(Arc::new(Parts { db, clock, random, metrics, outbox, mailer, write, stopping }))
    }

    /// The server is about to end: what is under way is sent, and no more is taken.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.outbox.notify_one();
    }

    /// Returns `true` after [`Mail::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Removes the files of mails that were written before an instant, and returns how many; a mail server has none.
    ///
    /// # Errors
    /// The disk's.
    pub async fn remove_files_before(&self, before: Time) -> Result<u64, Error> {
        self.mailer.remove_files_before(before).await
    }
}

/// One mail to one person.
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
    /// The link that the mail is about, if it is about one. It works for whoever has it.
    pub link: Option<String>,
}

impl fmt::Debug for Message {
    /// Leaves out what holds the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("to", &self.to)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// Why a mail didn't leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryError {
    /// Trying again later may help.
    Temporary(String),
    /// It won't: the recipient was refused, or the address can't be written to.
    Permanent(String),
}

impl DeliveryError {
    /// `true` if trying again is of no use.
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

/// The text without control characters: nothing in it can begin another line or header.
fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().filter(|c| !breaks(*c)).collect()
}

#[cfg(test)]
mod tests;
