//! `/v1/organizations/{organization_id}/billing/payments` and `…/{payment_id}` (docs/contract/payments.md).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::creation::Repeatable;
use crate::gate::PaymentScope;
use crate::paging::{PageInfo, PageQuery};
use ::payments::Payments;
use ::payments::payments::{self as operations, New, Payment as Row, Target};
use idempotency::Uncommitted;
use input::record;
use input::types::Amount;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{InvoiceId, PaymentId};
use kernel::money::Nano;
use tenants::access::OrgScope;
use web::input::{Body, NoInput, Query};
use web::reply::{Enveloped, private};
use web::route::Operation;

/// A payment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Payment {
    /// The id of the payment.
    id: PaymentId,
    /// `credit`, `invoice` or `auto_top_up`.
    kind: &'static str,
    /// `open`, `processing`, `action_required`, `succeeded`, `failed` or `canceled`.
    status: &'static str,
    /// The amount of credit bought, or the amount paid for an invoice, without tax.
    amount: Nano,
    /// The tax that is added to the amount; null until it is known.
    tax: Option<Nano>,
    /// The charged amount, including tax; null until the tax is known.
    total: Option<Nano>,
    /// The currency's ISO 4217 code.
    currency: String,
    /// The invoice that the payment pays; null for credit.
    invoice_id: Option<InvoiceId>,
    /// The URL of the payment processor's page for this payment; null when the payment can no longer be made.
    checkout_url: Option<String>,
    /// The sum of the payment's refunds, without tax.
    refunded: Nano,
    /// The sum that banks withhold because of disputes, without tax.
    disputed: Nano,
    /// The reason why the payment failed, was canceled or is waiting; null otherwise.
    failure_code: Option<String>,
    /// The URL of the payment processor's page with the invoice or receipt, for a payment with tax; null
    /// otherwise.
    receipt_url: Option<String>,
    /// The time when the payment was created.
    created_at: Time,
    /// The time of payment; null until then.
    paid_at: Option<Time>,
}

impl From<Row> for Payment {
    fn from(row: Row) -> Self {
        let (amount, refunded, disputed) = (row.amount(), row.refunded(), row.disputed());
        let (tax, total) = (row.tax(), row.total());
        Self {
            id: row.id,
            kind: row.kind.as_str(),
            status: row.status.as_str(),
            amount,
            tax,
            total,
            currency: row.currency,
            invoice_id: row.invoice_id,
            checkout_url: row.checkout_url.filter(|_| row.status.waits_for_customer()),
            refunded,
            disputed,
            failure_code: row.failure_code,
            receipt_url: row.receipt_url,
            created_at: row.created_at,
            paid_at: row.paid_at,
        }
    }
}

record! {
    /// An amount of credit, or an invoice.
    #[derive(Debug)]
    pub struct CreatePayment in Api {
        amount: Option<Amount> = optional,
        /// The invoice to pay. The payment is its amount due, rounded up to an amount that can be charged.
        invoice_id: Option<InvoiceId> = optional,
        /// `true` to save the card for automatic charges.
        save_card: bool = or(false),
    }
    check(fields) {
        match (&amount, &invoice_id) {
            (Some(None), Some(None)) => {
                fields.problem::<()>("amount", "required", "`amount` or `invoice_id` is required.".to_owned());
            }
            (Some(Some(_)), Some(Some(_))) => {
                let message = "Omit `amount`, because the invoice determines it.".to_owned();
                fields.problem::<()>("amount", "not_allowed", message);
            }
            _ => {}
        }
    }
}

impl CreatePayment {
    /// Converts the body to a payment. A repeated request has the same `request_key`.
    ///
    /// # Errors
    /// An internal error if the body has neither amount nor invoice, which the check of the record rules out.
    pub fn into_new(self, request_key: Option<[u8; 32]>) -> Result<New, Error> {
        let target = match (self.amount, self.invoice_id) {
            (_, Some(invoice_id)) => Target::Invoice(invoice_id),
            (Some(amount), None) => Target::Credit(amount.0),
            (None, None) => return Err(Error::internal("a payment of nothing")),
        };
        Ok(New { target, saves_card: self.save_card, request_key })
    }
}

pub const CREATE: Operation = Operation {
    errors: &[
        Code::AmountOutOfRange,
        Code::InvoiceNotFound,
        Code::InvoiceNotOpen,
        Code::PaymentsDisabled,
        Code::ProcessorUnavailable,
    ],
    example: r#"{
  "amount": 50,
  "save_card": true
}"#,
    ..Operation::new("create_payment")
};

/// Pay for credit or an invoice.
///
/// The response contains the URL of the payment processor's page on which the user pays. A repeated request
/// with the same idempotency key returns the same payment and page.
pub async fn create(
    payments: Payments,
    scope: OrgScope,
    Repeatable { request_key, input: Body(body) }: Repeatable<Body<CreatePayment>>,
) -> Result<Uncommitted<Enveloped<Payment>>, Error> {
    let created = operations::create(&payments, &scope, body.into_new(request_key)?).await?;
    Ok(created.map(|payment| private(payment.into())))
}

/// A page of payments.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PaymentPage {
    /// The payments of this page.
    payments: Vec<Payment>,
    #[serde(flatten)]
    page: PageInfo,
}

pub const LIST: Operation = Operation::new("list_payments");

/// List payments.
///
/// The newest come first.
pub async fn list(
    payments: Payments,
    scope: OrgScope,
    Query(PageQuery(page)): Query<PageQuery>,
) -> Result<Enveloped<PaymentPage>, Error> {
    let listed = operations::list(&payments, &scope, page).await?;
    Ok(private(PaymentPage {
        payments: listed.rows.into_iter().map(Payment::from).collect(),
        page: PageInfo::new(listed.total, page),
    }))
}

pub const READ: Operation = Operation::new("get_payment");

/// Get a payment.
pub async fn read(_: Payments, scope: PaymentScope, _: NoInput) -> Result<Enveloped<Payment>, Error> {
    Ok(private(scope.into_payment().into()))
}
