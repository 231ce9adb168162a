//! The ledger: double entry, append-only. Every ledger transaction has an idempotency key, and its entries
//! sum to zero.

use crate::rules::books::Source;
use crate::store::wallets::nano;
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
    /// An invoice was paid from outside.
    Payment,
    /// An invoice was voided.
    Void,
    /// A debt was given up, or a balance too small to be paid was removed.
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
    /// Unique within the organization: a movement with this key happens once.
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

/// Returns the sum of a wallet's entries and their number, for tests: it reads them all.
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
