//! POST /service/v1/authorize: decides whether a credential may make a model call.
//!
//! The reply is always 200, with the decision in the body. Only a wrong service token and a malformed request
//! are errors (docs/contract/service.md#authorize).

mod question;

pub use question::Authorize;

use super::decision::Decision;
use crate::Api;
use crate::gate::ServiceScope;
use billing::books::Lifetime;
use billing::decision::{CallRequest, decide};
use kernel::error::{Code, Error};
use keys::model_callers::Credential;
use metrics::Caller;
use web::input::Body;
use web::reply::Bare;
use web::route::Operation;

pub const AUTHORIZE: Operation = Operation {
    errors: &[Code::BooksQueueFull, Code::ClockNotTrusted],
    example: r#"{
  "credential": "tk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG0aBcDe",
  "operation": "chat",
  "model": "svc-1",
  "max_tokens": 64,
  "client_address": "203.0.113.7",
  "request_id": "call-1"
}"#,
    ..Operation::new("authorize")
};

/// Decide whether a model call may be made.
///
/// The call's maximum price is reserved unless `reserve` is false.
pub async fn authorize(
    api: Api,
    _: ServiceScope,
    Body(body): Body<Authorize>,
) -> Result<Bare<Decision>, Error> {
    let question = CallRequest {
        credential: Credential::Bearer(&body.credential.0),
        client_address: body.client_address,
        operation: body.operation,
        model: body.model.as_ref().map(|model| model.0.as_str()),
        max_tokens: body.max_tokens.map(|tokens| tokens.0),
        can_lower_max_tokens: false,
        organization: body.organization_id.as_ref().map(|id| id.0.as_str()),
        project: body.project_id.as_ref().map(|id| id.0.as_str()),
        estimated_prompt_tokens: body.estimated_prompt_tokens.map(|tokens| tokens.0),
        choices: body.choices.0,
        inputs: body.inputs.0,
        searches: body.searches.0,
        seconds: body.seconds.0,
        request_id: body.request_id.as_ref().map(|id| id.0.as_str()),
        lifetime: Lifetime::Reported,
        reserve: body.reserve,
        logged: None,
    };
    let decided = decide(&api.billing, &api.keys, question).await;
    api.metrics.decisions.count(Caller::Authorize, decided.as_ref().err().map(|refused| refused.error.code));
    let model = body.model.map(|model| model.0);
    match decided {
        Ok(granted) => Ok(Bare(Decision::granted(granted, model))),
        Err(refused) => Decision::refused(refused, model).map(Bare),
    }
}
