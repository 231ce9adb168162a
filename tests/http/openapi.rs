//! Compares the OpenAPI document with the routes, with itself, and with the server's behavior.

mod clients;
mod schemathesis;

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Map, Value, json};
use tollkeeper::api::openapi;
use tollkeeper::api::routes::{self, Route};
use tollkeeper::clock::{Month, Time};
use tollkeeper::error::Code;
use tollkeeper::tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};
use tollkeeper::web::route::Listener;

use support::authenticator::{Authenticator, texts};
use support::documented::document;
use support::http::{Answer, Call};
use support::on_each_database;
use support::process::run_to_end;
use support::python::python;
use support::security_key::SecurityKey;
use support::world::{Folder, PASSWORD, Place, TestUser, World};
use support::{billed, webhooks};

/// Answers with a shape defined by an external standard.
const EXTERNAL_STANDARDS: [&str; 2] = ["/openapi.json", "/.well-known/jwks.json"];

/// Returns method, path and definition of each operation in the document.
fn operations(document: &Value) -> Vec<(String, String, &Map<String, Value>)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap();
        item.iter().map(move |(method, one)| (method.to_uppercase(), path.clone(), one.as_object().unwrap()))
    });
    operations.collect()
}

fn documented_path(route: &Route) -> String {
    route.path.replace("{*", "{")
}

fn operation<'a>(document: &'a Value, route: &Route) -> &'a Value {
    &document["paths"][documented_path(route)][route.method.as_str().to_lowercase()]
}

/// Returns all routes except the pages, which have their own tests.
fn json_routes() -> Vec<Route> {
    routes::table().into_iter().filter(|route| route.content_type != "text/html").collect()
}

#[test]
fn document_has_exactly_the_routes() {
    let document = document();
    let routes: BTreeSet<_> =
        routes::table().iter().map(|route| (route.method.to_string(), documented_path(route))).collect();
    let documented: BTreeSet<_> =
        operations(document).into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(routes, documented);
    assert_eq!(routes.len(), routes::table().len());
}

#[test]
fn every_reference_resolves() {
    let document = document();
    let mut used = BTreeSet::new();
    walk(document, "", &mut |value, place| {
        if let Some(reference) = value.get("$ref") {
            let reference = reference.as_str().unwrap();
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} in {place}"));
            assert!(document.pointer(pointer).is_some_and(Value::is_object), "{reference} in {place}");
            used.insert(pointer.rsplit('/').next().unwrap().to_owned());
        }
    });
    let made: BTreeSet<_> = document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(used, made, "and every schema is used");
}

