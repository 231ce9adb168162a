//! The OpenAPI 3.1 document, generated from the routes and the types.

mod access;
mod components;
mod errors;
mod examples;
mod path_parameters;
mod samples;

use std::collections::BTreeMap;

use http::Method;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Api;
use crate::creation::IDEMPOTENCY_KEY;
use crate::gate::Visitor;
use crate::paths::is_model_call;
use crate::row::Route;
use input::schema::{ObjectSchema, Property};
use kernel::error::{Code, Error};
use web::input::{self as inputs, NoInput};
use web::reply::{self, IDEMPOTENCY_REPLAYED, RenderedJson};
use web::route::{ErrorShape, Listener, Operation};

pub use errors::CODES_OF_ANY_REQUEST;
pub use path_parameters::of as path_parameters;

/// The document as a reply. Its format is defined by the OpenAPI specification.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Document(Value);

impl JsonSchema for Document {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpenApi".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object", "description": "An OpenAPI 3.1 document"})
    }
}

pub const READ: Operation = Operation::new("get_openapi_document");

/// Get the OpenAPI document.
pub async fn read(api: Api, _: Visitor, _: NoInput) -> Result<RenderedJson<Document>, Error> {
    let text = match api.openapi.get() {
        Some(text) => text.clone(),
        None => {
            let text =
                reply::to_json(&Document(document(&(api.table)(), &api.public_url, &api.service_url)))?;
            api.openapi.get_or_init(|| text).clone()
        }
    };
    Ok(RenderedJson::new(text))
}

/// The doc comments of the handlers: path, summary and description of each.
mod handler_docs {
    include!(concat!(env!("OUT_DIR"), "/handler_docs.rs"));
}

/// Returns the document of these routes, with the URLs of both listeners.
pub fn document(routes: &[Route], public_url: &str, service_url: &str) -> Value {
    let servers = Servers::new(public_url, service_url);
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    // The server sends absent values as null, so every property is always present.
    settings.contract = Contract::Serialize;
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let item = paths.entry(openapi_path(route.path)).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            item.insert(
                route.method.as_str().to_lowercase(),
                operation(route, routes, &servers, &mut generator),
            );
        }
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".into(), error_schema());
    schemas.insert("EnvelopedError".into(), enveloped_error_schema());
    schemas.insert("BareError".into(), bare_error_schema());
    schemas.insert("AnthropicError".into(), anthropic_error_schema());
    components::name_inner_schemas(&mut paths, &mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tollkeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Accounts, organizations, projects, API keys, usage and the model catalog of an AI model platform. \
                            Paths under /service are on the service listener, which has its own address.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [servers.public],
        "tags": TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security_schemes()},
    })
}

/// The `servers` entries of the listeners.
struct Servers {
    public: Value,
    service: Value,
}

impl Servers {
    fn new(public_url: &str, service_url: &str) -> Self {
        Self {
            public: json!({"url": public_url, "description": "The public listener"}),
            service: json!({"url": service_url, "description": "The service listener"}),
        }
    }

    /// Returns the server entry of a route's listener.
    fn of(&self, route: &Route) -> &str {
        let server = match route.listener {
            Listener::Public => &self.public,
            Listener::Service | Listener::Both => &self.service,
        };
        server.get("url").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Returns a route's path in OpenAPI syntax, which has no wildcard for ids with slashes: it becomes an
/// ordinary parameter.
fn openapi_path(path: &str) -> String {
    path.replace("{*", "{")
}

fn operation(route: &Route, routes: &[Route], servers: &Servers, generator: &mut SchemaGenerator) -> Value {
    let input = (route.input)();
    let mut parameters: Vec<Value> = path_parameters::of(route.path).map(path_parameter).collect();
    parameters.extend(input.query.iter().flat_map(|schema| &schema.properties).map(query_parameter));
    parameters.extend(input.headers.iter().map(|(name, schema)| {
        let description = schema.get("description");
        json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema})
    }));
    let (summary, description) = docs(route);
    let access = format!("Access: {}.", route.access.text);
    let mut operation = json!({
        "operationId": route.operation.id,
        "summary": summary,
        "description": if description.is_empty() { access } else { format!("{description}\n\n{access}") },
        "tags": [tag(route)],
        "parameters": parameters,
        "responses": responses(route, routes, generator),
        "security": route.access.scheme.iter().chain(&route.access.other_scheme).map(|scheme| json!({*scheme: []})).collect::<Vec<_>>(),
        "x-access": access::of(route),
        "x-error-codes": errors::codes(route).iter().map(|code| code.as_str()).collect::<Vec<_>>(),
        "x-codeSamples": samples::of(route, servers.of(route)),
    });
    let bodies = [("application/json", input.body), (inputs::FORM_CONTENT_TYPE, input.form)];
    for (content_type, body) in bodies.into_iter().filter_map(|(kind, body)| Some((kind, body?))) {
        let schema = body_schema(&body);
        let example = serde_json::from_str(route.operation.example).unwrap_or_else(|_| example_of(&schema));
        let schema = define_body(route.operation.id, schema, generator);
        let content = json!({content_type: {"example": example, "schema": schema}});
        // An empty body is read as `{}`, so the body is required only if one of its fields is.
        let required = body.properties.iter().any(|property| property.is_required);
        if let Some(operation) = operation.as_object_mut() {
            operation.insert("requestBody".into(), json!({"required": required, "content": content}));
        }
    }
    let servers = match route.listener {
        Listener::Public => None,
        Listener::Service => Some(json!([servers.service])),
        Listener::Both => Some(json!([servers.public, servers.service])),
    };
    if let (Some(operation), Some(servers)) = (operation.as_object_mut(), servers) {
        operation.insert("servers".into(), servers);
    }
    operation
}

