//! A model call, from its request to its settlement.
//!
//! Each call is a task of its own, so that it ends properly whatever its client does: the task reserves money,
//! asks an upstream, passes the answer on and settles.

use std::net::IpAddr;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::count::MAX_TOKENS;
use crate::counters::Outcome;
use crate::gateway::{Gateway, OpenCall};
use crate::opening::{self, Opened};
use crate::operation::Operation;
use crate::request::ModelRequest;
use crate::routing::affinity_key;
use crate::settlement::Hold;
use crate::streaming::{self, Events};
use billing::books::Lifetime;
use billing::decision::{CallRequest, PermittedCall, RemainingRates, decide};
use catalog::{Kind, Model};
use kernel::error::{Code, Error};
use kernel::ids::{ModelCallId, OrganizationId};
use kernel::secrets::Secret;
use metrics::Caller;
use std::sync::Arc;

/// A model call that a client asks for.
#[derive(Debug)]
pub struct ModelCall {
    pub operation: Operation,
    /// An API key or an access token.
    pub credential: Secret,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
    /// The organization that the call names.
    pub organization: Option<String>,
    /// The project that the call names.
    pub project: Option<String>,
    /// The JSON body.
    pub body: Bytes,
}

/// The answer to a call. Its headers can be sent, and its body is whole or arrives.
#[derive(Debug)]
pub struct Answer {
    pub call_id: ModelCallId,
    /// The rates that the call counted against.
    pub rates: RemainingRates,
    /// `true` if no model has made it.
    pub is_demo: bool,
    pub body: AnswerBody,
}

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// A JSON object.
    Whole(Bytes),
    /// Server-sent events.
    Stream(Events),
}

/// The client of a call, until its answer begins.
pub(crate) type Client = oneshot::Sender<Result<Answer, Error>>;

/// Makes a model call. If this is dropped, its client has left.
///
/// # Errors
/// 400 for a request that can't be read, the refusals of [`decide`], and failures of upstreams before the
/// answer has begun.
pub async fn call(gateway: &Gateway, call: ModelCall) -> Result<Answer, Error> {
    // As everywhere, no body reads like an empty object: the error then names what is missing.
    let empty = Bytes::from_static(b"{}");
    let request = ModelRequest::read(call.operation, if call.body.is_empty() { &empty } else { &call.body })?;
    let memory = gateway.take_body_memory(call.body.len())?;
    let open = gateway.open_call();
    let (client, answer) = oneshot::channel();
    let serving = Box::pin(serve(gateway.clone(), call, request, client, open, memory));
    drop(tokio::spawn(telemetry::InRequest::new(telemetry::request_id(), None, serving)));
    // The task ends without an answer only by a panic.
    answer.await.unwrap_or_else(|_| Err(Error::internal("the task of a model call ended without an answer")))
}

async fn serve(
    gateway: Gateway,
    call: ModelCall,
    request: ModelRequest,
    mut client: Client,
    open: OpenCall,
    memory: OwnedSemaphorePermit,
) {
    let (admitted, mut hold) = match admit(&gateway, call, request).await {
        Ok(admitted) => admitted,
        Err(error) => return answer(client, Err(error)),
    };
    let is_stream = admitted.request.is_stream;
    let opened = if client.is_closed() {
        Err(Code::UpstreamFailed.into())
    } else {
        tokio::select! {
            biased;
            // Dropping the request closes the connection to the upstream, which stops generating. One that
            // doesn't stream generates to the end all the same, so it is waited for, and paid.
            () = client.closed(), if is_stream => Err(Code::UpstreamFailed.into()),
            opened = hold.during(opening::open(&gateway, &admitted)) => opened,
        }
    };
    let Admitted { call_id, rates, .. } = admitted;
    let begun = |is_demo, body| Ok(Answer { call_id, rates, is_demo, body });
    match opened {
        Err(error) => {
            let has_left = client.is_closed();
            hold.release(if has_left { Outcome::ClientLeft } else { Outcome::Failed }).await;
            answer(client, Err(error));
        }
        Ok(Opened::Whole { body, used, is_demo }) => {
            let has_left = client.is_closed();
            hold.capture(used, if has_left { Outcome::ClientLeft } else { Outcome::Completed }).await;
            answer(client, begun(is_demo, AnswerBody::Whole(body)));
        }
        Ok(Opened::Stream { relay, is_demo }) => {
            // A prompt may be large, and the stream long.
            drop((admitted.request, memory));
            let (sender, events) = streaming::channel();
            answer(client, begun(is_demo, AnswerBody::Stream(events)));
            relay.run(&gateway, hold, sender).await;
        }
    }
    drop(open);
}

