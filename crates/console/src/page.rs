//! The reply of a handler: a page, or the redirect that ends a POST.

use askama::Template;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use schemars::SchemaGenerator;

use kernel::error::{Code, Error};
use web::reply::{self, Body, Reply};

use crate::form_view::FormView;
use crate::notices::Done;

/// The initial capacity of a page's buffer in bytes. Most pages are shorter, so the buffer doesn't grow.
const USUAL_BYTES: usize = 16 * 1024;

/// The reply of a handler.
#[derive(Debug)]
pub struct Page {
    status: StatusCode,
    /// The code of the error that the page shows, for the log.
    code: Option<Code>,
    html: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Page {
    /// Renders a page.
    pub fn new(template: &impl Template) -> Result<Self, Error> {
        let mut html = String::with_capacity(USUAL_BYTES);
        template.render_into(&mut html).map_err(Error::internal)?;
        Ok(Self { status: StatusCode::OK, code: None, html, headers: Vec::new() })
    }

    /// Returns a standalone document, such as an invoice, with its own content security policy.
    pub fn document(html: String, policy: &str) -> Result<Self, Error> {
        let policy = HeaderValue::from_str(policy).map_err(Error::internal)?;
        let headers = vec![(header::CONTENT_SECURITY_POLICY, policy)];
        Ok(Self { status: StatusCode::OK, code: None, html, headers })
    }

    /// Renders a page with a form. If the form was refused, the page has the status of its error.
    pub fn with_form(form: &FormView, template: &impl Template) -> Result<Self, Error> {
        let page = Self::new(template)?;
        Ok(match form.code() {
            Some(code) => Self { status: code.status(), code: Some(code), ..page },
            None => page,
        })
    }

    /// Renders a page that reports an error, with its status.
    pub fn error(code: Code, template: &impl Template) -> Result<Self, Error> {
        Ok(Self { status: code.status(), code: Some(code), ..Self::new(template)? })
    }

    /// Renders a page that asks a user to resolve conflicting changes (409).
    pub fn conflict(template: &impl Template) -> Result<Self, Error> {
        Ok(Self {
            status: StatusCode::CONFLICT,
            code: Some(Code::PreconditionFailed),
            ..Self::new(template)?
        })
    }

    /// Redirects to another page (303), whose link is made by
    /// [`Console::link`](crate::console::Console::link).
    pub fn see_other(link: &str) -> Result<Self, Error> {
        let location = HeaderValue::from_str(link).map_err(Error::internal)?;
        let headers = vec![(header::LOCATION, location)];
        Ok(Self { status: StatusCode::SEE_OTHER, code: None, html: String::new(), headers })
    }

    /// Redirects to another page, which shows a notice of the completed action.
    pub fn done(link: &str, done: Done) -> Result<Self, Error> {
        let separator = if link.contains('?') { '&' } else { '?' };
        Self::see_other(&format!("{link}{separator}done={}", done.word()))
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Reply for Page {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = Response::new(reply::whole(self.html));
        *response.status_mut() = self.status;
        if let Some(code) = self.code {
            response.extensions_mut().insert(code);
        }
        let headers = response.headers_mut();
        if self.status != StatusCode::SEE_OTHER {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        }
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        Ok(response)
    }

    fn content_type() -> &'static str {
        "text/html"
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}
