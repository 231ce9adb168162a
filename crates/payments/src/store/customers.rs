//! The table `payment_customers`.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::OrganizationId;

/// The customer of an organization at Stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Customer {
    pub organization_id: OrganizationId,
    pub customer_id: String,
    /// Stripe's id of the saved card.
    pub method_id: Option<String>,
    pub card_brand: Option<String>,
    pub card_last4: Option<String>,
    pub card_exp_month: Option<i64>,
    pub card_exp_year: Option<i64>,
    /// Number of sessions created to save a card.
    pub setup_number: i64,
    /// The latest session for saving a card.
    pub setup_session_id: Option<String>,
    pub setup_url: Option<String>,
    pub setup_expires_at: Option<Time>,
}

db::row!(Customer {
    organization_id,
    customer_id,
    method_id,
    card_brand,
    card_last4,
    card_exp_month,
    card_exp_year,
    setup_number,
    setup_session_id,
    setup_url,
    setup_expires_at
});

/// A saved card, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedCard {
    /// The network, such as `visa`.
    pub brand: String,
    pub last4: String,
    pub exp_month: i64,
    pub exp_year: i64,
}

impl Customer {
    /// Returns the saved card.
    pub fn card(&self) -> Option<SavedCard> {
        self.method_id.as_ref()?;
        Some(SavedCard {
            brand: self.card_brand.clone()?,
            last4: self.card_last4.clone()?,
            exp_month: self.card_exp_month?,
            exp_year: self.card_exp_year?,
        })
    }
}

const COLUMNS: &str =
    "organization_id, customer_id, method_id, card_brand, card_last4, card_exp_month, card_exp_year,
     setup_number, setup_session_id, setup_url, setup_expires_at";

/// Returns the customer of an organization.
pub async fn get(tx: &mut Tx, organization_id: OrganizationId) -> Result<Option<Customer>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM payment_customers WHERE organization_id = $1"))
        .bind(organization_id)
        .optional(tx)
        .await
}

/// Returns the customer with this Stripe id.
pub async fn by_customer(tx: &mut Tx, customer_id: &str) -> Result<Option<Customer>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM payment_customers WHERE customer_id = $1"))
        .bind(customer_id)
        .optional(tx)
        .await
}

/// Returns the customer whose saved card has this Stripe id.
pub async fn by_method(tx: &mut Tx, method_id: &str) -> Result<Option<Customer>, db::Error> {
    sql(format!("SELECT {COLUMNS} FROM payment_customers WHERE method_id = $1"))
        .bind(method_id)
        .optional(tx)
        .await
}

/// Returns the row of an organization, locked until the transaction ends.
pub async fn lock(
    tx: &mut Tx,
    organization_id: OrganizationId,
    now: Time,
) -> Result<Option<Customer>, db::Error> {
    sql(format!(
        "UPDATE payment_customers SET updated_at = $2 WHERE organization_id = $1 RETURNING {COLUMNS}"
    ))
    .bind(organization_id)
    .bind(now)
    .optional(tx)
    .await
}

/// Adds a customer, unless the organization has one.
pub async fn insert(
    tx: &mut Tx,
    organization_id: OrganizationId,
    customer_id: &str,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO payment_customers (organization_id, customer_id, created_at, updated_at)
         VALUES ($1, $2, $3, $3) ON CONFLICT (organization_id) DO NOTHING")
    .bind(organization_id)
    .bind(customer_id)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}

/// Replaces the Stripe customer of a locked row without a card, and clears the page for saving one.
pub async fn replace(
    tx: &mut Tx,
    organization_id: OrganizationId,
    customer_id: &str,
) -> Result<(), db::Error> {
    sql("UPDATE payment_customers SET customer_id = $2, setup_session_id = NULL, setup_url = NULL, setup_expires_at = NULL
         WHERE organization_id = $1")
    .bind(organization_id)
    .bind(customer_id)
    .execute(tx)
    .await?;
    Ok(())
}

/// Updates the saved card and the session for saving one, of a locked row.
pub async fn update(tx: &mut Tx, customer: &Customer) -> Result<(), db::Error> {
    sql("UPDATE payment_customers SET method_id = $2, card_brand = $3, card_last4 = $4, card_exp_month = $5,
             card_exp_year = $6, setup_number = $7, setup_session_id = $8, setup_url = $9, setup_expires_at = $10
         WHERE organization_id = $1")
    .bind(customer.organization_id)
    .bind(customer.method_id.as_deref())
    .bind(customer.card_brand.as_deref())
    .bind(customer.card_last4.as_deref())
    .bind(customer.card_exp_month)
    .bind(customer.card_exp_year)
    .bind(customer.setup_number)
    .bind(customer.setup_session_id.as_deref())
    .bind(customer.setup_url.as_deref())
    .bind(customer.setup_expires_at)
    .execute(tx)
    .await?;
    Ok(())
}

/// Returns customers with a page for saving a card, in the order of organization ids, after a given one.
pub async fn with_set_up(
    tx: &mut Tx,
    after: Option<OrganizationId>,
    limit: i64,
) -> Result<Vec<Customer>, db::Error> {
    sql(format!(
        "SELECT {COLUMNS} FROM payment_customers WHERE setup_session_id IS NOT NULL AND organization_id > $1
         ORDER BY organization_id LIMIT $2"
    ))
    .bind(after.map(|id| id.text()).unwrap_or_default())
    .bind(limit)
    .heavy()
    .all(tx)
    .await
}

/// Returns the customers with a page for saving a card that were checked longest ago.
pub async fn oldest_with_set_up(tx: &mut Tx, limit: i64) -> Result<Vec<Customer>, db::Error> {
    sql(format!(
        "SELECT {COLUMNS} FROM payment_customers WHERE setup_session_id IS NOT NULL ORDER BY updated_at LIMIT $1"
    ))
    .bind(limit)
    .heavy()
    .all(tx)
    .await
}

/// Returns deleted organizations that still have a saved card or a page for saving one at Stripe.
pub async fn left_behind(tx: &mut Tx, limit: i64) -> Result<Vec<OrganizationId>, db::Error> {
    let rows: Vec<(OrganizationId,)> = sql("SELECT organization_id FROM payment_customers c
         WHERE (method_id IS NOT NULL OR setup_session_id IS NOT NULL)
             AND NOT EXISTS (SELECT 1 FROM organizations o WHERE o.id = c.organization_id)
         ORDER BY organization_id LIMIT $1")
    .bind(limit)
    .heavy()
    .all(tx)
    .await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