/// Returns the schema that a schema refers to, or the schema itself. A nullable schema contains one
/// reference.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema.get("$ref").or_else(|| schema.pointer("/anyOf/0/$ref")) {
        Some(reference) => document.pointer(reference.as_str().unwrap().trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

/// Adds the names of the components that a part of the document refers to.
fn add_components(document: &Value, part: &Value, names: &mut BTreeSet<String>) {
    walk(part, "", &mut |value, _| {
        let Some(reference) = value.get("$ref") else { return };
        let name = reference.as_str().unwrap().rsplit('/').next().unwrap();
        if names.insert(name.to_owned()) {
            add_components(document, &document["components"]["schemas"][name], names);
        }
    });
}

/// Generators create a class for each object and each list of words, and name the class after its component.
#[test]
fn every_object_and_list_of_words_has_a_name() {
    let document = document();
    walk(&document["components"]["schemas"], "", &mut |value, place| {
        let is_component = place.matches('/').count() == 1;
        let is_class = value.contains_key("enum") || value.get("properties").is_some_and(Value::is_object);
        assert!(!is_class || is_component, "{place}");
        assert!(
            !place.ends_with(|end: char| end.is_ascii_digit()) || !is_component,
            "{place}: two have one name"
        );
    });
    for (method, path, operation) in operations(document) {
        let body =
            operation.get("requestBody").into_iter().flat_map(|body| body["content"].as_object().unwrap());
        let parameters = operation["parameters"].as_array().unwrap().iter().map(|one| &one["schema"]);
        for schema in body.map(|(_, content)| &content["schema"]).chain(parameters) {
            assert!(schema.get("enum").is_none() && schema.get("properties").is_none(), "{method} {path}");
        }
    }
}

/// Absent values are null, never missing: a client generated from the document may rely on every property.
#[test]
fn every_property_of_an_answer_is_required() {
    let document = document();
    let mut answered = BTreeSet::new();
    for (_, _, operation) in operations(document) {
        add_components(document, &operation["responses"], &mut answered);
    }
    let mut schemas = document["components"]["schemas"].clone();
    schemas.as_object_mut().unwrap().retain(|name, _| answered.contains(name));
    assert!(answered.len() > 80, "{answered:?}");
    walk(&schemas, "", &mut |value, place| {
        if let Some(properties) = value.get("properties").and_then(Value::as_object) {
            let required = value.get("required").and_then(Value::as_array).into_iter().flatten();
            let required: BTreeSet<_> = required.map(|name| name.as_str().unwrap()).collect();
            let mut named: BTreeSet<_> = properties.keys().map(String::as_str).collect();
            // Rows of a report have their groups and, on request, components.
            let optional: &[&str] = match place {
                "/UsageRow" => &["model", "project_id", "api_key_id", "user_id"],
                "/ProjectUsageRow" => &["model"],
                "/ChatUsage" | "/EmbeddingsUsage" => &["components"],
                _ => &[],
            };
            named.retain(|name| !optional.contains(name));
            // A property could be called `properties`, but no property is so far.
            assert_eq!(required, named, "{place}");
        }
    });
}

#[test]
fn every_operation_is_complete() {
    let document = document();
    let mut ids = BTreeSet::new();
    for route in json_routes() {
        let operation = operation(document, &route);
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id.to_owned()), "{id} occurs twice");
        let is_word = id.chars().all(|char| char.is_ascii_lowercase() || char == '_');
        assert!(is_word, "{id} isn't a valid name of a function");
        let of_the_path = route.handler.replace("::", "_");
        assert!(!of_the_path.starts_with(id), "{id} is a path, not a verb and an object");
        for text in ["summary", "description"] {
            assert!(operation[text].as_str().is_some_and(|text| text.len() > 3), "{id} without {text}");
        }
        let security = match route.access.scheme {
            None => json!([]),
            Some(scheme) => {
                assert!(document["components"]["securitySchemes"][scheme]["type"].is_string(), "{scheme}");
                let other = route.access.other_scheme;
                let takes_header = scheme == "modelKey" || route.path.starts_with("/v1/models");
                assert_eq!(other, takes_header.then_some("apiKeyHeader"), "{id}");
                json!([scheme].into_iter().chain(other).map(|scheme| json!({scheme: []})).collect::<Vec<_>>())
            }
        };
        assert_eq!(operation["security"], security, "{id}");
        let summary = operation["summary"].as_str().unwrap();
        assert!(
            summary.starts_with(|c: char| c.is_ascii_uppercase()) && !summary.ends_with('.'),
            "{summary}"
        );
        assert!(summary.len() <= 70, "{summary}: a summary is a short sentence");
        let tags: Vec<_> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
        assert!(tags.contains(&&operation["tags"][0]), "{id}: {}", operation["tags"]);
        let servers: &[&str] = match route.listener {
            Listener::Public => &[],
            Listener::Service => &["http://127.0.0.1:8081"],
            Listener::Both => &["http://127.0.0.1:8080", "http://127.0.0.1:8081"],
        };
        let named = operation.get("servers").and_then(Value::as_array).into_iter().flatten();
        assert_eq!(named.map(|server| server["url"].as_str().unwrap()).collect::<Vec<_>>(), servers, "{id}");

        let parameters = operation["parameters"].as_array().unwrap();
        let in_path = parameters.iter().filter(|one| one["in"] == "path");
        let in_path: Vec<_> = in_path.map(|one| (one["name"].as_str().unwrap(), &one["required"])).collect();
        let named: Vec<_> =
            openapi::path_parameters(route.path).map(|name| (name, &Value::Bool(true))).collect();
        assert_eq!(in_path, named, "{id}");

        let responses = operation["responses"].as_object().unwrap();
        let mut due = vec![200, 500];
        due.extend((!route.access.before_ready).then_some(503));
        due.extend(route.access.scheme.map(|_| 401));
        due.extend(route.access.roles.as_ref().map(|_| 403));
        due.extend(named.first().map(|_| 404));
        if let Some(body) = operation.get("requestBody") {
            due.extend([400, 413]);
            // Without a body, only required parts are missing.
            let schema = resolved(document, &body["content"]["application/json"]["schema"]);
            assert_eq!(body["required"], schema.get("required").is_some(), "{id}");
        }
        if parameters.iter().any(|one| one["in"] == "query") {
            due.push(400);
        }
        for status in due {
            assert!(responses.contains_key(&status.to_string()), "{id} without {status}");
        }
        let codes = operation["x-error-codes"].as_array().unwrap().iter().map(code_status);
        let statuses: BTreeSet<_> = codes.chain([200]).map(|status| status.to_string()).collect();
        assert_eq!(responses.keys().cloned().collect::<BTreeSet<_>>(), statuses, "{id}");
        let is_bare = route.path.starts_with("/v1/models") || operation["tags"][0] == "Model calls";
        let kind = match route.path {
            "/v1/messages" | "/v1/messages/count_tokens" => "AnthropicError",
            path if path.starts_with("/v1/") && !is_bare => "EnvelopedError",
            _ => "BareError",
        };
        let error = json!({"$ref": format!("#/components/schemas/{kind}")});
        for (status, response) in responses {
            let kind = if status == "200" { route.content_type } else { "application/json" };
            let schema = &response["content"][kind]["schema"];
            assert!(schema.is_object() || EXTERNAL_STANDARDS.contains(&route.path), "{id} {status}");
            assert_eq!(status != "200", *schema == error, "{id} {status}");
            assert!(response["headers"]["x-request-id"].is_object(), "{id} {status}");
        }
    }
}

/// Returns the status of an error code.
fn code_status(code: &Value) -> u16 {
    let found = Code::ALL.iter().find(|one| *code == one.as_str());
    found.unwrap_or_else(|| panic!("{code} isn't an error code")).status().as_u16()
}

/// Every error code is returned by an operation, by any request, or only by pages of the console, which
/// aren't in the document.
#[test]
fn every_error_code_is_answered() {
    let document = document();
    let mut due: BTreeSet<_> = Code::ALL.iter().map(|code| json!(code.as_str()).to_string()).collect();
    for (_, _, operation) in operations(document) {
        for code in operation["x-error-codes"].as_array().unwrap() {
            due.remove(&code.to_string());
        }
    }
    let of_the_console = [
        Code::CrossOriginRequest,
        Code::ConnectionTaken,
        Code::NoAccount,
        Code::ProviderNotFound,
        Code::ProviderUnavailable,
        Code::SignOnExpired,
        Code::SignOnFailed,
    ];
    let others = openapi::CODES_OF_ANY_REQUEST.iter().chain(&of_the_console);
    let any: BTreeSet<_> = others.map(|code| json!(code.as_str()).to_string()).collect();
    assert!(due.is_subset(&any), "no operation returns {due:?}");
}

