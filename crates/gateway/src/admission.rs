//! Admission of calls: reads the request, and checks its caller, model, rates and limits.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use hyper::body::Bytes;

use crate::anthropic_headers::AnthropicHeaders;
use crate::count::{Bounds, MAX_TOKENS, PricedParts, ReportedParts, Settled, Usage};
use crate::gateway::Gateway;
use crate::operation::Operation;
use crate::record::CallRecord;
use crate::request::ModelRequest;
use crate::routing::affinity_key;
use billing::books::Lifetime;
use billing::decision::{CallRequest, CheckedRequest, LoggedRequest, RemainingRates, check};
use call_log::entries::Client;
use call_log::rules::clients::UserAgent;
use catalog::{Kind, MaxTokensPolicy, Model};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{ModelCallId, OrganizationId, SessionId, UserId};
use kernel::secrets::Secret;
use kernel::shares::{Holder, Permit};
use keys::model_callers;
use metrics::Caller;

/// A model call requested by a client.
#[derive(Debug)]
pub struct ModelCall {
    pub operation: Operation,
    pub credential: Credential,
    /// The caller whose share of the common limits this call uses.
    pub holder: Holder,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
    /// The organization named by the call.
    pub organization: Option<String>,
    /// The project named by the call.
    pub project: Option<String>,
    /// The headers of Anthropic's API, for messages.
    pub anthropic: AnthropicHeaders,
    /// The family of the client program, if it is known.
    pub user_agent: Option<UserAgent>,
    /// The JSON body.
    pub body: Bytes,
}

/// The credentials of a model call.
#[derive(Debug)]
pub enum Credential {
    /// An API key or an access token.
    Bearer(Secret),
    /// A user whose session the console has just checked.
    Person { user_id: UserId, session_id: SessionId },
}

impl Credential {
    pub(crate) fn as_ref(&self) -> model_callers::Credential<'_> {
        match self {
            Self::Bearer(secret) => model_callers::Credential::Bearer(secret.expose()),
            Self::Person { user_id, session_id } => model_callers::Credential::person(*user_id, *session_id),
        }
    }
}

/// Reads the request of a call, and takes memory for it.
///
/// # Errors
/// 400 for an invalid request, and 503 `server_busy` if no memory is available.
pub(crate) async fn read_request(
    gateway: &Gateway,
    call: &ModelCall,
) -> Result<(ModelRequest, Permit), Error> {
    // An empty body is read as `{}`, so the error names the missing field.
    let empty = Bytes::from_static(b"{}");
    let body = if call.body.is_empty() { empty } else { call.body.clone() };
    let memory = gateway.take_memory(call.holder, body.len())?;
    let (operation, holder) = (call.operation, call.holder);
    let read = move |body| ModelRequest::read(operation, &body);
    let request = match gateway.turns_for(&body) {
        None => read(body)?,
        Some(turns) => {
            let request = turns.run_aside(holder, move || read(body)).await;
            request.ok_or_else(|| Error::internal("the reading of a body panicked"))??
        }
    };
    Ok((request, memory))
}

/// A call that is allowed once money is reserved for it.
pub(crate) struct Admitted {
    pub(crate) reserved_at: Time,
    pub(crate) call_id: ModelCallId,
    pub(crate) organization_id: OrganizationId,
    pub(crate) holder: Holder,
    pub(crate) request: ModelRequest,
    pub(crate) anthropic: AnthropicHeaders,
    pub(crate) model: Arc<Model>,
    pub(crate) rates: RemainingRates,
    /// The maximum number of tokens of one answer.
    pub(crate) max_tokens: i64,
    /// The lower token limit that was sent because the prompt fills much of the context; 0 if the limit
    /// wasn't lowered.
    pub(crate) left_max_tokens: AtomicI64,
    pub(crate) bounds: Bounds,
    pub(crate) stage: Stage,
    pub(crate) client: Client,
}

/// The progress of a call whose answer hasn't begun. Determines the charge if the client leaves.
#[derive(Default, Debug)]
pub(crate) struct Stage {
    /// `true` once an upstream has the request.
    is_taken: AtomicBool,
    /// `true` if the answer is awaited even without a client, because the upstream reports its usage.
    is_awaited: AtomicBool,
    has_left: AtomicBool,
}

impl Stage {
    /// Notes that the request is being sent to an upstream. `is_awaited`: the answer is awaited for its usage
    /// even if the client leaves.
    pub(crate) fn begin(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        self.is_taken.store(true, Ordering::Relaxed);
    }

    /// Notes that the upstream didn't take the request.
    pub(crate) fn abandon(&self) {
        self.is_taken.store(false, Ordering::Relaxed);
    }

    /// Notes that the client has left.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Returns `true` once the client has left.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Returns `true` if an upstream has the request.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Returns `true` if an upstream has the request, and its answer is awaited.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_taken() && self.is_awaited.load(Ordering::Relaxed)
    }
}

/// The ids of a call as strings, and its client, which its checks borrow.
pub(crate) struct CallIds {
    reserved_at: Time,
    call_id: ModelCallId,
    call: String,
    model: String,
    client: Client,
}

impl CallIds {
    pub(crate) fn new(gateway: &Gateway, call: &ModelCall, request: &ModelRequest) -> Self {
        let reserved_at = gateway.clock.now();
        let call_id = ModelCallId::new(reserved_at, &gateway.random);
        let client = Client { user_agent: call.user_agent, end_user: request.end_user().map(Into::into) };
        Self { reserved_at, call_id, call: call_id.to_string(), model: request.model.clone(), client }
    }

