//! The interface between a program and the frame.

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Response};

use crate::body_limit::BodyLimit;
use crate::call::Call;
use crate::frame::Frame;
use kernel::error::{Code, Error};
use kernel::ids::RequestId;
use kernel::shares::Holder;

/// The format of errors under a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorShape {
    /// An error in the envelope.
    Enveloped,
    /// The member `error` alone.
    Bare,
    /// `error` next to `"type": "error"`, as in Anthropic's API.
    Anthropic,
    /// An HTML page.
    Page,
}

/// The program's state, from which handlers get their handles, and the rules of its URLs.
pub trait State: Clone + Send + Sync + 'static {
    /// The credential of a call, kept until the body has been read.
    type Credential: Default + Send + Sync + 'static;

    /// Returns the state shared by both listeners.
    fn frame(&self) -> &Arc<Frame>;

    /// Checks that the call's credential is still valid. A body may take a long time to arrive, and a request
    /// whose credential was revoked in the meantime must not continue.
    ///
    /// # Errors
    /// 401.
    fn check_again(
        &self,
        call: &mut Call<Self::Credential>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits until everything that was read before is durable, so that a response based on it stays true.
    ///
    /// # Errors
    /// 503.
    fn confirm(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the holder that an admitted call counts against in shared limits.
    fn holder(&self, call: &Call<Self::Credential>) -> Holder;

    /// Returns the format of errors under this path, including paths without a route.
    fn error_shape(path: &str) -> ErrorShape;

    /// Returns the error for a request without a route: its path has no route, or none for its method. `code`
    /// is the code for this case, and the message may contain a suggestion.
    fn no_route(code: Code, _method: &Method, _path: &str) -> Error {
        code.into()
    }

    /// Returns `true` if pages of every origin may call this path when the configuration allows model calls
    /// from browsers.
    fn is_model_path(_path: &str) -> bool {
        false
    }

    /// Returns an error as an HTML page.
    fn error_page(error: &Error, request_id: RequestId) -> Response<Body>;

    /// Returns the limits of a body under this path.
    fn body_limit(path: &str) -> BodyLimit;
}