/// Returns the summary and the description of an operation, from its handler's doc comment.
fn docs(route: &Route) -> (&'static str, &'static str) {
    let found = handler_docs::DOCS.iter().find(|(handler, ..)| *handler == route.handler);
    found.map_or(("", ""), |(_, summary, description)| (summary, description))
}

/// The tags of the operations with their descriptions, in the order of the contract's pages.
const TAGS: [(&str, &str); 12] = [
    ("Accounts", "Registration, login, tokens, passwords, addresses and sessions."),
    ("Organizations", "Organizations, their members, invitations and audit logs."),
    ("Projects", "Projects and their members."),
    ("API keys", "API keys of projects."),
    ("Billing and usage", "Balances, invoices, limits, prices, reports of usage, and the call log."),
    ("Webhooks", "URLs of an organization that receive events, as specified by Standard Webhooks."),
    ("Models", "The model catalog, in the format of OpenAI's SDKs."),
    ("Model calls", "Model calls, in the formats of the OpenAI and Anthropic SDKs."),
    ("Pages", "Pages that links in e-mails open."),
    ("Documents", "This reference as pages, and documents for programs."),
    ("Service", "Decisions, usage events and reservations, for inference servers."),
    ("Monitoring", "The state of a process."),
];

fn tag(route: &Route) -> &'static str {
    let path = route.path;
    let is_page = route.error_shape() == ErrorShape::Page;
    let rows = [
        ("Documents", path.starts_with("/docs")),
        ("Pages", is_page),
        ("Accounts", path.starts_with("/v1/auth/")),
        ("API keys", path.contains("/api-keys")),
        ("Billing and usage", is_about_money(path)),
        ("Projects", path.contains("/projects")),
        ("Webhooks", path.contains("/webhooks")),
        ("Organizations", path.starts_with("/v1/organizations")),
        ("Models", path.starts_with("/v1/models")),
        ("Model calls", is_model_call(path)),
        ("Service", path.starts_with("/service/")),
        ("Monitoring", route.listener != Listener::Public),
    ];
    rows.into_iter().find(|(_, applies)| *applies).map_or("Documents", |(tag, _)| tag)
}

fn is_about_money(path: &str) -> bool {
    path.contains("/billing/")
        || path.ends_with("/{project_id}/usage")
        || path.ends_with("/{organization_id}/limits")
        || path.ends_with("/usage/performance")
        || path.contains("/calls")
}

fn path_parameter(name: &str) -> Value {
    let known = path_parameters::find(name);
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": known.map(|known| known.description),
        "schema": {"type": "string"},
        "example": known.map(|known| known.example),
    })
}

fn query_parameter(property: &Property) -> Value {
    let Property { name, is_required, description, .. } = property;
    let mut schema = property.schema.clone();
    name_example(name, &mut schema);
    without_null(&mut schema);
    let of_type = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = if description.is_empty() { of_type } else { description };
    json!({"name": name, "in": "query", "required": is_required, "description": description, "schema": schema})
}

fn body_schema(body: &ObjectSchema) -> Value {
    let mut schema = body.to_value();
    name_examples(&mut schema);
    schema
}

