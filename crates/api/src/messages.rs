//! `/v1/messages`: messages from a model, in the format of Anthropic's Messages API
//! (docs/contract/gateway.md#messages).

use http::{HeaderValue, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{self, ModelAnswer, count_or_none, max_tokens, messages, model, stream};
use crate::refusals::{DECISION, GATEWAY};
use gateway::TokenCount;
use input::schema::ObjectSchema;
use kernel::error::{Code, Error};
use web::input::{DescribeBody, RawJson};
use web::reply::{Bare, Body, Reply};
use web::route::Operation;

/// The fields of a message request that the gateway reads. All other fields are passed unchanged to the
/// server behind the model.
#[derive(Debug)]
pub struct MessageRequest;

impl DescribeBody for MessageRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema {
            properties: vec![
                model("svc-1"),
                messages(),
                max_tokens(count_or_none(1_000_000_000, 64)),
                stream(),
            ],
            is_open: true,
        }
    }
}

pub const CREATE: Operation = Operation {
    error_groups: &[DECISION, GATEWAY],
    example: r#"{
  "model": "svc-1",
  "max_tokens": 64,
  "messages": [{"role": "user", "content": "Say hello."}]
}"#,
    ..Operation::new("create_message")
};

/// Get a message from a model.
///
/// The answer is one object, or with `stream` the events of a stream that ends with `message_stop`. Errors
/// have the format of Anthropic's API.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<MessageRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, gateway::Operation::Messages, scope, body.bytes).await
}

/// The fields of a token count request that the gateway reads.
#[derive(Debug)]
pub struct TokenCountRequest;

impl DescribeBody for TokenCountRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema { properties: vec![model("svc-1"), messages()], is_open: true }
    }
}

/// The reply to a token count, with the header `x-tollkeeper-estimated` if no server behind the model counts
/// tokens.
#[derive(Debug)]
pub struct CountedTokens(TokenCount);

/// The number of tokens of a prompt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TokenCount")]
struct InputTokens {
    /// The number of tokens of the prompt.
    input_tokens: i64,
}

impl Reply for CountedTokens {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let TokenCount { input_tokens, is_estimated } = self.0;
        let mut response = Bare(InputTokens { input_tokens }).into_response()?;
        if is_estimated {
            response.headers_mut().insert("x-tollkeeper-estimated", HeaderValue::from_static("true"));
        }
        Ok(response)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        <Bare<InputTokens> as Reply>::schema(generator)
    }
}

pub const COUNT_TOKENS: Operation = Operation {
    errors: &[Code::ModelNotAllowed, Code::ModelNotFound],
    example: r#"{
  "model": "svc-1",
  "messages": [{"role": "user", "content": "Say hello."}]
}"#,
    ..Operation::new("count_message_tokens")
};

/// Count the tokens of a message.
///
/// Nothing is generated or charged. A server behind the model counts the tokens if it can; otherwise the
/// result is an estimate, and the response has the header `x-tollkeeper-estimated`. Token counts have a
/// separate rate limit for each key and each user.
pub async fn count_tokens(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<TokenCountRequest>,
) -> Result<CountedTokens, Error> {
    let call = model_calls::call_of(gateway::Operation::Messages, scope, body.bytes);
    gateway::count_tokens(&api.gateway, call).await.map(CountedTokens)
}
