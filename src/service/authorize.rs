//! POST /service/v1/authorize: may this credential make this model call?
//!
//! The answer is always 200 with the decision in the body; only a wrong service token or a malformed call is an error of
//! the call itself (decisions, section 8).

mod question;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use question::{Authorize, kind_of};

use crate::access::ServiceScope;
use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::input::types::Text;
use crate::reply::Bare;
use crate::store::api_keys::LiveKey;

/// Yes, and for whom; or no, and why.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Decision {
    allowed: bool,
    /// The HTTP status to answer the client with when it is refused.
    status: u16,
    /// The code of a refusal.
    code: Option<&'static str>,
    /// The sentence of a refusal.
    message: Option<String>,
    organization_id: Option<OrganizationId>,
    project_id: Option<ProjectId>,
    api_key_id: Option<ApiKeyId>,
    /// Who made the key.
    user_id: Option<UserId>,
    model: Option<String>,
    /// The most tokens that the call may use: the least of what it asks for, the key's limit and the model's.
    max_tokens: Option<i64>,
    /// Milliseconds to wait, when a rate is used up.
    retry_after_ms: Option<i64>,
}

/// Decides.
pub async fn authorize(app: App, _: ServiceScope, body: Authorize) -> Result<Bare<Decision>, Error> {
    let key = match app.keyring.authenticate(&app, &body.credential.0, app.clock.now()).await {
        Ok(key) => key,
        Err(error) => return refusal(error, None, body.model),
    };
    match decide(&app, &body, &key) {
        Ok(max_tokens) => Ok(Bare(Decision {
            allowed: true,
            status: 200,
            max_tokens,
            model: body.model.map(|model| model.0),
            ..about(Some(&key))
        })),
        Err(error) => refusal(error, Some(&key), body.model),
    }
}

/// Returns the most tokens that the call may use, where something limits them.
fn decide(app: &App, call: &Authorize, key: &LiveKey) -> Result<Option<i64>, Error> {
    key.admit_address(call.client_address)?;
    key.admit_permission(call.operation)?;
    let mut max_tokens = key.max_tokens;
    if let Some(id) = &call.model {
        let catalog = app.catalog.now();
        let model = catalog.get(&id.0).ok_or_else(|| Error::new(Code::ModelNotFound).param("model"))?;
        let right_kind = kind_of(call.operation).is_none_or(|kind| kind == model.kind);
        if !right_kind || model.price_at(app.clock.now()).is_none() {
            let message = format!("The model `{}` can't be used for {}.", model.id, call.operation.as_str());
            return Err(Error::new(Code::ModelNotFound).param("model").message(message));
        }
        key.admit_model(&model.id)?;
        max_tokens = Some(key.max_tokens.map_or(model.max_tokens, |most| most.min(model.max_tokens)));
    }
    if let Some(tokens) = call.max_tokens {
        key.admit_tokens(tokens.0)?;
        if let Some(most) = max_tokens.filter(|most| tokens.0 > *most) {
            let message = format!("This model allows at most {most} tokens for one request.");
            return Err(Error::new(Code::MaxTokensExceeded).param("max_tokens").message(message));
        }
        max_tokens = Some(tokens.0);
    }
    // Last, so that a refused call doesn't use the rate up.
    key.admit_rate(app, app.clock.now())?;
    Ok(max_tokens)
}

fn about(key: Option<&Arc<LiveKey>>) -> Decision {
    Decision {
        allowed: false,
        status: 0,
        code: None,
        message: None,
        organization_id: key.map(|key| key.organization_id),
        project_id: key.map(|key| key.project_id),
        api_key_id: key.map(|key| key.id),
        user_id: key.map(|key| key.created_by),
        model: None,
        max_tokens: None,
        retry_after_ms: None,
    }
}

/// A refusal is an answer; what is our own trouble stays an error.
fn refusal(
    error: Error,
    key: Option<&Arc<LiveKey>>,
    model: Option<Text<128>>,
) -> Result<Bare<Decision>, Error> {
    if error.code.status().is_server_error() {
        return Err(error);
    }
    Ok(Bare(Decision {
        status: error.code.status().as_u16(),
        code: Some(error.code.as_str()),
        message: Some(match error.rate_limit {
            Some(_) => "Too many requests: wait as long as `retry_after_ms` says.".to_owned(),
            None => error.public_message().to_owned(),
        }),
        model: model.map(|model| model.0),
        retry_after_ms: error.rate_limit.map(|limit| limit.retry_after_ms),
        ..about(key)
    }))
}
