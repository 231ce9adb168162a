//! Checks that an accepted model request has the same meaning for two parsers. The first one compares names
//! exactly. The second one ignores case and uses the last of several members, as Go's `encoding/json` does.
//! This must be true for every name that tollkeeper reads or writes, including after the request was
//! rewritten for an upstream.

#![cfg_attr(feature = "engine", no_main)]

use std::fmt;

use fuzz::fuzz_target;
use gateway::request::{Injection, ModelRequest, Target, TargetOptions, watched_names};
use gateway::{Dialect, Operation};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollkeeper::catalog::UpstreamKind;

fuzz_target!(|body: &[u8]| {
    for operation in Operation::ALL {
        let Ok(request) = ModelRequest::read(operation, &body.to_vec().into()) else { continue };
        compare(operation, body);
        for kind in UpstreamKind::ALL {
            let options =
                TargetOptions { drops_searches: true, cache_salt: Some("salt"), ..TargetOptions::default() };
            let inject = Injection::default();
            let written = request.write_for(&Target {
                dialect: Dialect::of(kind),
                model: "other",
                max_completion_tokens: 5,
                inject,
                options,
            });
            compare(operation, &written);
        }
    }
});

/// Compares the values that both parsers find.
fn compare(operation: Operation, body: &[u8]) {
    let Members(members) = serde_json::from_slice(body).expect("only objects are taken");
    for name in watched_names(operation) {
        let exact: Vec<_> = members.iter().filter(|(sent, _)| sent == name).collect();
        assert!(exact.len() <= 1, "`{name}` stands twice");
        let lax = members.iter().rfind(|(sent, _)| folded(sent) == folded(name));
        let (exact, lax) = (exact.first().map(|(_, value)| value.get()), lax.map(|(_, value)| value.get()));
        assert_eq!(exact, lax, "`{name}`");
        if name == "stream_options" && exact.is_some_and(|value| value.starts_with('{')) {
            let Members(options) = serde_json::from_str(exact.unwrap_or_default()).expect("an object");
            for (at, (option, _)) in options.iter().enumerate() {
                assert!(options[..at].iter().all(|(other, _)| folded(other) != folded(option)), "{option}");
            }
        }
    }
}

/// Returns a name after simple case folding, which maps each character to one character.
fn folded(name: &str) -> String {
    let single = |mut all: Box<dyn Iterator<Item = char>>, character: char| {
        all.next().filter(|_| all.next().is_none()).unwrap_or(character)
    };
    let fold = |character: char| {
        let lower = single(Box::new(character.to_lowercase()), character);
        single(Box::new(lower.to_uppercase()), lower)
    };
    name.chars().map(fold).collect()
}

/// The members of an object, in order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Members(all))
    }
}
