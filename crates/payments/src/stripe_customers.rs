//! The customers of organizations at Stripe.

use std::collections::BTreeMap;

use db::Tx;
use kernel::clock::{HOUR_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use stripe::NewCustomer;
use tenants::store::organizations;
use trail::{Action, Trail};

use crate::processor::key;
use crate::rules::verification::ORGANIZATION_ID;
use crate::store::customers::{self, Customer};
use crate::{Payments, Processor};

/// Returns an organization's customer at Stripe, creating it if needed.
///
/// # Errors
/// 502 if Stripe can't be reached.
pub(crate) async fn find_or_create(
    payments: &Payments,
    processor: &Processor,
    organization_id: OrganizationId,
) -> Result<Customer, Error> {
    if let Some(found) = customers::get(&mut payments.db.read().await?, organization_id).await? {
        return Ok(found);
    }
    let made = create(payments, processor, organization_id, "").await?;
    let mut tx = payments.db.write().await?;
    customers::insert(&mut tx, organization_id, &made, payments.clock.now()).await?;
    let customer = customers::get(&mut tx, organization_id).await?;
    tx.commit().await?;
    customer.ok_or_else(|| Error::internal("a customer that was just added doesn't exist"))
}

/// Creates a customer at Stripe and returns its id. `after` is the id of the customer it replaces, or empty.
async fn create(
    payments: &Payments,
    processor: &Processor,
    organization_id: OrganizationId,
    after: &str,
) -> Result<String, Error> {
    let organization = organizations::detail(&mut payments.db.read().await?, organization_id).await?;
    let organization = organization.ok_or(Code::OrganizationNotFound)?.organization;
    let metadata = BTreeMap::from([(ORGANIZATION_ID.to_owned(), organization_id.text())]);
    let new = NewCustomer { name: Some(organization.name.as_str()), email: None, metadata };
    // Stripe replays its own errors for a day, so the key changes every hour. An unused customer is harmless.
    let hour = payments.clock.now().unix_ms() / HOUR_MS;
    let mut text = format!("customer:{organization_id}:{hour}");
    if !after.is_empty() {
        text = format!("{text}:{after}");
    }
    let made = processor.client.create_customer(&new, &key(text)?).await;
    Ok(made.map_err(|error| payments.failed("making a customer", &error))?.id)
}

/// Replaces an organization's customer that Stripe doesn't have: it was deleted there, or belongs to another
/// mode or account. Its saved card was deleted too.
///
/// # Errors
/// 502 if Stripe can't be reached.
pub(crate) async fn replace(
    payments: &Payments,
    processor: &Processor,
    missing: &Customer,
) -> Result<Customer, Error> {
    let organization_id = missing.organization_id;
    let made = create(payments, processor, organization_id, &missing.customer_id).await?;
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    let stored = customers::lock(&mut tx, organization_id, now).await?;
    let stored = stored.ok_or_else(|| Error::internal("a customer no longer exists"))?;
    // Skip if a concurrent request has replaced it.
    if stored.customer_id == missing.customer_id {
        tracing::warn!(%organization_id, missing = missing.customer_id, customer = made,
            "Stripe doesn't have an organization's customer; creating a new one");
        forget_card(payments, &mut tx, stored, now).await?;
        customers::replace(&mut tx, organization_id, &made).await?;
    }
    let customer = customers::get(&mut tx, organization_id).await?;
    tx.commit().await?;
    customer.ok_or_else(|| Error::internal("a customer no longer exists"))
}

/// Forgets the card of a locked customer, if any, after Stripe has lost it.
pub(crate) async fn forget_card(
    payments: &Payments,
    tx: &mut Tx,
    customer: Customer,
    now: Time,
) -> Result<(), db::Error> {
    if customer.method_id.is_none() {
        return Ok(());
    }
    let organization_id = customer.organization_id;
    customers::update(tx, &without_card(customer)).await?;
    let subject = (Action::CardRemoved, organization_id.text());
    payments.record(tx, &Trail::system(), subject, organization_id, now).await
}

/// Returns the customer without its card.
pub(crate) fn without_card(customer: Customer) -> Customer {
    Customer {
        method_id: None,
        card_brand: None,
        card_last4: None,
        card_exp_month: None,
        card_exp_year: None,
        ..customer
    }
}
