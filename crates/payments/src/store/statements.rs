//! The table `payment_statements`: Stripe's data about an object when it was last read. It isn't used for
//! bookings: the audit recounts payments from it.

use db::{Tx, sql};
use kernel::clock::Time;
use stripe::{Dispute, DisputeStatus, PaymentIntent, Refund, RefundStatus};

use super::payments::Payment;

/// Stripe's statement about a payment, a refund, or a dispute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    object_id: String,
    kind: &'static str,
    /// `made`, `failed`, or `won` (dispute).
    state: &'static str,
    amount_minor: i64,
    currency: String,
    /// The movements of a dispute, each as `time:amount:currency`.
    moved: String,
}

impl Statement {
    /// Returns the statement about a successful payment.
    pub fn of_payment(intent: &PaymentIntent) -> Self {
        let (object_id, currency) = (intent.id.clone(), intent.currency.clone());
        let (kind, state, moved) = ("payment", "made", String::new());
        Self { object_id, kind, state, amount_minor: intent.amount_received, currency, moved }
    }

    /// Returns the statement about a refund.
    pub fn of_refund(refund: &Refund) -> Self {
        let is_over = matches!(refund.status, Some(RefundStatus::Failed | RefundStatus::Canceled));
        let (object_id, currency) = (refund.id.clone(), refund.currency.clone());
        let state = if is_over { "failed" } else { "made" };
        let (kind, moved) = ("refund", String::new());
        Self { object_id, kind, state, amount_minor: refund.amount, currency, moved }
    }

    /// Returns the statement about a dispute.
    pub fn of_dispute(dispute: &Dispute) -> Self {
        let moved = dispute.balance_transactions.iter();
        let moved: Vec<_> = moved.map(|it| format!("{}:{}:{}", it.created, it.amount, it.currency)).collect();
        Self {
            object_id: dispute.id.clone(),
            kind: "dispute",
            state: if dispute.status == DisputeStatus::Won { "won" } else { "made" },
            amount_minor: dispute.amount,
            currency: dispute.currency.clone(),
            moved: moved.join(" "),
        }
    }
}

/// Stores a statement, unless it's unchanged. `stated_at` is the time of the last change.
pub async fn put(tx: &mut Tx, payment: &Payment, statement: &Statement, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO payment_statements (object_id, payment_id, organization_id, kind, state, amount_minor, currency, moved, stated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (object_id) DO UPDATE SET state = excluded.state, amount_minor = excluded.amount_minor,
             currency = excluded.currency, moved = excluded.moved, stated_at = excluded.stated_at
         WHERE payment_statements.state <> excluded.state OR payment_statements.amount_minor <> excluded.amount_minor
            OR payment_statements.currency <> excluded.currency OR payment_statements.moved <> excluded.moved")
    .bind(statement.object_id.as_str())
    .bind(payment.id)
    .bind(payment.organization_id)
    .bind(statement.kind)
    .bind(statement.state)
    .bind(statement.amount_minor)
    .bind(statement.currency.as_str())
    .bind(statement.moved.as_str())
    .bind(now)
    .defer(tx)
    .await
}
