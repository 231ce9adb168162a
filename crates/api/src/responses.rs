//! `/v1/responses`: answers from a model, in the format of OpenAI's Responses API
//! (docs/contract/gateway.md#responses).

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{self, ModelAnswer, count, model, stream, texts};
use crate::refusals::{DECISION, GATEWAY};
use input::schema::{ObjectSchema, Property};
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};
use web::route::Operation;

/// The fields of a response request that the gateway reads. All other fields are passed unchanged to the
/// server behind the model.
#[derive(Debug)]
pub struct ResponseRequest;

impl DescribeBody for ResponseRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema {
            properties: vec![
                model("svc-1"),
                texts("input", "Say hello.", "The input text, or an array of input items."),
                stream(),
                Property::optional(
                    "max_output_tokens",
                    count(1_000_000_000, 64),
                    "The maximum number of output tokens.",
                ),
            ],
            is_open: true,
        }
    }
}

pub const CREATE: Operation = Operation {
    error_groups: &[DECISION, GATEWAY],
    example: r#"{
  "model": "svc-1",
  "input": "Say hello.",
  "max_output_tokens": 64
}"#,
    ..Operation::new("create_response")
};

/// Get a response from a model.
///
/// The answer is one object, or with `stream` the events of a stream that ends with `response.completed` or
/// `response.incomplete`. Conversations aren't stored: send the whole conversation as `input`.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<ResponseRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, gateway::Operation::Responses, scope, body.bytes).await
}
