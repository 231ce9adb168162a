//! Access to the service listener.

use crate::app::App;
use crate::error::{Code, Error};

use super::{Access, AccessDoc, Call};

/// An inference server with the service token (decisions, section 6).
#[derive(Clone, Copy, Debug)]
pub struct Service;

/// The right to use the service listener.
#[derive(Clone, Copy, Debug)]
pub struct ServiceScope(());

impl Access for Service {
    type Scope = ServiceScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ServiceScope, Error> {
        if !app.service_token.matches(call.bearer()?) {
            return Err(Code::InvalidServiceToken.into());
        }
        "service".clone_into(&mut call.who);
        Ok(ServiceScope(()))
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("serviceToken"), "service token")
    }
}
