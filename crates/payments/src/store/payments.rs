//! The table `payments`.

use std::sync::LazyLock;

use db::{Page, Tx, sql};
use kernel::clock::{DAY_MS, Time};
use kernel::currencies::ChargeUnit;
use kernel::ids::{InvoiceId, OrganizationId, PaymentId};
use kernel::money::Nano;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::rules::shares::Shares;

/// The purpose of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Credit bought by a user.
    Credit,
    /// An invoice.
    Invoice,
    /// Credit bought by an automatic top-up.
    AutoTopUp,
}

db::words!(Kind);

/// The state of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// Waiting for the customer on a Stripe page.
    Open,
    /// The saved card is being charged, or will be.
    Processing,
    /// The bank requires the customer to confirm the charge on a Stripe page.
    ActionRequired,
    Succeeded,
    /// The last attempt was declined, or Stripe refused the payment.
    Failed,
    /// Canceled for the reason in `failure_code`.
    Canceled,
}

db::words!(Status);

impl Status {
    /// Returns `true` if the customer can pay on a Stripe page.
    pub const fn waits_for_customer(self) -> bool {
        matches!(self, Self::Open | Self::ActionRequired)
    }
}

/// A payment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payment {
    pub id: PaymentId,
    pub organization_id: OrganizationId,
    pub kind: Kind,
    pub invoice_id: Option<InvoiceId>,
    /// The amount credited or paid on an invoice, excluding tax, in Stripe's unit.
    pub amount_minor: i64,
    /// Whether Stripe calculates a tax that is paid on top.
    pub is_taxed: bool,
    /// The tax in Stripe's unit; `None` until Stripe has calculated it.
    pub tax_minor: Option<i64>,
    /// The tax calculation of a charge of the saved card.
    pub tax_calculation_id: Option<String>,
    /// ISO 4217 code.
    pub currency: String,
    pub status: Status,
    /// Whether the card is saved after payment.
    pub saves_card: bool,
    /// Stripe's ids of the customer, the Checkout session, the payment intent, and the charged card.
    pub customer_id: Option<String>,
    pub session_id: Option<String>,
    pub intent_id: Option<String>,
    pub method_id: Option<String>,
    pub checkout_url: Option<String>,
    /// Number of off-session charges started.
    pub attempts: i64,
    /// Whether the outcome of the last attempt is still unknown.
    pub is_attempt_open: bool,
    /// Time at which a job checks the payment again. Set by charging while it's being processed, and by the
    /// checking job while it waits for its customer. Events from Stripe don't change it.
    pub next_at: Option<Time>,
    /// Excluding tax, like `amount_minor`.
    pub refunded_minor: i64,
    pub disputed_minor: i64,
    /// The tax part of both.
    pub returned_tax_minor: i64,
    pub failure_code: Option<String>,
    /// Stripe's page with the invoice or receipt.
    pub receipt_url: Option<String>,
    /// The id of the user or key that created it, or `system`.
    pub caller: String,
    pub created_at: Time,
    pub updated_at: Time,
    pub paid_at: Option<Time>,
}

db::row!(Payment {
    id,
    organization_id,
    kind,
    invoice_id,
    amount_minor,
    is_taxed,
    tax_minor,
    tax_calculation_id,
    currency,
    status,
    saves_card,
    customer_id,
    session_id,
    intent_id,
    method_id,
    checkout_url,
    attempts,
    is_attempt_open,
    next_at,
    refunded_minor,
    disputed_minor,
    returned_tax_minor,
    failure_code,
    receipt_url,
    caller,
    created_at,
    updated_at,
    paid_at
});

impl Payment {
    /// Returns an amount in the payment's currency.
    pub fn nano(&self, minor: i64) -> Nano {
        ChargeUnit::of(&self.currency).amount(minor)
    }

    pub fn amount(&self) -> Nano {
        self.nano(self.amount_minor)
    }

    /// Returns the tax; `None` until Stripe has calculated it.
    pub fn tax(&self) -> Option<Nano> {
        self.tax_minor.map(|minor| self.nano(minor))
    }

