//! Costs of routes: the accepted values, and the message of every mistake.

use crate::tests::model;
use crate::{Catalog, Component, PartPrices};
use kernel::money::Pico;

const UPSTREAM: &str = "[[upstreams]]\nid = \"a\"\nkind = \"demo\"\n";

/// Returns a model with a route that has this cost, on line 14 of the file.
fn routed(kind: &str, cost: &str) -> String {
    let route = format!("routes = [{{ upstream = \"a\", cost = {{ {cost} }} }}]");
    let more = if kind == "embeddings" { "dimension = 3\nprices = []\n" } else { "" };
    UPSTREAM.to_owned() + &model(&format!("kind = \"{kind}\"\n{more}{route}"))
}

fn parse(text: &str) -> Result<Catalog, Vec<String>> {
    Catalog::parse(text, "c").map_err(|error| error.problems)
}

#[test]
fn costs_are_those_of_the_file() {
    let catalog = parse(&routed(
        "chat",
        "prompt = \"0.0000005\", cached_prompt = \"0.00000005\", completion = 2, reasoning = \"0.000000000001\", search = 0",
    ));
    let found = catalog.unwrap().get("m").cloned().unwrap();
    let cost = found.routes[0].cost.clone().unwrap();
    let pico = |units: i128| Pico::from_units(units);
    assert_eq!((cost.prompt, cost.cached_prompt), (pico(500_000), Some(pico(50_000))));
    assert_eq!(cost.completion, pico(2_000_000_000_000));
    let parts = PartPrices::default()
        .with(Component::Reasoning, Some(pico(1)))
        .with(Component::Search, Some(Pico::ZERO));
    assert_eq!(cost.parts, parts);
    let listed: Vec<_> = cost.list().iter().map(|(one, cost)| format!("{} {cost}", one.as_str())).collect();
    let expected = [
        "prompt 0.0000005",
        "cached_prompt 0.00000005",
        "completion 2",
        "reasoning 0.000000000001",
        "search 0",
    ];
    assert_eq!(listed, expected);
    // Costs aren't part of the catalog in force, because each replica has its own.
    let without = parse(&routed("chat", "prompt = 0, completion = 0")).unwrap();
    let other = parse(&routed("chat", "prompt = 1, completion = 1")).unwrap();
    assert_eq!(without.canonical(), other.canonical());
    assert_eq!(other.changes_from(&without).changed, ["m"], "but a reload tells of them");
    let embeddings = parse(&routed("embeddings", "prompt = 1, completion = 0, request = 1")).unwrap();
    assert!(embeddings.get("m").unwrap().routes[0].cost.is_some());
    let none = parse(&(UPSTREAM.to_owned() + &model("routes = [{ upstream = \"a\" }]"))).unwrap();
    assert_eq!(none.get("m").unwrap().routes[0].cost, None);
}

#[test]
fn mistakes_name_line_model_key_and_the_expected_value() {
    let chat = "prompt = 1, completion = 1";
    let known = "known are `prompt`, `cached_prompt`, `cache_write_5m`, `cache_write_1h`, `audio_prompt`, `image_prompt`, \
                 `completion`, `reasoning`, `audio_completion`, `request`, `image`, `second`, `character`, `search`";
    let wrong = "expected a price of a single token from 0 to 1000000 such as \"0.000002\"";
    let none = "embedding models don't have it: remove the key";
    let cases = [
        ("chat", "prompt = 1", "`routes`: the key `cost.completion` is missing".to_owned()),
        ("chat", "completion = 1", "`routes`: the key `cost.prompt` is missing".to_owned()),
        ("embeddings", "request = 1", "`routes`: the key `cost.prompt` is missing".to_owned()),
        ("chat", "prompt = -1, completion = 1", format!("`prompt`: {wrong}, found -1")),
        ("chat", "prompt = \"1000000.1\", completion = 1", format!("`prompt`: {wrong}, found \"1000000.1\"")),
        (
            "chat",
            "prompt = 0.5, completion = 1",
            format!("`prompt`: {wrong}; write it in quotes, so that it stays exact, found 0.5"),
        ),
        (
            "chat",
            &format!("{chat}, tokens = 1"),
            format!("`routes`: `cost` has no component `tokens`: {known}"),
        ),
        (
            "chat",
            &format!("{chat}, reasonin = 1"),
            format!("`routes`: `cost` has no component `reasonin` (did you mean `reasoning`?): {known}"),
        ),
        (
            "chat",
            &format!("{chat}, cached_prompt = 2"),
            "`routes`: `cost.cached_prompt`: it is more than `cost.prompt`".to_owned(),
        ),
        ("embeddings", "prompt = 1, completion = 1", format!("`routes`: `cost.completion`: {none}")),
        ("embeddings", "prompt = 1, cached_prompt = 1", format!("`routes`: `cost.cached_prompt`: {none}")),
        ("embeddings", "prompt = 1, search = 1", format!("`routes`: `cost.search`: {none}")),
        (
            "chat",
            "prompt = 1, completion = 1, reasoning = 100000",
            "`routes`: `cost`: a call can cost at most 1000000, but a call with 10 input and output tokens \
             would cost more: lower the cost, or `max_tokens`"
                .to_owned(),
        ),
    ];
    for (kind, cost, expected) in cases {
        let line = if kind == "chat" { 14 } else { 15 };
        let expected = format!("c:{line}: model `m`: {expected}");
        assert_eq!(parse(&routed(kind, cost)).unwrap_err(), [expected], "{cost}");
    }
    let text = UPSTREAM.to_owned() + &model("routes = [{ upstream = \"a\", cost = 1 }]");
    assert_eq!(
        parse(&text).unwrap_err(),
        ["c:14: model `m`: `cost`: expected a table such as `{ request = \"0.001\" }`, found 1"]
    );
}

#[test]
fn each_mistake_in_a_cost_is_reported_with_its_own_line() {
    let text = UPSTREAM.to_owned()
        + &model("")
        + "[[models.routes]]\nupstream = \"a\"\n[models.routes.cost]\nprompt = 1\ncached_prompt = 2\nnothing = 1\n";
    let found = parse(&text).unwrap_err();
    let starts = ["c:14: model `m`: `routes`: the key `cost.completion`", "c:18:", "c:19:"];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}
