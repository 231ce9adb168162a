use serde_json::json;

use super::*;

fn read(fields: &[(&str, &str)]) -> Members<'static> {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "count": {"type": ["integer", "null"]},
        "open": {"type": "boolean"},
        "permissions": {"type": ["array", "null"], "items": {"type": "string"}},
        "ports": {"type": "array", "items": {"type": "integer"}},
        "restrictions": {"type": ["object", "null"], "properties": {
            "rate_limit": {"type": ["integer", "null"]},
            "allowed_ips": {"type": ["array", "null"], "items": {"type": "string"}},
        }},
    }});
    let form: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    members(&schema, &form)
}

fn one(fields: &[(&str, &str)]) -> Json<'static> {
    let mut members = read(fields);
    assert_eq!(members.len(), 1, "{members:?}");
    members.remove(0).1
}

#[test]
fn values_have_the_type_of_their_field() {
    let array = |items: &[&str]| Json::Array(items.iter().map(|item| text(item)).collect());
    assert_eq!(one(&[("name", "a\r\nb")]), text("a\nb"));
    assert_eq!(one(&[("name", "")]), Json::Null);
    assert_eq!(one(&[("count", " 60 ")]), Json::Integer(60));
    assert_eq!(one(&[("count", "1.5")]), Json::Float(1.5));
    assert_eq!(one(&[("count", "")]), Json::Null);
    for words in ["many", "1,000", "1e3", "inf", "NaN", "0x10"] {
        assert_eq!(one(&[("count", words)]), text(words));
    }
    assert_eq!(one(&[("open", "true")]), Json::Bool(true));
    assert_eq!(one(&[("open", "false"), ("open", "on")]), Json::Bool(true));
    assert_eq!(one(&[("open", "perhaps")]), text("perhaps"));
    assert_eq!(one(&[("permissions", "chat"), ("permissions", "models")]), array(&["chat", "models"]));
    assert_eq!(one(&[("permissions", " a \r\n\r\nb\n")]), array(&["a", "b"]));
    assert_eq!(one(&[("permissions", "\r\n")]), Json::Null);
    assert_eq!(one(&[("ports", "80\nx")]), Json::Array(vec![Json::Integer(80), text("x")]));
}

#[test]
fn boxes_that_were_shown_have_a_value() {
    assert_eq!(one(&[("shown", "open")]), Json::Bool(false));
    assert_eq!(one(&[("shown", "permissions")]), Json::Array(vec![]));
    assert_eq!(one(&[("shown", "permissions"), ("permissions", "chat")]), Json::Array(vec![text("chat")]));
    assert_eq!(read(&[("shown", "unknown"), ("other", "1")]), vec![]);
}

#[test]
fn dots_name_fields_of_objects() {
    let inner = |members: Members<'static>| Json::Object(members);
    assert_eq!(
        one(&[("restrictions.rate_limit", "60"), ("restrictions.other", "1")]),
        inner(vec![("rate_limit".into(), Json::Integer(60))])
    );
    assert_eq!(
        one(&[("shown", "restrictions.allowed_ips")]),
        inner(vec![("allowed_ips".into(), Json::Array(vec![]))])
    );
    assert_eq!(read(&[("restrictions", "60")]), vec![]);
}
