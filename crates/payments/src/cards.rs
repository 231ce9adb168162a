//! The saved card of an organization.

use db::Tx;
use kernel::clock::{HOUR_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use stripe::{
    CheckoutSession, CheckoutStatus, Expandable, NewSetupSession, PaymentIntent, PaymentMethod,
    SetupIntentStatus,
};
use tenants::access::OrgScope;
use trail::{Action, Trail};

use crate::Payments;
use crate::processor::key;
use crate::rules::verification::ORGANIZATION_ID;
use crate::store::customers::{self, Customer};
use crate::store::payments::Payment;
use crate::store::stripe_tasks::{self, TaskKind};
use crate::stripe_customers::{self, forget_card, without_card};

pub use crate::store::customers::SavedCard;

/// Reuse period of a page for saving a card, in milliseconds. Stripe's sessions last a day.
const REUSE_MS: i64 = 12 * HOUR_MS;

/// Returns the saved card of an organization.
///
/// # Errors
/// The database fails.
pub fn read(
    payments: &Payments,
    organization_id: OrganizationId,
) -> BoxFuture<'_, Result<Option<SavedCard>, Error>> {
    Box::pin(async move {
        let customer = customers::get(&mut payments.db.read().await?, organization_id).await?;
        Ok(customer.and_then(|customer| customer.card()))
    })
}

/// Returns the URL of the open Stripe page for saving a card, if any. Show it only to users who may save a
/// card.
///
/// # Errors
/// The database fails.
pub async fn open_page(
    payments: &Payments,
    organization_id: OrganizationId,
) -> Result<Option<String>, Error> {
    let customer = customers::get(&mut payments.db.read().await?, organization_id).await?;
    let now = payments.clock.now();
    let open = customer.filter(|customer| customer.setup_expires_at.is_some_and(|until| until > now));
    Ok(open.and_then(|customer| customer.setup_url))
}

/// Returns the URL of a Stripe page for saving a card. Repeated calls return the same page while it's open.
///
/// # Errors
/// 403 without permission, or if payments are off; 502 if Stripe can't be reached.
pub fn begin<'a>(payments: &'a Payments, scope: &'a OrgScope) -> BoxFuture<'a, Result<String, Error>> {
    Box::pin(async move {
        let processor = payments.processor()?;
        let customer = stripe_customers::find_or_create(payments, processor, scope.organization_id()).await?;
        look_at_set_up(payments, &customer).await?;
        match open_set_up(payments, scope, &customer).await? {
            Err(error) if error.lacks("customer") => {
                let customer = stripe_customers::replace(payments, processor, &customer).await?;
                let opened = open_set_up(payments, scope, &customer).await?;
                opened.map_err(|error| payments.failed("opening a page to save a card", &error))
            }
            opened => opened.map_err(|error| payments.failed("opening a page to save a card", &error)),
        }
    })
}

/// Returns the customer's page for saving a card: the open one, or a new one.
async fn open_set_up(
    payments: &Payments,
    scope: &OrgScope,
    made: &Customer,
) -> Result<Result<String, stripe::Error>, Error> {
    let processor = payments.processor()?;
    let (organization_id, now) = (scope.organization_id(), payments.clock.now());
    let mut tx = payments.db.write().await?;
    let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
    let customer = customers::lock(&mut held, organization_id, now).await?;
    let mut customer = customer.ok_or_else(|| Error::internal("a customer no longer exists"))?;
    if customer.setup_expires_at.is_some_and(|until| until > now)
        && let Some(url) = &customer.setup_url
    {
        return Ok(Ok(url.clone()));
    }
    // A new number means a new page. It's committed before the request to Stripe, so that a retry gets the
    // same page.
    if customer.setup_expires_at.is_none_or(|until| until <= now) {
        customer.setup_number += 1;
        customer.setup_expires_at = Some(now.plus_ms(REUSE_MS));
        (customer.setup_session_id, customer.setup_url) = (None, None);
        customers::update(&mut held, &customer).await?;
    }
    tx.commit().await?;
    let number = customer.setup_number;
    let return_url = payments.return_url(organization_id, "card");
    let id = organization_id.text();
    let metadata = [(ORGANIZATION_ID.to_owned(), id.clone())].into();
    let new = NewSetupSession {
        customer: &made.customer_id,
        success_url: &return_url,
        cancel_url: &return_url,
        client_reference_id: Some(&id),
        metadata,
        // The tax on charges depends on the address.
        collects_address: payments.settings.stripe_tax,
        expires_at: None,
    };
    let session = processor.client.create_setup_session(&new, &key(format!("setup:{id}:{number}"))?).await;
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            // Stripe replays its own errors for a day, so the next request uses a new page.
            let mut tx = payments.db.write().await?;
            let customer = customers::lock(&mut tx, organization_id, now).await?;
            if let Some(customer) = customer.filter(|customer| customer.setup_number == number) {
                customers::update(&mut tx, &Customer { setup_expires_at: None, ..customer }).await?;
            }
            tx.commit().await?;
            return Ok(Err(error));
        }
    };
    let url = session.url.clone().ok_or_else(|| Error::internal("a page of Stripe without a URL"))?;
    let mut tx = payments.db.write().await?;
    if let Some(mut customer) = customers::lock(&mut tx, organization_id, now).await?
        && customer.setup_number == number
    {
        (customer.setup_session_id, customer.setup_url) = (Some(session.id), Some(url.clone()));
        customers::update(&mut tx, &customer).await?;
    }
    tx.commit().await?;
    Ok(Ok(url))
}

