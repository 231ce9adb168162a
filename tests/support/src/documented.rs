//! The error codes that the OpenAPI document lists for each operation. Every response of every test is
//! compared with them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use http::Method;
use serde_json::Value;
use tollkeeper::api::openapi::{self, CODES_OF_ANY_REQUEST};
use tollkeeper::api::routes;

/// An operation with its documented responses.
struct Operation {
    method: Method,
    path: Vec<String>,
    codes: BTreeSet<String>,
    statuses: BTreeSet<String>,
}

/// Returns the OpenAPI document of a server with the default addresses. The document is generated only once,
/// because that takes a long time in a build without optimization.
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT
        .get_or_init(|| openapi::document(&routes::table(), "http://127.0.0.1:8080", "http://127.0.0.1:8081"))
}

fn operations() -> &'static [Operation] {
    static OPERATIONS: OnceLock<Vec<Operation>> = OnceLock::new();
    OPERATIONS.get_or_init(|| {
        let document = document();
        let operation = |route: routes::Route| {
            let path = route.path.replace("{*", "{");
            let documented = &document["paths"][path.as_str()][route.method.as_str().to_lowercase()];
            let codes = documented["x-error-codes"].as_array().unwrap();
            Operation {
                method: route.method,
                path: route.path.split('/').map(ToOwned::to_owned).collect(),
                codes: codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect(),
                statuses: documented["responses"].as_object().unwrap().keys().cloned().collect(),
            }
        };
        routes::table().into_iter().map(operation).collect()
    })
}

impl Operation {
    fn is_at(&self, path: &str) -> bool {
        let mut segments = path.split('/');
        for due in &self.path {
            let Some(segment) = segments.next() else { return false };
            if due.starts_with("{*") {
                return !segment.is_empty();
            }
            if !due.starts_with('{') && due != segment || due.starts_with('{') && segment.is_empty() {
                return false;
            }
        }
        segments.next().is_none()
    }
}

/// Asserts that the error of an operation is documented: its code, or its status if the response is a page.
pub fn check(method: &Method, path: &str, status: u16, text: &str) {
    let path = path.split('?').next().unwrap();
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let at = operations().iter().find(|operation| operation.method == *method && operation.is_at(path));
    let Some(operation) = at.filter(|_| status >= 400) else { return };
    let answer = serde_json::from_str::<Value>(text).unwrap_or_default();
    match answer["error"]["code"].as_str() {
        Some(code) if CODES_OF_ANY_REQUEST.iter().any(|any| any.as_str() == code) => {}
        Some(code) => {
            assert!(operation.codes.contains(code), "{method} {path} returns {code}, which isn't documented");
        }
        // An error page for an unknown path, or for a method that the path doesn't have.
        None if [404, 405].contains(&status) => {}
        None => {
            let status = status.to_string();
            assert!(
                operation.statuses.contains(&status),
                "{method} {path} returns {status}, which isn't documented"
            );
        }
    }
}
