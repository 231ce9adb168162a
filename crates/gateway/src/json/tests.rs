use hyper::body::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

const NAMES: &[&str] = &["a", "b", "c"];

fn object(text: &str) -> Object {
    Object::read(Bytes::copy_from_slice(text.as_bytes()), NAMES).unwrap()
}

fn error(text: &[u8]) -> JsonError {
    Object::read(Bytes::copy_from_slice(text), NAMES).unwrap_err()
}

/// Sets the members with a value and removes the others.
fn edited(text: &str, changes: &[(&'static str, Option<&'static str>)]) -> Bytes {
    let object = object(text);
    let mut edit = object.edit();
    for (name, value) in changes {
        match value {
            Some(value) => edit.set(name, value.as_bytes()),
            None => edit.remove(name),
        };
    }
    edit.to_bytes()
}

#[test]
fn members_are_found() {
    let object = object(" {\"a\" : [1, \"}\"],\"x\":{\"a\":2,\"a\":3}, \"\\u0062\":\t\"\\\"\" ,\"x\":0}\n");
    assert_eq!(object.get("a").unwrap(), b"[1, \"}\"]");
    assert_eq!(object.get("b").unwrap(), b"\"\\\"\"");
    assert_eq!(object.get("c"), None);
    assert_eq!(object.get("x"), None);
}

#[test]
fn a_part_is_read_in_passing() {
    let text = Bytes::from_static(b"{\"a\":1,\"part\":[1,2],\"b\":2}");
    let (object, part) = Object::read_with::<Vec<u8>>(text, NAMES, "part").unwrap();
    assert_eq!((part, object.slice("b").unwrap()), (Some(vec![1, 2]), Bytes::from_static(b"2")));
    let twice = Bytes::from_static(b"{\"part\":[1],\"part\":[]}");
    let outcome = Object::read_with::<Vec<u8>>(twice, NAMES, "part");
    assert_eq!(outcome.unwrap_err(), JsonError::Duplicate("part"));
}

#[test]
fn invalid_texts_are_refused() {
    for text in [
        "",
        "{",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "{\"x\":{]}",
        "{\"x\":tru}",
        "{\"\\ud800\":1}",
        "[1",
        "1 2",
        "x",
    ] {
        assert!(matches!(error(text.as_bytes()), JsonError::Invalid(_)), "{text}");
    }
    for text in ["[]", "1", " \"{}\"", "null", "true"] {
        assert_eq!(error(text.as_bytes()), JsonError::NotAnObject, "{text}");
    }
    assert_eq!(error(b"{\"\xff\":1}"), JsonError::NotUtf8 { at: 2 });
    for text in ["{\"a\":1,\"a\":1}", "{\"a\":1,\"x\":2,\"\\u0061\":1}", "{\"a\":null,\"a\":1,"] {
        assert_eq!(error(text.as_bytes()), JsonError::Duplicate("a"), "{text}");
    }
    assert_eq!(error(b"{\"a\":1,\"a\":1}").to_string(), "duplicate member \"a\"");
}

#[test]
fn nesting_is_limited() {
    let deep =
        |depth: usize| format!("{}\"[[\\\\\\\"[\"{}", "[{\"x\":".repeat(depth / 2), "}]".repeat(depth / 2));
    assert_eq!(check_depth(deep(MAX_DEPTH).as_bytes()), Ok(()));
    assert_eq!(check_depth(deep(MAX_DEPTH + 2).as_bytes()), Err(JsonError::TooDeep));
    let wide = format!("[{}\"\"]", "[[]],{},".repeat(1_000));
    assert_eq!(check_depth(wide.as_bytes()), Ok(()));
}

#[test]
fn everything_else_stays() {
    for (text, changes, expected) in [
        ("{\"a\":1}", &[("a", Some("2"))][..], "{\"a\":2}"),
        ("\t{ \"a\" : [ 1 ] , \"x\" : \"a\" } ", &[("a", Some("{}"))], "\t{ \"a\" : {} , \"x\" : \"a\" } "),
        ("{\"\\u0061\":1}", &[("a", Some("2"))], "{\"\\u0061\":2}"),
        ("{}", &[("a", Some("1"))], "{\"a\":1}"),
        ("{ }\n", &[("a", Some("1")), ("b", Some("2"))], "{\"a\":1,\"b\":2 }\n"),
        ("{\n  \"x\": 1\n}", &[("b", Some("2"))], "{\n  \"x\": 1,\"b\":2\n}"),
        ("{\"a\":1, \"x\":2}", &[("a", None)], "{\"x\":2}"),
        ("{ \"x\":2 , \"a\":1 }", &[("a", None)], "{ \"x\":2  }"),
        ("{\"x\":2, \"a\":1, \"y\":3}", &[("a", None)], "{\"x\":2, \"y\":3}"),
        ("{ \"a\":1 }", &[("a", None)], "{  }"),
        ("{ \"a\":1 }", &[("a", None), ("b", Some("2"))], "{ \"b\":2 }"),
        ("{\"a\":1,\"b\":2,\"x\":3,\"c\":4}", &[("a", None), ("b", None), ("c", None)], "{\"x\":3}"),
        ("{\"a\":1,\"b\":2,\"c\":3}", &[("c", None), ("b", Some("0")), ("a", None)], "{\"b\":0}"),
        ("{\"a\":1,\"b\":2}", &[("a", None), ("b", None), ("c", Some("3"))], "{\"c\":3}"),
        ("{\"a\":\"{\",\"b\":2}", &[("b", None), ("c", Some("3"))], "{\"a\":\"{\",\"c\":3}"),
        ("{\"a\":1}", &[("a", Some("2")), ("a", None), ("a", Some("3"))], "{\"a\":3}"),
        ("{\"a\":1}", &[("a", Some("2")), ("b", Some("2")), ("b", None)], "{\"a\":2}"),
    ] {
        assert_eq!(edited(text, changes), expected, "{text} {changes:?}");
    }
}

