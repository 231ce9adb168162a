//! Access to the model catalog.

use std::sync::Arc;

use crate::Api;
use catalog::Model;
use kernel::error::{Code, Error};
use keys::rules::permissions::Permission;
use metrics::Caller;

use super::bearer::{CREDENTIAL_CODES, Principal, authenticate_unmetered};
use super::model_calls::{count_reads, take_api_key_header};
use super::{Access, AccessDoc, Call};

/// The access to the model catalog: an access token, or a key with the permission `models`.
#[derive(Clone, Copy, Debug)]
pub struct Models;

/// The right to list models.
#[derive(Clone, Debug)]
pub struct ModelsScope {
    principal: Principal,
}

impl ModelsScope {
    /// Returns the models to which the caller's key is restricted.
    pub fn allowed_models(&self) -> Option<&[String]> {
        self.principal.key()?.models.as_deref()
    }
}

impl Access<Api> for Models {
    type Scope = ModelsScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ModelsScope, Error> {
        let principal = authenticate_reader(api, call).await;
        let admitted =
            principal.and_then(|principal| may_see_models(&principal).map(|()| ModelsScope { principal }));
        count_decision(api, admitted)
    }
    fn describe(&self) -> AccessDoc {
        let doc = AccessDoc::new(
            Some("bearer"),
            "access token, or API key with permission `models`, also as `x-api-key`",
        )
        .refuses(CREDENTIAL_CODES)
        .refuses(&[Code::ConflictingCredentials, Code::MissingPermission]);
        AccessDoc { other_scheme: Some("apiKeyHeader"), ..doc }
    }
}

/// Authenticates a caller who reads the catalog. The read doesn't count against the key's rate, because tools
/// list models before their first call.
async fn authenticate_reader(api: &Api, call: &mut Call) -> Result<Principal, Error> {
    take_api_key_header(call)?;
    let principal = authenticate_unmetered(api, call).await?;
    count_reads(api, call, "models")?;
    Ok(principal)
}

fn may_see_models(principal: &Principal) -> Result<(), Error> {
    principal.key().map_or(Ok(()), |key| key.admit_permission(Permission::Models))
}

fn may_see_model(api: &Api, principal: &Principal, name: &str) -> Result<ModelScope, Error> {
    let model = api.catalog.now().find(name).cloned().ok_or(Code::ModelNotFound)?;
    may_see_models(principal)?;
    if let Some(key) = principal.key() {
        key.admit_model(&model.id)?;
    }
    Ok(ModelScope { model, name: name.to_owned() })
}

/// Counts a decision about access to models in the metrics.
fn count_decision<T>(api: &Api, admitted: Result<T, Error>) -> Result<T, Error> {
    api.metrics.decisions.count(Caller::Models, admitted.as_ref().err().map(|error| error.code));
    admitted
}

/// The access to the model in the path.
#[derive(Clone, Copy, Debug)]
pub struct OneModel;

/// The right to see a model.
#[derive(Clone, Debug)]
pub struct ModelScope {
    model: Arc<Model>,
    name: String,
}

impl ModelScope {
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the id or alias in the request.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Access<Api> for OneModel {
    type Scope = ModelScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ModelScope, Error> {
        let principal = authenticate_reader(api, call).await;
        count_decision(
            api,
            principal.and_then(|principal| may_see_model(api, &principal, call.path("model_id"))),
        )
    }
    fn describe(&self) -> AccessDoc {
        Models.describe().refuses(&[Code::ModelNotAllowed])
    }
}
