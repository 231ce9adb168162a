//! `/v1/completions`: text that a model continues, answered as one object or as a stream of events
//! (docs/contract/gateway.md#completions).

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{
    self, ModelAnswer, choices, count, count_or_none, max_tokens, model, stream, stream_options, texts,
};
use crate::refusals::{DECISION, GATEWAY};
use input::schema::{ObjectSchema, Property};
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};
use web::route::Operation;

/// The fields of a completion request that the gateway reads. All other fields are passed unchanged to the
/// server behind the model.
#[derive(Debug)]
pub struct CompletionRequest;

impl DescribeBody for CompletionRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema {
            properties: vec![
                model("svc-1"),
                texts("prompt", "Once upon a time", "The prompt to continue, or an array of prompts."),
                stream(),
                stream_options(),
                max_tokens(count_or_none(1_000_000_000, 64)),
                choices(),
                Property::optional(
                    "best_of",
                    count(128, 1),
                    "The number of answers that the model computes, of which `n` are returned.",
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
  "prompt": "Once upon a time",
  "max_tokens": 64
}"#,
    ..Operation::new("create_completion")
};

/// Continue a prompt.
///
/// The answer is one object, or with `stream` the events of a stream that ends with `data: [DONE]`. The price
/// is reserved and charged as for a chat. Several prompts are answered and charged separately.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<CompletionRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, gateway::Operation::Completions, scope, body.bytes).await
}
