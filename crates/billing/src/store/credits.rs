//! Credits, with their remaining amounts.

use std::sync::LazyLock;

use crate::rules::books::Credit;
use crate::store::wallets::nano;
use db::{Page, Tx, sql};
use kernel::clock::{Month, Time};
use kernel::ids::{CreditId, OrganizationId};
use kernel::money::Nano;

db::row!(Credit {
    id,
    source: "kind",
    reference,
    amount: "amount_nano",
    remaining: "remaining_nano",
    created_at,
    expires_at
});

/// A part of a credit that paid for usage billed in a month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditUse {
    /// The credit in its current state.
    pub credit: Credit,
    pub amount: Nano,
}

db::row!(CreditUse { credit: Credit::from_row, amount: "used_nano" });

const COLUMNS: &str = "id, kind, reference, amount_nano, remaining_nano, created_at, expires_at";

static REMAINING: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM credits WHERE organization_id = $1 AND remaining_nano > 0")
});

/// Returns the credits of an organization that aren't used up, including expired ones that no job has ended
/// yet. Lock the wallet before changing them.
pub async fn list_remaining(tx: &mut Tx, organization_id: OrganizationId) -> Result<Vec<Credit>, db::Error> {
    sql(REMAINING.as_str()).bind(organization_id).all(tx).await
}

/// Returns the credit with this reference.
pub async fn by_reference(
    tx: &mut Tx,
    organization_id: OrganizationId,
    reference: &str,
) -> Result<Option<Credit>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM credits WHERE organization_id = $1 AND reference = $2"))
        .bind(organization_id)
        .bind(reference)
        .optional(tx)
        .await
}

