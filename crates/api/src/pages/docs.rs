//! GET /docs and /docs/{subject}: the API reference, generated from the OpenAPI document, and guides for
//! common tools (docs/contract/README.md#reference-pages).

mod fields;
mod guides;
mod reference;
pub mod rendered;
mod words;

use std::sync::LazyLock;

use askama::Template;
use http::{HeaderValue, Response, header};
use hyper::body::Bytes;
use schemars::SchemaGenerator;

use super::{content_security_policy, page_headers};
use crate::gate::{Call, Visitor};
use crate::openapi;
use crate::{Api, pages};
use guides::{Guide, Guides};
use kernel::error::{Code, Error};
use reference::{Reference, Subject};
use rendered::Docs;
use web::input::{Description, Input, NoInput};
use web::reply::{self, Body, Reply};
use web::route::Operation;

pub(super) const STYLE: &str = include_str!("docs/style.css");

static CONTENT_SECURITY_POLICY: LazyLock<Option<HeaderValue>> =
    LazyLock::new(|| content_security_policy(STYLE));

/// The path segment of the page about all tools.
const TOOLS: &str = "tools";
/// Caches may keep a page for five minutes. A page changes only with a new version of the server.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=300");

#[derive(Template)]
#[template(path = "docs_overview.html")]
struct Overview<'a> {
    reference: &'a Reference,
}

#[derive(Template)]
#[template(path = "docs_subject.html")]
struct SubjectPage<'a> {
    reference: &'a Reference,
    subject: &'a Subject,
}

#[derive(Template)]
#[template(path = "docs_tools.html")]
struct ToolsPage<'a> {
    reference: &'a Reference,
    guides: &'a Guides,
}

#[derive(Template)]
#[template(path = "docs_tool.html")]
struct ToolPage<'a> {
    reference: &'a Reference,
    guide: &'a Guide,
}

#[derive(Template)]
#[template(path = "docs_unknown.html")]
struct UnknownSubject<'a> {
    reference: &'a Reference,
}

/// Renders the pages of the reference.
fn render_all(api: &Api) -> Result<Docs, Error> {
    let routes = (api.table)();
    let document = openapi::document(&routes, &api.public_url, &api.service_url);
    let reference = Reference::new(&document, &routes);
    let guides = Guides::new(&api.public_url);
    let subjects = reference.subjects.iter().map(|subject| {
        let page = SubjectPage { reference: &reference, subject };
        Ok((subject.slug.clone(), render(&page)?))
    });
    let tools = guides.tools.iter().map(|guide| {
        let page = ToolPage { reference: &reference, guide };
        Ok((guide.slug.clone(), render(&page)?))
    });
    let all_tools = render(&ToolsPage { reference: &reference, guides: &guides })?;
    let pages = subjects.chain(tools).chain([Ok((TOOLS.to_owned(), all_tools))]);
    Ok(Docs {
        overview: render(&Overview { reference: &reference })?,
        unknown: render(&UnknownSubject { reference: &reference })?,
        subjects: pages.collect::<Result<_, Error>>()?,
    })
}

/// Returns the pages of the reference, which are rendered at the first call.
fn docs(api: &Api) -> Result<&Docs, Error> {
    match api.docs.get() {
        Some(docs) => Ok(docs),
        None => {
            let docs = render_all(api)?;
            Ok(api.docs.get_or_init(|| docs))
        }
    }
}

fn render(page: &impl Template) -> Result<Bytes, Error> {
    Ok(page.render().map_err(Error::internal)?.into())
}

/// A page of the reference.
#[derive(Debug)]
pub struct DocsPage {
    html: Bytes,
    code: Option<Code>,
}

impl Reply for DocsPage {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = Response::new(reply::whole(self.html));
        let headers = response.headers_mut();
        page_headers(headers, CONTENT_SECURITY_POLICY.as_ref());
        match self.code {
            None => {
                headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
            }
            Some(code) => {
                *response.status_mut() = code.status();
                response.extensions_mut().insert(code);
            }
        }
        Ok(response)
    }

    fn content_type() -> &'static str {
        "text/html"
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        pages::Page::schema(generator)
    }
}

/// The path segment of a subject or tool.
#[derive(Debug)]
pub struct SubjectPath(String);

impl Input<Api> for SubjectPath {
    const READS_BODY: bool = false;

    async fn read(_: &Api, call: &mut Call) -> Result<Self, Error> {
        Ok(Self(call.path("subject").to_owned()))
    }
    fn describe() -> Description {
        Description::default()
    }
}

pub const LIST: Operation = Operation::new("get_reference_page");

/// Show the overview of the API reference.
///
/// The page explains authentication, responses and errors, and lists all operations.
pub async fn list(api: Api, _: Visitor, _: NoInput) -> Result<DocsPage, Error> {
    Ok(DocsPage { html: docs(&api)?.overview.clone(), code: None })
}

pub const READ: Operation = Operation::new("get_reference_subject_page");

/// Show the operations about a subject.
///
/// The page lists the fields, errors and callers of each operation, with examples for curl and Python. Other
/// pages explain how to use the service with common tools.
pub async fn read(api: Api, _: Visitor, SubjectPath(slug): SubjectPath) -> Result<DocsPage, Error> {
    let docs = docs(&api)?;
    Ok(match docs.subjects.get(&slug) {
        Some(html) => DocsPage { html: html.clone(), code: None },
        None => DocsPage { html: docs.unknown.clone(), code: Some(Code::UnknownPath) },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_text_is_escaped() {
        let evil = "<script>`'\"&</script>";
        let schema = json!({"type": "object", "properties": {evil: {"type": "string", "description": evil, "enum": [evil]}}});
        let operation = json!({
            "operationId": evil, "summary": evil, "description": evil, "tags": [evil],
            "parameters": [{"name": evil, "in": "query", "description": evil, "schema": {"type": evil}}],
            "requestBody": {"content": {"application/json": {"schema": schema}}},
            "responses": {"200": {"content": {"application/json": {"schema": schema}, evil: {}}}},
            "x-access": {"callers": evil}, "x-error-codes": ["name_taken"],
            "x-codeSamples": [{"label": evil, "source": evil}],
        });
        let document = json!({
            "info": {"version": evil}, "servers": [{"url": evil}], "tags": [{"name": evil, "description": evil}],
            "paths": {evil: {"get": operation}}, "components": {"schemas": {"EnvelopedError": schema}},
        });
        let reference = Reference::new(&document, &[]);
        let subject = &reference.subjects[0];
        assert_eq!(subject.operations.len(), 1);
        for html in [
            Overview { reference: &reference }.render().unwrap(),
            SubjectPage { reference: &reference, subject }.render().unwrap(),
            UnknownSubject { reference: &reference }.render().unwrap(),
        ] {
            assert!(html.contains("&#60;script&#62;"), "{html}");
            assert!(!html.contains("<script"), "{html}");
        }
    }
}
