//! The mailboxes whose users have had the first credit limit. Rows are never removed, because the limit is
//! given once.

use db::{Tx, sql};
use kernel::addresses::PlainMailbox;
use kernel::clock::Time;

/// Records that the first credit limit is given to a mailbox. Returns `false` if it was already given. A
/// concurrent transaction with the same mailbox waits. Call this after every lock except those of the
/// counters of e-mails.
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
