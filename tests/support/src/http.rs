//! Requests to a server in this process: a request builder, and the response.

use std::net::IpAddr;

use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::web::reply::Body;

use super::documented;

/// A request builder.
pub struct Call {
    entrance: Dispatcher,
    request: http::request::Builder,
    body: Vec<u8>,
    peer: IpAddr,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Call {
    pub fn new(entrance: &Dispatcher, method: Method, path: &str) -> Self {
        let request = Request::builder().method(method).uri(path);
        Self { entrance: entrance.clone(), request, body: Vec::new(), peer: IpAddr::from([127, 0, 0, 1]) }
    }

    pub fn bearer(self, token: &str) -> Self {
        if token.is_empty() { self } else { self.header("authorization", &format!("Bearer {token}")) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Adds a header whose value may be any bytes.
    pub fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub fn from(mut self, peer: &str) -> Self {
        self.peer = peer.parse().unwrap();
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header(header::CONTENT_TYPE.as_str(), "application/json").raw(body.to_string().into_bytes())
    }

    /// Sets the body to these fields, encoded as a browser encodes an HTML form.
    pub fn form(self, fields: &[(&str, &str)]) -> Self {
        let encode = |text| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
        let pairs: Vec<_> =
            fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        self.header(header::CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded").raw(pairs.join("&"))
    }

    pub fn raw(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request and returns the response. Asserts that an error is documented.
    pub async fn send(self) -> Answer {
        let (method, path) = (self.request.method_ref().cloned(), self.request.uri_ref().cloned());
        let (parts, body) = self.open().await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let (status, text) = (parts.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap());
        if let (Some(method), Some(path)) = (method, path) {
            documented::check(&method, path.path(), status, &text);
        }
        Answer { status, headers: parts.headers, text }
    }

    /// Sends the request and returns the response with an unread body.
    pub async fn open(self) -> Response<Body> {
        let request = self.request.body(Body::from(self.body)).unwrap();
        self.entrance.answer(request, self.peer).await
    }

    /// Sends the request and returns the `data` of the envelope. Fails the test unless the request succeeds.
    pub async fn data(self) -> Value {
        let answer = self.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let mut body = answer.json();
        assert_eq!(body["status_code"], 200);
        assert_eq!(body["status_message"], "SUCCESS");
        body["data"].take()
    }

    /// Sends the request and returns the whole body. Fails the test unless the request succeeds.
    pub async fn bare(self) -> Value {
        let answer = self.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Sends the request and returns the status and `error.code`. Fails the test if the request succeeds.
    pub async fn refused(self) -> (u16, String) {
        let answer = self.send().await;
        assert_ne!(answer.status, 200, "{}", answer.text);
        (answer.status, answer.code())
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns `error.code`.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns each entry of `error.details` as `param code`.
    pub fn details(&self) -> Vec<String> {
        let body = self.json();
        let details = body["error"]["details"].as_array().cloned().unwrap_or_default();
        details
            .iter()
            .map(|d| format!("{} {}", d["param"].as_str().unwrap(), d["code"].as_str().unwrap()))
            .collect()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}
