//! Checks bodies of the service listener. A body whose strings consist of escapes is read like the original
//! body, whose strings are borrowed. A CloudEvent is read like the equivalent event.

#![cfg_attr(feature = "engine", no_main)]

use arbitrary::Arbitrary;
use fuzz::WORLD;
use fuzz::fuzz_target;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use tollkeeper::api::Api;
use tollkeeper::api::service::authorize::Authorize;
use tollkeeper::api::service::usage::Batch;
use tollkeeper::error::{Code, Error};
use tollkeeper::web::input::{Body as JsonBody, Input};

#[derive(Arbitrary, Debug)]
enum Body<'a> {
    Bytes(&'a [u8]),
    Object(Vec<Member<'a>>),
    Events(Vec<Vec<Member<'a>>>),
}

/// A field, given by its index in the list of known fields, and its value.
#[derive(Arbitrary, Debug)]
struct Member<'a> {
    field: u8,
    value: Word<'a>,
}

/// A part of a generated value.
#[derive(Arbitrary, Debug)]
enum Word<'a> {
    Text(&'a str),
    /// A text that is inserted as JSON.
    Raw(&'a str),
    Number(i64),
    Good,
    /// The valid value with its first character written as an escape.
    Escaped,
    Null,
}

/// The field names, each with a valid value.
const EVENT: &[(&str, &str)] = &[
    ("id", "\"e\""),
    ("source", "\"s\""),
    ("time", "\"2026-03-09T10:00:00+01:00\""),
    ("api_key_id", "\"key_01h2xcejqtf2nbrexx3vqjhp41\""),
    ("project_id", "\"proj_01h2xcejqtf2nbrexx3vqjhp41\""),
    ("user_id", "\"user_01h2xcejqtf2nbrexx3vqjhp41\""),
    ("model", "\"svc-1\""),
    ("kind", "\"chat\""),
    ("prompt_tokens", "12"),
    ("completion_tokens", "34"),
    ("cached_prompt_tokens", "5"),
    ("estimated", "true"),
    ("reservation_id", "\"res_01h2xcejqtf2nbrexx3vqjhp41\""),
    ("corrects", "\"call-1\""),
    ("tokens", "1"),
];
const QUESTION: &[(&str, &str)] = &[
    ("credential", "\"tk_x\""),
    ("operation", "\"chat\""),
    ("model", "\"svc-1\""),
    ("client_address", "\"203.0.113.7\""),
    ("max_tokens", "10"),
    ("estimated_prompt_tokens", "10"),
    ("organization_id", "\"org_x\""),
    ("project_id", "\"proj_x\""),
    ("choices", "3"),
    ("inputs", "3"),
    ("request_id", "\"call-1\""),
    ("reserve", "false"),
    ("modell", "\"svc-1\""),
];

fuzz_target!(|body: Body| {
    match &body {
        Body::Bytes(bytes) => {
            question(bytes);
            events(bytes);
        }
        Body::Object(members) => question(object(members, QUESTION).as_bytes()),
        Body::Events(list) => {
            let list: Vec<_> = list.iter().map(|members| object(members, EVENT)).collect();
            events(format!("{{\"events\":[{}]}}", list.join(",")).as_bytes());
        }
    }
});

/// Builds an object with every required field unless a member replaces the field. Most objects then pass the
/// first checks.
fn object(members: &[Member], fields: &[(&str, &str)]) -> String {
    let due = if fields == QUESTION { 3 } else { 7 };
    let name = |member: &Member| usize::from(member.field) % fields.len();
    let rest = (0..due).filter(|field| members.iter().all(|member| name(member) != *field));
    let rest = rest.map(|field| format!("\"{}\":{}", fields[field].0, fields[field].1));
    let given = members.iter().map(|member| {
        let (field, good) = fields[name(member)];
        let value = match member.value {
            Word::Text(text) => Value::from(text).to_string(),
            Word::Raw(text) => text.to_owned(),
            Word::Number(number) => number.to_string(),
            Word::Good => good.to_owned(),
            Word::Escaped => escaped(good),
            Word::Null => "null".to_owned(),
        };
        format!("\"{field}\":{value}")
    });
    let members: Vec<_> = rest.chain(given).collect();
    format!("{{{}}}", members.join(","))
}

fn escaped(good: &str) -> String {
    match good.strip_prefix('"').and_then(|rest| Some((rest.chars().next()?, &rest[1..]))) {
        Some((first, rest)) => format!("\"\\u{:04x}{rest}", u32::from(first)),
        None => good.to_owned(),
    }
}

fn read<T: Input<Api>>(bytes: &[u8], kind: &'static str) -> Result<T, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let mut call = WORLD.call(Method::POST, headers, bytes.to_vec());
    WORLD.runtime.block_on(T::read(&WORLD.app.api, &mut call))
}

/// Formats an error for comparison. Messages about invalid JSON are omitted, because they contain a position
/// in the text.
fn error_text(error: &Error) -> String {
    match error.code {
        Code::InvalidJson => format!("{:?}", error.code),
        _ => format!("{error} {:?} {:?}", error.code, error.details),
    }
}

fn question(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let question: Result<JsonBody<Authorize>, _> = read(bytes, "application/json");
        question.map(|JsonBody(question)| question).map_err(|error| error_text(&error))
    };
    assert_eq!(read(bytes), read(&with_escapes(bytes)));
}

fn events(bytes: &[u8]) {
    let words =
        |batch: Result<Batch, Error>| batch.map(|batch| batch.in_words()).map_err(|error| error_text(&error));
    let general = words(read(bytes, "application/json"));
    assert_eq!(general, words(read(&with_escapes(bytes), "application/json")));
    let Ok(general) = general else { return };
    let body: Value = serde_json::from_slice(bytes).expect("what was read is JSON");
    let clouds: Vec<_> = body["events"].as_array().expect("a list").iter().map(cloud).collect();
    let clouds =
        words(read(Value::from(clouds).to_string().as_bytes(), "application/cloudevents-batch+json"));
    let clouds = clouds.expect("as many events as before");
    for (plain, cloud) in general.iter().zip(clouds) {
        // The errors differ in the field name, such as `data.model` for `model`.
        let is_good = plain.starts_with("read");
        assert_eq!(is_good, cloud.starts_with("read"), "{plain}\n{cloud}");
        assert!(!is_good || *plain == cloud, "{plain}\n{cloud}");
    }
}

/// Replaces every character in the strings of a JSON text with an escape.
fn with_escapes(bytes: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.to_vec() };
    let (mut escaped, mut is_inside) = (String::new(), false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_inside => {
                let kind = characters.next();
                escaped.push('\\');
                escaped.extend(kind);
                if kind == Some('u') {
                    escaped.extend(characters.by_ref().take(4));
                }
            }
            // A control character would become valid by escaping.
            '\0'..' ' => escaped.push(character),
            '"' => {
                is_inside = !is_inside;
                escaped.push('"');
            }
            _ if is_inside => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escaped += &format!("\\u{unit:04x}");
                }
            }
            _ => escaped.push(character),
        }
    }
    escaped.into_bytes()
}

/// Returns the event as a CloudEvent. Values that aren't objects stay unchanged.
fn cloud(event: &Value) -> Value {
    let Some(members) = event.as_object() else { return event.clone() };
    let mut cloud = json!({"specversion": "1.0", "type": "tollkeeper.usage.v1", "data": {}});
    for (name, value) in members {
        if ["id", "source", "time"].contains(&name.as_str()) {
            cloud[name] = value.clone();
        } else {
            cloud["data"][name] = value.clone();
        }
    }
    cloud
}
