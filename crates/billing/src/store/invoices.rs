//! Invoices: the usage billed in a month, at most one per organization.

use std::sync::LazyLock;

use crate::rules::invoicing::{Item, Status};
use crate::store::payment_pages;
use crate::store::wallets::nano;
use db::{FromRow, Page, Row, Tx, sql};
use kernel::clock::{Month, Time};
use kernel::ids::{InvoiceId, OrganizationId};
use kernel::money::{Nano, Pico};

/// A row of `invoices`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invoice {
    pub id: InvoiceId,
    /// Counted across all organizations, without gaps.
    pub number: i64,
    pub organization_id: OrganizationId,
    /// The name of the organization when the invoice was made.
    pub organization_name: String,
    pub month: Month,
    /// ISO 4217 code.
    pub currency: String,
    /// The charged amount: the sum of its items.
    pub amount: Nano,
    /// An earlier debt that is on no other invoice, and is due with this invoice.
    pub brought_forward: Nano,
    /// The amount that neither the wallet nor later money has paid.
    pub due: Nano,
    pub status: Status,
    pub finalized_at: Time,
    /// The time at which the amount due became 0.
    pub paid_at: Option<Time>,
    pub voided_at: Option<Time>,
    /// The issuer when the invoice was made.
    pub issuer: Issuer,
}

/// The configured parts of the issuer of an invoice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Issuer {
    /// A single line.
    pub name: Option<String>,
    /// Several lines.
    pub address: Option<String>,
}

db::row!(Invoice {
    id,
    number,
    organization_id,
    organization_name,
    month,
    currency,
    amount: "amount_nano",
    brought_forward: brought_forward,
    due: "due_nano",
    status,
    finalized_at,
    paid_at,
    voided_at,
    issuer: issuer
});

/// Reads the amount brought forward, which invoices of earlier versions don't have.
fn brought_forward(row: &Row) -> Result<Nano, db::Error> {
    Ok(row.get::<Option<Nano>>("brought_forward_nano")?.unwrap_or(Nano::ZERO))
}

fn issuer(row: &Row) -> Result<Issuer, db::Error> {
    Ok(Issuer { name: text(row, "issuer_name")?, address: text(row, "issuer_address")? })
}

/// Reads a string that is neither NULL nor empty.
fn text(row: &Row, column: &str) -> Result<Option<String>, db::Error> {
    Ok(row.get::<Option<String>>(column)?.filter(|text| !text.is_empty()))
}

/// The columns of an [`Invoice`].
const COLUMNS: &str =
    "id, number, organization_id, organization_name, month, currency, amount_nano, due_nano, status,
     finalized_at, paid_at, voided_at, issuer_name, issuer_address, brought_forward_nano";

/// An item with the id of its invoice.
struct ItemRow {
    invoice_id: InvoiceId,
    item: Item,
}

impl FromRow for Item {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let pico = |column: &str| -> Result<Pico, db::Error> {
            let text: String = row.get(column)?;
            Pico::parse(&text).ok_or_else(|| db::Error::Internal(format!("{column} is {text:?}")))
        };
        Ok(Self {
            kind: row.get("kind")?,
            description: row.get("description")?,
            quantity: row.get("quantity")?,
            unit_price: pico("unit_price")?,
            amount: pico("amount")?,
        })
    }
}

db::row!(ItemRow { invoice_id, item: Item::from_row });

/// The statement of [`list_open`].
pub static OPEN_PAGE: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM invoices WHERE status = 'open' ORDER BY number LIMIT $1 OFFSET $2")
});

/// Returns one page of the open invoices of all organizations, the oldest first.
pub async fn list_open(tx: &mut Tx, page: Page) -> Result<Vec<Invoice>, db::Error> {
    sql(OPEN_PAGE.as_str()).bind(page.page_size).bind(page.offset()).heavy().all(tx).await
}

/// Returns the number of open invoices of all organizations.
pub async fn count_open(tx: &mut Tx) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(COUNT_OPEN).heavy().one(tx).await?;
    Ok(count)
}

