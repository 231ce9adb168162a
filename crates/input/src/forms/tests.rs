use proptest::prelude::*;
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

/// An object of the schema above, and the form fields that send it.
#[derive(Clone, Debug)]
struct Example {
    object: Members<'static>,
    fields: Vec<(String, String)>,
}

fn examples() -> impl Strategy<Value = Example> {
    let lines = || {
        proptest::collection::vec(
            "[^\r\n\\s][^\r\n\u{b}\u{c}\u{1c}-\u{1f}\u{85}\u{2028}\u{2029}]{0,8}[^\r\n\\s]",
            0..4,
        )
    };
    let name = proptest::option::of("[^\r]{1,20}");
    let restrictions = (proptest::option::of(any::<i64>()), proptest::option::of(lines()));
    let all = (name, proptest::option::of(any::<i64>()), proptest::option::of(any::<bool>()), restrictions);
    (all, proptest::option::of(lines())).prop_map(|((name, count, open, restrictions), permissions)| {
        let mut example = Example { object: Vec::new(), fields: Vec::new() };
        let mut send = |path: &str, value: String| example.fields.push((path.to_owned(), value));
        let list = |items: &[String]| Json::Array(items.iter().map(|item| text(item)).collect());
        if let Some(name) = name {
            send("name", name.replace('\n', "\r\n"));
            example.object.push(("name".into(), text(&name)));
        }
        if let Some(count) = count {
            send("count", count.to_string());
            example.object.push(("count".into(), Json::Integer(count)));
        }
        if let Some(open) = open {
            send(SHOWN, "open".to_owned());
            if open {
                send("open", "true".to_owned());
            }
            example.object.push(("open".into(), Json::Bool(open)));
        }
        if let Some(items) = permissions {
            send(SHOWN, "permissions".to_owned());
            items.iter().for_each(|item| send("permissions", item.clone()));
            example.object.push(("permissions".into(), list(&items)));
        }
        let mut inner = Members::new();
        if let Some(rate_limit) = restrictions.0 {
            send("restrictions.rate_limit", format!(" {rate_limit} "));
            inner.push(("rate_limit".into(), Json::Integer(rate_limit)));
        }
        if let Some(items) = restrictions.1 {
            send("restrictions.allowed_ips", items.join("\r\n"));
            let value = if items.is_empty() { Json::Null } else { list(&items) };
            inner.push(("allowed_ips".into(), value));
        }
        if !inner.is_empty() {
            example.object.push(("restrictions".into(), Json::Object(inner)));
        }
        example
    })
}

fn sorted(object: &Members<'static>) -> Members<'static> {
    let mut object = object.clone();
    object.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (_, value) in &mut object {
        if let Json::Object(inner) = value {
            *inner = sorted(inner);
        }
    }
    object
}

proptest! {
    #[test]
    fn form_of_an_object_reads_as_that_object(example in examples()) {
        let fields: Vec<_> = example.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        prop_assert_eq!(sorted(&read(&fields)), sorted(&example.object));
    }

    #[test]
    fn any_form_reads_as_an_object_of_known_fields(
        fields in proptest::collection::vec(
            ("(name|count|open|permissions|ports|shown|restrictions(\\.(rate_limit|allowed_ips|other))?|.{0,5})",
             "(open|permissions|restrictions\\.allowed_ips|.{0,20})"), 0..12)
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let object = read(&fields);
        for (name, value) in &object {
            prop_assert!(["name", "count", "open", "permissions", "ports", "restrictions"].contains(&name.as_ref()));
            prop_assert_eq!(matches!(value, Json::Object(_)), name == "restrictions");
        }
        let mut names: Vec<_> = object.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), object.len());
    }
}

#[test]
fn fields_that_nobody_changed_are_absent() {
    let array = |items: &[&str]| Json::Array(items.iter().map(|item| text(item)).collect());
    assert_eq!(read(&[("was.name", "a"), ("name", "a")]), vec![]);
    assert_eq!(one(&[("was.name", "a"), ("name", "b")]), text("b"));
    assert_eq!(one(&[("was.name", "a"), ("name", "")]), Json::Null);
    assert_eq!(read(&[("was.name", ""), ("name", "")]), vec![]);
    let boxes = [("was.permissions", "a"), ("was.permissions", "b"), ("permissions", "")];
    let sent = |values: &'static [&'static str]| {
        boxes.into_iter().chain(values.iter().map(|value| ("permissions", *value))).collect::<Vec<_>>()
    };
    assert_eq!(read(&sent(&["a", "b"])), vec![]);
    assert_eq!(one(&sent(&["a"])), array(&["a"]));
    assert_eq!(one(&sent(&["a", "b", "c"])), array(&["a", "b", "c"]));
    assert_eq!(one(&sent(&[])), Json::Null);
    let shown = [("shown", "permissions"), ("was.permissions", "a")];
    assert_eq!(one(&shown), Json::Array(vec![]));
    assert_eq!(read(&[shown[0], shown[1], ("permissions", "a")]), vec![]);
    assert_eq!(read(&[("was.restrictions.rate_limit", "6"), ("restrictions.rate_limit", "6")]), vec![]);
}
