//! The number of tokens in the prompt of a message, counted without a call
//! (docs/contract/gateway.md#count-tokens).

use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::timeout;

use crate::admission::{ModelCall, read_request};
use crate::dialect::Dialect;
use crate::errors::MAX_ERROR_BYTES;
use crate::gateway::Gateway;
use crate::request::ModelRequest;
use crate::transport::{Transport, request_headers};
use billing::books::Lifetime;
use billing::decision::{CallRequest, admit_free};
use catalog::Route;
use kernel::error::Error;
use kernel::ids::OrganizationId;

/// The timeout for an upstream's count, for which it runs only its tokenizer.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// The tokens of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenCount {
    pub input_tokens: i64,
    /// `true` if no server behind the model has counted them.
    pub is_estimated: bool,
}

/// The answer of an upstream.
#[derive(Deserialize)]
struct Counted {
    input_tokens: i64,
}

/// Counts the tokens of a message's prompt. A server behind the model counts them if it can; otherwise the
/// count is an estimate. The count is free.
///
/// # Errors
/// 400 for an invalid request, and the refusals of [`admit_free`].
pub async fn count_tokens(gateway: &Gateway, call: ModelCall) -> Result<TokenCount, Error> {
    let (request, _memory) = read_request(gateway, &call).await?;
    let question = CallRequest {
        credential: call.credential.as_ref(),
        client_address: call.address,
        operation: call.operation.permission(),
        model: Some(&request.model),
        max_tokens: None,
        can_lower_max_tokens: true,
        organization: call.organization.as_deref(),
        project: call.project.as_deref(),
        estimated_prompt_tokens: None,
        choices: 1,
        inputs: 1,
        searches: 0,
        seconds: 0,
        request_id: None,
        lifetime: Lifetime::Gateway,
        reserve: false,
        logged: None,
    };
    let (caller, model) = admit_free(&gateway.billing, &gateway.keys, &question).await?;
    for route in &model.routes {
        let counted = ask(gateway, &call, &request, route, caller.organization_id()).await;
        if let Some(input_tokens) = counted {
            return Ok(TokenCount { input_tokens, is_estimated: false });
        }
    }
    Ok(TokenCount { input_tokens: request.estimated_prompt_tokens(), is_estimated: true })
}

/// Returns the count of an upstream; `None` if the upstream can't count, is busy, or mustn't get the request,
/// or if too little memory is left for a copy of the request.
async fn ask(
    gateway: &Gateway,
    call: &ModelCall,
    request: &ModelRequest,
    route: &Route,
    organization: OrganizationId,
) -> Option<i64> {
    let upstream = &route.upstream;
    let path = Dialect::of(upstream.kind).prompt_count_path?;
    // Unlike for a call, the gateway doesn't load media for a count.
    let has_media = request.web_media().next().is_some();
    if has_media || request.check_fields(upstream).is_err() {
        return None;
    }
    let transport = gateway.transports().get(upstream).ok()?;
    if !transport.is_usable(gateway.clock.steady_ms()) {
        return None;
    }
    let _place = transport.try_enter(organization)?;
    let asked = timeout(UPSTREAM_TIMEOUT, send(gateway, call, request, route, &transport, path)).await;
    asked.ok().flatten().filter(|tokens| *tokens > 0)
}

async fn send(
    gateway: &Gateway,
    call: &ModelCall,
    request: &ModelRequest,
    route: &Route,
    transport: &Transport,
    path: &str,
) -> Option<i64> {
    let mut headers = request_headers(telemetry::request_id(), false);
    let query = call.anthropic.add_to(&mut headers, &route.upstream);
    let body = request.write_for_count(&route.model);
    let _copy = gateway.memory().try_take(call.holder, body.len())?;
    let response = transport.send(&format!("{path}{query}"), headers, body).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await.ok()?;
    let counted: Counted = serde_json::from_slice(&body.to_bytes()).ok()?;
    Some(counted.input_tokens)
}
