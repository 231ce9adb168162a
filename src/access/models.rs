//! Access to the model catalog.

use std::sync::Arc;

use crate::app::App;
use crate::catalog::Model;
use crate::error::{Code, Error};
use crate::metrics::Asked;
use crate::rules::restrictions::Permission;

use super::{Access, AccessDoc, Call, Caller, caller};

/// The model catalog: an access token, or a key with the permission `models`.
#[derive(Clone, Copy, Debug)]
pub struct Models;

/// Somebody who may see models.
#[derive(Clone, Debug)]
pub struct ModelsScope {
    caller: Caller,
}

impl ModelsScope {
    /// The ids that the caller's key is restricted to.
    pub fn only(&self) -> Option<&[String]> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => key.models.as_deref(),
        }
    }
}

impl Access for Models {
    type Scope = ModelsScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ModelsScope, Error> {
        let caller = caller(app, call).await;
        let admitted = caller.and_then(|caller| may_see_models(&caller).map(|()| ModelsScope { caller }));
        counted(app, admitted)
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), "access token, or API key with permission `models`")
    }
}

fn may_see_models(caller: &Caller) -> Result<(), Error> {
    match caller {
        Caller::Key(key) => key.admit_permission(Permission::Models),
        Caller::Person(_) => Ok(()),
    }
}

fn may_see_model(app: &App, caller: &Caller, id: &str) -> Result<ModelScope, Error> {
    let model = app.catalog.now().get(id).cloned().ok_or(Code::ModelNotFound)?;
    may_see_models(caller)?;
    if let Caller::Key(key) = caller {
        key.admit_model(&model.id)?;
    }
    Ok(ModelScope { model })
}

/// These are decisions about the use of a model too.
fn counted<T>(app: &App, admitted: Result<T, Error>) -> Result<T, Error> {
    app.metrics.decisions.count(Asked::Models, admitted.as_ref().err().map(|error| error.code));
    admitted
}

/// The model in the path.
#[derive(Clone, Copy, Debug)]
pub struct OneModel;

/// A model that the caller may see.
#[derive(Clone, Debug)]
pub struct ModelScope {
    model: Arc<Model>,
}

impl ModelScope {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

impl Access for OneModel {
    type Scope = ModelScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ModelScope, Error> {
        let caller = caller(app, call).await;
        counted(app, caller.and_then(|caller| may_see_model(app, &caller, call.path("model_id"))))
    }
    fn describe(&self) -> AccessDoc {
        Models.describe()
    }
}
