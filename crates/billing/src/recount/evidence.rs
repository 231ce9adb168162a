//! The evidence for the recount: stored usage, payments, and actions of operators, and the corresponding rows
//! of the books.

mod payments;
mod usage;

pub use payments::{PaymentRow, ReturnRow, Returns, StatementRow, by_payment, payments, returns, statements};
pub use usage::{
    CALLS, CallsRow, CreditedRow, DAILY, DAILY_PARTS, DayRow, EVENTS, EVENTS_END, EventPlace, EventsRow,
    credited, days, events, events_gone_before,
};

use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Month, Time};
use kernel::money::Pico;

/// Sums are read in two parts, so that a sum that exceeds 64 bits stays exact on both databases.
const NANO_PER_WHOLE: i128 = 1_000_000_000;

/// A wallet in the books.
#[derive(Clone, Debug)]
pub struct WalletRow {
    pub posted_nano: i64,
    pub open_month: Month,
    pub credit_limit_nano: i64,
    pub has_demo_credit: bool,
    pub created_at: Time,
}

db::row!(WalletRow { posted_nano, open_month, credit_limit_nano, has_demo_credit, created_at });

/// Returns the wallet.
pub async fn wallet(tx: &mut Tx, organization_id: &str) -> Result<Option<WalletRow>, db::Error> {
    sql("SELECT posted_nano, open_month, credit_limit_nano, has_demo_credit, created_at FROM wallets
         WHERE organization_id = $1")
    .bind(organization_id)
    .optional(tx)
    .await
}

/// An invoice.
#[derive(Clone, Debug)]
pub struct InvoiceRow {
    pub id: String,
    pub month: Month,
    pub amount_nano: i64,
    pub brought_forward_nano: i64,
    pub status: String,
    pub finalized_at: Time,
    pub paid_at: Option<Time>,
    pub voided_at: Option<Time>,
    /// Debts that the invoice charges as lines, in picos. Only earlier versions made such lines.
    pub carried_over: i128,
}

impl InvoiceRow {
    pub fn is_void(&self) -> bool {
        self.status == "void"
    }
}

impl FromRow for InvoiceRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            month: row.get("month")?,
            amount_nano: row.get("amount_nano")?,
            brought_forward_nano: row.get("brought_forward_nano")?,
            status: row.get("status")?,
            finalized_at: row.get("finalized_at")?,
            paid_at: row.get("paid_at")?,
            voided_at: row.get("voided_at")?,
            carried_over: 0,
        })
    }
}

