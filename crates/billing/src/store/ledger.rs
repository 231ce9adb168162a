//! The ledger: double entry, append-only. Every movement has an idempotency key, and its entries sum to zero.

use crate::rules::books::Source;
use crate::store::wallets::nano;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{LedgerTransactionId, OrganizationId};
use kernel::money::Nano;

/// Why money moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Movement {
    /// Usage was recorded, or corrected.
    Usage,
    /// Credit was added.
    Credit,
    /// What was left of a credit ran out.
    CreditExpiry,
    /// A month's volume discount.
    Discount,
    /// An invoice was paid from outside.
    Payment,
    /// An invoice was taken back.
    Void,
    /// A debt was given up.
    WriteOff,
}

impl Movement {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Credit => "credit",
            Self::CreditExpiry => "credit_expiry",
            Self::Discount => "discount",
            Self::Payment => "payment",
            Self::Void => "void",
            Self::WriteOff => "write_off",
        }
    }
}

/// The other side of a movement of a wallet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Account {
    /// What usage brought in, at list price.
    Usage,
    /// What volume discounts gave back of it.
    Discounts,
    /// Credit that was bought.
    Purchases,
    /// Credit that was given.
    Grants,
    /// Credit that nobody used in its time.
    ExpiredCredits,
    /// Payments of invoices.
    Payments,
    /// What void invoices gave back.
    VoidedInvoices,
    /// Debts that were given up.
    WrittenOff,
}

impl Account {
    /// Where credits of this source come from.
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

    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Discounts => "discounts",
            Self::Purchases => "purchases",
            Self::Grants => "grants",
            Self::ExpiredCredits => "expired_credits",
            Self::Payments => "payments",
            Self::VoidedInvoices => "voided_invoices",
            Self::WrittenOff => "written_off",
        }
    }
}

/// A movement between a wallet and one other account.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its id.
    pub id: LedgerTransactionId,
    /// Whose wallet it is.
    pub organization_id: OrganizationId,
    /// Why.
    pub movement: Movement,
    /// Unique within the organization: the same movement happens once.
    pub idempotency_key: String,
    /// The other side.
    pub account: Account,
    /// What the wallet gains; the other side loses it.
    pub to_wallet: Nano,
}

/// Records a movement. The wallet's row is the caller's to change, in the same transaction.
///
/// # Errors
/// `Unique` with `LedgerKey` when a movement of this key was made already; of the next statement or the commit, on PostgreSQL.
pub async fn record(tx: &mut Tx, transfer: &Transfer, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
         VALUES ($1, $2, $3, $4, $5)")
    .bind(transfer.id)
    .bind(transfer.organization_id)
    .bind(transfer.movement.as_str())
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
    .bind(transfer.account.as_str())
    .bind(from_other)
    .defer(tx)
    .await
}

/// What the entries of a wallet sum to, and how many movements there are: for checks, it reads them all.
pub async fn wallet_sum(tx: &mut Tx, organization_id: OrganizationId) -> Result<Sum, db::Error> {
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
pub struct Sum {
    /// What they sum to.
    pub amount: Nano,
    /// How many there are.
    pub entries: i64,
}

impl FromRow for Sum {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self { amount: row.get("amount_nano")?, entries: row.get("entries")? })
    }
}
