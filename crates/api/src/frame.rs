//! The implementation of [`State`], which connects [`Api`] to the HTTP frame.

use std::sync::Arc;

use http::{Method, Response};

use crate::gate::{self, Call, Credential};
use crate::{Api, pages, paths};
use kernel::error::{Code, Error};
use kernel::ids::RequestId;
use kernel::shares::Holder;
use web::Frame;
use web::body_limit::BodyLimit;
use web::reply::Body;
use web::route::{ErrorShape, State};

impl State for Api {
    type Credential = Credential;

    fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    async fn check_again(&self, call: &mut Call) -> Result<(), Error> {
        gate::check_again(self, call).await
    }

    async fn confirm(&self) -> Result<(), Error> {
        Ok(self.monitor.db.confirm().await?)
    }

    fn holder(&self, call: &Call) -> Holder {
        call.credential.holder().unwrap_or(Holder::Network(call.address))
    }

    fn error_shape(path: &str) -> ErrorShape {
        paths::error_shape(path)
    }

    fn no_route(code: Code, method: &Method, path: &str) -> Error {
        paths::no_route(code, method, path)
    }

    fn is_model_path(path: &str) -> bool {
        paths::is_model_path(path)
    }

    fn error_page(error: &Error, request_id: RequestId) -> Response<Body> {
        pages::error_response(error, request_id)
    }

    fn body_limit(path: &str) -> BodyLimit {
        paths::body_limit(path)
    }
}