/// Adds a credit.
///
/// # Errors
/// [`db::Error::Unique`] with `CreditReference` if the reference exists.
pub async fn insert(tx: &mut Tx, organization_id: OrganizationId, credit: &Credit) -> Result<(), db::Error> {
    sql("INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano,
             created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
    .bind(credit.id)
    .bind(organization_id)
    .bind(credit.source)
    .bind(credit.reference.as_str())
    .bind(nano(credit.amount)?)
    .bind(nano(credit.remaining)?)
    .bind(credit.created_at)
    .bind(credit.expires_at)
    .execute(tx)
    .await?;
    Ok(())
}

/// Sets the remaining amount of a credit.
pub async fn set_remaining(tx: &mut Tx, id: CreditId, remaining: Nano) -> Result<(), db::Error> {
    sql("UPDATE credits SET remaining_nano = $2 WHERE id = $1")
        .bind(id)
        .bind(nano(remaining)?)
        .defer(tx)
        .await
}

/// Ends a credit, except for the amount that is kept for calls in progress.
pub async fn expire(tx: &mut Tx, id: CreditId, remaining: Nano, now: Time) -> Result<(), db::Error> {
    sql("UPDATE credits SET remaining_nano = $2, expired_at = $3 WHERE id = $1")
        .bind(id)
        .bind(nano(remaining)?)
        .bind(now)
        .defer(tx)
        .await
}

/// Adds to the amount that a credit paid for a month.
pub async fn add_use(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    id: CreditId,
    amount: Nano,
) -> Result<(), db::Error> {
    sql("INSERT INTO credit_uses (organization_id, month, credit_id, amount_nano) VALUES ($1, $2, $3, $4)
         ON CONFLICT (organization_id, month, credit_id) DO UPDATE
         SET amount_nano = credit_uses.amount_nano + excluded.amount_nano")
    .bind(organization_id)
    .bind(month)
    .bind(id)
    .bind(nano(amount)?)
    .defer(tx)
    .await
}

/// Subtracts from the amount that a credit paid for a month.
pub async fn subtract_use(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
    id: CreditId,
    amount: Nano,
) -> Result<(), db::Error> {
    sql("UPDATE credit_uses SET amount_nano = amount_nano - $4
         WHERE organization_id = $1 AND month = $2 AND credit_id = $3")
    .bind(organization_id)
    .bind(month)
    .bind(id)
    .bind(nano(amount)?)
    .defer(tx)
    .await
}

/// Returns the credits that paid for usage billed in a month, minus refunds. Lock the wallet before changing
/// them.
pub async fn uses(
    tx: &mut Tx,
    organization_id: OrganizationId,
    month: Month,
) -> Result<Vec<CreditUse>, db::Error> {
    sql("SELECT c.id AS id, c.kind AS kind, c.reference AS reference, c.amount_nano AS amount_nano,
                c.remaining_nano AS remaining_nano, c.created_at AS created_at, c.expires_at AS expires_at,
                u.amount_nano AS used_nano
         FROM credit_uses u JOIN credits c ON c.id = u.credit_id
         WHERE u.organization_id = $1 AND u.month = $2 AND u.amount_nano > 0")
    .bind(organization_id)
    .bind(month)
    .all(tx)
    .await
}

/// An expired credit with its organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiredCredit {
    pub id: CreditId,
    pub organization_id: OrganizationId,
}

db::row!(ExpiredCredit { id, organization_id });

/// Returns expired credits that aren't used up, by id, after the given one.
pub async fn list_expired(
    tx: &mut Tx,
    now: Time,
    after: Option<CreditId>,
    limit: i64,
) -> Result<Vec<ExpiredCredit>, db::Error> {
    sql("SELECT id, organization_id FROM credits
         WHERE expires_at <= $1 AND remaining_nano > 0 AND id > $2 ORDER BY id LIMIT $3")
    .bind(now)
    .bind(after.map(|id| id.to_string()).unwrap_or_default())
    .bind(limit)
    .all(tx)
    .await
}

/// A credit that expires soon, with its organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiringCredit {
    pub id: CreditId,
    pub organization_id: OrganizationId,
    pub expires_at: Time,
}

db::row!(ExpiringCredit { id, organization_id, expires_at });

/// The statement of [`list_expiring`].
pub const LIST_EXPIRING: &str = "SELECT id, organization_id, expires_at FROM credits
     WHERE expires_at > $1 AND expires_at <= $2 AND expiry_announced_at IS NULL AND remaining_nano > 0
       AND (expires_at, id) > ($3, $4)
     ORDER BY expires_at, id LIMIT $5";

/// Returns credits that expire after the first time and no later than the second, aren't used up, and weren't
/// announced to webhooks. They are sorted by expiry, and begin after the given one.
pub async fn list_expiring(
    tx: &mut Tx,
    (from, until): (Time, Time),
    after: Option<(Time, CreditId)>,
    limit: i64,
) -> Result<Vec<ExpiringCredit>, db::Error> {
    let (expires_at, id) = after.map_or((from, String::new()), |(at, id)| (at, id.to_string()));
    sql(LIST_EXPIRING).bind(from).bind(until).bind(expires_at).bind(id).bind(limit).all(tx).await
}

/// Records that the expiry of a credit was announced to webhooks. Returns `false` if it was already
/// announced, or if the credit is used up.
pub async fn set_expiry_announced(tx: &mut Tx, id: CreditId, now: Time) -> Result<bool, db::Error> {
    let changed = sql("UPDATE credits SET expiry_announced_at = $2
         WHERE id = $1 AND expiry_announced_at IS NULL AND remaining_nano > 0")
    .bind(id)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(changed > 0)
}

/// Returns the organization of a credit.
pub async fn owner(tx: &mut Tx, id: CreditId) -> Result<Option<OrganizationId>, db::Error> {
    let owner: Option<(OrganizationId,)> =
        sql("SELECT organization_id FROM credits WHERE id = $1").bind(id).optional(tx).await?;
    Ok(owner.map(|(owner,)| owner))
}

static LIST: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM credits
         WHERE organization_id = $1 AND ($2 = 1 OR remaining_nano > 0) AND id > $3
         ORDER BY id LIMIT $4"
    )
});

/// Returns the credits of an organization after the given one, in the order of their creation; with `all`,
/// including those that are used up.
pub async fn list(
    tx: &mut Tx,
    organization_id: OrganizationId,
    all: bool,
    after: Option<CreditId>,
    limit: i64,
) -> Result<Vec<Credit>, db::Error> {
    sql(LIST.as_str())
        .bind(organization_id)
        .bind(all)
        .bind(after.map(|id| id.to_string()).unwrap_or_default())
        .bind(limit)
        .all(tx)
        .await
}

/// Counts the credits of an organization.
pub const COUNT: &str = "SELECT COUNT(*) FROM credits WHERE organization_id = $1";

/// Selects a page of an organization's credits, the newest first.
pub static PAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM credits WHERE organization_id = $1
         ORDER BY created_at DESC, id LIMIT $2 OFFSET $3"
    )
});

/// Runs [`COUNT`].
pub async fn count(tx: &mut Tx, organization_id: OrganizationId) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(COUNT).bind(organization_id).one(tx).await?;
    Ok(count)
}

/// Runs [`PAGE`].
pub async fn page(
    tx: &mut Tx,
    organization_id: OrganizationId,
    page: Page,
) -> Result<Vec<Credit>, db::Error> {
    let statement = sql(PAGE.as_str()).bind(organization_id);
    statement.bind(page.page_size).bind(page.offset()).all(tx).await
}

/// Returns a credit. Lock the wallet before changing it.
pub async fn get(tx: &mut Tx, id: CreditId) -> Result<Option<Credit>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM credits WHERE id = $1")).bind(id).optional(tx).await
}
