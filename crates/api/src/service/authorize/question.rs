//! The request of `authorize`. Most are read in one pass, without a tree of values in between.

use std::net::IpAddr;

use serde::Deserialize;

use crate::Api;
use crate::gate::Call;
use crate::service::decision::{Choices, Inputs, Operation, QuestionId};
use billing::decision::kind_of;
use input::fields::{Field, Fields, Record, read_value};
use input::json::Json;
use input::types::{Integer, Text};
use kernel::error::Error;
use keys::rules::permissions::Permission;
use web::input::{Body, Description, Input};

type Tokens = Integer<0, 1_000_000_000>;

/// The request of `authorize`.
#[derive(PartialEq, Debug)]
pub struct Authorize {
    pub(super) credential: Text<4096>,
    pub(super) client_address: Option<IpAddr>,
    pub(super) operation: Permission,
    pub(super) model: Option<Text<128>>,
    pub(super) max_tokens: Option<Tokens>,
    /// The organization for which a user calls; an access token has none.
    pub(super) organization_id: Option<Text<64>>,
    pub(super) project_id: Option<Text<64>>,
    /// An estimate of the prompt's tokens, for the reservation of the highest possible price.
    pub(super) estimated_prompt_tokens: Option<Tokens>,
    /// The number of answers of a chat.
    pub(super) choices: Choices,
    /// The number of texts in an embeddings call.
    pub(super) inputs: Inputs,
    /// The gateway's own id for the request.
    pub(super) request_id: Option<QuestionId>,
    /// `true` to reserve money for the call.
    pub(super) reserve: bool,
}

impl Record<Api> for Authorize {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let credential = fields.required("credential");
        let client_address = fields.optional("client_address");
        let operation = fields.required("operation").map(|Operation(operation)| operation);
        let model = fields.optional("model");
        let max_tokens = fields.optional("max_tokens");
        let estimated_prompt_tokens = fields.optional("estimated_prompt_tokens");
        let organization_id = fields.optional("organization_id");
        let project_id = fields.optional("project_id");
        let choices = fields.or("choices", Integer(1));
        let inputs = fields.or("inputs", Integer(1));
        let request_id = fields.optional("request_id");
        let reserve = fields.or("reserve", true);
        if let (Some(operation), Some(None)) = (operation, &model)
            && kind_of(operation).is_some()
        {
            fields.problem::<()>(
                "model",
                "required",
                "`model` is required for the operations chat and embeddings.",
            );
        }
        Some(Self {
            credential: credential?,
            client_address: client_address?,
            operation: operation?,
            model: model?,
            max_tokens: max_tokens?,
            organization_id: organization_id?,
            project_id: project_id?,
            estimated_prompt_tokens: estimated_prompt_tokens?,
            choices: choices?,
            inputs: inputs?,
            request_id: request_id?,
            reserve: reserve?,
        })
    }
}

impl Input<Api> for Authorize {
    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let bytes = web::input::read_json(api, call).await?;
        match quick(&bytes) {
            Some(question) => Ok(question),
            None => web::input::parse_record(api, &bytes),
        }
    }

    fn describe() -> Description {
        Body::<Self>::describe()
    }
}

/// The body in its common form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainBody<'a> {
    credential: &'a str,
    client_address: Option<&'a str>,
    operation: &'a str,
    model: Option<&'a str>,
    max_tokens: Option<i64>,
    estimated_prompt_tokens: Option<i64>,
    organization_id: Option<&'a str>,
    project_id: Option<&'a str>,
    choices: Option<i64>,
    inputs: Option<i64>,
    request_id: Option<&'a str>,
    reserve: Option<bool>,
}

