//! What `forward-auth` is asked: what the call does by the query, who makes it by headers.

use std::net::IpAddr;

use http::{HeaderValue, Method};
use serde_json::{Value, json};

use crate::Api;
use crate::gate::Call;
use crate::service::decision::{Choices, Inputs, Operation, QuestionId};
use billing::decision::kind_of;
use input::fields::{At, Field, Problems};
use input::fields::{Fields, Record};
use input::json::Json;
use input::types::{Integer, Text, one_of};
use kernel::error::Error;
use kernel::proxies::forwarded_address;
use keys::rules::permissions::Permission;
use web::input::{Description, Input, Query};

/// What is asked. It holds a credential, so it can't be printed.
#[allow(missing_debug_implementations, reason = "see above")]
pub struct ForwardAuth {
    /// The user's, from `Authorization`; not having one is a refusal like any other.
    pub(super) credential: Result<String, Error>,
    /// What the proxy says in `X-Forwarded-For`: its token is why it is believed.
    pub(super) client_address: Option<IpAddr>,
    pub(super) operation: Permission,
    pub(super) model: Option<String>,
    pub(super) max_tokens: Option<i64>,
    pub(super) organization_id: Option<String>,
    pub(super) project_id: Option<String>,
    pub(super) choices: i64,
    pub(super) inputs: i64,
    pub(super) request_id: Option<String>,
    pub(super) reserve: bool,
    pub(super) mode: Mode,
}

/// How a refusal is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// By its own status, as Caddy and Traefik send it on.
    Plain,
    /// By 401 or 403, as nginx understands it.
    Nginx,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Plain, Self::Nginx];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Nginx => "nginx",
        }
    }
}

impl Field for Mode {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &Self::ALL, Self::as_str)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["plain", "nginx"], "examples": ["plain"]})
    }
}

/// The query.
struct ForwardAuthQuery {
    operation: Permission,
    model: Option<Text<128>>,
    max_tokens: Option<Integer<0, 1_000_000_000>>,
    organization_id: Option<Text<64>>,
    project_id: Option<Text<64>>,
    choices: Choices,
    inputs: Inputs,
    request_id: Option<QuestionId>,
    reserve: bool,
    mode: Mode,
}

impl Record<Api> for ForwardAuthQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let operation = fields.required("operation").map(|Operation(operation)| operation);
        let model = fields.optional("model");
        let max_tokens = fields.optional("max_tokens");
        let organization_id = fields.optional("organization_id");
        let project_id = fields.optional("project_id");
        let choices = fields.or("choices", Integer(1));
        let inputs = fields.or("inputs", Integer(1));
        let request_id = fields.optional("request_id");
        let reserve = fields.or("reserve", true);
        let mode = fields.or("mode", Mode::Plain);
        if let (Some(operation), Some(None)) = (operation, &model)
            && kind_of(operation).is_some()
        {
            let message = "`model` is required for the operations chat and embeddings.";
            fields.problem::<()>("model", "required", message);
        }
        Some(Self {
            operation: operation?,
            model: model?,
            max_tokens: max_tokens?,
            organization_id: organization_id?,
            project_id: project_id?,
            choices: choices?,
            inputs: inputs?,
            request_id: request_id?,
            reserve: reserve?,
            mode: mode?,
        })
    }
}

impl Input<Api> for ForwardAuth {
    const READS_BODY: bool = false;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let Query(asked) = Query::<ForwardAuthQuery>::read(api, call).await?;
        let credential = call.bearer().map(str::to_owned);
        // SDKs of OpenAI name both in these headers. They say for whom a person calls; a key has a project of its own.
        let is_key = credential.as_ref().is_ok_and(|text| api.keys.is_key(text));
        let by_header = |name: &str| {
            let value = call.headers.get(name).filter(|_| !is_key)?;
            value.to_str().ok().map(str::to_owned)
        };
        let hops = call.headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        Ok(Self {
            client_address: forwarded_address(hops, &api.frame.settings.trusted_proxies),
            operation: asked.operation,
            model: asked.model.map(|text| text.0),
            max_tokens: asked.max_tokens.map(|number| number.0),
            organization_id: asked
                .organization_id
                .map(|text| text.0)
                .or_else(|| by_header("openai-organization")),
            project_id: asked.project_id.map(|text| text.0).or_else(|| by_header("openai-project")),
            choices: asked.choices.0,
            inputs: asked.inputs.0,
            request_id: asked.request_id.map(|id| id.0),
            // Nobody makes a call after a HEAD: it would leave money set aside until the reservation runs out.
            reserve: asked.reserve && call.method != Method::HEAD,
            mode: asked.mode,
            credential,
        })
    }

    fn describe() -> Description {
        Query::<ForwardAuthQuery>::describe()
    }
}
