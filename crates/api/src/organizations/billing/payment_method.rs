//! `/v1/organizations/{organization_id}/billing/payment-method` (docs/contract/payments.md#saved-card).

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Message;
use ::payments::{Payments, cards};
use kernel::error::{Code, Error};
use tenants::access::OrgScope;
use web::input::NoInput;
use web::reply::{Enveloped, ok, private};
use web::route::Operation;

/// The page on which a card is saved.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PaymentMethodPage {
    /// A page of the payment processor, valid for half a day.
    checkout_url: String,
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::PaymentsDisabled, Code::ProcessorUnavailable],
    ..Operation::new("update_payment_method")
};

/// Save a card.
///
/// The response contains the payment processor's page on which the card is entered. The new card replaces the
/// saved one.
pub async fn update(
    payments: Payments,
    scope: OrgScope,
    _: NoInput,
) -> Result<Enveloped<PaymentMethodPage>, Error> {
    Ok(private(PaymentMethodPage { checkout_url: cards::begin(&payments, &scope).await? }))
}

pub const DELETE_ALL: Operation = Operation {
    errors: &[Code::NoPaymentMethod, Code::PaymentsDisabled],
    ..Operation::new("delete_payment_method")
};

/// Remove the saved card.
pub async fn delete_all(
    payments: Payments,
    scope: OrgScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    cards::remove(&payments, &scope).await?;
    Ok(ok(Message { message: "The card is removed and will no longer be charged.".into() }))
}
