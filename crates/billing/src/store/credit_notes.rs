//! Credit notes: corrections of invoices.

use std::sync::LazyLock;

use crate::rules::invoicing::Item;
use crate::store::wallets::nano;
use db::{Tx, sql};
use kernel::clock::{Month, Time};
use kernel::ids::{CreditNoteId, InvoiceId, OrganizationId};
use kernel::money::Nano;

/// A row of `credit_notes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditNote {
    pub id: CreditNoteId,
    /// Counted across all organizations, without gaps.
    pub number: i64,
    pub organization_id: OrganizationId,
    pub invoice_id: InvoiceId,
    /// The month of the invoice.
    pub month: Month,
    /// The month that was open when the note was made.
    pub booked_month: Month,
    /// The corrections that caused the credit note, as a string.
    pub reference: String,
    /// The refunded amount; negative if the lost discount is worth more than the tokens.
    pub amount: Nano,
    pub created_at: Time,
}

db::row!(CreditNote {
    id,
    number,
    organization_id,
    invoice_id,
    month,
    booked_month,
    reference,
    amount: "amount_nano",
    created_at
});

const COLUMNS: &str =
    "id, number, organization_id, invoice_id, month, booked_month, reference, amount_nano, created_at";

/// An item with the id of its credit note.
struct ItemRow {
    credit_note_id: CreditNoteId,
    item: Item,
}

db::row!(ItemRow { credit_note_id, item: Item::from_row });

/// Returns the next number. The row of the sequence stays locked until the transaction ends, so call this
/// last. A rollback returns the number.
pub async fn next_number(tx: &mut Tx) -> Result<i64, db::Error> {
    let (number,): (i64,) =
        sql("UPDATE sequences SET last = last + 1 WHERE name = 'credit_notes' RETURNING last")
            .one(tx)
            .await?;
    Ok(number)
}

/// Adds a credit note with its items.
pub async fn insert(tx: &mut Tx, note: &CreditNote, items: &[Item]) -> Result<(), db::Error> {
    sql("INSERT INTO credit_notes (id, number, organization_id, invoice_id, month, booked_month,
             reference, amount_nano, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(note.id)
    .bind(note.number)
    .bind(note.organization_id)
    .bind(note.invoice_id)
    .bind(note.month)
    .bind(note.booked_month)
    .bind(note.reference.as_str())
    .bind(nano(note.amount)?)
    .bind(note.created_at)
    .defer(tx)
    .await?;
    for (position, item) in (1_i64..).zip(items) {
        sql("INSERT INTO credit_note_items (credit_note_id, position, kind, description, quantity,
                 unit_price, amount)
             VALUES ($1, $2, $3, $4, $5, $6, $7)")
        .bind(note.id)
        .bind(position)
        .bind(item.kind)
        .bind(item.description.as_str())
        .bind(item.quantity)
        .bind(item.unit_price.to_string())
        .bind(item.amount.to_string())
        .defer(tx)
        .await?;
    }
    Ok(())
}

/// Returns the sum of the credit notes on a month's invoice.
pub async fn sum_of_month(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Nano, db::Error> {
    let (sum,): (Nano,) = sql("SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM credit_notes
         WHERE organization_id = $1 AND month = $2")
    .bind(organization_id)
    .bind(month)
    .one(tx)
    .await?;
    Ok(sum)
}

static BETWEEN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM credit_notes
         WHERE organization_id = $1 AND month BETWEEN $2 AND $3 ORDER BY month, number"
    )
});

/// Returns the credit notes on the invoices of these months with their items, by month and number.
pub async fn between(
    tx: &mut Tx,
    organization_id: OrganizationId,
    first: Month,
    last: Month,
) -> Result<Vec<(CreditNote, Vec<Item>)>, db::Error> {
    let notes: Vec<CreditNote> =
        sql(BETWEEN.as_str()).bind(organization_id).bind(first).bind(last).all(tx).await?;
    if notes.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<ItemRow> =
        sql("SELECT i.credit_note_id, i.kind, i.description, i.quantity, i.unit_price, i.amount
             FROM credit_notes n JOIN credit_note_items i ON i.credit_note_id = n.id
             WHERE n.organization_id = $1 AND n.month BETWEEN $2 AND $3
                 ORDER BY i.credit_note_id, i.position")
        .bind(organization_id)
        .bind(first)
        .bind(last)
        .all(tx)
        .await?;
    Ok(with_items(notes, rows))
}

/// Selects the credit notes that were made while a month was open. They are on invoices of earlier months.
pub static BOOKED_IN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM credit_notes
         WHERE organization_id = $1 AND month < $2 AND booked_month = $2 ORDER BY month, number"
    )
});

/// Selects the items of the notes of [`BOOKED_IN`].
pub const ITEMS_BOOKED_IN: &str =
    "SELECT i.credit_note_id, i.kind, i.description, i.quantity, i.unit_price, i.amount
     FROM credit_notes n JOIN credit_note_items i ON i.credit_note_id = n.id
     WHERE n.organization_id = $1 AND n.month < $2 AND n.booked_month = $2 ORDER BY i.credit_note_id, i.position";

/// Returns the credit notes that were made while a month was open, with their items, by month and number.
pub async fn booked_in(
    tx: &mut Tx,
    organization_id: OrganizationId,
    booked: Month,
) -> Result<Vec<(CreditNote, Vec<Item>)>, db::Error> {
    let notes: Vec<CreditNote> =
        sql(BOOKED_IN.as_str()).bind(organization_id).bind(booked).heavy().all(tx).await?;
    if notes.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<ItemRow> = sql(ITEMS_BOOKED_IN).bind(organization_id).bind(booked).heavy().all(tx).await?;
    Ok(with_items(notes, rows))
}

/// Returns each note with its items.
fn with_items(notes: Vec<CreditNote>, rows: Vec<ItemRow>) -> Vec<(CreditNote, Vec<Item>)> {
    let mut items: std::collections::BTreeMap<u128, Vec<Item>> = std::collections::BTreeMap::new();
    for row in rows {
        items.entry(row.credit_note_id.as_u128()).or_default().push(row.item);
    }
    let with_items = notes.into_iter().map(|note| {
        let items = items.remove(&note.id.as_u128()).unwrap_or_default();
        (note, items)
    });
    with_items.collect()
}
