//! Counters of the e-mails that were queued within an hour, for each user, client address and recipient. All
//! replicas share them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use crate::bounds::{self, Bounds, CLOCK_SKEW_MS, Counter, WINDOW_MS};
use crate::kinds::Template;
use db::sized::{Sizes, values};
use db::{Tx, sql};
use kernel::addresses::PlainMailbox;
use kernel::clock::Time;
use kernel::ids::UserId;
use kernel::secrets::sha256;

/// The user and the client address that cause an e-mail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The user, if known; for an API key, the user on whose behalf it acts.
    pub account: Option<UserId>,
    /// The client's address. All unknown addresses share a counter.
    pub address: Option<IpAddr>,
}

/// Recipients whose e-mails were counted and are within the limits. Only [`admit`] creates this type, and the
/// outbox accepts only this type.
#[derive(Debug)]
pub struct Admitted(Vec<String>);

impl Admitted {
    pub(super) fn recipients(&self) -> &[String] {
        &self.0
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excess {
    pub counter: Counter,
    /// The limit in e-mails per hour.
    pub limit: u32,
    /// The number of e-mails that were left out because of this limit.
    pub mails: usize,
    /// The time until the end of the counter's hour, in milliseconds.
    pub retry_after_ms: i64,
}

/// The result of a check against the limits.
#[derive(Debug)]
pub struct Admission {
    /// The recipients whose e-mails may be queued.
    pub admitted: Admitted,
    /// The limits that exclude other recipients; empty if all are admitted.
    pub excess: Vec<Excess>,
}

/// Counts e-mails in the transaction that is about to queue them. The counters stay locked until the
/// transaction ends, so that parallel e-mails are counted one after the other. Without bounds, nothing is
/// counted.
pub async fn admit(
    tx: &mut Tx,
    bounds: Option<&Bounds>,
    sender: &Sender,
    template: Template,
    recipients: Vec<String>,
    now: Time,
) -> Result<Admission, db::Error> {
    let Some(bounds) = bounds.filter(|_| !recipients.is_empty()) else {
        return Ok(Admission { admitted: Admitted(recipients), excess: Vec::new() });
    };
    let total = recipients.len();
    let by_recipient = template.counter();
    let mut mails: BTreeMap<Subject, Vec<String>> = BTreeMap::new();
    for recipient in recipients {
        let subject = (by_recipient, sha256(PlainMailbox::of(&recipient).as_str().as_bytes()));
        mails.entry(subject).or_default().push(recipient);
    }
    let senders = subjects(sender);
    let mut added: Vec<(Subject, usize)> = senders.iter().map(|subject| (*subject, total)).collect();
    added.extend(mails.iter().map(|(subject, recipients)| (*subject, recipients.len())));
    let counts = add(tx, &added, now).await?;

    let mut excess = Vec::new();
    let mut admitted = Vec::with_capacity(total);
    for (subject, mut recipients) in mails {
        let fits = counts.fitting(subject, recipients.len(), bounds);
        let left_out = recipients.len().saturating_sub(fits);
        if left_out > 0 {
            excess.push(counts.excess(subject, left_out, bounds, now));
            recipients.truncate(fits);
        }
        admitted.append(&mut recipients);
    }
    for subject in senders {
        let fits = counts.fitting(subject, total, bounds);
        if fits < total {
            excess.push(counts.excess(subject, admitted.len().saturating_sub(fits), bounds, now));
            admitted.truncate(fits);
        }
    }
    Ok(Admission { admitted: Admitted(admitted), excess })
}

/// A counter, and the SHA-256 hash of its subject, which is a user, a client address or a recipient.
type Subject = (Counter, [u8; 32]);

fn subjects(sender: &Sender) -> Vec<Subject> {
    let account = sender.account.map(|id| (Counter::Account, sha256(id.to_string().as_bytes())));
    let address = match sender.address.map(|address| address.to_canonical()) {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        // Internet providers assign at least a /64 network to each customer.
        Some(IpAddr::V6(address)) => format!("{:x}/64", address.to_bits() >> 64),
    };
    account.into_iter().chain([(Counter::Address, sha256(address.as_bytes()))]).collect()
}

/// The counters after e-mails were added.
struct Counts(BTreeMap<Subject, (i64, Time)>);

impl Counts {
    fn of(&self, subject: Subject) -> (i64, Time) {
        self.0.get(&subject).copied().unwrap_or((i64::MAX, Time::from_unix_ms(0)))
    }

    fn fitting(&self, subject: Subject, added: usize, bounds: &Bounds) -> usize {
        let added = i64::try_from(added).unwrap_or(i64::MAX);
        let fits = bounds::fitting(self.of(subject).0, added, bounds.of(subject.0));
        usize::try_from(fits).unwrap_or(0)
    }

    fn excess(&self, subject: Subject, mails: usize, bounds: &Bounds, now: Time) -> Excess {
        let (counter, (_, since)) = (subject.0, self.of(subject));
        let retry_after_ms = bounds::retry_after_ms(since, now);
        Excess { counter, limit: bounds.of(counter), mails, retry_after_ms }
    }
}

struct CounterRow {
    scope: Counter,
    subject_hash: [u8; 32],
    mails: i64,
    since: Time,
}

db::row!(CounterRow { scope, subject_hash, mails, since });

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let is_current = format!(
            "mail_counters.since > excluded.since - {WINDOW_MS} AND mail_counters.since <= excluded.since + {CLOCK_SKEW_MS}"
        );
        format!(
            "INSERT INTO mail_counters (scope, subject_hash, mails, since) VALUES {}
             ON CONFLICT (scope, subject_hash) DO UPDATE SET
                 mails = CASE WHEN {is_current} THEN mail_counters.mails + excluded.mails ELSE excluded.mails END,
                 since = CASE WHEN {is_current} THEN mail_counters.since ELSE excluded.since END
             RETURNING scope, subject_hash, mails, since",
            values(rows, 4)
        )
    })
});

/// Adds to counters, and returns their new counts. `added` must be in the order in which counters are locked.
async fn add(tx: &mut Tx, added: &[(Subject, usize)], now: Time) -> Result<Counts, db::Error> {
    let mut counts = BTreeMap::new();
    for (text, chunk) in ADD.chunks(added) {
        let mut statement = sql(text).expecting(chunk.len() * 4);
        for ((counter, hash), mails) in chunk {
            let mails = i64::try_from(*mails).unwrap_or(i64::MAX);
            statement = statement.bind(*counter).bind(hash).bind(mails).bind(now);
        }
        for CounterRow { scope, subject_hash, mails, since } in statement.all(tx).await? {
            counts.insert((scope, subject_hash), (mails, since));
        }
    }
    Ok(Counts(counts))
}

/// Removes counters whose hour began before `time`, and returns their number.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM mail_counters WHERE since < $1").bind(time).execute(tx).await
}