/// The statement of [`count_open`].
pub const COUNT_OPEN: &str = "SELECT COUNT(*) AS value FROM invoices WHERE status = 'open'";

/// Returns the next number. The row of the sequence stays locked until the transaction ends, so call this
/// last. A rollback returns the number.
pub async fn next_number(tx: &mut Tx) -> Result<i64, db::Error> {
    let (number,): (i64,) =
        sql("UPDATE sequences SET last = last + 1 WHERE name = 'invoices' RETURNING last").one(tx).await?;
    Ok(number)
}

/// Adds an invoice with its items.
pub async fn insert(tx: &mut Tx, invoice: &Invoice, items: &[Item]) -> Result<(), db::Error> {
    sql("INSERT INTO invoices (id, number, organization_id, organization_name, month, currency,
             amount_nano, due_nano, status, finalized_at, paid_at, voided_at, issuer_name, issuer_address,
             brought_forward_nano)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)")
    .bind(invoice.id)
    .bind(invoice.number)
    .bind(invoice.organization_id)
    .bind(invoice.organization_name.as_str())
    .bind(invoice.month)
    .bind(invoice.currency.as_str())
    .bind(nano(invoice.amount)?)
    .bind(nano(invoice.due)?)
    .bind(invoice.status)
    .bind(invoice.finalized_at)
    .bind(invoice.paid_at)
    .bind(invoice.voided_at)
    .bind(invoice.issuer.name.as_deref().unwrap_or_default())
    .bind(invoice.issuer.address.as_deref().unwrap_or_default())
    .bind(nano(invoice.brought_forward)?)
    .execute(tx)
    .await?;
    for (position, item) in (1_i64..).zip(items) {
        sql("INSERT INTO invoice_items (invoice_id, position, kind, description, quantity, unit_price, amount)
             VALUES ($1, $2, $3, $4, $5, $6, $7)")
        .bind(invoice.id)
        .bind(position)
        .bind(item.kind)
        .bind(item.description.as_str())
        .bind(item.quantity)
        .bind(item.unit_price.to_string())
        .bind(item.amount.to_string())
        .execute(tx)
        .await?;
    }
    Ok(())
}

/// Sets the issuer of invoices of earlier versions, which have none. Returns the number of changed invoices.
pub async fn add_issuer(tx: &mut Tx, issuer: &Issuer) -> Result<u64, db::Error> {
    sql("UPDATE invoices SET issuer_name = $1, issuer_address = $2 WHERE issuer_name IS NULL")
        .bind(issuer.name.as_deref().unwrap_or_default())
        .bind(issuer.address.as_deref().unwrap_or_default())
        .execute(tx)
        .await
}

/// Returns `true` if an invoice has no issuer.
pub async fn lacks_issuer(tx: &mut Tx) -> Result<bool, db::Error> {
    let found: Option<(String,)> =
        sql("SELECT id FROM invoices WHERE issuer_name IS NULL LIMIT 1").optional(tx).await?;
    Ok(found.is_some())
}

/// Writes the amount due of an invoice and its status, and ends its payment pages if the invoice is no longer
/// open. The wallet must be locked.
pub async fn set_status(tx: &mut Tx, invoice: &Invoice, now: Time) -> Result<(), db::Error> {
    sql("UPDATE invoices SET due_nano = $2, status = $3, paid_at = $4, voided_at = $5 WHERE id = $1")
        .bind(invoice.id)
        .bind(nano(invoice.due)?)
        .bind(invoice.status)
        .bind(invoice.paid_at)
        .bind(invoice.voided_at)
        .execute(tx)
        .await?;
    if invoice.status != Status::Open {
        payment_pages::end_of_invoice(tx, invoice.organization_id, invoice.id, now).await?;
    }
    Ok(())
}

static ONE: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM invoices WHERE id = $1"));

/// Returns an invoice.
pub async fn get(tx: &mut Tx, id: InvoiceId) -> Result<Option<Invoice>, db::Error> {
    sql(ONE.as_str()).bind(id).optional(tx).await
}

