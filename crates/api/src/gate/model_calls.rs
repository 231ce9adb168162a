//! Access to model calls.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, header};

use crate::Api;
use gateway::{AnthropicHeaders, Operation, UserAgent};
use kernel::error::{Code, Error};
use kernel::limiter::{self, Subject};
use kernel::secrets::Secret;
use kernel::shares::Holder;
use keys::model_callers::{self, Credential, ModelCaller};
use keys::rules::permissions::Permission;
use tenants::roles::ProjectAction;

use super::bearer::{CREDENTIAL_CODES, Principal, authenticate_unmetered};
use super::tenants::project_roles;
use super::{Access, AccessDoc, Call, rate_limited};

/// The header in which Anthropic's SDKs send an API key.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The access to model calls: an API key with the operation's permission, or the access token of a user whose
/// role in the requested project allows model calls.
///
/// The rates of the key and the model are counted when the call is authorized, after its body was read.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls(pub Operation);

/// A caller who may make model calls. The call itself is authorized after its body was read.
#[derive(Debug)]
pub struct ModelCallScope {
    /// The API key or the access token.
    pub credential: Secret,
    /// The caller whose share of the common limits this call uses.
    pub holder: Holder,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
    /// The organization in the call's header `openai-organization`.
    pub organization: Option<String>,
    /// The project in the call's header `openai-project`.
    pub project: Option<String>,
    /// The version and the beta features of a message.
    pub anthropic: AnthropicHeaders,
    /// The family of the client program.
    pub user_agent: Option<UserAgent>,
}

impl Access<Api> for ModelCalls {
    type Scope = ModelCallScope;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ModelCallScope, Error> {
        admit(api, call, self.0).await
    }

    fn describe(&self) -> AccessDoc {
        describe(self.0.permission())
    }
}

/// The access to token counts. They count against a separate rate of each key or user: the rate of reads.
#[derive(Clone, Copy, Debug)]
pub struct TokenCounts;

impl Access<Api> for TokenCounts {
    type Scope = ModelCallScope;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ModelCallScope, Error> {
        let scope = admit(api, call, Operation::Messages).await?;
        count_reads(api, call, "count_tokens")?;
        Ok(scope)
    }

    fn describe(&self) -> AccessDoc {
        describe(Operation::Messages.permission())
    }
}

/// Admits a caller who may make calls of this operation.
async fn admit(api: &Api, call: &mut Call, operation: Operation) -> Result<ModelCallScope, Error> {
    take_api_key_header(call)?;
    let principal = authenticate_unmetered(api, call).await?;
    let (mut organization, mut project) = (None, None);
    match &principal {
        // An API key determines both. The headers are ignored, because SDKs send them if the environment
        // contains them.
        Principal::Key(key) => key.admit_permission(operation.permission())?,
        Principal::User(_) => {
            organization = named(call, "openai-organization")?;
            project = named(call, "openai-project")?;
        }
    }
    let credential = call.bearer()?;
    if principal.key().is_none() {
        // A user's role is checked before the body is read.
        let (organization, project) = (organization.as_deref(), project.as_deref());
        let now = api.clock.now();
        let bearer = Credential::Bearer(credential);
        let caller = model_callers::find(&api.keys, bearer, organization, project, now).await;
        drop::<ModelCaller>(caller.map_err(name_headers)?);
    }
    Ok(ModelCallScope {
        credential: Secret::new(credential),
        holder: call.credential.holder().unwrap_or(Holder::Network(call.address)),
        address: call.address,
        organization,
        project,
        anthropic: match operation {
            Operation::Messages => AnthropicHeaders::of(&call.headers, call.uri.query()),
            _ => AnthropicHeaders::default(),
        },
        user_agent: call.headers.get(header::USER_AGENT).and_then(|value| UserAgent::read(value.as_bytes())),
    })
}

fn describe(permission: Permission) -> AccessDoc {
    let permission = permission.as_str();
    let roles = project_roles(ProjectAction::CallModels);
    let doc = AccessDoc::new(
        Some("modelKey"),
        format!(
            "API key with permission `{permission}`, also as `x-api-key`; or access token, with \
             `openai-organization` and `openai-project`, of a user with the role {} in the project",
            roles.join(" or ")
        ),
    );
    let doc = doc.refuses(CREDENTIAL_CODES).refuses(&[
        Code::ConflictingCredentials,
        Code::InvalidRequest,
        Code::ProjectRequired,
        Code::InsufficientRole,
        Code::MissingPermission,
        Code::SignOnRequired,
        Code::OrganizationNotFound,
        Code::ProjectNotFound,
    ]);
    AccessDoc { other_scheme: Some("apiKeyHeader"), ..doc.roles("project", roles) }
}

/// Converts the header `x-api-key` of Anthropic's SDKs to a bearer token. A bearer token may be sent with it
/// if both are the same. An empty credential counts as none, because programs send one if the variable with
/// the key is empty.
///
/// # Errors
/// 401 if the header is sent several times; 400 if another credential is sent with it.
pub(super) fn take_api_key_header(call: &mut Call) -> Result<(), Error> {
    let mut keys = call.headers.get_all(API_KEY_HEADER).iter();
    let Some(key) = keys.next() else { return Ok(()) };
    if keys.next().is_some() {
        let message = "Send one `x-api-key` header, not several.";
        return Err(Error::new(Code::MissingCredentials).message(message));
    }
    let key = key.as_bytes().trim_ascii();
    if key.is_empty() {
        return Ok(());
    }
    let mut others = call.headers.get_all(header::AUTHORIZATION).iter();
    if others.any(|value| !is_empty_credential(value)) {
        let is_same = call.bearer().is_ok_and(|bearer| bearer.as_bytes() == key);
        return if is_same { Ok(()) } else { Err(Code::ConflictingCredentials.into()) };
    }
    let mut bearer = HeaderValue::from_bytes(&[b"Bearer ", key].concat()).map_err(Error::internal)?;
    bearer.set_sensitive(true);
    call.headers.insert(header::AUTHORIZATION, bearer);
    Ok(())
}

/// Returns `true` for the value of `Authorization` with a scheme alone, or without any.
fn is_empty_credential(value: &HeaderValue) -> bool {
    let value = value.as_bytes().trim_ascii();
    value.is_empty() || value.eq_ignore_ascii_case(b"bearer")
}

/// Counts a call against the rate of reads instead of an API key's own rate. Each key has a rate of reads,
/// and each user has one for all sessions. The call still counts as a use of the key.
pub(super) fn count_reads(api: &Api, call: &Call, scope: &str) -> Result<(), Error> {
    let now = api.clock.now();
    if let Some(caller) = call.credential.caller().filter(|_| api.limits.enabled) {
        let key = limiter::key_for(scope, Subject::Id(caller));
        api.limiter.check(key, api.limits.reads_per_minute, now).map(drop).map_err(rate_limited)?;
    }
    if let Some(key) = call.credential.key() {
        api.keys.note_use(key, now);
    }
    Ok(())
}

/// Returns the value of a header that may appear only once.
fn named(call: &Call, header: &'static str) -> Result<Option<String>, Error> {
    let mut values = call.headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim).filter(|_| values.next().is_none());
    let message = || format!("Send one `{header}` header with an id.");
    let text = text.ok_or_else(|| Error::new(Code::InvalidRequest).param(header).message(message()))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// Replaces a message about missing fields with a message about headers.
fn name_headers(error: Error) -> Error {
    if error.code != Code::ProjectRequired {
        return error;
    }
    error.message(
        "An access token doesn't identify the organization and project of a call. Name both in the headers \
         `openai-organization` and `openai-project`.",
    )
}