/// Adds the schema of a body to the components, named after its operation, and returns a reference to it.
fn define_body(operation_id: &str, schema: Value, generator: &mut SchemaGenerator) -> Value {
    let name = components::type_name(operation_id) + "Request";
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    generator.definitions_mut().insert(name, schema);
    reference
}

/// Adds examples to text properties that have none, according to their names.
fn name_examples(schema: &mut Value) {
    for (name, property) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        name_examples(property);
        name_example(name, property);
    }
}

fn name_example(name: &str, schema: &mut Value) {
    if schema.pointer("/examples/0") == Some(&json!("…"))
        && let (Some(example), Some(schema)) = (examples::text(name), schema.as_object_mut())
    {
        schema.insert("examples".into(), json!([example]));
    }
}

/// Removes null from the schema of a query parameter, because a client omits the parameter instead.
fn without_null(schema: &mut Value) {
    let is_null = |word: &Value| word.is_null() || *word == "null";
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !is_null(word));
    }
    if let Some(kinds) = schema.get_mut("type").filter(|kind| kind.is_array()) {
        let mut left = kinds.as_array_mut().map(std::mem::take).unwrap_or_default();
        left.retain(|kind| !is_null(kind));
        *kinds = if left.len() == 1 { left.remove(0) } else { json!(left) };
    }
}

/// Returns an example of a value, composed of the examples of its fields.
fn example_of(schema: &Value) -> Value {
    if let Some(example) = schema.pointer("/examples/0") {
        return example.clone();
    }
    match schema.get("properties").and_then(Value::as_object) {
        Some(fields) => {
            let fields = fields.iter().map(|(name, schema)| (name.clone(), example_of(schema)));
            fields.collect::<Map<_, _>>().into()
        }
        None => Value::Null,
    }
}

fn responses(route: &Route, routes: &[Route], generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    let schema = (route.reply)(generator);
    let mut success = response("Success", route.content_type, schema);
    if let (Some(kind), Some(content)) =
        (route.other_content_type, success.get_mut("content").and_then(Value::as_object_mut))
    {
        // OpenAPI 3.1 can't describe the events of a stream.
        let is_text = kind != "text/event-stream";
        content
            .insert(kind.to_owned(), if is_text { json!({"schema": {"type": "string"}}) } else { json!({}) });
    }
    if let (Some(links), Some(success)) = (links(route, routes), success.as_object_mut()) {
        success.insert("links".into(), links);
    }
    if let (true, Some(headers)) =
        (route.has_entity_tag, success.get_mut("headers").and_then(Value::as_object_mut))
    {
        let description = "The version, for the `If-Match` header of a change";
        headers.insert("ETag".into(), json!({"description": description, "schema": {"type": "string"}}));
    }
    let takes_key = (route.input)().headers.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY);
    if let (true, Some(headers)) = (takes_key, success.get_mut("headers").and_then(Value::as_object_mut)) {
        let description = "`true` for the stored response of an earlier request";
        let schema = json!({"type": "string", "const": "true"});
        headers.insert(IDEMPOTENCY_REPLAYED.into(), json!({"description": description, "schema": schema}));
    }
    responses.insert("200".into(), success);
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (content_type, schema) = match route.error_shape() {
        ErrorShape::Enveloped => ("application/json", reference("EnvelopedError")),
        ErrorShape::Bare => ("application/json", reference("BareError")),
        ErrorShape::Anthropic => ("application/json", reference("AnthropicError")),
        ErrorShape::Page => ("text/html", json!({"type": "string"})),
    };
    for (status, codes) in codes_by_status(route) {
        let description = match route.error_shape() {
            ErrorShape::Page => "A page that explains how to continue".to_owned(),
            _ => format!("`error.code` is one of: {}", codes.join(", ")),
        };
        responses.insert(status.to_string(), response(&description, content_type, schema.clone()));
    }
    responses.into()
}

/// Returns the error codes of an operation by their status.
fn codes_by_status(route: &Route) -> BTreeMap<u16, Vec<&'static str>> {
    let mut codes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for code in errors::codes(route) {
        codes.entry(code.status().as_u16()).or_default().push(code.as_str());
    }
    codes
}