/// The documented callers of each operation match the tables of roles.
#[test]
fn roles_are_documented() {
    let document = document();
    let mut with_roles = 0;
    for route in routes::table() {
        let access = &operation(document, &route)["x-access"];
        let callers = access["callers"].as_str().unwrap();
        assert!(callers.ends_with('.') && callers.len() > 10, "{route:?}: {callers}");
        let place = route.access.text.split(',').next().unwrap().split_once(": ");
        let Some((place, action)) = place.filter(|(place, _)| ["organization", "project"].contains(place))
        else {
            let roles = access["roles"].as_array().unwrap();
            assert_eq!(roles.is_empty(), route.access.scheme != Some("modelKey"), "{route:?}");
            continue;
        };
        let named = |one: &dyn std::fmt::Debug| format!("{one:?}") == action;
        let roles: Vec<_> = if place == "organization" {
            let action = OrganizationAction::ALL.iter().find(|one| named(one)).unwrap();
            [OrganizationRole::Owner, OrganizationRole::Admin, OrganizationRole::Member]
                .into_iter()
                .filter(|role| role.allows(*action))
                .map(|role| role.as_str())
                .collect()
        } else {
            use ProjectRole::{Admin, Developer, Owner, Viewer};
            let action = ProjectAction::ALL.iter().find(|one| named(one)).unwrap();
            let roles = [Owner, Admin, Developer, Viewer].into_iter().filter(|role| role.allows(*action));
            roles.map(|role| role.as_str()).collect()
        };
        assert_eq!((&access["place"], &access["roles"]), (&json!(place), &json!(roles)), "{route:?}");
        assert!(roles.iter().all(|role| callers.contains(&format!("`{role}`"))), "{route:?}: {callers}");
        with_roles += 1;
    }
    assert!(with_roles > 30, "only {with_roles} routes take a role");
}

#[test]
fn operations_have_readable_ids() {
    let document = document();
    let known = [
        ("/v1/auth/change-password", "post", "change_password", "Change the password"),
        ("/v1/models/{model_id}", "get", "get_model", "Get a model"),
        (
            "/v1/organizations/{organization_id}/members/{member_id}",
            "put",
            "update_organization_member",
            "Change a member's role in an organization",
        ),
        ("/metrics", "get", "get_metrics", "Get the metrics of this process for Prometheus"),
    ];
    for (path, method, id, summary) in known {
        let operation = &document["paths"][path][method];
        assert_eq!((&operation["operationId"], &operation["summary"]), (&json!(id), &json!(summary)));
    }
}

/// Creations have links to the operations on the new object.
#[test]
fn creations_link_to_their_object() {
    let document = document();
    let ids: BTreeSet<_> = operations(document)
        .iter()
        .map(|(_, _, one)| one["operationId"].as_str().unwrap().to_owned())
        .collect();
    let mut made = BTreeMap::new();
    for (method, path, operation) in operations(document) {
        let Some(links) = operation["responses"]["200"].get("links") else { continue };
        assert_eq!(method, "POST", "{path}");
        for (name, link) in links.as_object().unwrap() {
            assert_eq!(link["operationId"], *name);
            assert!(ids.contains(name), "{name}");
        }
        made.insert(path, links);
    }
    let paths: Vec<_> = made.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "/v1/auth/passkeys",
            "/v1/organizations",
            "/v1/organizations/{organization_id}/billing/budgets",
            "/v1/organizations/{organization_id}/billing/payments",
            "/v1/organizations/{organization_id}/invitations",
            "/v1/organizations/{organization_id}/projects",
            "/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
            "/v1/organizations/{organization_id}/projects/{project_id}/members",
            "/v1/organizations/{organization_id}/webhooks",
        ]
    );
    let keys = "/v1/organizations/{organization_id}/projects/{project_id}/api-keys";
    let parameters = &made[keys]["rotate_api_key"]["parameters"];
    let due = json!({"organization_id": "$request.path.organization_id", "project_id": "$request.path.project_id",
                     "key_id": "$response.body#/data/id"});
    assert_eq!(*parameters, due);
    let invitations = "/v1/organizations/{organization_id}/invitations";
    let parameters = &made[invitations]["delete_invitation"]["parameters"];
    assert_eq!(parameters["invitation_id"], "$response.body#/data/invitation_id");
    // The answer of this creation doesn't contain a member.
    assert!(made["/v1/organizations"].get("update_organization_member").is_none());
}

