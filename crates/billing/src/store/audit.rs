//! The reads of the audit: the books of one organization, in slices, so that each statement is fast. Run
//! them in a snapshot, so that all of them are consistent.

mod usage;

pub use usage::{DAILY, DAILY_PARTS, EVENTS, SUMS, TOTALS, daily, daily_parts, events, sums, totals};

use crate::rules::audit::{
    BudgetRow, CreditRow, CreditUseRow, Deadline, Finding, InvoiceRow, ItemRow, MovementRow, NoteRow,
    PaymentRow, ReservedRow, WalletRow,
};
use crate::store::amounts::whole_and_rest;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Day, Month, Time};
use kernel::money::{Nano, Pico};

/// Selects the next organization after `$1` by id, of all that have rows in the books, including deleted
/// ones.
pub const NEXT_ORGANIZATION: &str = "SELECT MIN(id) AS id FROM (
         SELECT MIN(id) AS id FROM organizations WHERE id > $1
         UNION ALL SELECT MIN(organization_id) FROM wallets WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM ledger_transactions WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM credits WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM reservations WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM usage_daily WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM usage_daily_sums WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM usage_totals WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM usage_events WHERE organization_id > $1
         UNION ALL SELECT MIN(organization_id) FROM invoices WHERE organization_id > $1) nearest";

/// Runs [`NEXT_ORGANIZATION`]. Ids aren't parsed, so the books of a malformed id are checked too.
pub async fn next_organization(tx: &mut Tx, after: &str) -> Result<Option<String>, db::Error> {
    let (next,): (Option<String>,) = sql(NEXT_ORGANIZATION).bind(after).one(tx).await?;
    Ok(next)
}

db::row!(WalletRow {
    posted: "posted_nano",
    reserved: "reserved_nano",
    open_month,
    currency,
    created_at,
    is_deleted: "is_left",
    budgets
});

