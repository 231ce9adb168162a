//! The reference: the OpenAPI document, arranged for pages.

use serde_json::{Map, Value};

use super::fields::{self, Field, text};
use super::words::Words;
use crate::openapi::CODES_OF_ANY_REQUEST;
use crate::row::Route;
use kernel::error::Code;

/// The content of the pages.
#[derive(Debug)]
pub struct Reference {
    pub version: String,
    pub public_url: String,
    pub subjects: Vec<Subject>,
    /// All error codes, with `true` for those that any request can return.
    pub codes: Vec<(ErrorCode, bool)>,
    /// The fields of an error, and of the objects around it.
    pub error_fields: Vec<(&'static str, Vec<Field>)>,
}

/// Operations about one subject.
#[derive(Debug)]
pub struct Subject {
    pub name: String,
    /// The path segment of the subject's page.
    pub slug: String,
    pub description: Words,
    pub operations: Vec<Operation>,
}

/// An operation.
#[derive(Debug)]
pub struct Operation {
    pub id: String,
    pub method: String,
    pub path: String,
    /// The listener, if it isn't the public one.
    pub listener: Option<&'static str>,
    pub summary: String,
    pub paragraphs: Vec<Words>,
    pub callers: Words,
    /// The inputs: headings, each with its fields.
    pub inputs: Vec<(&'static str, Vec<Field>)>,
    pub answer: Answer,
    pub codes: Vec<ErrorCode>,
    /// The code samples: names and texts.
    pub samples: Vec<(String, String)>,
}

/// The response of an operation.
#[derive(Debug)]
pub struct Answer {
    pub content_types: Vec<String>,
    /// `true` if the fields are in the envelope's `data`.
    pub is_enveloped: bool,
    /// `true` if it has an `ETag`.
    pub has_entity_tag: bool,
    pub fields: Vec<Field>,
}

/// A code of an error.
#[derive(Clone, Debug)]
pub struct ErrorCode {
    pub status: u16,
    pub word: &'static str,
    pub meaning: Words,
}

impl Reference {
    /// Arranges a document.
    pub fn new(document: &Value, routes: &[Route]) -> Self {
        let tags = document.get("tags").and_then(Value::as_array).into_iter().flatten();
        let schema = |name: &str| {
            let schema = document.pointer(&format!("/components/schemas/{name}"));
            schema.map(|schema| fields::of_schema(document, schema, true)).unwrap_or_default()
        };
        Self {
            version: document.pointer("/info/version").and_then(Value::as_str).unwrap_or_default().to_owned(),
            public_url: document
                .pointer("/servers/0/url")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            subjects: tags.map(|tag| subject(document, routes, tag)).collect(),
            codes: all_codes(),
            error_fields: vec![
                ("In the envelope", schema("EnvelopedError")),
                ("Without an envelope", schema("BareError")),
                ("At `/v1/messages`, in the form of Anthropic's API", schema("AnthropicError")),
            ],
        }
    }
}

impl From<Code> for ErrorCode {
    fn from(code: Code) -> Self {
        Self { status: code.status().as_u16(), word: code.as_str(), meaning: Words::new(code.message()) }
    }
}

fn all_codes() -> Vec<(ErrorCode, bool)> {
    let mut codes: Vec<_> = Code::ALL.to_vec();
    codes.sort_by_key(|code| code.status().as_u16());
    codes.into_iter().map(|code| (code.into(), CODES_OF_ANY_REQUEST.contains(&code))).collect()
}

/// Converts a title to a path segment.
pub fn slug(title: &str) -> String {
    title.to_lowercase().replace(' ', "-").replace('\'', "")
}

fn subject(document: &Value, routes: &[Route], tag: &Value) -> Subject {
    let name = text(tag, "name");
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let mut operations: Vec<_> = paths
        .flat_map(|(path, item)| {
            item.as_object().into_iter().flatten().map(move |(method, one)| (path, method, one))
        })
        .filter(|(.., one)| one.pointer("/tags/0").is_some_and(|tag| *tag == name))
        .map(|(path, method, one)| operation(document, path, method, one))
        .collect();
    // Sort in the order of the table of routes, because the document sorts the paths by name.
    operations.sort_by_key(|one| {
        routes
            .iter()
            .position(|route| route.method == *one.method && route.path.replace("{*", "{") == one.path)
    });
    Subject { slug: slug(&name), description: Words::new(&text(tag, "description")), operations, name }
}

fn operation(document: &Value, path: &str, method: &str, one: &Value) -> Operation {
    let description = text(one, "description");
    let paragraphs = description.split("\n\n").filter(|paragraph| !paragraph.starts_with("Access: "));
    let samples = one.get("x-codeSamples").and_then(Value::as_array).into_iter().flatten();
    let codes = one.get("x-error-codes").and_then(Value::as_array).into_iter().flatten();
    let codes: Vec<_> = codes.filter_map(Value::as_str).collect();
    let is_both = one.get("servers").and_then(Value::as_array).is_some_and(|servers| servers.len() > 1);
    Operation {
        id: text(one, "operationId"),
        method: method.to_uppercase(),
        path: path.to_owned(),
        listener: one.get("servers").map(|_| if is_both { "both listeners" } else { "service listener" }),
        summary: text(one, "summary"),
        paragraphs: paragraphs.map(Words::new).collect(),
        callers: Words::new(one.pointer("/x-access/callers").and_then(Value::as_str).unwrap_or_default()),
        inputs: inputs(document, one),
        answer: answer(document, one),
        codes: Code::ALL
            .iter()
            .copied()
            .map(ErrorCode::from)
            .filter(|code| codes.contains(&code.word))
            .collect(),
        samples: samples.map(|sample| (text(sample, "label"), text(sample, "source"))).collect(),
    }
}

/// Returns the inputs of an operation that aren't empty, with their headings.
fn inputs(document: &Value, one: &Value) -> Vec<(&'static str, Vec<Field>)> {
    let parameters = |place: &'static str| {
        let all = one.get("parameters").and_then(Value::as_array).into_iter().flatten();
        fields::of_parameters(document, all.filter(move |parameter| text(parameter, "in") == place))
    };
    let body = |content_type: &str| {
        let content = one.pointer("/requestBody/content").and_then(|content| content.get(content_type));
        let schema = content.and_then(|content| content.get("schema"));
        schema.map(|schema| fields::of_schema(document, schema, false)).unwrap_or_default()
    };
    let all = [
        ("In the path", parameters("path")),
        ("In the query", parameters("query")),
        ("In headers", parameters("header")),
        ("In the body", body("application/json")),
        ("In the form", body(web::input::FORM_CONTENT_TYPE)),
    ];
    all.into_iter().filter(|(_, fields)| !fields.is_empty()).collect()
}

fn answer(document: &Value, one: &Value) -> Answer {
    let success = one.pointer("/responses/200").unwrap_or(&Value::Null);
    let content = success.get("content").and_then(Value::as_object);
    let schema = content.and_then(|content| content.get("application/json")?.get("schema"));
    let schema = schema.map(|schema| fields::resolve(document, schema));
    let data = schema.and_then(|schema| schema.pointer("/properties/data"));
    let is_enveloped =
        data.is_some() && schema.is_some_and(|schema| schema.pointer("/properties/status_code").is_some());
    let shown = if is_enveloped { data } else { schema };
    Answer {
        content_types: content.into_iter().flat_map(Map::keys).cloned().collect(),
        is_enveloped,
        has_entity_tag: success.pointer("/headers/ETag").is_some(),
        fields: shown.map(|schema| fields::of_schema(document, schema, true)).unwrap_or_default(),
    }
}