/// Checks the operations that expect a version, that return a version, and that take an idempotency key.
#[test]
fn headers_of_requests_are_documented() {
    let document = document();
    let (mut expecting, mut answering, mut keyed) = (Vec::new(), Vec::new(), Vec::new());
    for (method, path, operation) in operations(document) {
        let responses = &operation["responses"];
        let headers: Vec<_> = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|parameter| parameter["in"] == "header")
            .map(|parameter| (parameter["name"].as_str().unwrap(), &parameter["required"]))
            .collect();
        if headers == [("Idempotency-Key", &json!(false))] {
            assert!(responses["400"].is_object() && responses["409"].is_object(), "{method} {path}");
            assert!(responses["200"]["headers"]["idempotency-replayed"].is_object(), "{method} {path}");
            keyed.push(format!("{method} {path}"));
        } else if headers == [("If-Match", &json!(false))] {
            assert!(responses["400"].is_object() && responses["412"].is_object(), "{method} {path}");
            expecting.push(format!("{method} {path}"));
        } else if headers == [("anthropic-version", &json!(false))] {
            assert_eq!((method.as_str(), path.as_str()), ("GET", "/v1/models"));
        } else if headers == [("Stripe-Signature", &json!(false))] {
            assert_eq!(path, "/v1/billing/stripe/events");
        } else {
            assert!(headers.is_empty() && responses.get("412").is_none(), "{method} {path}");
        }
        if responses["200"]["headers"]["ETag"].is_object() {
            answering.push(format!("{method} {path}"));
        }
    }
    let organization = "/v1/organizations/{organization_id}".to_owned();
    let project = format!("{organization}/projects/{{project_id}}");
    let budget = format!("{organization}/billing/budgets/{{budget_id}}");
    let webhook = format!("{organization}/webhooks/{{webhook_id}}");
    let key = format!("{project}/api-keys/{{key_id}}");
    let paths = [organization.clone(), project.clone(), key, budget, webhook];
    let made = [
        "/v1/organizations".to_owned(),
        format!("{organization}/billing/budgets"),
        format!("{organization}/billing/payments"),
        format!("{organization}/invitations"),
        format!("{organization}/invitations/{{invitation_id}}/resend"),
        format!("{organization}/projects"),
        format!("{project}/api-keys"),
        format!("{project}/api-keys/{{key_id}}/end-rotation"),
        format!("{project}/api-keys/{{key_id}}/rotate"),
        format!("{project}/members"),
        format!("{organization}/webhooks"),
        format!("{organization}/webhooks/{{webhook_id}}/deliveries/{{delivery_id}}/redeliver"),
        format!("{organization}/webhooks/{{webhook_id}}/redeliver"),
        format!("{organization}/webhooks/{{webhook_id}}/rotate"),
        format!("{organization}/webhooks/{{webhook_id}}/test"),
    ];
    keyed.sort();
    assert_eq!(keyed, made.map(|path| format!("POST {path}")));
    let all = |methods: [&str; 2]| -> BTreeSet<_> {
        paths.iter().flat_map(|path| methods.map(|method| format!("{method} {path}"))).collect()
    };
    // An organization has exactly one automatic top-up, which is never deleted.
    let top_up = |method: &str| format!("{method} {organization}/billing/auto-top-up");
    let with = |mut all: BTreeSet<String>, methods: &[&str]| {
        all.extend(methods.iter().map(|method| top_up(method)));
        all
    };
    assert_eq!(expecting.into_iter().collect::<BTreeSet<_>>(), with(all(["PUT", "DELETE"]), &["PUT"]));
    assert_eq!(answering.into_iter().collect::<BTreeSet<_>>(), with(all(["GET", "PUT"]), &["GET", "PUT"]));
}

#[test]
fn every_example_matches_its_schema() {
    let document = document();
    let mut count = 0;
    walk(document, "", &mut |value, place| {
        for example in value.get("examples").and_then(Value::as_array).into_iter().flatten() {
            assert_ne!(*example, "…", "{place}: an example can be sent unchanged");
            count += 1;
            valid(document, value, example).unwrap_or_else(|what| panic!("{place}: {example}: {what}"));
        }
        // Examples of bodies and of parameters.
        if let (Some(schema), Some(example)) = (value.get("schema"), value.get("example")) {
            count += 1;
            valid(document, schema, example).unwrap_or_else(|what| panic!("{place}: {example}: {what}"));
        }
    });
    assert!(count > 100, "only {count} examples");
}

/// Calls `look` with every object and its path.
fn walk(value: &Value, place: &str, look: &mut impl FnMut(&Map<String, Value>, &str)) {
    match value {
        Value::Object(members) => {
            look(members, place);
            for (name, member) in members {
                // An example is data, even if its members are named like keywords.
                if name != "example" && name != "examples" {
                    walk(member, &format!("{place}/{name}"), look);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{place}/{index}"), look);
            }
        }
        _ => {}
    }
}

// ---- A value against a schema ----

/// Checks a value against a schema. Supports the keywords that the document uses, and fails for any other
/// keyword, so that no keyword is silently ignored.
fn valid<'a>(document: &'a Value, schema: impl Into<Schema<'a>>, value: &Value) -> Result<(), String> {
    check(document, schema.into(), value, false)
}

/// Like [`valid`], but objects must have exactly the documented properties.
fn exact<'a>(document: &'a Value, schema: &'a Value, value: &Value) -> Result<(), String> {
    check(document, schema.into(), value, true)
}

/// An object with keywords, or a boolean schema.
enum Schema<'a> {
    Word(bool),
    Object(&'a Map<String, Value>),
}

impl<'a> From<&'a Value> for Schema<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Bool(word) => Self::Word(*word),
            other => Self::Object(other.as_object().unwrap()),
        }
    }
}

impl<'a> From<&'a Map<String, Value>> for Schema<'a> {
    fn from(members: &'a Map<String, Value>) -> Self {
        Self::Object(members)
    }
}