/// Returns the invoices, the oldest first.
pub async fn invoices(tx: &mut Tx, organization_id: &str) -> Result<Vec<InvoiceRow>, db::Error> {
    let mut invoices: Vec<InvoiceRow> =
        sql("SELECT id, month, amount_nano, status, finalized_at, paid_at, voided_at,
                COALESCE(brought_forward_nano, 0) AS brought_forward_nano
         FROM invoices WHERE organization_id = $1 ORDER BY month, id")
        .bind(organization_id)
        .heavy()
        .all(tx)
        .await?;
    let carried: Vec<(String, String)> = sql("SELECT i.invoice_id, i.amount FROM invoices v
         JOIN invoice_items i ON i.invoice_id = v.id WHERE v.organization_id = $1 AND i.kind = 'carried_over'")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await?;
    for (id, amount) in carried {
        let amount = Pico::parse(&amount).unwrap_or_default().units();
        for invoice in invoices.iter_mut().filter(|invoice| invoice.id == id) {
            invoice.carried_over += amount;
        }
    }
    Ok(invoices)
}

/// A credit note.
#[derive(Clone, Debug)]
pub struct NoteRow {
    pub invoice_id: String,
    pub booked_month: Month,
    pub amount_nano: i64,
    pub created_at: Time,
}

db::row!(NoteRow { invoice_id, booked_month, amount_nano, created_at });

/// Returns the credit notes, the oldest first.
pub async fn notes(tx: &mut Tx, organization_id: &str) -> Result<Vec<NoteRow>, db::Error> {
    sql("SELECT invoice_id, booked_month, amount_nano, created_at FROM credit_notes
         WHERE organization_id = $1 ORDER BY number")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// A movement of the wallet other than usage.
#[derive(Clone, Debug)]
pub struct MovementRow {
    pub kind: String,
    pub idempotency_key: String,
    pub happened_at: Time,
    pub to_wallet_nano: i64,
}

db::row!(MovementRow { kind, idempotency_key, happened_at, to_wallet_nano });

/// Selects the movements with keys from `$2`, inclusive, to `$3`, exclusive.
pub const LEDGER: &str =
    "SELECT t.kind AS kind, t.idempotency_key AS idempotency_key, t.happened_at AS happened_at,
         e.amount_nano AS to_wallet_nano
     FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id AND e.account = 'wallet'
     WHERE t.organization_id = $1 AND t.idempotency_key >= $2 AND t.idempotency_key < $3";

/// Returns the movements of payments, expired credits, and amounts that were taken back or written off.
pub async fn ledger(tx: &mut Tx, organization_id: &str) -> Result<Vec<MovementRow>, db::Error> {
    let mut movements = Vec::new();
    for (from, until) in [
        ("credit:", "credit;"),
        ("credit_expiry:", "credit_expiry;"),
        ("payment:", "payment;"),
        ("write_off:", "write_off;"),
    ] {
        let slice: Vec<MovementRow> =
            sql(LEDGER).bind(organization_id).bind(from).bind(until).heavy().all(tx).await?;
        movements.extend(slice);
    }
    Ok(movements)
}

/// Returns the sum of the credits that operators have added, and of the external payments that they have
/// recorded.
pub async fn added(tx: &mut Tx, organization_id: &str) -> Result<i128, db::Error> {
    let (whole, rest): (i64, i64) = sql("SELECT CAST(COALESCE(SUM(amount_nano / 1000000000), 0) AS BIGINT),
                CAST(COALESCE(SUM(amount_nano % 1000000000), 0) AS BIGINT)
         FROM credits WHERE organization_id = $1 AND kind IN ('grant', 'purchase', 'payment')
           AND reference NOT LIKE 'payment:payment%'")
    .bind(organization_id)
    .heavy()
    .one(tx)
    .await?;
    Ok(i128::from(whole) * NANO_PER_WHOLE + i128::from(rest))
}

/// A credit of an operator, and the entry about it in the audit trail.
#[derive(Clone, Debug)]
pub struct AdditionRow {
    pub id: String,
    pub amount_nano: i64,
    pub actor: Option<String>,
    pub detail: Option<String>,
}

db::row!(AdditionRow { id, amount_nano, actor, detail });

/// Returns the credits of operators that are so recent that their audit entries still exist.
pub async fn additions(tx: &mut Tx, organization_id: &str) -> Result<Vec<AdditionRow>, db::Error> {
    sql("SELECT c.id AS id, c.amount_nano AS amount_nano, a.actor AS actor, a.detail AS detail
         FROM credits c LEFT JOIN audit_log a ON a.organization_id = $1 AND a.target = c.id AND a.action = 'credit.added'
         WHERE c.organization_id = $1 AND c.kind IN ('grant', 'purchase') AND c.reference NOT LIKE 'payment:%'
           AND c.created_at > (SELECT COALESCE(MAX(happened_at), 0) FROM audit_log) - 7776000000")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Returns the time at which the organization was deleted, if the audit trail still contains it.
pub async fn deleted_at(tx: &mut Tx, organization_id: &str) -> Result<Option<Time>, db::Error> {
    let (at,): (Option<Time>,) = sql("SELECT MAX(happened_at) FROM audit_log
         WHERE organization_id = $1 AND action = 'organization.deleted'")
    .bind(organization_id)
    .heavy()
    .one(tx)
    .await?;
    Ok(at)
}

/// Returns the reason why the automatic top-up is paused.
pub async fn paused_reason(tx: &mut Tx, organization_id: &str) -> Result<Option<String>, db::Error> {
    let row: Option<(Option<String>,)> =
        sql("SELECT paused_reason FROM auto_top_ups WHERE organization_id = $1")
            .bind(organization_id)
            .optional(tx)
            .await?;
    Ok(row.and_then(|(reason,)| reason))
}

/// Returns the last recorded credit limit of the wallet, and whether the wallet has the demo credit.
pub async fn last_credit(tx: &mut Tx, organization_id: &str) -> Result<Option<(i64, bool)>, db::Error> {
    sql("SELECT credit_limit_nano, has_demo_credit FROM credit_limit_changes
         WHERE organization_id = $1 ORDER BY number DESC LIMIT 1")
    .bind(organization_id)
    .optional(tx)
    .await
}

/// Returns the details of the last entry of the audit trail about the credit limit.
pub async fn last_limit(tx: &mut Tx, organization_id: &str) -> Result<Option<String>, db::Error> {
    let last: Option<(Option<String>,)> = sql("SELECT detail FROM audit_log
         WHERE organization_id = $1 AND action = 'organization.credit_limit_set' ORDER BY id DESC LIMIT 1")
    .bind(organization_id)
    .heavy()
    .optional(tx)
    .await?;
    Ok(last.and_then(|(detail,)| detail))
}