    /// Returns the total units to pay, including tax; `None` until Stripe has calculated the tax.
    pub fn total_minor(&self) -> Option<i64> {
        self.amount_minor.checked_add(self.tax_minor?)
    }

    /// Returns the total to pay, including tax; `None` until Stripe has calculated the tax.
    pub fn total(&self) -> Option<Nano> {
        self.total_minor().map(|minor| self.nano(minor))
    }

    /// Returns the paid amounts and their returned parts.
    pub fn shares(&self) -> Shares {
        Shares {
            net: self.amount_minor,
            tax: self.tax_minor.unwrap_or_default(),
            returned_net: self.refunded_minor + self.disputed_minor,
            returned_tax: self.returned_tax_minor,
        }
    }

    pub fn refunded(&self) -> Nano {
        self.nano(self.refunded_minor)
    }

    pub fn disputed(&self) -> Nano {
        self.nano(self.disputed_minor)
    }
}

const COLUMNS: &str = "id, organization_id, kind, invoice_id, amount_minor, is_taxed, tax_minor, tax_calculation_id, currency,
     status, saves_card, customer_id, session_id, intent_id, method_id, checkout_url, attempts, is_attempt_open, next_at,
     refunded_minor, disputed_minor, returned_tax_minor, failure_code, receipt_url, caller, created_at, updated_at, paid_at";

fn select(rest: &str) -> String {
    format!("SELECT {COLUMNS} FROM payments {rest}")
}

/// Inserts a payment.
///
/// # Errors
/// [`db::Error::Unique`] with `PaymentRequest` if the same request has already created one.
pub async fn insert(tx: &mut Tx, new: &Payment, request_key: Option<[u8; 32]>) -> Result<(), db::Error> {
    sql("INSERT INTO payments (id, organization_id, kind, invoice_id, amount_minor, currency, status, saves_card,
             next_at, caller, request_key, created_at, updated_at, is_taxed, tax_minor)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14)")
    .bind(new.id)
    .bind(new.organization_id)
    .bind(new.kind)
    .bind(new.invoice_id)
    .bind(new.amount_minor)
    .bind(new.currency.as_str())
    .bind(new.status)
    .bind(new.saves_card)
    .bind(new.next_at)
    .bind(new.caller.as_str())
    .bind(request_key)
    .bind(new.created_at)
    .bind(new.is_taxed)
    .bind(new.tax_minor)
    .execute(tx)
    .await?;
    Ok(())
}

