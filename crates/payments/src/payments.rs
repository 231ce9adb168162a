//! Payments by users: credit and invoices.

use billing::invoices;
use billing::rules::invoicing;
use billing::store::{invoices as invoice_store, wallets};
use db::{Constraint, Page, Tx, Uncommitted};
use kernel::clock::{HOUR_MS, Time};
use kernel::currencies::ChargeUnit;
use kernel::error::{Code, Detail, Error};
use kernel::ids::{InvoiceId, OrganizationId, PaymentId};
use kernel::money::Nano;
use tenants::ListPage;
use tenants::access::OrgScope;
use trail::{Action, Trail};

use crate::store::payments::{self as store, Kind, Status};
use crate::store::stripe_tasks::{self, TaskKind};
use crate::{Payments, checkout};

pub use crate::store::payments::{Kind as PaymentKind, Payment, Status as PaymentStatus};

/// Reuse period of the page for an invoice's payment, in milliseconds. Stripe's sessions last a day.
const REUSE_MS: i64 = 12 * HOUR_MS;
/// Delay before a job first checks a payment that may not exist at Stripe yet, in milliseconds.
const FIRST_LOOK_MS: i64 = 60_000;

/// The purpose of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Credit of this amount.
    Credit(Nano),
    /// The amount due on an invoice.
    Invoice(InvoiceId),
}

/// A payment to create.
#[derive(Clone, Debug)]
pub struct New {
    pub target: Target,
    /// Whether to save the card for off-session charges.
    pub saves_card: bool,
    /// Digest of the caller and the idempotency key, if the request has one. The same request finds the same
    /// payment.
    pub request_key: Option<[u8; 32]>,
}

/// Creates a payment and returns it with its Stripe page. Repeating the request, even after a crash, returns
/// the same payment and page.
///
/// # Errors
/// 400 for an amount that can't be paid; 403 without permission, or if payments are off; 404 for an
/// unknown invoice; 409 for one that isn't open; 502 if Stripe can't be reached.
pub async fn create(payments: &Payments, scope: &OrgScope, new: New) -> Result<Uncommitted<Payment>, Error> {
    let processor = payments.processor()?;
    let payment = match begin(payments, scope, &new).await {
        // A concurrent request with the same key created it first.
        Err(error) if error.code == Code::IdempotencyInProgress => {
            let found = find_repeated(payments, scope.organization_id(), &new).await?;
            found.ok_or(error)?
        }
        begun => begun?,
    };
    checkout::open(payments, processor, payment).await
}

/// Commits the row of a new payment, or returns the row that the same request created earlier.
async fn begin(payments: &Payments, scope: &OrgScope, new: &New) -> Result<Payment, Error> {
    if let Some(found) = find_repeated(payments, scope.organization_id(), new).await? {
        return Ok(found);
    }
    let (organization_id, now) = (scope.organization_id(), payments.clock.now());
    let mut tx = payments.db.write().await?;
    let (mut held, _) = scope.lock_and_recheck(&mut tx).await?;
    let wallet = wallets::lock(&mut held, organization_id, &payments.clock_guard).await?;
    let wallet = wallet.ok_or(Code::OrganizationNotFound)?;
    let (kind, invoice_id, amount) = match new.target {
        Target::Credit(amount) => (Kind::Credit, None, amount),
        Target::Invoice(id) => (Kind::Invoice, Some(id), due_of(&mut held, organization_id, id).await?),
    };
    let amount_minor = match kind {
        Kind::Invoice => of_invoice(payments, amount, &wallet.currency).ok_or(Code::AmountOutOfRange)?,
        Kind::Credit | Kind::AutoTopUp => check_amount(payments, amount, &wallet.currency)?,
    };
    if let Some(id) = invoice_id
        && let Some(open) = store::open_of_invoice(&mut held, organization_id, id).await?
    {
        let is_fresh = open.created_at.plus_ms(REUSE_MS) > now;
        if open.amount_minor == amount_minor && is_fresh && new.request_key.is_none() {
            return Ok(open);
        }
        // With a second open page, the invoice could be paid twice.
        cancel(&mut held, open, "replaced", now).await?;
    }
    let paid_for = (kind, invoice_id, amount_minor);
    let payment = row(payments, scope, paid_for, (wallet.currency, new.saves_card), now);
    store::insert(&mut held, &payment, new.request_key).await.map_err(|error| match error {
        db::Error::Unique(Constraint::PaymentRequest) => Error::new(Code::IdempotencyInProgress),
        other => other.into(),
    })?;
    record_created(payments, &mut held, scope.trail(), &payment, now).await?;
    tx.commit().await?;
    Ok(payment)
}

/// Returns the row of a new payment that waits for the customer.
fn row(
    payments: &Payments,
    scope: &OrgScope,
    (kind, invoice_id, amount_minor): (Kind, Option<InvoiceId>, i64),
    (currency, saves_card): (String, bool),
    now: Time,
) -> Payment {
    // Our invoices bill usage without tax.
    let is_taxed = payments.settings.stripe_tax && kind == Kind::Credit;
    Payment {
        id: PaymentId::new(now, &payments.random),
        organization_id: scope.organization_id(),
        kind,
        invoice_id,
        amount_minor,
        is_taxed,
        tax_minor: (!is_taxed).then_some(0),
        tax_calculation_id: None,
        currency,
        status: Status::Open,
        saves_card,
        customer_id: None,
        session_id: None,
        intent_id: None,
        method_id: None,
        checkout_url: None,
        attempts: 0,
        is_attempt_open: false,
        next_at: Some(now.plus_ms(FIRST_LOOK_MS)),
        refunded_minor: 0,
        disputed_minor: 0,
        returned_tax_minor: 0,
        failure_code: None,
        receipt_url: None,
        caller: scope.trail().actor.clone(),
        created_at: now,
        updated_at: now,
        paid_at: None,
    }
}

