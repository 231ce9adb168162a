//! Access to the service listener.

use crate::Api;
use kernel::error::{Code, Error};
use kernel::ids::ReservationId;

use super::bad_credentials::count_bad_credential;
use super::{Access, AccessDoc, Call};

/// The access with the service token.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// By an inference server.
    Calls,
    /// By a monitoring system; available before the database is ready.
    Watching,
}

/// The right to use the service listener.
#[derive(Clone, Copy, Debug)]
pub struct ServiceScope(());

impl Access<Api> for Service {
    type Scope = ServiceScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ServiceScope, Error> {
        if !api.service_token.matches(call.bearer()?) {
            return Err(count_bad_credential(api, call, Code::InvalidServiceToken.into()));
        }
        "service".clone_into(&mut call.caller);
        Ok(ServiceScope(()))
    }
    fn describe(&self) -> AccessDoc {
        let doc = AccessDoc::new(Some("serviceToken"), "service token");
        if matches!(self, Self::Watching) { doc.before_ready() } else { doc }
    }
}

/// The access with the service token to one reservation.
#[derive(Clone, Copy, Debug)]
pub struct OneReservation;

/// The right to end or extend a reservation, which may not exist.
#[derive(Clone, Copy, Debug)]
pub struct ReservationScope {
    id: ReservationId,
}

impl ReservationScope {
    pub fn id(&self) -> ReservationId {
        self.id
    }
}

impl Access<Api> for OneReservation {
    type Scope = ReservationScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ReservationScope, Error> {
        Service::Calls.admit(api, call).await?;
        let id = ReservationId::parse(call.path("reservation_id")).ok_or(Code::ReservationNotFound)?;
        Ok(ReservationScope { id })
    }
    fn describe(&self) -> AccessDoc {
        Service::Calls.describe()
    }
}

/// The header of the service token for proxies, whose `Authorization` is the user's.
const SERVICE_TOKEN: &str = "x-tollkeeper-service-token";

/// The access of a reverse proxy with the service token in its own header.
#[derive(Clone, Copy, Debug)]
pub struct Proxy;

/// The right to ask about a proxied request.
#[derive(Clone, Copy, Debug)]
pub struct ProxyScope(());

impl Access<Api> for Proxy {
    type Scope = ProxyScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ProxyScope, Error> {
        let mut values = call.headers.get_all(SERVICE_TOKEN).iter();
        let (Some(token), None) = (values.next(), values.next()) else {
            let message = "Send the service token in one header `X-Tollkeeper-Service-Token`.";
            return Err(Error::new(Code::MissingCredentials).message(message));
        };
        // A value that isn't ASCII becomes the empty text, which matches no token.
        if !api.service_token.matches(token.to_str().unwrap_or_default()) {
            return Err(count_bad_credential(api, call, Code::InvalidServiceToken.into()));
        }
        "service".clone_into(&mut call.caller);
        Ok(ProxyScope(()))
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("proxyToken"), "service token in X-Tollkeeper-Service-Token")
    }
}