#[test]
fn without_changes_nothing_is_copied() {
    let object = object("{\"x\":1}");
    assert_eq!(object.edit().to_bytes().as_ptr(), object.text().as_ptr());
    assert_eq!(object.edit().remove("a").to_bytes().as_ptr(), object.text().as_ptr());
}

/// The index of a name, the text of a value, and the white space around both.
type MemberText = (usize, &'static str, &'static str);
/// The index of a name, and its new value.
type ChangeText = (usize, Option<&'static str>);

/// Members of an object in any order, and changes to it.
fn edits() -> impl Strategy<Value = (Vec<MemberText>, Vec<ChangeText>)> {
    let value = || {
        prop_oneof![
            Just("1"),
            Just("-2.50e1"),
            Just("\"\\\\\\\"{,\""),
            Just("[ {\"a\" : 1} ,2]"),
            Just("{\"b\":{}}"),
            Just("null"),
            Just("\"é\\u00e9\""),
        ]
    };
    let space = || prop_oneof![3 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t")];
    let members = Just((0..6).collect::<Vec<usize>>()).prop_shuffle().prop_flat_map(move |names| {
        let members: Vec<_> = names.into_iter().map(|name| (Just(name), value(), space())).collect();
        (0..=members.len()).prop_flat_map(move |length| members[..length].to_vec())
    });
    (members, proptest::collection::vec((0_usize..3, proptest::option::of(value())), 0..5))
}

proptest! {
    #[test]
    fn an_edit_changes_members_and_nothing_else((members, changes) in edits()) {
        const ALL: [&str; 6] = ["a", "b", "c", "model", "x,", "y{"];
        let own = |(name, value, space): &(usize, &'static str, &'static str)| {
            (ALL[*name], format!("\"{}\"{space}:{space}{value}", ALL[*name]), *space)
        };
        let own: Vec<_> = members.iter().map(own).collect();
        let texts: Vec<_> = own.iter().map(|(_, text, space)| format!("{space}{text}{space}")).collect();
        let text = format!("{{{}}}", texts.join(","));
        let changes: Vec<_> = changes.into_iter().map(|(name, value)| (ALL[name], value)).collect();
        let result = edited(&text, &changes);

        // The result is equivalent to the changed object.
        let mut expected: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let mut touched = Vec::new();
        for (name, value) in &changes {
            touched.push(*name);
            match value {
                Some(value) => drop(expected.insert((*name).to_owned(), serde_json::from_str(value).unwrap())),
                None => drop(expected.remove(*name)),
            }
        }
        prop_assert_eq!(&serde_json::from_slice::<Map<_, _>>(&result).unwrap(), &expected);
        // The other members are unchanged byte for byte and in the same order.
        let mut rest = std::str::from_utf8(&result).unwrap();
        for (name, text, _) in own.iter().filter(|(name, _, _)| !touched.contains(name)) {
            let after = rest.split_once(text.as_str()).map(|(_, after)| after);
            prop_assert!(after.is_some(), "{} {}", name, rest);
            rest = after.unwrap();
        }
        // If only values change, members keep their positions, and setting the old values again restores the
        // text.
        let back: Vec<_> = members.iter().map(|(name, value, _)| (ALL[*name], Some(*value))).collect();
        let kept = changes.iter().all(|(name, value)| value.is_some() && own.iter().any(|(n, _, _)| n == name));
        if kept {
            let object = Object::read(result, &ALL[..3]).unwrap();
            let mut edit = object.edit();
            for (name, value) in back.into_iter().filter(|(name, _)| touched.contains(name)) {
                edit.set(name, value.unwrap().as_bytes());
            }
            prop_assert_eq!(edit.to_bytes(), text);
        }
    }
}