/// Sends the answer; a client that has left doesn't need it.
fn answer(client: Client, answer: Result<Answer, Error>) {
    client.send(answer).unwrap_or_default();
}

/// A call that may be made, and for which money is reserved.
pub(crate) struct Admitted {
    pub(crate) call_id: ModelCallId,
    pub(crate) organization_id: OrganizationId,
    pub(crate) request: ModelRequest,
    pub(crate) model: Arc<Model>,
    pub(crate) rates: RemainingRates,
    /// Maximum number of tokens of one answer.
    pub(crate) max_tokens: i64,
    /// Maximum number of prompt tokens, by which the price was reserved.
    pub(crate) max_prompt_tokens: i64,
}

/// Decides whether the call may be made, and reserves its highest price.
async fn admit(gateway: &Gateway, call: ModelCall, request: ModelRequest) -> Result<(Admitted, Hold), Error> {
    let reserved_at = gateway.clock.now();
    let call_id = ModelCallId::new(reserved_at, &gateway.random);
    let catalog = Arc::clone(&gateway.catalog.now());
    let context_length = catalog.get(&request.model).and_then(|model| match model.kind {
        Kind::Chat => model.context_length,
        Kind::Embeddings => Some(model.context_length.unwrap_or(model.max_tokens)),
    });
    let contexts = context_length.unwrap_or(i64::MAX).saturating_mul(request.prompts);
    let max_prompt_tokens = request.prompt_tokens_bound().min(contexts).min(MAX_TOKENS);
    let id_text = call_id.to_string();
    let question = CallRequest {
        credential: call.credential.expose(),
        client_address: call.address,
        operation: request.operation.permission(),
        model: Some(&request.model),
        max_tokens: request.asked_tokens(),
        organization: call.organization.as_deref(),
        project: call.project.as_deref(),
        estimated_prompt_tokens: Some(max_prompt_tokens),
        choices: request.generated,
        inputs: request.prompts,
        request_id: Some(&id_text),
        lifetime: Lifetime::Gateway,
        reserve: true,
    };
    let decided = decide(&gateway.billing, &gateway.keys, question).await.map_err(|refused| refused.error);
    let decided = decided.map_err(|error| name_limit(error, request.operation));
    gateway.metrics.decisions.count(Caller::Gateway, decided.as_ref().err().map(|error| error.code));
    let PermittedCall { caller, max_tokens, rates, reservation } = decided?;
    let reservation = reservation.ok_or_else(|| Error::internal("a model call has no reservation"))?;
    // A reload may have come in between: the model was in one of both catalogs when the call was decided.
    let current = Arc::clone(&gateway.catalog.now());
    let model = current.get_any(&request.model).or_else(|| catalog.get_any(&request.model));
    let model = model.cloned().ok_or(Code::ModelNotFound)?;
    let hold = Hold::new(gateway, call_id, reserved_at, reservation, &caller, &model);
    let max_tokens = max_tokens.unwrap_or(model.max_tokens);
    let organization_id = caller.organization_id();
    Ok((Admitted { call_id, organization_id, request, model, rates, max_tokens, max_prompt_tokens }, hold))
}

/// Names the limit of tokens as the operation does.
fn name_limit(error: Error, operation: Operation) -> Error {
    match operation.limit() {
        Some(limit) if error.param.as_deref() == Some("max_tokens") => error.param(limit),
        _ => error,
    }
}

/// The numbers of tokens by which a price was reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) prompt_tokens: i64,
    pub(crate) completion_tokens: i64,
}

impl Admitted {
    /// Returns the key by which calls that begin alike are served by the same upstream.
    pub(crate) fn affinity_key(&self) -> u64 {
        let beginning = self.request.beginning();
        affinity_key(self.organization_id.short_text().as_str(), &self.model.id, beginning)
    }

    /// Returns how many tokens the call can be charged for at most.
    pub(crate) fn bounds(&self) -> Bounds {
        let has_answers = self.request.operation.limit().is_some();
        let answers = if has_answers { self.request.generated } else { 0 };
        let completion_tokens = self.max_tokens.saturating_mul(answers);
        Bounds { prompt_tokens: self.max_prompt_tokens, completion_tokens }
    }
}
