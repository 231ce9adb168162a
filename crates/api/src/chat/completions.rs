//! `/v1/chat/completions`: a chat with a model, answered as one object or as a stream of events
//! (docs/contract/gateway.md#chat-completions).

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{
    self, ModelAnswer, choices, count, max_tokens, messages, model, stream, stream_options,
};
use crate::refusals::{DECISION, GATEWAY};
use input::schema::{ObjectSchema, Property};
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};
use web::route::Operation;

/// The fields of a chat request that the gateway reads. All other fields are passed unchanged to the server
/// behind the model.
#[derive(Debug)]
pub struct ChatRequest;

impl DescribeBody for ChatRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema {
            properties: vec![
                model("svc-1"),
                messages(),
                stream(),
                stream_options(),
                max_tokens(count(1_000_000_000, 64)),
                Property::optional(
                    "max_completion_tokens",
                    count(1_000_000_000, 64),
                    "The maximum number of output tokens; takes precedence over `max_tokens`.",
                ),
                choices(),
            ],
            is_open: true,
        }
    }
}

pub const CREATE: Operation = Operation {
    error_groups: &[DECISION, GATEWAY],
    example: r#"{
  "model": "svc-1",
  "messages": [{"role": "user", "content": "Say hello."}],
  "max_tokens": 64
}"#,
    ..Operation::new("create_chat_completion")
};

/// Chat with a model.
///
/// The answer is one object, or with `stream` the events of a stream that ends with `data: [DONE]`. Fields
/// that aren't listed are passed unchanged to the server behind the model. The maximum price of the call is
/// reserved before the first byte of the answer, and the exact price is booked before the last byte.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<ChatRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, gateway::Operation::ChatCompletions, scope, body.bytes).await
}
