//! The mailboxes whose users have had the first credit limit. Rows are never removed: it is given once.

use db::{Tx, sql};
use kernel::addresses::PlainMailbox;
use kernel::clock::Time;

/// Records that the first credit limit is given to a mailbox; `false` if it already was. Another transaction that
/// does so at the same time waits. This comes after every lock except those of the counters of e-mails.
pub async fn take(tx: &mut Tx, mailbox: &PlainMailbox, now: Time) -> Result<bool, db::Error> {
    let inserted = sql(
        "INSERT INTO first_credits (mailbox, granted_at) VALUES ($1, $2) ON CONFLICT (mailbox) DO NOTHING",
    )
    .bind(mailbox.as_str())
    .bind(now)
    .execute(tx)
    .await?;
    Ok(inserted == 1)
}