fn check(document: &Value, schema: Schema<'_>, value: &Value, is_exact: bool) -> Result<(), String> {
    let schema = match schema {
        Schema::Word(true) => return Ok(()),
        Schema::Word(false) => return Err("nothing is allowed here".into()),
        Schema::Object(schema) => schema,
    };
    for (keyword, rule) in schema {
        let holds = match keyword.as_str() {
            "description" | "examples" | "default" => true,
            "x-enumDescriptions" => {
                let words = schema["enum"].as_array().unwrap();
                rule.as_object().unwrap().keys().all(|word| words.contains(&json!(word)))
            }
            "$ref" => {
                let target = document.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                check(document, target.into(), value, is_exact)?;
                true
            }
            "anyOf" | "oneOf" => {
                let fits = |one: &&Value| check(document, (*one).into(), value, is_exact).is_ok();
                let count = rule.as_array().unwrap().iter().filter(fits).count();
                if keyword == "anyOf" { count >= 1 } else { count == 1 }
            }
            "type" => match rule {
                Value::Array(words) => words.iter().any(|word| is_type(word, value)),
                word => is_type(word, value),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "minLength" => length(value).is_none_or(|length| length >= rule.as_u64().unwrap()),
            "maxLength" => length(value).is_none_or(|length| length <= rule.as_u64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "uniqueItems" => true,
            "format" => is_format(rule.as_str().unwrap(), value),
            "pattern" => value.as_str().is_none_or(|text| is_pattern(rule.as_str().unwrap(), text)),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, rule.into(), item, is_exact)
                        .map_err(|what| format!("[{index}] {what}"))?;
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(name) {
                        check(document, rule.into(), member, is_exact)
                            .map_err(|what| format!(".{name} {what}"))?;
                    }
                }
                let names = |map: &Map<String, Value>| map.keys().cloned().collect::<BTreeSet<_>>();
                let (due, found) = (rule.as_object().map(names), value.as_object().map(names));
                // Required properties are checked by `required`.
                let known = |found: &BTreeSet<_>| due.as_ref().is_some_and(|due| found.is_subset(due));
                if is_exact && !found.as_ref().is_none_or(known) {
                    return Err(format!("documented: {due:?}, found: {found:?}"));
                }
                true
            }
            "required" => value.as_object().is_none_or(|members| {
                rule.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
            }),
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, member) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        check(document, rule.into(), member, is_exact)
                            .map_err(|what| format!(".{name} {what}"))?;
                    }
                }
                true
            }
            other => panic!("this check doesn't support the keyword `{other}`"),
        };
        if !holds {
            return Err(format!("{value} breaks {keyword}: {rule}"));
        }
    }
    Ok(())
}

fn is_type(word: &Value, value: &Value) -> bool {
    match word.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

fn is_pattern(pattern: &str, text: &str) -> bool {
    match pattern {
        "^[!-~]+$" => !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()),
        // A month.
        "^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])$" => Month::parse(text).is_some(),
        other => panic!("this check doesn't support the pattern `{other}`"),
    }
}

fn is_format(format: &str, value: &Value) -> bool {
    let text = value.as_str();
    match format {
        "date-time" => text.is_none_or(|text| Time::parse(text).is_some()),
        "date" => text.is_none_or(|text| Time::parse(&format!("{text}T00:00:00Z")).is_some()),
        "uri" => text.is_none_or(|text| text.contains("://")),
        "email" => text.is_none_or(|text| text.contains('@')),
        "int64" | "uint16" | "uint32" | "uint64" => value.is_null() || value.is_i64() || value.is_u64(),
        other => panic!("this check doesn't support the format `{other}`"),
    }
}

fn length(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.chars().count() as u64)
}

// ---- The document against the server ----

/// A user with an organization that has one object of each kind.
struct Scene {
    ada: TestUser,
    place: Place,
    key: String,
    key_id: String,
    member_id: String,
    reservation_id: String,
    invoice_id: String,
    budget_id: String,
    payment_id: String,
    webhook_id: String,
    delivery_id: String,
    call_id: String,
    /// Another session of Ada.
    session_id: String,
    /// A connection of Ada's account.
    connection_id: String,
    invitation_id: String,
    /// Ada's recovery codes, once she has some.
    recovery_codes: Vec<String>,
    /// Ada's passkey. `passkey_id` is its id, once she has added it.
    passkey: SecurityKey,
    passkey_id: String,
}

impl Scene {
    /// Stores the secrets of an answer that later calls need.
    fn note(&mut self, path: &str, data: &Value) {
        match path {
            "/v1/auth/passkeys" => self.passkey_id = data["passkey"]["id"].as_str().unwrap().to_owned(),
            "/v1/auth/totp/confirm" | "/v1/auth/recovery-codes" => {
                self.recovery_codes = texts(&data["recovery_codes"]);
            }
            "/v1/auth/reauthenticate" => {
                let token = |name: &str| data[name].as_str().unwrap().to_owned();
                self.ada.access_token = token("access_token");
                self.ada.refresh_token = token("refresh_token");
            }
            _ => {}
        }
    }
}

