//! Access to model calls.

use std::net::IpAddr;

use crate::Api;
use kernel::error::{Code, Error};
use kernel::secrets::Secret;
use keys::model_callers::{self, ModelCaller};
use keys::rules::permissions::Permission;

use super::bearer::{Principal, authenticate_unmetered};
use super::{Access, AccessDoc, Call};

/// The access to model calls: an API key with this permission, or the access token of a person whose role in
/// the named project allows model calls.
///
/// The rates of the key and the model are counted when the call is decided, after its body was read.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls(pub Permission);

/// The right to make a model call, which is decided once its body is read.
#[derive(Debug)]
pub struct ModelCallScope {
    /// The API key or the access token.
    pub credential: Secret,
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
        let organization = named(call, "openai-organization")?;
        let project = named(call, "openai-project")?;
        let principal = authenticate_unmetered(api, call).await?;
        if let Principal::Key(key) = &principal {
            key.admit_permission(self.0)?;
        }
        let credential = call.bearer()?;
        if principal.key().is_none() || organization.is_some() || project.is_some() {
            // A person's role, and that a key stays within its project, are checked before the body is read.
            let (organization, project) = (organization.as_deref(), project.as_deref());
            let now = api.clock.now();
            let caller = model_callers::find(&api.keys, credential, organization, project, now).await;
            drop::<ModelCaller>(caller.map_err(name_headers)?);
        }
        Ok(ModelCallScope {
            credential: Secret::new(credential),
            address: call.address,
            organization,
            project,
        })
    }

    fn describe(&self) -> AccessDoc {
        let permission = self.0.as_str();
        AccessDoc::new(
            Some("modelKey"),
            format!(
                "API key with permission `{permission}`; or access token, with `openai-organization` and \
                 `openai-project`, of a person whose role in the project allows model calls"
            ),
        )
    }
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
