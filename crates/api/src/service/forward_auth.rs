//! GET /service/v1/forward-auth: the decision of `authorize` for reverse proxies, by status and headers.
//!
//! nginx (`auth_request`), Caddy (`forward_auth`) and Traefik (`ForwardAuth`) call this endpoint before they
//! forward a request. The query, which the operator configures in the proxy, describes the call. Headers
//! can't describe it, because Caddy and Traefik forward the client's own headers.

mod question;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use schemars::SchemaGenerator;
use serde_json::Value;

use question::{ForwardAuth, Mode};

use super::decision::Decision;
use crate::Api;
use crate::gate::ServiceScope;
use crate::refusals::DECISION;
use billing::books::Lifetime;
use billing::decision::{CallRequest, decide};
use kernel::error::{Code, Error};
use keys::model_callers::Credential;
use metrics::Caller;
use web::reply::{self, Bare, Body, Reply};
use web::route::Operation;

pub const FORWARD_AUTH: Operation = Operation {
    errors: &[
        Code::ApiKeyExpired,
        Code::InsufficientRole,
        Code::InvalidAccessToken,
        Code::InvalidApiKey,
        Code::InvalidRequest,
        Code::IpNotAllowed,
        Code::MissingPermission,
        Code::OrganizationNotFound,
        Code::OutsideApiKeyScope,
        Code::ProjectNotFound,
        Code::ProjectRequired,
        Code::RateLimited,
        Code::RequestIdConflict,
        Code::SecondFactorEnrolmentRequired,
        Code::SignOnRequired,
    ],
    error_groups: &[DECISION],
    query: &[("operation", "chat"), ("model", "svc-1"), ("max_tokens", "64")],
    ..Operation::new("forward_auth")
};

/// Decide for a reverse proxy whether a model call may be made.
pub async fn forward_auth(api: Api, _: ServiceScope, request: ForwardAuth) -> Result<Verdict, Error> {
    let mode = request.mode;
    let decided = decide_request(&api, request).await;
    api.metrics.decisions.count(Caller::ForwardAuth, decided.as_ref().err().map(|error| error.code));
    match decided {
        Ok(decision) => Ok(Verdict::Allowed(Box::new(decision))),
        Err(error) if mode == Mode::Nginx && !error.code.status().is_server_error() => {
            Ok(Verdict::DeniedForNginx(error))
        }
        Err(error) => Err(error),
    }
}

async fn decide_request(api: &Api, request: ForwardAuth) -> Result<Decision, Error> {
    let credential = request.credential?;
    let question = CallRequest {
        credential: Credential::Bearer(&credential),
        client_address: request.client_address,
        operation: request.operation,
        model: request.model.as_deref(),
        max_tokens: request.max_tokens,
        can_lower_max_tokens: false,
        organization: request.organization_id.as_deref(),
        project: request.project_id.as_deref(),
        estimated_prompt_tokens: None,
        choices: request.choices,
        inputs: request.inputs,
        searches: 0,
        seconds: 0,
        request_id: request.request_id.as_deref(),
        lifetime: Lifetime::Reported,
        reserve: request.reserve,
        logged: None,
    };
    let granted = decide(&api.billing, &api.keys, question).await.map_err(|refused| refused.error)?;
    Ok(Decision::granted(granted, request.model))
}

/// The reply to a proxy.
#[derive(Debug)]
pub enum Verdict {
    /// The response is 200: the proxy forwards the request with these headers.
    Allowed(Box<Decision>),
    /// A refusal for nginx, which accepts only 401 and 403. The actual status is in headers.
    DeniedForNginx(Error),
}

impl Reply for Verdict {
    fn into_response(self) -> Result<Response<Body>, Error> {
        match self {
            Self::Allowed(decision) => {
                let headers = identity(&decision);
                let mut response = Bare(*decision).into_response()?;
                response.headers_mut().extend(headers);
                Ok(response)
            }
            Self::DeniedForNginx(error) => denied_for_nginx(&error),
        }
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<Decision>().to_value()
    }
}

/// Returns the headers that identify the caller to the server behind the proxy. A missing value is an empty
/// header, so that the proxy replaces a header of that name sent by the client (Caddy would otherwise pass on
/// a placeholder's name).
fn identity(decision: &Decision) -> HeaderMap {
    let rows = [
        ("x-tollkeeper-organization-id", decision.organization_id.map(|id| id.to_string())),
        ("x-tollkeeper-project-id", decision.project_id.map(|id| id.to_string())),
        ("x-tollkeeper-api-key-id", decision.api_key_id.map(|id| id.to_string())),
        ("x-tollkeeper-user-id", decision.user_id.map(|id| id.to_string())),
        ("x-tollkeeper-model", decision.model.clone()),
        ("x-tollkeeper-max-tokens", decision.max_tokens.map(|tokens| tokens.to_string())),
        ("x-tollkeeper-reservation-id", decision.reservation.map(|reservation| reservation.id.to_string())),
    ];
    let mut headers = HeaderMap::with_capacity(rows.len());
    for (name, value) in rows {
        let value = HeaderValue::try_from(value.unwrap_or_default());
        headers.insert(HeaderName::from_static(name), value.unwrap_or_else(|_| HeaderValue::from_static("")));
    }
    headers
}

/// Returns a refusal for nginx. A status of 401 doesn't change; every other status becomes 403. The actual
/// status, code and body are in headers, so that nginx can be configured to send them to the client.
fn denied_for_nginx(error: &Error) -> Result<Response<Body>, Error> {
    let mut response = reply::error_response(error, false);
    let status = response.status();
    if status != StatusCode::UNAUTHORIZED {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    // The access log would otherwise count this response as a success.
    response.extensions_mut().insert(error.code);
    let body = ascii(&reply::error_body(error)?);
    let headers = response.headers_mut();
    headers.insert("x-tollkeeper-status", HeaderValue::from(status.as_u16()));
    headers.insert("x-tollkeeper-code", HeaderValue::from_static(error.code.as_str()));
    headers.insert("x-tollkeeper-error", HeaderValue::try_from(body).map_err(Error::internal)?);
    Ok(response)
}

/// Escapes JSON so that it consists of printable ASCII, as a header requires.
fn ascii(json: &[u8]) -> String {
    let mut text = String::with_capacity(json.len());
    for character in String::from_utf8_lossy(json).chars() {
        if (' '..='~').contains(&character) {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_header_is_the_same_json() {
        let text = "ключ \u{7f} \u{1f511} \"quoted\" \\ \n plain";
        let value = json!({ "message": text });
        let header = ascii(value.to_string().as_bytes());
        assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header}");
        assert_eq!(serde_json::from_str::<Value>(&header).unwrap(), value);
    }
}
