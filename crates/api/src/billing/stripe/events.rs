//! `/v1/billing/stripe/events` (docs/contract/payments.md#events-of-stripe).

use hyper::body::Bytes;
use serde_json::json;

use crate::Api;
use crate::auth::Message;
use crate::gate::{Call, Visitor};
use ::payments::{Payments, inbound};
use input::schema::{ObjectSchema, Property};
use kernel::error::{Code, Error};
use web::input::{Description, Input, read_signed_json};
use web::reply::{Enveloped, ok};
use web::route::Operation;

/// The header with the signature.
const SIGNATURE: &str = "stripe-signature";

/// An event from Stripe, as the bytes that Stripe has signed.
#[derive(Debug)]
pub struct SignedEvent {
    signature: Option<String>,
    bytes: Bytes,
}

impl Input<Api> for SignedEvent {
    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let mut values = call.headers.get_all(SIGNATURE).iter();
        let signature = values.next().and_then(|value| value.to_str().ok()).map(str::to_owned);
        // If the header is sent twice, neither value is trusted.
        let signature = signature.filter(|_| values.next().is_none());
        let bytes = read_signed_json(api, call).await?.into_bytes();
        Ok(Self { signature, bytes })
    }
    fn describe() -> Description {
        let text = "The time and the signatures of the body's bytes, as Stripe writes them.";
        let schema =
            json!({"type": "string", "description": text, "examples": ["t=1764000000,v1=5257a869e7ec"]});
        let word = |example: &str| json!({"type": "string", "maxLength": 255, "examples": [example]});
        let properties = vec![
            Property::required("id", word("evt_1TbMzVBuJ2Q3xY9k"), "The id of the event."),
            Property::required(
                "type",
                word("payment_intent.succeeded"),
                "The kind of event, such as `checkout.session.completed`.",
            ),
        ];
        Description {
            // Stripe defines the other fields.
            body: Some(ObjectSchema { properties, is_open: true }),
            headers: vec![("Stripe-Signature", schema)],
            ..Description::default()
        }
    }
}

pub const CREATE: Operation = Operation {
    errors: &[Code::InvalidSignature, Code::PaymentsDisabled],
    example: r#"{
  "id": "evt_1TuYXvKZ8f3vQh2q9Yx1wJtN",
  "type": "checkout.session.completed"
}"#,
    ..Operation::new("take_stripe_event")
};

/// Receive an event from Stripe.
///
/// The signature authenticates the event. The event is stored first and processed later.
pub async fn create(payments: Payments, _: Visitor, event: SignedEvent) -> Result<Enveloped<Message>, Error> {
    inbound::receive(&payments, event.signature.as_deref(), &event.bytes).await?;
    Ok(ok(Message { message: "The event is received.".into() }))
}
