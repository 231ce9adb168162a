//! Components and conditions of prices in a catalog.

use super::*;

/// Returns a catalog of a model with these prices, each with further keys.
fn prices(others: &[&str]) -> Result<Catalog, String> {
    let price = |other: &&str| {
        let comma = if other.is_empty() { "" } else { ", " };
        format!(
            "{{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, completion_tokens = 2{comma}{other} }}"
        )
    };
    let all: Vec<_> = others.iter().map(price).collect();
    Catalog::parse(&model(&format!("prices = [{}]", all.join(", "))), "c").map_err(|error| error.to_string())
}

fn call(time: &str, prompt_tokens: i64, service_tier: ServiceTier) -> CallFacts {
    CallFacts { time: Time::parse(time).unwrap(), prompt_tokens, service_tier }
}

#[test]
fn one_price_fits_each_call() {
    let catalog = prices(&[
        "",
        "above_prompt_tokens = 100",
        "above_prompt_tokens = 200",
        "service_tier = \"flex\"",
        "service_tier = \"flex\", above_prompt_tokens = 200",
        "hours = [\"sat-sun\"]",
        "hours = [\"mon-thu 20:00-08:00\"]",
        "above_prompt_tokens = 100, hours = [\"sat-sun\"]",
    ]);
    let catalog = catalog.unwrap();
    let model = catalog.get("m").unwrap();
    // 2026-11-30 is a Monday.
    let (day, night, weekend) = ("2026-11-30T12:00:00Z", "2026-11-30T20:00:00Z", "2026-12-05T12:00:00Z");
    let (default, flex, batch) = (ServiceTier::Default, ServiceTier::Flex, ServiceTier::Batch);
    for (time, tokens, tier, expected) in [
        (day, 100, default, ""),
        (day, 101, default, "above 100 prompt tokens"),
        (day, 200, default, "above 100 prompt tokens"),
        (day, 201, default, "above 200 prompt tokens"),
        (day, 201, batch, "above 200 prompt tokens"),
        (day, 100, flex, "flex"),
        (day, 200, flex, "flex"),
        (day, 201, flex, "flex, above 200 prompt tokens"),
        (night, 100, flex, "flex"),
        (night, 101, default, "above 100 prompt tokens"),
        (weekend, 100, default, "sat 00:00 to mon 00:00 UTC"),
        (weekend, 101, default, "above 100 prompt tokens, sat 00:00 to mon 00:00 UTC"),
        (weekend, 201, default, "above 200 prompt tokens"),
    ] {
        let price = model.price_of(&call(time, tokens, tier)).unwrap();
        assert_eq!(price.conditions.to_string(), expected, "{time} {tokens} {tier:?}");
    }
    let nightly = model.price_of(&call(night, 1, default)).unwrap();
    let hours = nightly.conditions.hours.as_ref().unwrap();
    assert!(hours.contain(Time::parse("2026-12-04T07:59:00Z").unwrap()), "Thursday's night ends on Friday");
    assert_eq!(model.price_at(NOW).unwrap().conditions, Conditions::default());
    assert_eq!(model.price_of(&call("2023-12-31T23:59:59Z", 1, default)), None);
    // Each price has its own number; the number of the price without conditions is its effective time.
    let versions: std::collections::BTreeSet<_> = model.prices.iter().map(|price| price.version).collect();
    assert_eq!((versions.len(), *versions.last().unwrap()), (8, 1_704_067_200_000));
    assert!(versions.iter().rev().skip(1).all(|version| *version < 0));
    for price in &model.prices {
        assert_eq!(catalog.price("m", price.version), Some(price));
    }
}

#[test]
fn later_instant_replaces_all_prices() {
    let later = "{ effective_at = 2025-01-01T00:00:00Z, prompt_tokens = 5, completion_tokens = 5 }";
    let flex = "{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, completion_tokens = 1, service_tier = \"flex\" }";
    let base = "{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 2, completion_tokens = 2 }";
    let catalog = catalog_of(&[&format!("prices = [{later}, {flex}, {base}]")]);
    let model = catalog.get("m").unwrap();
    let prompt =
        |time| model.price_of(&call(time, 1, ServiceTier::Flex)).map(|price| price.prompt.to_string());
    assert_eq!(prompt("2024-12-31T23:59:59.999Z").as_deref(), Some("1"));
    assert_eq!(prompt("2025-01-01T00:00:00Z").as_deref(), Some("5"));
    assert_eq!(model.prices_at(Time::parse("2024-06-01T00:00:00Z").unwrap()).len(), 2);
    assert_eq!(model.prices_at(NOW).len(), 1);
}

