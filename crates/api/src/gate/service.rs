//! Access to the service listener.

use crate::Api;
use kernel::error::{Code, Error};

use super::bad_credentials::count_bad_credential;
use super::{Access, AccessDoc, Call};

/// The header of the service token for proxies, whose `Authorization` is the user's.
const SERVICE_TOKEN: &str = "x-tollkeeper-service-token";

/// The access with the service token.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// For an inference server.
    Calls,
    /// For a reverse proxy, which sends the token in a separate header.
    Proxied,
    /// For a monitoring system. Available before the database is ready.
    Watching,
}

/// The right to use the service listener.
#[derive(Clone, Copy, Debug)]
pub struct ServiceScope(());

impl Access<Api> for Service {
    type Scope = ServiceScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ServiceScope, Error> {
        let token = match self {
            Self::Calls | Self::Watching => call.bearer()?,
            Self::Proxied => token_of_proxy(call)?,
        };
        if !api.service_token.matches(token) {
            return Err(count_bad_credential(api, call, Code::InvalidServiceToken.into()));
        }
        "service".clone_into(&mut call.caller);
        Ok(ServiceScope(()))
    }
    fn describe(&self) -> AccessDoc {
        let doc = match self {
            Self::Calls => AccessDoc::new(Some("serviceToken"), "service token"),
            Self::Proxied => {
                AccessDoc::new(Some("proxyToken"), "service token in X-Tollkeeper-Service-Token")
            }
            Self::Watching => AccessDoc::new(Some("serviceToken"), "service token").before_ready(),
        };
        doc.refuses(&[Code::MissingCredentials, Code::InvalidServiceToken, Code::RateLimited])
    }
}

fn token_of_proxy(call: &Call) -> Result<&str, Error> {
    let mut values = call.headers.get_all(SERVICE_TOKEN).iter();
    let (Some(token), None) = (values.next(), values.next()) else {
        let message = "Send the service token in one header `X-Tollkeeper-Service-Token`.";
        return Err(Error::new(Code::MissingCredentials).message(message));
    };
    // A value that isn't ASCII becomes an empty string, which matches no token.
    Ok(token.to_str().unwrap_or_default())
}