/// Returns the first code of a new authenticator app.
async fn first_code(world: &World, scene: &Scene) -> String {
    let start = world.post("/v1/auth/totp", &json!({})).bearer(&scene.ada.access_token);
    let app = Authenticator::new(start.data().await["secret"].as_str().unwrap());
    app.code(world.clock.now())
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("scenic").await;
    let place = world.place(&ada, "Scene").await;
    let restrictions =
        json!({"allowed_ips": ["10.0.0.0/8"], "rate_limit": 5, "max_tokens": 7, "models": ["svc-1"]});
    let body = json!({"name": "Prod", "restrictions": restrictions, "expires_at": "2030-01-01T00:00:00Z"});
    let (key_id, _) = world.old_key(&ada, &place, &body).await;
    let (_, key) = world.old_key(&ada, &place, &json!({"name": "Plain"})).await;
    let event = |id: &str, model: &str, kind: &str, completion: i64| {
        json!({"id": id, "source": "test", "time": "2026-03-09T10:00:00Z", "api_key_id": key_id, "model": model,
               "kind": kind, "prompt_tokens": 1_000, "completion_tokens": completion})
    };
    let events =
        [event("1", "svc-1", "chat", 5), event("2", "svc-embedding-1", "embeddings", 0), json!({"id": 1})];
    world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    let member = world.user("extra").await;
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    world.join_project(&place, &member, ProjectRole::Viewer).await;
    let call = json!({"credential": ada.access_token, "operation": "chat", "model": "svc-1",
        "organization_id": place.organization, "project_id": place.project});
    let decision = world.ask("/service/v1/authorize", &call).bare().await;
    let reservation_id = decision["reservation"]["id"].as_str().unwrap().to_owned();
    let invoice_id = billed::invoice(world, &place.organization).await;
    let budget_id = billed::budget(world, &ada, &place).await;
    let payment_id = billed::payment(world, &place).await;
    let (webhook_id, delivery_id) = webhooks::webhook(world, &ada, &place).await;
    let calls = world.get(&format!("{}/calls", place.project_path())).bearer(&ada.access_token).data().await;
    let call_id = calls["calls"][0]["id"].as_str().unwrap().to_owned();
    let session_id = world.session(ada.id).await.session_id.to_string();
    let connection_id = world.connection(ada.id, "https://id.example.com", "1").await.to_string();
    let guest = ("guest@example.com", "guest@example.com");
    let invitation_id = world.insert_invitation(&place, guest, OrganizationRole::Member, ada.id).await;
    let (member_id, invitation_id) = (member.id.to_string(), invitation_id.to_string());
    let recovery_codes = Vec::new();
    Scene {
        ada,
        place,
        key,
        key_id,
        member_id,
        reservation_id,
        invoice_id,
        budget_id,
        payment_id,
        webhook_id,
        delivery_id,
        call_id,
        session_id,
        connection_id,
        invitation_id,
        recovery_codes,
        passkey: SecurityKey::new(),
        passkey_id: "passkey_01h2xcejqtf2nbrexx3vqjhp41".to_owned(),
    }
}

/// Builds a call of the route, with only its path.
fn call(world: &World, route: &Route, ids: &[(&str, &str)]) -> Call {
    let mut path = route.path.to_owned();
    for (name, id) in ids {
        path = path.replace(&format!("{{{name}}}"), id);
    }
    assert!(!path.contains('{'), "{path}");
    if route.path.ends_with("/billing/export") {
        path.push_str("?format=focus&month=2026-03");
    }
    let router = if route.listener == Listener::Service { &world.service } else { &world.public };
    if route.access.scheme != Some("proxyToken") {
        return Call::new(router, route.method.clone(), &path);
    }
    // A proxy asks for a decision about the bearer's owner.
    let named = |name: &str| ids.iter().find(|(other, _)| *other == name).map_or("", |(_, id)| *id);
    path.push_str(&format!(
        "?operation=chat&model=svc-1&reserve=false&organization_id={}",
        named("organization_id")
    ));
    path.push_str(&format!("&project_id={}", named("project_id")));
    let call = Call::new(router, route.method.clone(), &path);
    call.header("x-tollkeeper-service-token", world.app.api.service_token.expose())
}

