//! The request of `forward-auth`: the call is described by the query, the caller by headers.

use std::net::IpAddr;

use http::{HeaderValue, Method};
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::Api;
use crate::gate::Call;
use crate::service::decision::{Choices, Inputs, QuestionId, Tokens, require_model};
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::record;
use input::types::{Integer, Text, one_of};
use kernel::error::Error;
use kernel::proxies::forwarded_address;
use keys::rules::permissions::Permission;
use web::input::{Description, Input, Query};

/// The request of `forward-auth`. It contains a credential, so it doesn't implement `Debug`.
#[allow(missing_debug_implementations, reason = "see above")]
pub struct ForwardAuth {
    /// The user's credential from `Authorization`. A missing credential is refused like an invalid one.
    pub(super) credential: Result<String, Error>,
    /// The client's address from `X-Forwarded-For`, which is trusted because the proxy has the service token.
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

/// The format of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// The refusal's own status, for Caddy and Traefik.
    Plain,
    /// Only 401 and 403, for nginx.
    Nginx,
}

impl Field for Mode {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        json!({"type": "string", "title": "ForwardAuthMode", "enum": ["plain", "nginx"], "examples": ["plain"]})
    }
}

record! {
    /// The query parameters.
    struct ForwardAuthQuery in Api {
        /// The operation of the call.
        operation: Permission = required,
        /// The id of the model.
        model: Option<Text<128>> = optional,
        /// The maximum number of tokens per request; null for the model's limit.
        max_tokens: Option<Tokens> = optional,
        /// The id of the organization.
        organization_id: Option<Text<64>> = optional,
        /// The id of the project.
        project_id: Option<Text<64>> = optional,
        /// The number of answers that the call requests (`n`).
        choices: Choices = or(Integer(1)),
        /// The number of inputs in the call, for embeddings.
        inputs: Inputs = or(Integer(1)),
        /// The gateway's own id for the call. A repeated request with this id gets the same reservation.
        request_id: Option<QuestionId> = optional,
        /// `false` for a decision that reserves no money.
        reserve: bool = or(true),
        /// The format of refusals: `nginx` supports only 401 and 403.
        mode: Mode = or(Mode::Plain),
    }
    check(fields) {
        require_model(fields, operation, model.as_ref());
    }
}

impl Input<Api> for ForwardAuth {
    const READS_BODY: bool = false;

    async fn read(api: &Api, call: &mut Call) -> Result<Self, Error> {
        let Query(query) = Query::<ForwardAuthQuery>::read(api, call).await?;
        let credential = call.bearer().map(str::to_owned);
        // OpenAI SDKs send both in these headers. They apply only to users, because a key belongs to one
        // project.
        let is_key = credential.as_ref().is_ok_and(|text| api.keys.is_key(text));
        let by_header = |name: &str| {
            let value = call.headers.get(name).filter(|_| !is_key)?;
            value.to_str().ok().map(str::to_owned)
        };
        let hops = call.headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        Ok(Self {
            client_address: forwarded_address(hops, &api.frame.settings.trusted_proxies),
            operation: query.operation,
            model: query.model.map(|text| text.0),
            max_tokens: query.max_tokens.map(|number| number.0),
            organization_id: query
                .organization_id
                .map(|text| text.0)
                .or_else(|| by_header("openai-organization")),
            project_id: query.project_id.map(|text| text.0).or_else(|| by_header("openai-project")),
            choices: query.choices.0,
            inputs: query.inputs.0,
            request_id: query.request_id.map(|id| id.0),
            // No call follows a HEAD request, so its reservation would hold money until it expires.
            reserve: query.reserve && call.method != Method::HEAD,
            mode: query.mode,
            credential,
        })
    }

    fn describe() -> Description {
        Query::<ForwardAuthQuery>::describe()
    }
}