#[test]
fn components_have_a_price_or_that_of_their_whole() {
    let catalog =
        prices(&["cached_prompt_tokens = \"0.5\", components = { reasoning = 3, search = \"0.25\" }"])
            .unwrap();
    let price = catalog.get("m").unwrap().price_at(NOW).unwrap();
    let of = |component| price.of(component).to_string();
    use Component::{AudioCompletion, CacheWrite5m, CachedPrompt, Image, Reasoning, Search};
    assert_eq!([of(CachedPrompt), of(CacheWrite5m), of(AudioCompletion)], ["0.5", "1", "2"]);
    assert_eq!([of(Reasoning), of(Search), of(Image)], ["3", "0.25", "0"]);
    assert_eq!(price.to_string(), "prompt 1, cached prompt 0.5, completion 2, reasoning 3, search 0.25");
    // 10 - 4 = 6 x 1, 4 x 0.5, 9 - 5 = 4 x 2, 5 x 3, 2 x 0.25: the two tokens written to a cache have the
    // prompt's price.
    let parts = Parts::default().with(Reasoning, 5).with(Search, 2).with(CacheWrite5m, 2);
    let tokens = Tokens { parts, ..Tokens::new(10, 4, 9) };
    assert_eq!(rate(price, tokens).map(|amount| amount.to_string()).as_deref(), Some("31.5"));
    let billed = price.billed(tokens).unwrap();
    let expected =
        [(Component::Prompt, 6), (CachedPrompt, 4), (Component::Completion, 4), (Reasoning, 5), (Search, 2)];
    assert_eq!(billed, expected);
    // Cached and written tokens are part of the prompt.
    let parts = Parts::default().with(CacheWrite5m, 7);
    assert_eq!(rate(price, Tokens { parts, ..Tokens::new(10, 4, 0) }), None);
}

#[test]
fn wrong_components_and_conditions_are_refused() {
    let at = "2024-01-01T00:00:00.000Z";
    let hours = "expected hours in UTC such as [\"mon-fri 20:00-08:00\", \"sat-sun\"]";
    let cases = [
        (vec!["components = { search = \"-1\" }"], "c:10: model `m`: `search`: expected a price of a single token from 0 to \
          1000000 such as \"0.000002\", found \"-1\"".to_owned()),
        (
            vec!["", "service_tier = \"flex\"", "service_tier = \"flex\""],
            "c:10: model `m`: `prices`: its conditions (flex) can apply to the same call as those of the \
             price on line 10: make them exclusive"
                .to_owned(),
        ),
        (
            vec!["", "hours = [\"mon-fri\"]", "hours = [\"fri 10:00-11:00\"]"],
            "c:10: model `m`: `prices`: its conditions (fri 10:00 to fri 11:00 UTC) can apply to the same \
             call as those of the \
             price on line 10: make them exclusive"
                .to_owned(),
        ),
        (
            vec!["service_tier = \"flex\"", "above_prompt_tokens = 5"],
            format!("c:10: model `m`: `prices`: from {at} on, every price has conditions: add a price \
                     without conditions for all other calls"),
        ),
        (vec!["", "hours = [\"mon\", \"8-9\"]"], format!("c:10: model `m`: `hours`: {hours}; entry 2 is invalid")),
        (vec!["", "hours = []"], format!("c:10: model `m`: `hours`: {hours}, found a list")),
        (
            vec!["", "service_tier = \"fast\""],
            "c:10: model `m`: `service_tier`: expected one of `default`, `flex`, `priority`, `batch`, found \"fast\"".to_owned(),
        ),
        (
            vec!["", "above_prompt_tokens = -1"],
            "c:10: model `m`: `above_prompt_tokens`: expected a whole number from 0 to 1000000000, found -1".to_owned(),
        ),
        (
            vec!["components = { thinking = 1 }"],
            "c:10: model `m`: unknown key `thinking`: the components are cache_write_5m, cache_write_1h, audio_prompt, \
             image_prompt, reasoning, audio_completion, request, image, second, character, search"
                .to_owned(),
        ),
        (
            vec!["components = { serch = 1 }"],
            "c:10: model `m`: unknown key `serch` (did you mean `search`?)".to_owned(),
        ),
    ];
    for (others, expected) in cases {
        let error = prices(&others).unwrap_err();
        assert!(error.starts_with(&expected), "{others:?}: {error}");
    }
    let embeddings = model(
        "kind = \"embeddings\"\ndimension = 3\nprices = [{ effective_at = 2024-01-01T00:00:00Z, \
        prompt_tokens = 1, components = { image = 1, reasoning = 1 } }]",
    );
    assert_eq!(
        Catalog::parse(&embeddings, "c").unwrap_err().to_string(),
        "c:11: model `m`: `components.reasoning`: embedding models don't have it: remove the key"
    );
}

#[test]
fn a_condition_makes_another_catalog() {
    let texts =
        [prices(&[""]), prices(&["components = { search = 1 }"]), prices(&["", "service_tier = \"flex\""])];
    let texts: std::collections::BTreeSet<_> =
        texts.into_iter().map(|catalog| catalog.unwrap().canonical()).collect();
    assert_eq!(texts.len(), 3);
}