fn ids(scene: &Scene) -> [(&'static str, &str); 16] {
    [
        ("organization_id", &scene.place.organization),
        ("project_id", &scene.place.project),
        ("key_id", &scene.key_id),
        ("member_id", &scene.member_id),
        ("reservation_id", &scene.reservation_id),
        ("invoice_id", &scene.invoice_id),
        ("budget_id", &scene.budget_id),
        ("payment_id", &scene.payment_id),
        ("webhook_id", &scene.webhook_id),
        ("delivery_id", &scene.delivery_id),
        ("call_id", &scene.call_id),
        ("session_id", &scene.session_id),
        ("passkey_id", &scene.passkey_id),
        ("connection_id", &scene.connection_id),
        ("invitation_id", &scene.invitation_id),
        ("*model_id", "svc-1"),
    ]
}

fn bearer<'a>(world: &'a World, scene: &'a Scene, route: &Route) -> &'a str {
    match route.access.scheme {
        Some("serviceToken") => world.app.api.service_token.expose(),
        Some("refreshToken") => &scene.ada.refresh_token,
        Some("modelKey") => &scene.key,
        _ => &scene.ada.access_token,
    }
}

/// Asserts that the answer is documented: its status, and exactly its properties.
fn assert_documented(document: &Value, route: &Route, answer: &Answer) {
    let responses = &operation(document, route)["responses"];
    let response = responses.get(answer.status.to_string());
    let response =
        response.unwrap_or_else(|| panic!("{route:?} returns {}, which isn't documented", answer.status));
    let kind = if answer.status == 200 { route.content_type } else { "application/json" };
    assert_eq!(answer.header("content-type").split(';').next(), Some(kind));
    let has_tag = response["headers"].get("ETag").is_some();
    assert_eq!(!answer.header("etag").is_empty(), has_tag, "{route:?} {}", answer.status);
    if kind != "application/json" {
        return;
    }
    let schema = &response["content"]["application/json"]["schema"];
    exact(document, schema, &answer.json())
        .unwrap_or_else(|what| panic!("{route:?} {}: {what}\n{}", answer.status, answer.text));
}

#[on_each_database]
async fn answers_of_reads_are_documented(world: World) {
    let document = document();
    let scene = scene(&world).await;
    for route in json_routes().iter().filter(|route| route.method == Method::GET) {
        let answer = call(&world, route, &ids(&scene)).bearer(bearer(&world, &scene, route)).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_documented(document, route, &answer);
    }
    // The same in other states: an empty list, other rows, a model of another kind.
    let bob = world.user("bob").await;
    let empty = world.place(&bob, "Empty").await;
    let project = &scene.place.project_path();
    let cases = [
        (
            "/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
            format!("{}/api-keys", empty.project_path()),
            &bob,
        ),
        (
            "/v1/organizations/{organization_id}/projects/{project_id}/usage",
            format!("{}/usage", empty.project_path()),
            &bob,
        ),
        (
            "/v1/organizations/{organization_id}/projects/{project_id}/usage",
            format!("{project}/usage?group_by=day"),
            &scene.ada,
        ),
        ("/v1/models/{*model_id}", "/v1/models/svc-embedding-1".to_owned(), &bob),
    ];
    for (template, path, user) in cases {
        let table = json_routes();
        let route = table.iter().find(|one| one.path == template && one.method == Method::GET).unwrap();
        let answer = world.get(&path).bearer(&user.access_token).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_documented(document, route, &answer);
    }
}

/// Sends a body to a route, and asserts that the answer is documented.
async fn send(world: &World, document: &Value, scene: &Scene, route: &Route, body: &Value) -> Answer {
    let call = call(world, route, &ids(scene)).bearer(bearer(world, scene, route));
    let answer = if body.is_null() { call.send().await } else { call.json(body).send().await };
    assert_documented(document, route, &answer);
    answer
}

const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";

/// Every documented example of a body is sent: the server accepts it, and the answer is documented.
#[on_each_database]
async fn answers_of_writes_are_documented(world: World) {
    let document = document();
    let mut scene = scene(&world).await;
    let register = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
    world.post("/v1/auth/register", &register).data().await;
    let verification = world.mailed_token("eve@example.com").await;
    world.user("kim").await;
    world.post("/v1/auth/forgot-password", &json!({"email": "kim@example.com"})).data().await;
    let reset = world.mailed_token("kim@example.com").await;
    let newcomer = world.user("newcomer").await.id.to_string();
    let good: BTreeMap<_, _> = [
        (
            "/v1/organizations/{organization_id}/projects/{project_id}/members",
            json!({"user_id": newcomer, "role": "viewer"}),
        ),
        ("/v1/auth/login", json!({"email": "eve@example.com", "password": PASSWORD})),
        ("/v1/auth/verify-email", json!({ "token": verification })),
        (
            "/v1/auth/reset-password",
            json!({"token": reset, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD}),
        ),
        (
            "/v1/auth/change-password",
            // The example has already changed the password.
            json!({"current_password": NEW_PASSWORD, "new_password": PASSWORD,
                   "new_password_confirmation": PASSWORD}),
        ),
        ("/v1/auth/register", json!({"email": "joe@example.com", "password": PASSWORD, "username": "joe"})),
        // The account from the example of registration already has this example's username.
        ("/v1/auth/me", json!({"username": "countess"})),
    ]
    .into();
    let table = json_routes();
    let (mut last, mut writes): (Vec<_>, Vec<_>) =
        table.iter().filter(|route| route.method != Method::GET).partition(|route| takes_away(route));
    // Nested objects are deleted first, and the session last.
    last.reverse();
    last.sort_by_key(|route| route.method != Method::DELETE);
    let logout = last.pop().unwrap();
    writes.append(&mut last);
    for route in writes {
        // A change of the password has ended the scene's session.
        if route.path.contains("{session_id}") {
            scene.session_id = world.session(scene.ada.id).await.session_id.to_string();
        }
        let body = &operation(document, route)["requestBody"]["content"]["application/json"];
        let example = body.get("example").unwrap_or(&Value::Null);
        let answer = send(&world, document, &scene, route, example).await;
        // Only the secrets in an example may be invalid.
        let allowed = [
            "",
            "invalid_token",
            "invalid_credentials",
            "wrong_password",
            "invalid_one_time_code",
            "challenge_expired",
            "user_not_found",
            "name_taken",
            "username_taken",
            "email_already_verified",
            "payments_disabled",
        ];
        assert!(allowed.contains(&answer.code().as_str()), "{route:?} {example}: {}", answer.text);
        // No payment processor is set up.
        if answer.code() == "payments_disabled" {
            continue;
        }
        if route.method == Method::DELETE {
            // The usage of the organization is too small to be due.
            assert_eq!(answer.status, 200, "{route:?}: {}", answer.text);
            continue;
        }
        let answer = match route.path {
            "/v1/auth/totp/confirm" => {
                let body = json!({"code": first_code(&world, &scene).await});
                send(&world, document, &scene, route, &body).await
            }
            "/v1/auth/reauthenticate" => {
                let code = &scene.recovery_codes[0];
                send(&world, document, &scene, route, &json!({"password": PASSWORD, "one_time_code": code}))
                    .await
            }
            "/v1/auth/passkeys" => {
                let body = world.new_passkey(&scene.ada.access_token, &mut scene.passkey).await;
                send(&world, document, &scene, route, &body).await
            }
            "/v1/auth/passkey-login" => {
                let body = world.passkey_login(&mut scene.passkey).await;
                send(&world, document, &scene, route, &body).await
            }
            path => send(&world, document, &scene, route, good.get(path).unwrap_or(example)).await,
        };
        assert!([200, 409].contains(&answer.status), "{route:?}: {}", answer.text);
        if answer.status == 200 {
            scene.note(route.path, &answer.json()["data"]);
        }
    }
    let answer = call(&world, logout, &[]).bearer(&scene.ada.access_token).send().await;
    assert_eq!(answer.status, 200);
    assert_documented(document, logout, &answer);
}

/// The error for an unknown field lists exactly the documented fields.
#[on_each_database]
async fn bodies_have_the_documented_fields(world: World) {
    let document = document();
    let scene = scene(&world).await;
    let mut count = 0;
    for route in json_routes().iter() {
        let Some(body) = operation(document, route).get("requestBody") else { continue };
        let schema = resolved(document, &body["content"]["application/json"]["schema"]);
        if route.access.scheme == Some("modelKey") || route.path == "/v1/billing/stripe/events" {
            // Other fields belong to the upstream or to Stripe.
            assert_eq!(schema["additionalProperties"], true);
            continue;
        }
        for (place, schema) in objects(document, "", schema) {
            count += 1;
            let mut sent = json!({"qqqqqqqqqqqq": 1});
            for name in place.split('.').rev().filter(|name| !name.is_empty()) {
                sent = json!({ name: sent });
            }
            let call = call(&world, route, &ids(&scene)).bearer(bearer(&world, &scene, route));
            let answer = call.json(&sent).send().await;
            assert_documented(document, route, &answer);
            let details = answer.json()["error"]["details"].as_array().unwrap().clone();
            let unknown = details.iter().find(|detail| detail["code"] == "unknown_field").unwrap();
            let message = unknown["message"].as_str().unwrap();
            let names = message.split("the valid fields are: ").nth(1).unwrap().trim_end_matches('.');
            let names: BTreeSet<_> = names.split(", ").collect();
            let documented: BTreeSet<_> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, documented, "{route:?} {place}");
            assert_eq!(schema["additionalProperties"], false);
            // The required fields are those reported as missing.
            let missed = details.iter().filter(|detail| detail["code"] == "required");
            let missed: BTreeSet<_> = missed
                .filter_map(|detail| {
                    detail["param"].as_str().unwrap().strip_prefix(&format!("{place}.")[1..])
                })
                .filter(|name| !name.contains('.'))
                .collect();
            // The operation takes a password, or both parts of a passkey, which no keyword can express.
            if route.path == "/v1/auth/reauthenticate" {
                assert_eq!(missed, ["password"].into());
                continue;
            }
            // Either an amount, or the invoice that determines it.
            if route.path.ends_with("/billing/payments") {
                assert_eq!(missed, ["amount"].into());
                continue;
            }
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            assert_eq!(missed, required.map(|name| name.as_str().unwrap()).collect(), "{route:?} {place}");
        }
    }
    assert!(count > 8, "only {count} objects");
}

