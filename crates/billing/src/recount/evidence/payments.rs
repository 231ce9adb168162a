//! Payments, refunds and disputes, and Stripe's statements about them.

use std::collections::BTreeMap;

use db::{Tx, sql};
use kernel::clock::Time;

/// A payment by card.
#[derive(Clone, Debug)]
pub struct PaymentRow {
    pub id: String,
    pub kind: String,
    pub invoice_id: Option<String>,
    pub status: String,
    pub currency: String,
    pub amount_minor: i64,
    pub tax_minor: i64,
    /// The amount that is recorded as returned, without tax.
    pub returned_minor: i64,
    pub returned_tax_minor: i64,
    /// The maximum that an automatic top-up was allowed to charge, if it was recorded.
    pub maximum_minor: Option<i64>,
    pub failure_code: Option<String>,
    pub attempts: i64,
    pub is_attempt_open: bool,
    pub created_at: Time,
    pub updated_at: Time,
    pub paid_at: Option<Time>,
    pub next_at: Option<Time>,
}

db::row!(PaymentRow {
    id,
    kind,
    invoice_id,
    status,
    currency,
    amount_minor,
    tax_minor,
    returned_minor,
    returned_tax_minor,
    maximum_minor,
    failure_code,
    attempts,
    is_attempt_open,
    created_at,
    updated_at,
    paid_at,
    next_at
});

/// Returns the payments.
pub async fn payments(tx: &mut Tx, organization_id: &str) -> Result<Vec<PaymentRow>, db::Error> {
    sql("SELECT id, kind, invoice_id, status, currency, amount_minor, COALESCE(tax_minor, 0) AS tax_minor,
                refunded_minor + disputed_minor AS returned_minor, returned_tax_minor, maximum_minor, failure_code,
                attempts, is_attempt_open, created_at, updated_at, paid_at, next_at
         FROM payments WHERE organization_id = $1 ORDER BY id")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// A refund or a dispute.
#[derive(Clone, Debug)]
pub struct ReturnRow {
    pub id: String,
    /// The id at Stripe.
    pub stripe_id: Option<String>,
    pub payment_id: String,
    /// The amount that was returned to the payer or the bank, including tax; zero for a refund that failed.
    pub amount_minor: i64,
    pub tax_minor: i64,
    /// The minimum number of times that the refund or dispute was booked.
    pub bookings: i64,
}

db::row!(ReturnRow { id, stripe_id, payment_id, amount_minor, tax_minor, bookings });

/// The refunds and disputes of each payment, by its id.
pub type Returns<'a> = BTreeMap<&'a str, Vec<&'a ReturnRow>>;

/// Returns refunds and disputes by the id of their payment.
pub fn by_payment(returns: &[ReturnRow]) -> Returns<'_> {
    let mut of = Returns::new();
    for back in returns {
        of.entry(&back.payment_id).or_default().push(back);
    }
    of
}

/// Returns the refunds and disputes.
pub async fn returns(tx: &mut Tx, organization_id: &str) -> Result<Vec<ReturnRow>, db::Error> {
    sql("SELECT id, stripe_id, payment_id, CASE WHEN status = 'failed' THEN 0 ELSE amount_minor END AS amount_minor,
                CASE WHEN status = 'failed' THEN 0 ELSE tax_minor END AS tax_minor,
                CAST(CASE WHEN status = 'failed' THEN 2 ELSE 1 END AS BIGINT) AS bookings
         FROM payment_refunds WHERE organization_id = $1
     UNION ALL SELECT id, id, payment_id, CASE WHEN reinstated_at IS NULL THEN amount_minor ELSE 0 END,
                CASE WHEN reinstated_at IS NULL THEN tax_minor ELSE 0 END,
                CASE WHEN reinstated_at IS NULL THEN bookings ELSE bookings + 1 END
         FROM payment_disputes WHERE organization_id = $1")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// A statement of Stripe about a payment, a refund or a dispute.
#[derive(Clone, Debug)]
pub struct StatementRow {
    pub object_id: String,
    pub payment_id: String,
    pub kind: String,
    pub state: String,
    pub amount_minor: i64,
    pub currency: String,
    /// `time:amount:currency` for each movement of a dispute.
    pub moved: String,
}

db::row!(StatementRow { object_id, payment_id, kind, state, amount_minor, currency, moved });

/// Returns Stripe's statements until a time.
pub async fn statements(
    tx: &mut Tx,
    organization_id: &str,
    until: Time,
) -> Result<Vec<StatementRow>, db::Error> {
    sql("SELECT object_id, payment_id, kind, state, amount_minor, currency, moved FROM payment_statements
         WHERE organization_id = $1 AND stated_at <= $2 ORDER BY object_id")
    .bind(organization_id)
    .bind(until)
    .heavy()
    .all(tx)
    .await
}