async fn record_created(
    payments: &Payments,
    tx: &mut Tx,
    trail: &Trail,
    payment: &Payment,
    now: Time,
) -> Result<(), db::Error> {
    let subject = (Action::PaymentCreated, payment.id.text());
    payments.record(tx, trail, subject, payment.organization_id, now).await
}

/// Returns the payment that the same request created earlier.
async fn find_repeated(
    payments: &Payments,
    organization_id: OrganizationId,
    new: &New,
) -> Result<Option<Payment>, Error> {
    let Some(request_key) = new.request_key else { return Ok(None) };
    let found = store::by_request(&mut payments.db.read().await?, request_key).await?;
    let is_same = |payment: &Payment| {
        let target = match new.target {
            Target::Credit(amount) => payment.kind == Kind::Credit && payment.amount() == amount,
            Target::Invoice(id) => payment.invoice_id == Some(id),
        };
        target && payment.organization_id == organization_id && payment.saves_card == new.saves_card
    };
    match found {
        Some(payment) if !is_same(&payment) => {
            Err(Error::new(Code::IdempotencyKeyReused).param("idempotency-key"))
        }
        found => Ok(found),
    }
}

/// Returns the amount due on an organization's invoice.
async fn due_of(tx: &mut Tx, organization_id: OrganizationId, id: InvoiceId) -> Result<Nano, Error> {
    let invoice = invoice_store::get(tx, id).await?;
    let invoice = invoice.filter(|invoice| invoice.organization_id == organization_id);
    let invoice: invoices::Invoice = invoice.ok_or(Error::new(Code::InvoiceNotFound).param("invoice_id"))?;
    if invoice.status != invoicing::Status::Open {
        return Err(Error::new(Code::InvoiceNotOpen).param("invoice_id"));
    }
    Ok(invoice.due)
}

/// Returns an invoice amount in chargeable units, raised to Stripe's minimum charge, or to our minimum if
/// Stripe has none. `None` if it doesn't fit in 64 bits.
fn of_invoice(payments: &Payments, due: Nano, currency: &str) -> Option<i64> {
    let unit = ChargeUnit::of(currency);
    let least = match stripe::currencies::least(currency) {
        Some(least) => least,
        None => unit.covering(payments.settings.minimum(currency))?,
    };
    Some(unit.covering(due)?.max(least))
}

/// Returns an amount of credit in units.
///
/// # Errors
/// 400 with a detail.
pub(crate) fn check_amount(payments: &Payments, amount: Nano, currency: &str) -> Result<i64, Error> {
    let settings = &payments.settings;
    let (least, most) = (settings.minimum(currency), settings.maximum(currency));
    let units = ChargeUnit::of(currency).exactly(amount);
    let message = if amount < least || amount > most {
        format!("`amount` must be at least {least} and at most {most} {currency}.")
    } else if let Some(units) = units {
        return Ok(units);
    } else {
        format!("`amount` is too precise for {currency}.")
    };
    Err(Error::invalid(vec![Detail { param: "amount".to_owned(), code: "invalid_amount", message }]))
}

/// Cancels a payment that waits for the customer; a job expires its page at Stripe.
pub(crate) async fn cancel(tx: &mut Tx, payment: Payment, why: &str, now: Time) -> Result<(), db::Error> {
    if let Some(session_id) = &payment.session_id {
        stripe_tasks::insert(tx, TaskKind::ExpireSession, session_id, now).await?;
    }
    let canceled = Payment {
        status: Status::Canceled,
        failure_code: Some(why.to_owned()),
        checkout_url: None,
        next_at: None,
        ..payment
    };
    store::update(tx, &canceled, now).await
}

/// Returns a page of an organization's payments, the newest first.
///
/// # Errors
/// The database fails.
pub async fn list(payments: &Payments, scope: &OrgScope, page: Page) -> Result<ListPage<Payment>, Error> {
    let mut tx = payments.db.read().await?;
    let total = store::count(&mut tx, scope.organization_id()).await?;
    let rows = store::list(&mut tx, scope.organization_id(), page).await?;
    Ok(ListPage { rows, total })
}

/// Returns a payment of an organization.
///
/// # Errors
/// 404 `payment_not_found`.
pub async fn find(
    payments: &Payments,
    organization_id: OrganizationId,
    id: Option<PaymentId>,
) -> Result<Payment, Error> {
    let id = id.ok_or(Code::PaymentNotFound)?;
    let payment = store::get(&mut payments.db.read().await?, id).await?;
    let payment = payment.filter(|payment| payment.organization_id == organization_id);
    Ok(payment.ok_or(Code::PaymentNotFound)?)
}

/// Returns any payment, for operators.
///
/// # Errors
/// The database fails.
pub async fn read(payments: &Payments, id: PaymentId) -> Result<Option<Payment>, Error> {
    Ok(store::get(&mut payments.db.read().await?, id).await?)
}

/// Returns a page of an organization's payments for operators, the newest first.
///
/// # Errors
/// The database fails.
pub async fn list_for_operator(
    payments: &Payments,
    organization_id: OrganizationId,
    page: Page,
) -> Result<Vec<Payment>, Error> {
    Ok(store::list(&mut payments.db.read().await?, organization_id, page).await?)
}