    /// Returns the facts of the call for the log.
    fn logged(&self, request: &ModelRequest) -> LoggedRequest<'_> {
        let (operation, is_stream) = (request.operation.logged(), request.is_stream);
        LoggedRequest { operation, is_stream, client: &self.client }
    }
}

/// Checks whether the call is allowed. Nothing is reserved yet.
pub(crate) async fn admit<'a>(
    gateway: &Gateway,
    call: &'a ModelCall,
    request: ModelRequest,
    ids: &'a CallIds,
) -> Result<(Admitted, CheckedRequest<'a>), Error> {
    let catalog = Arc::clone(&gateway.catalog.now());
    let asked_model = catalog.find(&request.model);
    let context_length = asked_model.and_then(|model| match model.kind {
        Kind::Chat => model.context_length,
        Kind::Embeddings => Some(model.context_length.unwrap_or(model.max_tokens)),
    });
    let upstreams = asked_model.iter().flat_map(|model| &model.routes).map(|route| &*route.upstream);
    let reserved_prompt_tokens = request.reserved_prompt_tokens(context_length, upstreams).min(MAX_TOKENS);
    let counted_prompt_tokens = request.countable_prompt_tokens(context_length).min(MAX_TOKENS);
    let question = CallRequest {
        credential: call.credential.as_ref(),
        client_address: call.address,
        operation: request.operation.permission(),
        model: Some(&ids.model),
        max_tokens: request.asked_tokens(),
        can_lower_max_tokens: true,
        organization: call.organization.as_deref(),
        project: call.project.as_deref(),
        estimated_prompt_tokens: Some(reserved_prompt_tokens),
        choices: request.generated,
        inputs: request.prompts,
        searches: request.most_searches(),
        seconds: request.most_audio_seconds(),
        request_id: Some(&ids.call),
        lifetime: Lifetime::Gateway,
        reserve: true,
        logged: Some(ids.logged(&request)),
    };
    let checked = check(&gateway.billing, &gateway.keys, question).await.map_err(|refused| {
        gateway.metrics.decisions.count(Caller::Gateway, Some(refused.error.code));
        name_limit(refused.error, &request)
    })?;
    // The catalog may have been reloaded since the check, so the model may be in either version.
    let current = Arc::clone(&gateway.catalog.now());
    let model = current.find_any(&request.model).or_else(|| catalog.find_any(&request.model));
    let model = model.cloned().ok_or(Code::ModelNotFound)?;
    let max_tokens = checked.max_tokens().unwrap_or(model.max_tokens);
    // A limit that the gateway adds must be one that the model's server accepts.
    let context = model.context_length.filter(|_| is_limit_ours(&request, &model));
    let max_tokens = context.map_or(max_tokens, |context| max_tokens.min(context));
    let answers = if request.operation.limit().is_some() { request.generated } else { 0 };
    let completion_tokens = max_tokens.saturating_mul(answers);
    let priced = PricedParts::of(&model.prices);
    let admitted = Admitted {
        reserved_at: ids.reserved_at,
        call_id: ids.call_id,
        organization_id: checked.caller().organization_id(),
        holder: call.holder,
        rates: checked.rates(),
        max_tokens,
        left_max_tokens: AtomicI64::new(0),
        request,
        anthropic: call.anthropic.clone(),
        model,
        bounds: Bounds { counted_prompt_tokens, reserved_prompt_tokens, completion_tokens, priced },
        stage: Stage::default(),
        client: ids.client.clone(),
    };
    Ok((admitted, checked))
}

/// Returns `true` if the gateway may set the token limit of an answer: the client sent no limit, or the
/// model's policy allows lowering it.
fn is_limit_ours(request: &ModelRequest, model: &Model) -> bool {
    request.asked_tokens().is_none() || model.max_tokens_policy == MaxTokensPolicy::Lower
}

/// Replaces the name of the token limit in an error with the name of the field that the client sent.
fn name_limit(error: Error, request: &ModelRequest) -> Error {
    match request.limit() {
        Some(limit) if error.param.as_deref() == Some("max_tokens") => error.param(limit),
        _ => error,
    }
}

impl Admitted {
    /// Returns `true` if the gateway may set the token limit of an answer.
    pub(crate) fn is_limit_ours(&self) -> bool {
        is_limit_ours(&self.request, &self.model)
    }

    /// Returns the token limit of each answer, if it is lower than the client requested.
    pub(crate) fn lowered_max_tokens(&self) -> Option<i64> {
        let left = Some(self.left_max_tokens.load(Ordering::Relaxed)).filter(|left| *left > 0);
        let written = left.unwrap_or(self.max_tokens);
        self.request.asked_tokens().filter(|asked| *asked > written).map(|_| written)
    }

    /// Returns the record of the call, without attempts.
    pub(crate) fn record(&self) -> CallRecord {
        let ModelRequest { operation, is_stream, .. } = self.request;
        let record =
            CallRecord::new(self.call_id, self.organization_id, &self.model.id, operation, is_stream);
        record.with_client(self.client.clone())
    }

    /// Returns the key that routes requests with the same beginning to the same upstream.
    pub(crate) fn affinity_key(&self) -> u64 {
        let beginning = self.request.beginning();
        affinity_key(self.organization_id.short_text().as_str(), &self.model.id, beginning)
    }

    /// Returns the charge for a call whose upstream has received the prompt and whose answer isn't awaited.
    pub(crate) fn estimated_prompt(&self) -> Settled {
        let prompt_tokens = self.request.estimated_prompt_tokens();
        let parts = ReportedParts::default();
        let usage = Usage { prompt_tokens, completion_tokens: 0, cached_prompt_tokens: None, parts };
        usage.settle_estimate(self.bounds)
    }
}
