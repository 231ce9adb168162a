//! `/v1/messages`: messages of a model in the form of Anthropic's Messages API
//! (docs/contract/gateway.md#messages).

use serde_json::json;

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{self, ModelAnswer, count_or_none, flag};
use gateway::Operation;
use input::fields::ObjectSchema;
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};

/// The fields of a message request that the gateway reads. All others go to the server behind the model as they
/// are.
#[derive(Debug)]
pub struct MessageRequest;

impl DescribeBody for MessageRequest {
    fn describe() -> ObjectSchema {
        let messages = json!({
            "type": "array",
            "minItems": 1,
            "items": {"type": "object"},
            "examples": [[{"role": "user", "content": "Say hello."}]],
        });
        ObjectSchema {
            properties: vec![
                ("model", json!({"type": "string", "examples": ["svc-1"]}), true),
                ("messages", messages, true),
                ("max_tokens", count_or_none(1_000_000_000, 64), false),
                ("stream", flag(), false),
            ],
            is_open: true,
        }
    }
}

/// Get a message of a model.
///
/// The answer is one object, or with `stream` the events of a stream, the last of which is `message_stop`. Errors
/// have Anthropic's form. The API key may also be sent as `x-api-key`.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<MessageRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, Operation::Messages, scope, body.bytes).await
}