static OF_MONTH: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM invoices WHERE organization_id = $1 AND month = $2"));

/// Returns the invoice of a month, if any usage was billed in it.
pub async fn of_month(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Option<Invoice>, db::Error> {
    sql(OF_MONTH.as_str()).bind(organization_id).bind(month).optional(tx).await
}

/// Selects an organization's invoices that became void in an interval.
pub static VOIDED_IN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM invoices
         WHERE organization_id = $1 AND status = 'void' AND voided_at >= $2 AND voided_at < $3 ORDER BY month"
    )
});

/// Returns an organization's invoices that became void in a month.
pub async fn voided_in(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Vec<Invoice>, db::Error> {
    sql(VOIDED_IN.as_str()).bind(organization_id).bind(month.start()).bind(month.end()).all(tx).await
}

static OPEN: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM invoices WHERE organization_id = $1 AND status = 'open' ORDER BY month")
});

/// Returns the open invoices of an organization, the oldest first.
pub async fn open(tx: &mut Tx, organization_id: OrganizationId) -> Result<Vec<Invoice>, db::Error> {
    sql(OPEN.as_str()).bind(organization_id).all(tx).await
}

/// Returns the number of open invoices of an organization.
pub async fn open_count(tx: &mut Tx, organization_id: OrganizationId) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM invoices WHERE organization_id = $1 AND status = 'open'")
            .bind(organization_id)
            .one(tx)
            .await?;
    Ok(count)
}

/// Selects a page of an organization's invoices, the newest month first; `$2` is a status, or empty for all.
pub static LIST: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM invoices
         WHERE organization_id = $1 AND ($2 = '' OR status = $2) AND status <> 'draft'
         ORDER BY month DESC LIMIT $3 OFFSET $4"
    )
});

/// Returns a page of an organization's invoices, optionally only those with this status.
pub async fn list(
    tx: &mut Tx,
    organization_id: OrganizationId,
    status: Option<Status>,
    page: Page,
) -> Result<Vec<Invoice>, db::Error> {
    sql(LIST.as_str())
        .bind(organization_id)
        .bind(status.map_or("", Status::as_str))
        .bind(page.page_size)
        .bind(page.offset())
        .all(tx)
        .await
}

/// Returns the number of an organization's invoices, optionally only those with this status.
pub async fn count(
    tx: &mut Tx,
    organization_id: OrganizationId,
    status: Option<Status>,
) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM invoices
         WHERE organization_id = $1 AND ($2 = '' OR status = $2) AND status <> 'draft'")
    .bind(organization_id)
    .bind(status.map_or("", Status::as_str))
    .one(tx)
    .await?;
    Ok(count)
}

/// Returns the items of each of these invoices of an organization, in the order of their lines.
pub async fn items(
    tx: &mut Tx,
    organization_id: OrganizationId,
    invoices: &[Invoice],
) -> Result<Vec<Vec<Item>>, db::Error> {
    let months = || invoices.iter().map(|invoice| invoice.month);
    let (Some(first), Some(last)) = (months().min(), months().max()) else {
        return Ok(Vec::new());
    };
    // A page is a range of months, and therefore one range of the index. Invoices of other statuses in it are
    // skipped.
    let rows: Vec<ItemRow> =
        sql("SELECT i.invoice_id, i.kind, i.description, i.quantity, i.unit_price, i.amount
         FROM invoices v JOIN invoice_items i ON i.invoice_id = v.id
         WHERE v.organization_id = $1 AND v.month >= $2 AND v.month <= $3 ORDER BY i.invoice_id, i.position")
        .bind(organization_id)
        .bind(first)
        .bind(last)
        .all(tx)
        .await?;
    let of = |invoice: &Invoice| {
        let of_invoice = rows.iter().filter(|row| row.invoice_id == invoice.id);
        of_invoice.map(|row| row.item.clone()).collect()
    };
    Ok(invoices.iter().map(of).collect())
}