/// Returns the object and the objects in its properties, each with its path, in which a dot precedes each
/// name.
fn objects<'a>(document: &'a Value, place: &str, schema: &'a Value) -> Vec<(String, &'a Value)> {
    let mut found = vec![(place.to_owned(), schema)];
    for (name, member) in schema["properties"].as_object().unwrap() {
        let member = resolved(document, member);
        if member["properties"].is_object() {
            found.extend(objects(document, &format!("{place}.{name}"), member));
        }
    }
    found
}

/// Returns `true` if a successful call of the route would break later calls.
fn takes_away(route: &Route) -> bool {
    route.path == "/v1/auth/logout" || route.method == Method::DELETE
}

/// Every failure has a documented status and a documented body.
#[on_each_database]
async fn failures_are_documented(world: World) {
    let document = document();
    let scene = scene(&world).await;
    let stranger = world.user("stranger").await;
    let own = ids(&scene);
    let unknown = own.map(|(name, _)| (name, "nothing"));
    let (mut statuses, mut routes) = (BTreeSet::new(), json_routes());
    // Logout comes last, because it ends the session.
    routes.sort_by_key(|route| route.path == "/v1/auth/logout");
    for route in &routes {
        let bearer = bearer(&world, &scene, route);
        let mut calls = vec![
            call(&world, route, &own),
            call(&world, route, &own).bearer("nonsense"),
            call(&world, route, &own).bearer("tk_nonsense"),
            call(&world, route, &own).bearer(&stranger.access_token),
        ];
        if !takes_away(route) {
            calls.push(call(&world, route, &unknown).bearer(bearer));
        }
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.send().await);
        }
        if !takes_away(route) {
            for body in ["{", "[]", "{\"name\": 1, \"name\": 2}", "{\"page\": 0}"] {
                let call = call(&world, route, &own).bearer(bearer);
                answers.push(call.header("content-type", "application/json").raw(body).send().await);
            }
            answers.push(call(&world, route, &own).bearer(bearer).raw("{}").send().await);
            let large = call(&world, route, &own).bearer(bearer).header("content-length", "2000000");
            answers.push(large.header("content-type", "application/json").send().await);
            let (name, query) = ("group_by=nonsense&page=0&page_size=x&role=x&status=x", own);
            let mut wrong = route.clone();
            wrong.path = String::leak(format!("{}?{name}&start_date=x", route.path));
            answers.push(call(&world, &wrong, &query).bearer(bearer).send().await);
        }
        for answer in answers {
            assert_documented(document, route, &answer);
            statuses.insert(answer.status);
        }
    }
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [200, 400, 401, 403, 404, 409, 413]);
}

// ---- External validation ----

#[test]
fn external_validator_accepts_the_document() {
    const SCRIPT: &str = "import json, sys
from openapi_spec_validator import OpenAPIV31SpecValidator
with open(sys.argv[1]) as file:
    document = json.load(file)
errors = [f'{list(error.absolute_path)}: {error.message[:500]}' for error in OpenAPIV31SpecValidator(document).iter_errors()]
print('\\n'.join(errors) or 'valid')";
    let module = "openapi_spec_validator";
    let Some(mut program) = python(module, "openapi-spec-validator", "the OpenAPI document's validity")
    else {
        return;
    };
    let folder = Folder::new();
    let file = folder.0.join("openapi.json");
    std::fs::write(&file, document().to_string()).unwrap();
    program.args(["-c", SCRIPT]).arg(&file);
    let ended = run_to_end(program);
    assert_eq!((ended.code, ended.stdout.trim()), (Some(0), "valid"), "{}", ended.log);
}
