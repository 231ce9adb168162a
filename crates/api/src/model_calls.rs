//! Model calls through the gateway, for all operations.

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use schemars::SchemaGenerator;
use serde_json::{Value, json};

use crate::Api;
use crate::gate::ModelCallScope;
use billing::decision::RemainingRates;
use gateway::{Answer, AnswerBody, Credential, ModelCall, Operation};
use http::StatusCode;
use hyper::body::Bytes;
use input::schema::Property;
use kernel::error::Error;
use web::reply::{Body, Reply, json_response};

/// Makes a model call.
///
/// # Errors
/// Those of [`gateway::call`].
pub async fn answer(
    api: &Api,
    operation: Operation,
    scope: ModelCallScope,
    body: Bytes,
) -> Result<ModelAnswer, Error> {
    Ok(ModelAnswer(gateway::call(&api.gateway, call_of(operation, scope, body)).await?))
}

/// Returns the call that an admitted caller makes with this body.
pub fn call_of(operation: Operation, scope: ModelCallScope, body: Bytes) -> ModelCall {
    let ModelCallScope { credential, holder, address, organization, project, anthropic, user_agent } = scope;
    let credential = Credential::Bearer(credential);
    ModelCall { operation, credential, holder, address, organization, project, anthropic, user_agent, body }
}

/// Returns the schema of an optional integer from 1 to `most`.
pub fn count(most: i64, example: i64) -> Value {
    json!({"type": ["integer", "null"], "minimum": 1, "maximum": most, "examples": [example]})
}

/// Returns the schema of an optional token limit from 0 to `most`; 0 requests only the prompt.
pub fn count_or_none(most: i64, example: i64) -> Value {
    json!({"type": ["integer", "null"], "minimum": 0, "maximum": most, "examples": [example]})
}

/// Returns the field `model`.
pub fn model(example: &str) -> Property {
    Property::required("model", json!({"type": "string", "examples": [example]}), "The id of the model.")
}

/// Returns the field `messages`.
pub fn messages() -> Property {
    let schema = json!({
        "type": "array",
        "minItems": 1,
        "items": {"type": "object"},
        "examples": [[{"role": "user", "content": "Say hello."}]],
    });
    Property::required("messages", schema, "The conversation so far.")
}

/// Returns the field `max_tokens` with the schema of its values.
pub fn max_tokens(schema: Value) -> Property {
    Property::optional(
        "max_tokens",
        schema,
        "The maximum number of tokens per request; null for the model's limit.",
    )
}

/// Returns the field `n`.
pub fn choices() -> Property {
    Property::optional("n", count(128, 1), "The number of answers to generate.")
}

/// Returns the field `stream`, which is `false` by default.
pub fn stream() -> Property {
    let schema = json!({"type": ["boolean", "null"], "examples": [false]});
    Property::optional("stream", schema, "`true` to stream the answer as events.")
}

/// Returns the field `stream_options`.
pub fn stream_options() -> Property {
    let flag = |description: &str| json!({"type": ["boolean", "null"], "description": description, "examples": [false]});
    let schema = json!({
        "type": ["object", "null"],
        "title": "StreamOptions",
        "properties": {
            "include_usage": flag("`true` to end the stream with an event that contains the token counts."),
            "continuous_usage_stats":
                flag("`true` to include the token counts in every event; for vLLM and SGLang."),
            "include_obfuscation": {
                "description": "OpenAI's padding of events; passed on unchanged.",
                "examples": [false],
            },
        },
        "additionalProperties": false,
        "examples": [null],
    });
    Property::optional("stream_options", schema, "Options of the stream.")
}

/// Returns a field that contains a string, several strings, or their tokens.
pub fn texts(name: &'static str, example: &str, description: &'static str) -> Property {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {}}], "examples": [example]});
    Property::required(name, schema, description)
}

/// A model's answer: one JSON object, or a stream of events.
#[derive(Debug)]
pub struct ModelAnswer(Answer);

impl Reply for ModelAnswer {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let Answer { call_id, rates, is_demo, lowered_max_tokens, body } = self.0;
        let mut response = match body {
            AnswerBody::Whole(body) => json_response(StatusCode::OK, body),
            AnswerBody::Stream(events) => {
                let mut response = Response::new(Body::from_stream(events));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                // Without this header, nginx buffers the events.
                headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
                response
            }
        };
        let headers = response.headers_mut();
        let call_id = HeaderValue::try_from(call_id.to_string()).map_err(Error::internal)?;
        headers.insert(HeaderName::from_static("x-tollkeeper-call-id"), call_id);
        if is_demo {
            headers.insert(HeaderName::from_static("x-tollkeeper-demo"), HeaderValue::from_static("true"));
        }
        if let Some(tokens) = lowered_max_tokens {
            headers.insert(HeaderName::from_static("x-tollkeeper-max-tokens"), HeaderValue::from(tokens));
        }
        rate_headers(&rates, headers);
        Ok(response)
    }

    fn other_content_type() -> Option<&'static str> {
        Some("text/event-stream")
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        let schema = json!({"type": "object", "description": "The answer of the inference server."});
        generator.definitions_mut().insert("ModelAnswer".into(), schema);
        json!({"$ref": "#/components/schemas/ModelAnswer"})
    }
}

/// Adds headers with the state of the rate that has the fewest remaining requests.
fn rate_headers(rates: &RemainingRates, headers: &mut HeaderMap) {
    let left = rates.api_key.into_iter().chain(rates.model).min_by_key(|rate| rate.allowed.remaining);
    let Some(left) = left else { return };
    headers.insert("x-ratelimit-limit-requests", HeaderValue::from(left.limit));
    headers.insert("x-ratelimit-remaining-requests", HeaderValue::from(left.allowed.remaining));
    if let Ok(value) = HeaderValue::try_from(format!("{}ms", left.allowed.reset_ms)) {
        headers.insert("x-ratelimit-reset-requests", value);
    }
}