/// Returns the wallet.
pub async fn wallet(tx: &mut Tx, organization_id: &str) -> Result<Option<WalletRow>, db::Error> {
    sql("SELECT posted_nano, reserved_nano, open_month, currency, created_at, budgets,
                NOT EXISTS (SELECT 1 FROM organizations o WHERE o.id = w.organization_id) AS is_left
         FROM wallets w WHERE organization_id = $1")
    .bind(organization_id)
    .optional(tx)
    .await
}

db::row!(PaymentRow { payment_id, cause, units, tax, returned, returned_tax, currency });

/// Selects all successful payments, with the amounts recorded as returned, and all refunds and disputes, with
/// the amount that each of them moved and its tax.
pub const PAYMENTS: &str = "SELECT id AS payment_id, '' AS cause, amount_minor AS units, COALESCE(tax_minor, 0) AS tax,
         refunded_minor + disputed_minor AS returned, returned_tax_minor AS returned_tax, currency
         FROM payments WHERE organization_id = $1 AND status = 'succeeded'
     UNION ALL SELECT r.payment_id, r.id, r.is_moved * (r.tax_minor - r.amount_minor), r.is_moved * -r.tax_minor, 0, 0, p.currency
         FROM (SELECT id, payment_id, amount_minor, tax_minor, CASE WHEN status = 'failed' THEN 0 ELSE 1 END AS is_moved
               FROM payment_refunds WHERE organization_id = $1) r JOIN payments p ON p.id = r.payment_id
     UNION ALL SELECT d.payment_id, d.id, d.is_moved * (d.tax_minor - d.amount_minor), d.is_moved * -d.tax_minor, 0, 0, p.currency
         FROM (SELECT id, payment_id, amount_minor, tax_minor, CASE WHEN reinstated_at IS NULL THEN 1 ELSE 0 END AS is_moved
               FROM payment_disputes WHERE organization_id = $1) d JOIN payments p ON p.id = d.payment_id";

/// Runs [`PAYMENTS`].
pub async fn payments(tx: &mut Tx, organization_id: &str) -> Result<Vec<PaymentRow>, db::Error> {
    sql(PAYMENTS).bind(organization_id).heavy().all(tx).await
}

db::row!(Finding { object_id, expected, found });

/// Returns the findings of the last comparison with the payment processor.
pub async fn findings(tx: &mut Tx, organization_id: &str) -> Result<Vec<Finding>, db::Error> {
    sql("SELECT object_id, expected, found FROM payment_findings WHERE organization_id = $1 ORDER BY object_id")
        .bind(organization_id)
        .heavy()
        .all(tx)
        .await
}

/// Returns the number of reservations and their sum.
pub async fn reserved(tx: &mut Tx, organization_id: &str) -> Result<(i64, Nano), db::Error> {
    sql("SELECT COUNT(*), CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM reservations
         WHERE organization_id = $1")
    .bind(organization_id)
    .heavy()
    .one(tx)
    .await
}

db::row!(BudgetRow { id, subject_id, period, reserved: "reserved_nano", created_at });

/// Returns all budgets.
pub async fn budgets(tx: &mut Tx, organization_id: &str) -> Result<Vec<BudgetRow>, db::Error> {
    sql("SELECT id, subject_id, period, reserved_nano, created_at FROM budgets
         WHERE organization_id = $1 ORDER BY id")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Returns the spent amount of a budget in each period, by the first day of the period.
pub async fn budget_uses(tx: &mut Tx, budget_id: &str) -> Result<Vec<(Day, Pico)>, db::Error> {
    let rows: Vec<(Day, i64, i64)> = sql("SELECT period_start, spent_whole, spent_pico FROM budget_uses
         WHERE budget_id = $1 ORDER BY period_start")
    .bind(budget_id)
    .heavy()
    .all(tx)
    .await?;
    Ok(rows.into_iter().map(|(start, whole, rest)| (start, whole_and_rest(whole, rest))).collect())
}

db::row!(ReservedRow { project_id, api_key_id, amount: "amount_nano" });

/// Returns the sums of the reservations of each caller in a project.
pub async fn reserved_by_caller(tx: &mut Tx, organization_id: &str) -> Result<Vec<ReservedRow>, db::Error> {
    sql("SELECT project_id, api_key_id, CAST(SUM(amount_nano) AS BIGINT) AS amount_nano FROM reservations
         WHERE organization_id = $1 GROUP BY project_id, api_key_id")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

db::row!(MovementRow {
    id,
    kind,
    idempotency_key,
    entries,
    foreign_entries: "elsewhere",
    sum: "sum_nano",
    to_wallet: "to_wallet_nano"
});

/// Selects at most `$3` ledger transactions with the sums of their entries, by idempotency key, after the key
/// `$2`.
pub const MOVEMENTS: &str = "SELECT t.id AS id, t.kind AS kind, t.idempotency_key AS idempotency_key,
         COUNT(e.account) AS entries,
         CAST(COALESCE(SUM(CASE WHEN e.organization_id <> $1 THEN 1 ELSE 0 END), 0) AS BIGINT) AS elsewhere,
         CAST(COALESCE(SUM(e.amount_nano), 0) AS BIGINT) AS sum_nano,
         CAST(COALESCE(SUM(CASE WHEN e.account = 'wallet' THEN e.amount_nano ELSE 0 END), 0) AS BIGINT)
             AS to_wallet_nano
     FROM (SELECT id, kind, idempotency_key FROM ledger_transactions
           WHERE organization_id = $1 AND idempotency_key > $2 ORDER BY idempotency_key LIMIT $3) t
     LEFT JOIN ledger_entries e ON e.transaction_id = t.id
     GROUP BY t.id, t.kind, t.idempotency_key ORDER BY t.idempotency_key";

/// Runs [`MOVEMENTS`].
pub async fn movements(
    tx: &mut Tx,
    organization_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<MovementRow>, db::Error> {
    sql(MOVEMENTS).bind(organization_id).bind(after).bind(limit).heavy().all(tx).await
}

db::row!(CreditRow { id, amount: "amount_nano", remaining: "remaining_nano", created_at, expires_at });

/// Returns all credits.
pub async fn credits(tx: &mut Tx, organization_id: &str) -> Result<Vec<CreditRow>, db::Error> {
    sql("SELECT id, amount_nano, remaining_nano, created_at, expires_at FROM credits
         WHERE organization_id = $1 ORDER BY id")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

impl FromRow for InvoiceRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            month: row.get("month")?,
            amount: row.get("amount_nano")?,
            due: row.get("due_nano")?,
            status: row.get("status")?,
            carried_over: Nano::ZERO,
            brought_forward: row.get("brought_forward_nano")?,
            voided_at: row.get("voided_at")?,
            credited: row.get("credited_nano")?,
            currency: row.get("currency")?,
            finalized_at: row.get("finalized_at")?,
        })
    }
}

/// Returns the usage that credit notes posted, by the month that was open when they were made.
pub async fn credited(tx: &mut Tx, organization_id: &str) -> Result<Vec<(Month, Nano)>, db::Error> {
    sql("SELECT booked_month, CAST(SUM(posted_nano) AS BIGINT) AS posted_nano FROM credited_usage
         WHERE organization_id = $1 GROUP BY booked_month")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Returns all invoices, by month.
pub async fn invoices(tx: &mut Tx, organization_id: &str) -> Result<Vec<InvoiceRow>, db::Error> {
    sql("SELECT id, month, amount_nano, due_nano, status, currency, finalized_at, voided_at, brought_forward_nano,
                CAST(COALESCE((SELECT SUM(n.amount_nano) FROM credit_notes n
                    WHERE n.invoice_id = i.id), 0) AS BIGINT)
                    AS credited_nano
         FROM invoices i WHERE organization_id = $1 ORDER BY month, id")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

db::row!(ItemRow { invoice_id, position, kind, description, quantity, unit_price, amount });

/// Returns the items of all invoices.
pub async fn invoice_items(tx: &mut Tx, organization_id: &str) -> Result<Vec<ItemRow>, db::Error> {
    sql("SELECT i.invoice_id AS invoice_id, i.position AS position, i.kind AS kind,
                i.description AS description, i.quantity AS quantity, i.unit_price AS unit_price,
                i.amount AS amount
         FROM invoices v JOIN invoice_items i ON i.invoice_id = v.id
         WHERE v.organization_id = $1 ORDER BY i.invoice_id, i.position")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// The numbers of all invoices or credit notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    pub count: i64,
    pub first: Option<i64>,
    pub last: Option<i64>,
    /// The last number that was assigned.
    pub given: i64,
}

db::row!(Numbers { count, first, last, given });

/// Returns the numbers of all invoices.
pub async fn numbers(tx: &mut Tx) -> Result<Numbers, db::Error> {
    sql("SELECT COUNT(*) AS count, MIN(number) AS first, MAX(number) AS last,
                COALESCE((SELECT last FROM sequences WHERE name = 'invoices'), 0) AS given FROM invoices")
    .heavy()
    .one(tx)
    .await
}

/// Returns the time before which events may have been deleted.
pub async fn events_gone_before(tx: &mut Tx) -> Result<Time, db::Error> {
    let (before,): (Time,) = sql("SELECT usage_events_before FROM retention").one(tx).await?;
    Ok(before)
}

db::row!(CreditUseRow { month, credit_id, amount: "amount_nano" });

/// Returns the parts of credits that paid for months.
pub async fn credit_uses(tx: &mut Tx, organization_id: &str) -> Result<Vec<CreditUseRow>, db::Error> {
    sql("SELECT month, credit_id, amount_nano FROM credit_uses WHERE organization_id = $1")
        .bind(organization_id)
        .heavy()
        .all(tx)
        .await
}

db::row!(NoteRow { id, invoice_id, month, booked_month, amount: "amount_nano" });

/// Returns all credit notes.
pub async fn credit_notes(tx: &mut Tx, organization_id: &str) -> Result<Vec<NoteRow>, db::Error> {
    sql("SELECT id, invoice_id, month, booked_month, amount_nano
         FROM credit_notes WHERE organization_id = $1 ORDER BY number")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Returns the items of all credit notes.
pub async fn credit_note_items(tx: &mut Tx, organization_id: &str) -> Result<Vec<ItemRow>, db::Error> {
    sql("SELECT i.credit_note_id AS invoice_id, i.position AS position, i.kind AS kind,
                i.description AS description, i.quantity AS quantity, i.unit_price AS unit_price,
                i.amount AS amount
         FROM credit_notes n JOIN credit_note_items i ON i.credit_note_id = n.id
         WHERE n.organization_id = $1 ORDER BY i.credit_note_id, i.position")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Returns the list price of the usage that credit notes took back, by the billed month and the open month.
pub async fn credited_amounts(
    tx: &mut Tx,
    organization_id: &str,
) -> Result<Vec<((Month, Month), Pico)>, db::Error> {
    let rows: Vec<(Month, Month, i64, i64)> = sql("SELECT month, booked_month,
                CAST(SUM(credited_usage.amount_whole) AS BIGINT), CAST(SUM(amount_pico) AS BIGINT)
         FROM credited_usage WHERE organization_id = $1 GROUP BY month, booked_month")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(month, booked, whole, rest)| ((month, booked), whole_and_rest(whole, rest)))
        .collect())
}

db::row!(Deadline { id, at: "expires_at" });

/// Returns the reservation that expires first.
pub async fn oldest_reservation(tx: &mut Tx, organization_id: &str) -> Result<Option<Deadline>, db::Error> {
    sql("SELECT id, expires_at FROM reservations WHERE organization_id = $1 ORDER BY expires_at, id LIMIT 1")
        .bind(organization_id)
        .heavy()
        .optional(tx)
        .await
}

/// Returns the time from which all uses of credits are recorded and bills follow the current rules: the time
/// of the first stored catalog, because only versions that store catalogs do both. Servers of earlier
/// versions that run at the same time aren't detected.
pub async fn recorded_since(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let (since,): (Option<Time>,) = sql("SELECT MIN(in_force_at) FROM catalogs").one(tx).await?;
    Ok(since)
}

/// Returns the currency of the catalog in force; `None` before the first catalog.
pub async fn currency(tx: &mut Tx) -> Result<Option<String>, db::Error> {
    let newest: Option<(String,)> =
        sql("SELECT currency FROM catalogs ORDER BY number DESC LIMIT 1").optional(tx).await?;
    Ok(newest.map(|(currency,)| currency))
}

/// Returns the numbers of all credit notes.
pub async fn note_numbers(tx: &mut Tx) -> Result<Numbers, db::Error> {
    sql("SELECT COUNT(*) AS count, MIN(number) AS first, MAX(number) AS last,
                COALESCE((SELECT last FROM sequences WHERE name = 'credit_notes'), 0) AS given
                    FROM credit_notes")
    .heavy()
    .one(tx)
    .await
}