/// Reads the customer's page for saving a card, if any, and handles its completion or expiry.
///
/// # Errors
/// 502 if Stripe can't be reached; the database fails.
pub(crate) async fn look_at_set_up(payments: &Payments, customer: &Customer) -> Result<(), Error> {
    let Some(session_id) = &customer.setup_session_id else { return Ok(()) };
    match payments.processor()?.client.checkout_session(session_id).await {
        Ok(session) if session.status == Some(CheckoutStatus::Open) => Ok(()),
        Ok(session) => save_set_up(payments, &session).await,
        Err(error) if error.is_missing() => {
            forget_set_up(payments, customer.organization_id, session_id).await
        }
        Err(error) => Err(payments.failed("reading a page to save a card", &error)),
    }
}

/// Removes the saved card. It's no longer charged, and a job detaches it from the customer at Stripe.
///
/// # Errors
/// 403 without permission, or if payments are off; 409 without a card.
pub fn remove<'a>(payments: &'a Payments, scope: &'a OrgScope) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        payments.processor()?;
        let (organization_id, now) = (scope.organization_id(), payments.clock.now());
        let mut tx = payments.db.write().await?;
        let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
        let customer = customers::lock(&mut held, organization_id, now).await?;
        let customer =
            customer.filter(|customer| customer.method_id.is_some()).ok_or(Code::NoPaymentMethod)?;
        forget(payments, &mut held, scope.trail(), customer, now).await?;
        tx.commit().await?;
        payments.notify_one();
        Ok(())
    })
}

/// Removes the card of a locked customer and schedules its detachment.
pub(crate) async fn forget(
    payments: &Payments,
    tx: &mut Tx,
    trail: &Trail,
    customer: Customer,
    now: Time,
) -> Result<(), db::Error> {
    let Some(method_id) = customer.method_id.clone() else { return Ok(()) };
    stripe_tasks::insert(tx, TaskKind::DetachMethod, &method_id, now).await?;
    let organization_id = customer.organization_id;
    customers::update(tx, &without_card(customer)).await?;
    payments.record(tx, trail, (Action::CardRemoved, organization_id.text()), organization_id, now).await
}

/// Saves the card that a customer entered in a session.
///
/// # Errors
/// The database fails.
pub async fn save_set_up(payments: &Payments, session: &CheckoutSession) -> Result<(), Error> {
    let intent = session.setup_intent.as_ref().and_then(|intent| intent.object());
    let Some(intent) = intent.filter(|intent| intent.status == SetupIntentStatus::Succeeded) else {
        return close_setup(payments, session).await;
    };
    let customer_id = intent.customer.as_ref().map(|customer| customer.id()).unwrap_or_default();
    let Some(method) = intent.payment_method.as_ref().and_then(|method| method.object()) else {
        return Ok(());
    };
    if intent.livemode != payments.processor()?.client.is_live() {
        return Err(Error::internal("a card was saved in the other mode of Stripe"));
    }
    let now = payments.clock.now();
    let found = customers::by_customer(&mut payments.db.read().await?, customer_id).await?;
    let Some(found) = found else { return Ok(()) };
    if payments.settings.stripe_tax {
        keep_address(payments, customer_id, method).await?;
    }
    let mut tx = payments.db.write().await?;
    let Some(customer) = customers::lock(&mut tx, found.organization_id, now).await? else { return Ok(()) };
    let is_open = customer.setup_session_id.as_ref() == Some(&session.id);
    // The card is already saved if an older page had the same card, or if this session was handled before.
    let is_known = customer.method_id.as_ref() == Some(&method.id);
    if is_open && !is_known {
        save(payments, &mut tx, customer, method, now).await?;
    }
    tx.commit().await?;
    payments.notify_one();
    Ok(())
}

/// Copies the card's address to its customer, if the customer has none: the tax on charges depends on it.
async fn keep_address(payments: &Payments, customer_id: &str, method: &PaymentMethod) -> Result<(), Error> {
    let client = &payments.processor()?.client;
    let entered = method.billing_details.as_ref().and_then(|details| details.address.as_ref());
    let Some(entered) = entered.filter(|address| address.country.is_some()) else { return Ok(()) };
    let customer = client.customer(customer_id).await;
    let customer = match customer {
        Err(error) if error.is_missing() => return Ok(()),
        customer => customer.map_err(|error| payments.failed("reading a customer", &error))?,
    };
    if customer.deleted || customer.address.is_some_and(|address| address.country.is_some()) {
        return Ok(());
    }
    let key = key(format!("address:{}", method.id))?;
    let kept = client.set_customer_address(customer_id, entered, &key).await;
    kept.map(|_| ()).map_err(|error| payments.failed("setting the address of a customer", &error))
}

