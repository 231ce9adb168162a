//! A model call, from its request to its settlement.
//!
//! Each call runs in its own task, so that it is settled no matter what its client does. The task reserves
//! money, calls an upstream, forwards the answer and settles.

mod recipient;

use std::pin::{Pin, pin};

use hyper::body::Bytes;
use tokio::sync::oneshot;

use crate::admission::{Admitted, CallIds, ModelCall, admit, read_request};
use crate::counters::Outcome;
use crate::gateway::{Gateway, OpenCall};
use crate::opening::{self, Opened};
use crate::record::End;
use crate::request::ModelRequest;
use crate::settlement::Hold;
use crate::streaming::Events;
use billing::decision::{CheckedRequest, PermittedCall, RemainingRates};
use kernel::error::Error;
use kernel::ids::ModelCallId;
use kernel::shares::Permit;
use metrics::Caller;
use recipient::{Client, Recipient};

/// The answer to a call. Its headers can be sent; its body is either complete or still arriving.
#[derive(Debug)]
pub struct Answer {
    pub call_id: ModelCallId,
    /// The rate limits that the call counted against.
    pub rates: RemainingRates,
    /// `true` if the demo upstream answered, which has no model.
    pub is_demo: bool,
    /// The token limit of each answer, if it is lower than the requested one.
    pub lowered_max_tokens: Option<i64>,
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

/// Makes a model call. The client has left if the future is dropped.
///
/// # Errors
/// 400 for an invalid request, the refusals of [`billing::decision::decide`], and failures of upstreams
/// before the answer has begun.
pub async fn call(gateway: &Gateway, call: ModelCall) -> Result<Answer, Error> {
    let (request, memory) = read_request(gateway, &call).await?;
    let open = gateway.open_call();
    let (client, answer) = oneshot::channel();
    start(gateway.clone(), call, request, client, open, memory);
    // The task ends without an answer only if it panics.
    answer.await.unwrap_or_else(|_| Err(Error::internal("the task of a model call ended without an answer")))
}

/// Starts the task of a call. Not `async`, so that the task is compiled once
/// ([`kernel::futures::BoxFuture`]).
fn start(
    gateway: Gateway,
    call: ModelCall,
    request: ModelRequest,
    client: Client,
    open: OpenCall,
    memory: Permit,
) {
    let serving = Box::pin(serve(gateway, call, request, client, open, memory));
    let (id, trace) = (telemetry::request_id(), telemetry::current_trace());
    drop(tokio::spawn(telemetry::InRequest::new(id, trace, serving)));
}

async fn serve(
    gateway: Gateway,
    call: ModelCall,
    request: ModelRequest,
    client: Client,
    open: OpenCall,
    memory: Permit,
) {
    let mut client = Recipient::Waiting(client);
    let operation = request.operation;
    let ids = CallIds::new(&gateway, &call, &request);
    let (admitted, checked) = match Box::pin(admit(&gateway, &call, request, &ids)).await {
        Ok(admitted) => admitted,
        Err(error) => return client.fail(operation, error).await,
    };
    let mut record = admitted.record();
    let begun = |is_demo, body| answer_to(&admitted, is_demo, body);
    let mut opening = Box::pin(opening::open(&gateway, &admitted, &mut record));
    let (mut hold, early) = match reserve(&gateway, &admitted, checked, &mut opening).await {
        Ok(reserved) => reserved,
        Err(error) => {
            // This closes the connection to an upstream that was already called.
            drop(opening);
            return client.fail(operation, error).await;
        }
    };
    let opened = match early {
        Early::Opened(opened) => Some(opened),
        Early::NotAsked if client.has_left() => None,
        Early::NotAsked | Early::Asked => {
            client.wait_for(Box::pin(hold.during(&mut opening)), &admitted, begun).await
        }
    };
    drop(opening);
    match opened {
        // The client has left, and the call doesn't wait for the answer.
        None => {
            let used = admitted.stage.is_taken().then(|| admitted.estimated_prompt());
            Box::pin(hold.end(used, End::whole(Outcome::ClientLeft), &record)).await;
            record.end(Outcome::ClientLeft, used);
        }
        Some(Err(error)) => {
            let outcome = if client.has_left() { Outcome::ClientLeft } else { Outcome::Failed };
            hold.release(End::error(outcome, error.code), &record).await;
            record.end(outcome, None);
            client.fail(operation, error).await;
        }
        Some(Ok(Opened::Whole { body, used, is_demo })) => {
            let outcome = if client.has_left() { Outcome::ClientLeft } else { Outcome::Completed };
            Box::pin(hold.capture(used, End::whole(outcome), &record)).await;
            record.end(outcome, Some(used));
            client.answer(begun(is_demo, AnswerBody::Whole(body)));
        }
        Some(Ok(Opened::TooLong { used })) => {
            let error = opening::too_long_error();
            Box::pin(hold.capture(used, End::error(Outcome::Cut, error.code), &record)).await;
            record.end(Outcome::Cut, Some(used));
            client.fail(operation, error).await;
        }
        Some(Ok(Opened::Stream { relay, is_demo, .. })) => {
            let sender = client.stream(|events| begun(is_demo, AnswerBody::Stream(events)));
            // The request is dropped early, because the prompt may be large and the stream may be long.
            drop((admitted, call, ids, memory));
            Box::pin(relay.run(&gateway, hold, sender, record)).await;
        }
    }
    drop(open);
}

/// The state of the upstream call when the money is reserved.
enum Early {
    NotAsked,
    Asked,
    /// The answer has begun.
    Opened(Result<Opened, Error>),
}

/// Reserves the maximum price of the call. If its organization had an ample balance when it was last seen,
/// the upstream is called in the meantime, but the client gets nothing before the money is reserved.
///
/// # Errors
/// The refusal, or a failure of the service.
async fn reserve(
    gateway: &Gateway,
    call: &Admitted,
    checked: CheckedRequest<'_>,
    opening: &mut Pin<Box<impl Future<Output = Result<Opened, Error>>>>,
) -> Result<(Hold, Early), Error> {
    let (organization, amount) = (call.organization_id, checked.amount());
    let is_ample = amount.is_some_and(|amount| gateway.balances().are_ample(organization, amount));
    let mut reserving = pin!(Box::pin(checked.reserve(&gateway.billing, &gateway.keys)));
    let mut early = if is_ample { Early::Asked } else { Early::NotAsked };
    let reserved = loop {
        tokio::select! {
            biased;
            reserved = &mut reserving => break reserved,
            opened = opening.as_mut(), if matches!(early, Early::Asked) => early = Early::Opened(opened),
        }
    };
    let decided = reserved.map_err(|refused| refused.error);
    gateway.metrics.decisions.count(Caller::Gateway, decided.as_ref().err().map(|error| error.code));
    let PermittedCall { caller, reservation, left, .. } =
        decided.inspect_err(|_| gateway.balances().forget(organization))?;
    gateway.balances().note(organization, left);
    let reservation = reservation.ok_or_else(|| Error::internal("a model call has no reservation"))?;
    Ok((Hold::new(gateway, call, reservation, &caller), early))
}

/// Returns the answer to a call with this body.
fn answer_to(call: &Admitted, is_demo: bool, body: AnswerBody) -> Answer {
    let lowered_max_tokens = call.lowered_max_tokens();
    Answer { call_id: call.call_id, rates: call.rates, is_demo, lowered_max_tokens, body }
}
