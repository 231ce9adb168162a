//! Access to the model catalog.

use std::sync::Arc;

use crate::app::App;
use crate::catalog::Model;
use crate::error::{Code, Error};
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
        let caller = caller(app, call).await?;
        may_see_models(&caller)?;
        Ok(ModelsScope { caller })
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
        let caller = caller(app, call).await?;
        let model = app.catalog.now().get(call.path("model_id")).cloned().ok_or(Code::ModelNotFound)?;
        may_see_models(&caller)?;
        if let Caller::Key(key) = &caller {
            key.admit_model(&model.id)?;
        }
        Ok(ModelScope { model })
    }
    fn describe(&self) -> AccessDoc {
        Models.describe()
    }
}