/// Forgets an expired page for saving a card.
async fn close_setup(payments: &Payments, session: &CheckoutSession) -> Result<(), Error> {
    let customer_id = session.customer.as_ref().map(|customer| customer.id()).unwrap_or_default();
    let found = customers::by_customer(&mut payments.db.read().await?, customer_id).await?;
    let Some(found) = found.filter(|_| session.status == Some(CheckoutStatus::Expired)) else {
        return Ok(());
    };
    forget_set_up(payments, found.organization_id, &session.id).await
}

/// Forgets a page for saving a card.
async fn forget_set_up(
    payments: &Payments,
    organization_id: OrganizationId,
    session_id: &str,
) -> Result<(), Error> {
    let mut tx = payments.db.write().await?;
    if let Some(customer) = customers::lock(&mut tx, organization_id, payments.clock.now()).await?
        && customer.setup_session_id.as_deref() == Some(session_id)
    {
        let closed = Customer { setup_session_id: None, setup_url: None, setup_expires_at: None, ..customer };
        customers::update(&mut tx, &closed).await?;
    }
    Ok(tx.commit().await?)
}

/// Returns the card used for a payment, if it should be saved.
///
/// # Errors
/// 502 if Stripe can't be reached.
pub(crate) async fn of_payment(
    payments: &Payments,
    payment: &Payment,
    intent: &PaymentIntent,
) -> Result<Option<PaymentMethod>, Error> {
    match &intent.payment_method {
        Some(_) if !payment.saves_card => Ok(None),
        None => Ok(None),
        Some(Expandable::Object(method)) => Ok(Some((**method).clone())),
        Some(Expandable::Id(id)) => {
            let method = payments.processor()?.client.payment_method(id).await;
            method.map(Some).map_err(|error| payments.failed("reading a card", &error))
        }
    }
}

/// Saves the card used for a payment.
pub(crate) async fn save_paid(
    payments: &Payments,
    tx: &mut Tx,
    payment: &Payment,
    method: &PaymentMethod,
    now: Time,
) -> Result<(), db::Error> {
    let Some(customer) = customers::lock(tx, payment.organization_id, now).await? else { return Ok(()) };
    save(payments, tx, customer, method, now).await
}

/// Saves a card for a locked customer and detaches the previous one.
async fn save(
    payments: &Payments,
    tx: &mut Tx,
    customer: Customer,
    method: &PaymentMethod,
    now: Time,
) -> Result<(), db::Error> {
    let Some(card) = &method.card else { return Ok(()) };
    if let Some(before) = customer.method_id.as_ref().filter(|before| **before != method.id) {
        stripe_tasks::insert(tx, TaskKind::DetachMethod, before, now).await?;
    }
    let organization_id = customer.organization_id;
    let saved = Customer {
        method_id: Some(method.id.clone()),
        card_brand: Some(card.brand.clone()),
        card_last4: Some(card.last4.clone()),
        card_exp_month: Some(card.exp_month.into()),
        card_exp_year: Some(card.exp_year.into()),
        setup_session_id: None,
        setup_url: None,
        setup_expires_at: None,
        ..customer
    };
    customers::update(tx, &saved).await?;
    let trail = Trail::system();
    payments.record(tx, &trail, (Action::CardSaved, organization_id.text()), organization_id, now).await
}

/// Forgets a card that was detached at Stripe.
///
/// # Errors
/// The database fails.
pub async fn forget_detached(payments: &Payments, method_id: &str) -> Result<(), Error> {
    let now = payments.clock.now();
    let found = customers::by_method(&mut payments.db.read().await?, method_id).await?;
    let Some(found) = found else { return Ok(()) };
    let mut tx = payments.db.write().await?;
    let customer = customers::lock(&mut tx, found.organization_id, now).await?;
    if let Some(customer) = customer.filter(|customer| customer.method_id.as_deref() == Some(method_id)) {
        forget_card(payments, &mut tx, customer, now).await?;
    }
    Ok(tx.commit().await?)
}

/// Forgets the card of a deleted organization, schedules its detachment at Stripe, and ends any page for
/// saving one.
///
/// # Errors
/// The database fails.
pub async fn clean_up(payments: &Payments, organization_id: OrganizationId) -> Result<(), Error> {
    let now = payments.clock.now();
    let mut tx = payments.db.write().await?;
    if let Some(customer) = customers::lock(&mut tx, organization_id, now).await? {
        if let Some(session_id) = &customer.setup_session_id {
            stripe_tasks::insert(&mut tx, TaskKind::ExpireSession, session_id, now).await?;
        }
        let closed = Customer { setup_session_id: None, setup_url: None, setup_expires_at: None, ..customer };
        customers::update(&mut tx, &closed).await?;
        forget(payments, &mut tx, &Trail::system(), closed, now).await?;
    }
    Ok(tx.commit().await?)
}