/// Updates the mutable columns of a payment.
pub async fn update(tx: &mut Tx, payment: &Payment, now: Time) -> Result<(), db::Error> {
    sql("UPDATE payments SET status = $2, amount_minor = $3, customer_id = $4, session_id = $5, intent_id = $6,
             method_id = $7, checkout_url = $8, attempts = $9, is_attempt_open = $10, next_at = $11, refunded_minor = $12,
             disputed_minor = $13, failure_code = $14, updated_at = $15, paid_at = $16, is_taxed = $17, tax_minor = $18,
             tax_calculation_id = $19, returned_tax_minor = $20, receipt_url = $21
         WHERE id = $1")
    .bind(payment.id)
    .bind(payment.status)
    .bind(payment.amount_minor)
    .bind(payment.customer_id.as_deref())
    .bind(payment.session_id.as_deref())
    .bind(payment.intent_id.as_deref())
    .bind(payment.method_id.as_deref())
    .bind(payment.checkout_url.as_deref())
    .bind(payment.attempts)
    .bind(payment.is_attempt_open)
    .bind(payment.next_at)
    .bind(payment.refunded_minor)
    .bind(payment.disputed_minor)
    .bind(payment.failure_code.as_deref())
    .bind(now)
    .bind(payment.paid_at)
    .bind(payment.is_taxed)
    .bind(payment.tax_minor)
    .bind(payment.tax_calculation_id.as_deref())
    .bind(payment.returned_tax_minor)
    .bind(payment.receipt_url.as_deref())
    .execute(tx)
    .await?;
    Ok(())
}

/// Records the maximum that an automatic top-up may charge, in units, for the audit.
pub async fn set_maximum(tx: &mut Tx, id: PaymentId, units: Option<i64>) -> Result<(), db::Error> {
    sql("UPDATE payments SET maximum_minor = $2 WHERE id = $1").bind(id).bind(units).defer(tx).await
}

/// Schedules the next check of a payment that waits for its customer. Others are unaffected: charging decides
/// when a saved card is charged. Needs no lock.
pub async fn look_again(tx: &mut Tx, id: PaymentId, at: Time) -> Result<(), db::Error> {
    sql("UPDATE payments SET next_at = $2
         WHERE id = $1 AND next_at IS NOT NULL AND status IN ('open', 'action_required')")
    .bind(id)
    .bind(at)
    .defer(tx)
    .await
}

/// Postpones an attempt whose charge can't be booked. Needs no lock.
pub async fn postpone_attempt(tx: &mut Tx, attempt: &Payment, at: Time) -> Result<(), db::Error> {
    sql("UPDATE payments SET next_at = $3
         WHERE id = $1 AND attempts = $2 AND is_attempt_open = 1 AND status = 'processing'")
    .bind(attempt.id)
    .bind(attempt.attempts)
    .bind(at)
    .defer(tx)
    .await
}

/// Postpones a payment that is still due for a check. Needs no lock.
pub async fn postpone_due(tx: &mut Tx, id: PaymentId, now: Time, at: Time) -> Result<(), db::Error> {
    sql("UPDATE payments SET next_at = $3 WHERE id = $1 AND next_at <= $2")
        .bind(id)
        .bind(now)
        .bind(at)
        .defer(tx)
        .await
}

static ONE: LazyLock<String> = LazyLock::new(|| select("WHERE id = $1"));

/// Returns a payment.
pub async fn get(tx: &mut Tx, id: PaymentId) -> Result<Option<Payment>, db::Error> {
    sql(ONE.as_str()).bind(id).optional(tx).await
}

static BY_REQUEST: LazyLock<String> = LazyLock::new(|| select("WHERE request_key = $1"));

/// Returns the payment that a request created.
pub async fn by_request(tx: &mut Tx, request_key: [u8; 32]) -> Result<Option<Payment>, db::Error> {
    sql(BY_REQUEST.as_str()).bind(request_key).optional(tx).await
}

static BY_INTENT: LazyLock<String> = LazyLock::new(|| select("WHERE intent_id = $1"));

/// Returns the payment with this payment intent.
pub async fn by_intent(tx: &mut Tx, intent_id: &str) -> Result<Option<Payment>, db::Error> {
    sql(BY_INTENT.as_str()).bind(intent_id).optional(tx).await
}

/// The statement of [`open_of_invoice`].
pub static OPEN_OF_INVOICE: LazyLock<String> = LazyLock::new(|| {
    select("WHERE organization_id = $1 AND invoice_id = $2 AND status = 'open' ORDER BY id DESC LIMIT 1")
});

/// Returns an invoice's payment that waits for the customer.
pub async fn open_of_invoice(
    tx: &mut Tx,
    organization_id: OrganizationId,
    invoice_id: InvoiceId,
) -> Result<Option<Payment>, db::Error> {
    sql(OPEN_OF_INVOICE.as_str()).bind(organization_id).bind(invoice_id).optional(tx).await
}

/// The statement of [`list`].
pub static LIST: LazyLock<String> =
    LazyLock::new(|| select("WHERE organization_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3"));

/// Returns a page of an organization's payments, newest first.
pub async fn list(
    tx: &mut Tx,
    organization_id: OrganizationId,
    page: Page,
) -> Result<Vec<Payment>, db::Error> {
    sql(LIST.as_str()).bind(organization_id).bind(page.page_size).bind(page.offset()).all(tx).await
}

/// The statement of [`count`].
pub const COUNT: &str = "SELECT COUNT(*) FROM payments WHERE organization_id = $1";

/// Returns the number of an organization's payments.
pub async fn count(tx: &mut Tx, organization_id: OrganizationId) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(COUNT).bind(organization_id).one(tx).await?;
    Ok(count)
}

/// The statement of [`due`].
pub const DUE: &str =
    "SELECT id FROM payments WHERE next_at IS NOT NULL AND next_at <= $1 ORDER BY next_at, id LIMIT $2";

/// Returns payments that are due for a check.
pub async fn due(tx: &mut Tx, now: Time, limit: i64) -> Result<Vec<PaymentId>, db::Error> {
    let rows: Vec<(PaymentId,)> = sql(DUE).bind(now).bind(limit).all(tx).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// The statement of [`topped_up_since`].
pub const TOPPED_UP_SINCE: &str = "SELECT CAST(COALESCE(SUM(amount_minor), 0) AS BIGINT) AS amount_minor,
         CAST(COALESCE(SUM(COALESCE(tax_minor, 0)), 0) AS BIGINT) AS tax_minor
     FROM payments
     WHERE organization_id = $1 AND id >= $2 AND id <> $3 AND kind = 'auto_top_up'
         AND (status IN ('processing', 'action_required') OR (status = 'succeeded' AND paid_at >= $4))";

/// Maximum time that an automatic top-up waits for its charge, in milliseconds: for the next day, after
/// declines, and for the customer's confirmation.
const MAX_WAIT_MS: i64 = 60 * DAY_MS;

/// Sums of automatic top-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToppedUp {
    /// Excluding taxes.
    pub amount_minor: i64,
    pub tax_minor: i64,
}

db::row!(ToppedUp { amount_minor, tax_minor });

impl ToppedUp {
    /// Returns the sum including taxes.
    pub const fn total_minor(self) -> i64 {
        self.amount_minor + self.tax_minor
    }
}

/// Returns the sums of an organization's other automatic top-ups that are in progress or succeeded since a
/// time.
pub async fn topped_up_since(tx: &mut Tx, payment: &Payment, since: Time) -> Result<ToppedUp, db::Error> {
    sql(TOPPED_UP_SINCE)
        .bind(payment.organization_id)
        // Ids begin with the creation time, and a payment may have been requested earlier.
        .bind(PaymentId::from_parts(since.plus_ms(-MAX_WAIT_MS), 0))
        .bind(payment.id)
        .bind(since)
        .one(tx)
        .await
}

/// The statement of [`top_up_under_way`].
pub const TOP_UP_UNDER_WAY: &str = "SELECT id FROM payments
     WHERE organization_id = $1 AND kind = 'auto_top_up' AND status IN ('processing', 'action_required')";

/// Returns an organization's automatic top-up that is in progress.
pub async fn top_up_under_way(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Option<PaymentId>, db::Error> {
    let row: Option<(PaymentId,)> = sql(TOP_UP_UNDER_WAY).bind(organization_id).optional(tx).await?;
    Ok(row.map(|(id,)| id))
}

/// The statement of [`paid_between`].
pub static PAID_BETWEEN: LazyLock<String> = LazyLock::new(|| {
    select("WHERE paid_at IS NOT NULL AND paid_at >= $1 AND paid_at < $2 ORDER BY paid_at, id")
});

/// Returns the payments that succeeded in an interval.
pub async fn paid_between(tx: &mut Tx, from: Time, until: Time) -> Result<Vec<Payment>, db::Error> {
    sql(PAID_BETWEEN.as_str()).bind(from).bind(until).heavy().all(tx).await
}

/// Returns `true` if an organization exists.
pub async fn has_organization(tx: &mut Tx, organization_id: OrganizationId) -> Result<bool, db::Error> {
    let row: Option<(OrganizationId,)> =
        sql("SELECT id FROM organizations WHERE id = $1").bind(organization_id).optional(tx).await?;
    Ok(row.is_some())
}