/// Returns the links from a POST to the operations on the created object.
fn links(route: &Route, routes: &[Route]) -> Option<Value> {
    if route.method != Method::POST || route.error_shape() == ErrorShape::Page {
        return None;
    }
    let below = format!("{}/{{", route.path);
    let link = |other: &Route| {
        let (id, _) = other.path.strip_prefix(&below)?.split_once('}')?;
        // The id in the reply has the same name as in the path only for a new invitation.
        let field = match id {
            "invitation_id" => id,
            "passkey_id" => "passkey/id",
            _ => "id",
        };
        let parameters = path_parameters::of(other.path).map(|name| {
            let from = if name == id { format!("$response.body#/data/{field}") } else { String::new() };
            let known = path_parameters::of(route.path).any(|known| known == name);
            let from = if known { format!("$request.path.{name}") } else { from };
            (!from.is_empty()).then(|| (name.to_owned(), Value::from(from)))
        });
        // A path with other parameters can't be linked.
        let parameters: Map<_, _> = parameters.collect::<Option<_>>()?;
        let name = other.operation.id;
        Some((name.to_owned(), json!({"operationId": name, "parameters": parameters})))
    };
    let links: Map<_, _> = routes.iter().filter_map(link).collect();
    (!links.is_empty()).then(|| links.into())
}

fn response(description: &str, content_type: &str, schema: impl Into<Value>) -> Value {
    let headers = json!({"x-request-id": {
        "description": "The id of this request in the server's log",
        "schema": {"type": "string"},
    }});
    json!({"description": description, "headers": headers, "content": {content_type: {"schema": schema.into()}}})
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["message", "type", "param", "code", "details"],
        "properties": {
            "message": {"type": "string", "description": "A human-readable message."},
            "type": {"type": "string", "title": "ErrorType", "description": "The kind.",
                     "enum": ["invalid_request_error", "authentication_error", "permission_error",
                              "rate_limit_error", "insufficient_quota", "api_error"]},
            "param": {"type": ["string", "null"], "description": "JSON path of the first invalid field"},
            "code": {"type": "string", "title": "ErrorCode", "description": "A stable code",
                     "enum": Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>()},
            "details": {"type": "array", "description": "The invalid fields.", "items": {
                "type": "object",
                "title": "ErrorDetail",
                "required": ["param", "code", "message"],
                "properties": {
                    "param": {"type": "string", "description": "The path of the invalid field."},
                    "code": {"type": "string", "description": "A stable code for programs."},
                    "message": {"type": "string", "description": "A human-readable message."},
                },
            }},
        },
        "examples": [{"message": "No such organization.", "type": "invalid_request_error", "param": null,
                      "code": "organization_not_found", "details": []}],
    })
}

fn error_reference() -> Value {
    json!({"$ref": "#/components/schemas/Error", "description": "The error."})
}

fn enveloped_error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["status_code", "status_message", "data", "error"],
        "properties": {
            "status_code": {"type": "integer", "description": "The HTTP status."},
            "status_message": {"type": "string", "description": "The code in upper case"},
            "data": {"type": "object", "description": "An empty object."},
            "error": error_reference(),
        },
    })
}

fn anthropic_error_schema() -> Value {
    let mut error = error_schema();
    if let Some(types) = error.pointer_mut("/properties/type") {
        let words = web::reply::ANTHROPIC_ERROR_TYPES;
        *types = json!({"type": "string", "title": "AnthropicErrorType", "description": "The kind.", "enum": words});
    }
    if let Some(error) = error.as_object_mut() {
        error.insert("title".into(), "AnthropicErrorObject".into());
        error.insert("description".into(), "The error.".into());
    }
    json!({
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"type": "string", "const": "error", "description": "The kind.", "examples": ["error"]},
            "error": error,
        },
    })
}

fn bare_error_schema() -> Value {
    json!({"type": "object", "required": ["error"], "properties": {"error": error_reference()}})
}

fn security_schemes() -> Value {
    json!({
        "accessToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "The access token of a login"},
        "refreshToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "The refresh token of a login"},
        "bearer": {"type": "http", "scheme": "bearer", "description": "An access token or an API key"},
        "modelKey": {"type": "http", "scheme": "bearer",
                     "description": "An API key; or an access token, with the headers `openai-organization` and `openai-project`"},
        "apiKeyHeader": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key"},
        "proxyToken": {"type": "apiKey", "in": "header", "name": "X-Tollkeeper-Service-Token",
                       "description": "The service listener's token, if `Authorization` belongs to the user"},
        "serviceToken": {"type": "http", "scheme": "bearer", "description": "The service listener's token"},
    })
}
