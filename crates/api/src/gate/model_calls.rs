//! Access to model calls.

use std::net::IpAddr;

use http::{HeaderValue, header};

use crate::Api;
use gateway::Operation;
use kernel::error::{Code, Error};
use kernel::secrets::Secret;
use kernel::shares::Holder;
use keys::model_callers::{self, Credential, ModelCaller};
use tenants::roles::ProjectAction;

use super::bearer::{CREDENTIAL_CODES, Principal, authenticate_unmetered};
use super::tenants::project_roles;
use super::{Access, AccessDoc, Call};

/// The access to model calls: an API key with the operation's permission, or the access token of a person whose
/// role in the named project allows model calls. Messages also take the API key as `x-api-key`.
///
/// The rates of the key and the model are counted when the call is decided, after its body was read.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls(pub Operation);

/// The right to make a model call, which is decided once its body is read.
#[derive(Debug)]
pub struct ModelCallScope {
    /// The API key or the access token.
    pub credential: Secret,
    /// The caller whose share of the common limits this call uses.
    pub holder: Holder,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
    /// The organization that the call names.
    pub organization: Option<String>,
    /// The project that the call names.
    pub project: Option<String>,
}

impl Access<Api> for ModelCalls {
    type Scope = ModelCallScope;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ModelCallScope, Error> {
        if self.0 == Operation::Messages {
            take_api_key_header(call)?;
        }
        let organization = named(call, "openai-organization")?;
        let project = named(call, "openai-project")?;
        let principal = authenticate_unmetered(api, call).await?;
        if let Principal::Key(key) = &principal {
            key.admit_permission(self.0.permission())?;
        }
        let credential = call.bearer()?;
        if principal.key().is_none() || organization.is_some() || project.is_some() {
            // A person's role, and that a key stays within its project, are checked before the body is read.
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
        })
    }

    fn describe(&self) -> AccessDoc {
        let permission = self.0.permission().as_str();
        let roles = project_roles(ProjectAction::CallModels);
        let other_scheme = (self.0 == Operation::Messages).then_some("messageKey");
        let header = if other_scheme.is_some() { ", also as `x-api-key`" } else { "" };
        let doc = AccessDoc::new(
            Some("modelKey"),
            format!(
                "API key with permission `{permission}`{header}; or access token, with `openai-organization` and \
                 `openai-project`, of a person with the role {} in the project",
                roles.join(" or ")
            ),
        );
        let doc = doc.refuses(CREDENTIAL_CODES).refuses(&[
            Code::InvalidRequest,
            Code::ProjectRequired,
            Code::InsufficientRole,
            Code::MissingPermission,
            Code::SignOnRequired,
            Code::OutsideApiKeyScope,
            Code::OrganizationNotFound,
            Code::ProjectNotFound,
        ]);
        AccessDoc { other_scheme, ..doc.roles("project", roles) }
    }
}

/// Makes the header `x-api-key` of Anthropic's SDKs a bearer token, unless one is sent.
///
/// # Errors
/// 401 if it stands several times.
fn take_api_key_header(call: &mut Call) -> Result<(), Error> {
    let mut keys = call.headers.get_all("x-api-key").iter();
    let (Some(key), false) = (keys.next(), call.headers.contains_key(header::AUTHORIZATION)) else {
        return Ok(());
    };
    if keys.next().is_some() {
        let message = "Send one `x-api-key` header, not several.";
        return Err(Error::new(Code::MissingCredentials).message(message));
    }
    let bearer = [b"Bearer ", key.as_bytes()].concat();
    let mut bearer = HeaderValue::from_bytes(&bearer).map_err(Error::internal)?;
    bearer.set_sensitive(true);
    call.headers.insert(header::AUTHORIZATION, bearer);
    Ok(())
}

/// Returns the value of a header that may stand once.
fn named(call: &Call, header: &'static str) -> Result<Option<String>, Error> {
    let mut values = call.headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim).filter(|_| values.next().is_none());
    let message = || format!("Send one header `{header}` with an id.");
    let text = text.ok_or_else(|| Error::new(Code::InvalidRequest).param(header).message(message()))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// Names the headers where the decision would name fields.
fn name_headers(error: Error) -> Error {
    if error.code != Code::ProjectRequired {
        return error;
    }
    error.message(
        "An access token doesn't say for which project the call is: name both in the headers \
         `openai-organization` and `openai-project`.",
    )
}