/// Reads a body in its common form. `None` means only that the general reader has to read it: it reports
/// mistakes, and reads uncommon forms such as a text with an escape.
fn quick(bytes: &[u8]) -> Option<Authorize> {
    // The derived reader would also accept an array of the fields.
    let object = bytes.trim_ascii_start().starts_with(b"{");
    let plain: PlainBody<'_> = if object { serde_json::from_slice(bytes).ok()? } else { return None };
    let Operation(operation) = read_value(text(plain.operation))?;
    if plain.model.is_none() && kind_of(operation).is_some() {
        return None;
    }
    Some(Authorize {
        credential: read_value(text(plain.credential))?,
        client_address: optional(plain.client_address.map(text))?,
        operation,
        model: optional(plain.model.map(text))?,
        max_tokens: optional(plain.max_tokens.map(Json::Integer))?,
        organization_id: optional(plain.organization_id.map(text))?,
        project_id: optional(plain.project_id.map(text))?,
        estimated_prompt_tokens: optional(plain.estimated_prompt_tokens.map(Json::Integer))?,
        choices: optional(plain.choices.map(Json::Integer))?.unwrap_or(Integer(1)),
        inputs: optional(plain.inputs.map(Json::Integer))?.unwrap_or(Integer(1)),
        request_id: optional(plain.request_id.map(text))?,
        reserve: plain.reserve.unwrap_or(true),
    })
}

fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

#[allow(clippy::option_option, reason = "refused, absent and accepted are three things")]
fn optional<T: Field>(value: Option<Json>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| read_value(value).map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;
    use input::fields::read_without_state;

    const BODIES: &[(&str, bool)] = &[
        (r#"{"credential": "tk_x", "operation": "models"}"#, true),
        (r#"{"credential": "tk_x", "operation": "chat", "model": "svc-1"}"#, true),
        (
            r#"{"credential":"a","client_address":"::1","operation":"embeddings","model":"m","max_tokens":0}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"files","max_tokens":1000000000,"estimated_prompt_tokens":7}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"files","client_address":null,"model":null,"max_tokens":null}"#,
            true,
        ),
        (r#" {"operation":"files" , "credential":"ключ"} "#, true),
        (
            r#"{"credential":"a.b.c","operation":"files","organization_id":"org_1","project_id":"proj_1"}"#,
            true,
        ),
        (r#"{"credential":"a","operation":"chat","model":"m","reserve":false}"#, true),
        (r#"{"credential":"a","operation":"chat","model":"m","reserve":null}"#, true),
        (
            r#"{"credential":"a","operation":"chat","model":"m","choices":128,"inputs":2048,"request_id":"call-1"}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"chat","model":"m","choices":null,"inputs":null,"request_id":null}"#,
            true,
        ),
        // Valid, but not in the common form.
        (r#"{"credential":"a\u0062","operation":"files"}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":3.0}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":3e2}"#, false),
        // Invalid.
        (r#"{"credential":"a","operation":"chat"}"#, false),
        (r#"{"credential":"a","operation":"fly"}"#, false),
        (r#"{"credential":"a"}"#, false),
        (r#"{"credential":null,"operation":"files"}"#, false),
        (r#"{"credential":"a","credential":"a","operation":"files"}"#, false),
        (r#"{"credential":"a","operation":"files","mode":1}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":-1}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":1000000001}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":"1"}"#, false),
        (r#"{"credential":"a","operation":"files","client_address":"1.2.3"}"#, false),
        (r#"{"credential":"a\u0000","operation":"files"}"#, false),
        (r#"{"credential":"a","operation":"files"} x"#, false),
        (r#"{"credential":"a","operation":"files","reserve":"true"}"#, false),
        (r#"{"credential":"a","operation":"files","choices":0}"#, false),
        (r#"{"credential":"a","operation":"files","choices":129}"#, false),
        (r#"{"credential":"a","operation":"files","inputs":0}"#, false),
        (r#"{"credential":"a","operation":"files","inputs":2049}"#, false),
        (r#"{"credential":"a","operation":"files","request_id":""}"#, false),
        (r#"["a", null, "files", null, null, null, null, null, null]"#, false),
        ("", false),
    ];

    #[test]
    fn fast_reader_agrees_with_the_general_reader() {
        for (body, plain) in BODIES {
            let quick = quick(body.as_bytes());
            assert_eq!(quick.is_some(), *plain, "{body}");
            if let Some(question) = quick {
                assert_eq!(read_without_state(body.as_bytes()), Some(question), "{body}");
            }
        }
        let long = format!(r#"{{"credential":"{}","operation":"files"}}"#, "x".repeat(4097));
        assert!(quick(long.as_bytes()).is_none());
    }
}
