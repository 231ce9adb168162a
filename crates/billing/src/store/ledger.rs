//! The ledger: double entry, append-only. Every ledger transaction has an idempotency key, and its entries
//! sum to zero.

use std::sync::LazyLock;

use crate::rules::books::Source;
use crate::rules::periods::Interval;
use crate::store::wallets::nano;
use db::window::Window;
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{LedgerTransactionId, OrganizationId};
use kernel::money::Nano;
use strum::{EnumString, IntoStaticStr};

/// The reason why money moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Movement {
    /// Usage was recorded, or corrected.
    Usage,
    /// Credit was added.
    Credit,
    /// A credit expired.
    CreditExpiry,
    /// A month's volume discount.
    Discount,
    /// A payment came in, or was returned to its payer.
    Payment,
    /// An invoice was voided.
    Void,
    /// A debt was written off, or a balance too small to be paid was removed.
    WriteOff,
}

db::words!(Movement);

/// The other account of a movement of a wallet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Account {
    /// Usage at list price.
    Usage,
    /// Volume discounts.
    Discounts,
    /// Credit that was bought.
    Purchases,
    /// Credit that was given by the operator.
    Grants,
    /// Credit that expired.
    ExpiredCredits,
    /// Payments of invoices.
    Payments,
    /// Refunds of void invoices.
    VoidedInvoices,
    /// Written off debts and balances.
    WrittenOff,
}

db::words!(Account);

impl Account {
    /// Returns the account of credits from this source.
    pub const fn of(source: Source) -> Self {
        match source {
            Source::Grant => Self::Grants,
            Source::Correction => Self::Usage,
            Source::Discount => Self::Discounts,
            Source::Void => Self::VoidedInvoices,
            Source::Purchase => Self::Purchases,
            Source::Payment => Self::Payments,
        }
    }
}

/// A movement between a wallet and one other account.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub id: LedgerTransactionId,
    pub organization_id: OrganizationId,
    pub movement: Movement,
    /// Unique within the organization: only one movement can have this key.
    pub idempotency_key: String,
    /// The other account.
    pub account: Account,
    /// The amount that the wallet gains and the other account loses.
    pub to_wallet: Nano,
}

/// Records a movement. The caller changes the wallet's row in the same transaction.
///
/// # Errors
/// [`db::Error::Unique`] with `LedgerKey` if a movement with this key exists; on PostgreSQL, at the next
/// statement or the commit.
pub async fn record(tx: &mut Tx, transfer: &Transfer, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(transfer.id)
    .bind(transfer.organization_id)
    .bind(transfer.movement)
    .bind(transfer.idempotency_key.as_str())
    .bind(now)
    .defer(tx)
    .await?;
    let to_wallet = nano(transfer.to_wallet)?;
    let from_other = to_wallet.checked_neg().ok_or_else(|| db::Error::Internal("amount".to_owned()))?;
    sql("INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
         VALUES ($1, 'wallet', $2, $3), ($1, $4, $2, $5)")
    .bind(transfer.id)
    .bind(transfer.organization_id)
    .bind(to_wallet)
    .bind(transfer.account)
    .bind(from_other)
    .defer(tx)
    .await
}

/// A movement from the perspective of its wallet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalletMovement {
    pub id: LedgerTransactionId,
    pub movement: Movement,
    pub idempotency_key: String,
    pub happened_at: Time,
    /// The amount that the wallet gained.
    pub to_wallet: Nano,
}

db::row!(WalletMovement { id, movement: "kind", idempotency_key, happened_at, to_wallet: "amount_nano" });

/// Counts an organization's movements in an interval.
pub const COUNT: &str = "SELECT COUNT(*) FROM ledger_transactions
     WHERE organization_id = $1 AND happened_at >= $2 AND happened_at < $3";

/// Selects movements of an organization in an interval, the newest first. The index skips the rows before the
/// page, and the tables are read only for the selected rows. `CROSS JOIN` makes SQLite keep this order.
pub static FROM_START: LazyLock<String> = LazyLock::new(|| movements("happened_at DESC, id"));
/// Selects the same movements as [`FROM_START`], but skips the rows after the page.
pub static FROM_END: LazyLock<String> = LazyLock::new(|| movements("happened_at, id DESC"));

fn movements(order: &str) -> String {
    format!(
        "SELECT t.id AS id, t.kind AS kind, t.idempotency_key AS idempotency_key,
                t.happened_at AS happened_at, e.amount_nano AS amount_nano
         FROM (SELECT id FROM ledger_transactions
               WHERE organization_id = $1 AND happened_at >= $2 AND happened_at < $3
               ORDER BY {order} LIMIT $4 OFFSET $5) page
         CROSS JOIN ledger_transactions t CROSS JOIN ledger_entries e
         WHERE t.id = page.id AND e.transaction_id = page.id AND e.account = 'wallet'
         ORDER BY t.happened_at DESC, t.id"
    )
}

/// Runs [`COUNT`].
pub async fn count(
    tx: &mut Tx,
    organization_id: OrganizationId,
    interval: Interval,
) -> Result<i64, db::Error> {
    let Interval { start, end } = interval;
    let (count,): (i64,) = sql(COUNT).bind(organization_id).bind(start).bind(end).heavy().one(tx).await?;
    Ok(count)
}

/// Returns movements of an organization in an interval, the newest first.
pub async fn list(
    tx: &mut Tx,
    organization_id: OrganizationId,
    interval: Interval,
    window: Window,
) -> Result<Vec<WalletMovement>, db::Error> {
    let text = if window.from_end { &FROM_END } else { &FROM_START };
    sql(text.as_str())
        .bind(organization_id)
        .bind(interval.start)
        .bind(interval.end)
        .bind(window.limit)
        .bind(window.offset)
        .heavy()
        .all(tx)
        .await
}

/// Returns the sum of a wallet's entries and their number. This is for tests, because it reads all entries.
pub async fn wallet_sum(tx: &mut Tx, organization_id: OrganizationId) -> Result<EntrySum, db::Error> {
    sql("SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) AS amount_nano, COUNT(*) AS entries
         FROM ledger_entries e JOIN ledger_transactions t ON t.id = e.transaction_id
         WHERE t.organization_id = $1 AND e.account = 'wallet'")
    .bind(organization_id)
    .heavy()
    .one(tx)
    .await
}

/// A sum of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntrySum {
    pub amount: Nano,
    /// The number of entries.
    pub entries: i64,
}

db::row!(EntrySum { amount: "amount_nano", entries });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_words_never_change() {
        for word in ["usage", "credit", "credit_expiry", "discount", "payment", "void", "write_off"] {
            assert!(word.parse::<Movement>().is_ok(), "{word}");
        }
        let accounts = [
            "usage",
            "discounts",
            "purchases",
            "grants",
            "expired_credits",
            "payments",
            "voided_invoices",
            "written_off",
        ];
        for word in accounts {
            assert!(word.parse::<Account>().is_ok(), "{word}");
        }
    }
}
