//! `/v1/chat/completions`: a chat with a model, answered whole or as a stream of events
//! (docs/contract/gateway.md#chat-completions).

use serde_json::json;

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_answer::ModelAnswer;
use gateway::ChatCall;
use input::fields::ObjectSchema;
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};

/// The fields of a chat request that the gateway reads. All others go to the server behind the model as they
/// are.
#[derive(Debug)]
pub struct ChatRequest;

impl DescribeBody for ChatRequest {
    fn describe() -> ObjectSchema {
        let count = |least: i64, most: i64, example: i64| json!({"type": ["integer", "null"], "minimum": least, "maximum": most, "examples": [example]});
        let messages = json!({
            "type": "array",
            "minItems": 1,
            "items": {"type": "object"},
            "examples": [[{"role": "user", "content": "Say hello."}]],
        });
        let options = json!({
            "type": ["object", "null"],
            "properties": {"include_usage": {"type": "boolean"}},
            "examples": [null],
        });
        ObjectSchema {
            properties: vec![
                ("model", json!({"type": "string", "examples": ["svc-1"]}), true),
                ("messages", messages, true),
                ("stream", json!({"type": ["boolean", "null"], "examples": [false]}), false),
                ("stream_options", options, false),
                ("max_tokens", count(1, 1_000_000_000, 64), false),
                ("max_completion_tokens", count(1, 1_000_000_000, 64), false),
                ("n", count(1, 128, 1), false),
            ],
            is_open: true,
        }
    }
}

/// Chat with a model.
///
/// The answer is one object, or with `stream` the events of a stream that ends with `data: [DONE]`. Fields
/// that aren't listed go to the server behind the model as they are. The largest price of the call is reserved
/// before the first byte of the answer, and its exact price is booked before the last.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<ChatRequest>,
) -> Result<ModelAnswer, Error> {
    let call = ChatCall {
        credential: scope.credential,
        address: scope.address,
        organization: scope.organization,
        project: scope.project,
        body: body.bytes,
    };
    Ok(ModelAnswer::new(gateway::chat(&api.gateway, call).await?))
}
