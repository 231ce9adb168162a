//! The built-in catalog, compared with docs/contract/models.md#built-in-catalog, and the message of every
//! error.

mod components;
mod versions;

use super::*;
use kernel::money::Ppm;

pub fn model(changes: &str) -> String {
    let mut lines = vec![
        "id = \"m\"",
        "kind = \"chat\"",
        "description = \"d\"",
        "owned_by = \"o\"",
        "created = 0",
        "max_tokens = 10",
        "max_requests_per_min = 60",
        "max_concurrent_requests = 5",
        "prices = [{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"1\", completion_tokens = 2 }]",
    ];
    for change in changes.lines() {
        let key = change.trim_start_matches('-').split(' ').next().unwrap();
        lines.retain(|line| line.split(' ').next() != Some(key));
        if !change.starts_with('-') {
            lines.push(change);
        }
    }
    format!("[[models]]\n{}\n", lines.join("\n"))
}

#[test]
fn built_in_models_match_the_contract() {
    let catalog = Catalog::built_in().unwrap();
    let found: Vec<_> = catalog
        .models()
        .map(|m| {
            let limits = (m.max_requests_per_min, m.max_concurrent_requests);
            (m.id.as_str(), m.kind.as_str(), m.dimension.unwrap_or(m.max_tokens), limits)
        })
        .collect();
    let expected = [
        ("svc-1", "chat", 4096, (60, 5)),
        ("svc-1-turbo", "chat", 2048, (60, 5)),
        ("svc-1-pro", "chat", 8192, (60, 5)),
        ("svc-embedding-1", "embeddings", 1024, (300, 20)),
        ("svc-embedding-1-light", "embeddings", 512, (300, 20)),
        ("svc-embedding-1-pro", "embeddings", 2048, (300, 20)),
    ];
    assert_eq!(found, expected);
    for model in catalog.models() {
        assert_eq!(model.created, Time::parse("2024-01-01T00:00:00Z").unwrap().unix_seconds());
        assert_eq!((model.root.as_str(), &model.parent), (model.id.as_str(), &None));
        assert_eq!(model.prices.len(), 1);
        assert_eq!(catalog.get(&model.id).unwrap().id, model.id);
    }
    assert!(catalog.get("svc-2").is_none());
    assert_eq!(catalog.get("svc-1").unwrap().prices[0].prompt, Pico::from_units(2_000_000));
    assert_eq!(catalog.tiers_at(NOW)[0].discount, Ppm::from_units(50_000));
}

#[test]
fn newest_effective_price_counts() {
    let text = model(
        "prices = [{ effective_at = \"2024-03-01T00:00:00Z\", prompt_tokens = \"3\", completion_tokens = \
         \"3\" }, { effective_at = \"2024-01-01T01:00:00+01:00\", prompt_tokens = \"1\", completion_tokens \
         = \"1\" }]",
    );
    let catalog = Catalog::parse(&text, "c").unwrap();
    let model = catalog.get("m").unwrap();
    let cases = [
        ("2023-12-31T23:59:59.999Z", None),
        ("2024-01-01T00:00:00Z", Some(1)),
        ("2024-02-29T23:59:59.999Z", Some(1)),
        ("2024-03-01T00:00:00Z", Some(3)),
        ("2030-01-01T00:00:00Z", Some(3)),
    ];
    for (time, expected) in cases {
        let price =
            model.price_at(Time::parse(time).unwrap()).map(|price| price.prompt.units() / 10_i128.pow(12));
        assert_eq!(price, expected, "{time}");
    }
}

#[test]
fn models_may_have_lineage_or_no_price() {
    let catalog =
        Catalog::parse(&model("id = \"org/m:v1\"\nroot = \"base\"\nparent = \"m0\"\n-prices"), "c").unwrap();
    let model = catalog.get("org/m:v1").unwrap();
    assert_eq!((model.root.as_str(), model.parent.as_deref()), ("base", Some("m0")));
    assert_eq!(model.price_at(Time::from_unix_ms(i64::MAX)), None);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table of cases")]
fn errors_name_line_model_key_and_the_expected_value() {
    let price =
        |inner: &str| model(&format!("prices = [{{ effective_at = \"2024-01-01T00:00:00Z\", {inner} }}]"));
    let ok = model("");
    let embeddings = "kind = \"embeddings\"\ndimension = 8\n";
    let cases = [
        ("models = []".to_owned(), "c:1: expected at least one `[[models]]` table"),
        (String::new(), "c:1: expected at least one `[[models]]` table"),
        ("a = [".to_owned(), "c:1: this is not valid TOML: unclosed array, expected `]`"),
        ("models = 3".to_owned(), "c:1: `models`: expected a list, found 3"),
        (
            "models = [3]".to_owned(),
            "c:1: `models`: expected tables: write `[[models]]` and their keys below",
        ),
        (format!("{ok}[[model]]\n"), "c:11: unknown key `model` (did you mean `models`?)"),
        (model("max_token = 4"), "c:11: model `m`: unknown key `max_token` (did you mean `max_tokens`?)"),
        (model("-max_tokens"), "c:1: model `m`: the key `max_tokens` is missing"),
        (model("kind = 3"), "c:10: model `m`: `kind`: expected `chat` or `embeddings`, found 3"),
        (model("-kind"), "c:1: model `m`: the key `kind` is missing"),
        (price("completion_tokens = 1"), "c:10: model `m`: the key `prompt_tokens` is missing"),
        (model("-id"), "c:1: model without `id`: the key `id` is missing"),
        (
            model("id = \"a b\""),
            "c:10: model `a b`: `id`: expected 1 to 128 letters, digits and `. _ - / :`, found \"a b\"",
        ),
        (
            model("kind = \"audio\""),
            "c:10: model `m`: `kind`: expected `chat` or `embeddings`, found \"audio\"",
        ),
        (
            model("max_tokens = 0"),
            "c:10: model `m`: `max_tokens`: expected a whole number from 1 to 1000000000, found 0",
        ),
        (
            model("description = \"\""),
            "c:10: model `m`: `description`: expected a string of 1 to 1000 characters on one line, found \
             \"\"",
        ),
        (model("dimension = 8"), "c:11: model `m`: `dimension`: only embedding models have one"),
        (model("kind = \"embeddings\"\nprices = []"), "c:1: model `m`: the key `dimension` is missing"),
        (format!("{ok}{ok}"), "c:11: model `m`: `id`: two models have this id"),
        (price("prompt_tokens = \"1\""), "c:10: model `m`: the key `completion_tokens` is missing"),
        (
            model(
                "max_tokens = 500001\nprices = [{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, \
                 completion_tokens = 1 }]",
            ),
            "c:10: model `m`: `prices`: a call may cost at most 1000000, but a call with 500001 input and \
             output tokens would cost more: lower the price, or `max_tokens`",
        ),
        (
            price("prompt_tokens = 0.000002, completion_tokens = 1"),
            "c:10: model `m`: `prompt_tokens`: expected a price of a single token from 0 to 1000000 such as \
             \"0.000002\"; write it in quotes, so that it stays exact, found 0.000002",
        ),
        (
            price("prompt_tokens = \"1000000.1\", completion_tokens = 1"),
            "c:10: model `m`: `prompt_tokens`: expected a price of a single token from 0 to 1000000 such as \
             \"0.000002\", found \"1000000.1\"",
        ),
        (
            price("prompt_tokens = \"-1\", completion_tokens = 1"),
            "c:10: model `m`: `prompt_tokens`: expected a price of a single token from 0 to 1000000 such as \
             \"0.000002\", found \"-1\"",
        ),
        (
            price("prompt_tokens = \"0.0000000000001\", completion_tokens = 1"),
            "c:10: model `m`: `prompt_tokens`: expected a price of a single token from 0 to 1000000 such as \
             \"0.000002\", with at most 12 digits after the point, found \"0.0000000000001\"",
        ),
        (
            model(&format!(
                "{embeddings}prices = [{{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, \
                 completion_tokens = 1 }}]"
            )),
            "c:11: model `m`: `completion_tokens`: embedding models don't have it: remove the key",
        ),
        (
            model(&format!(
                "{embeddings}prices = [{{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, \
                 cached_prompt_tokens = 0 }}]"
            )),
            "c:11: model `m`: `cached_prompt_tokens`: embedding models don't have it: remove the key",
        ),
        (
            price("prompt_tokens = 1, cached_prompt_tokens = \"1.000000000001\", completion_tokens = 1"),
            "c:10: model `m`: `cached_prompt_tokens`: it is more than `prompt_tokens`",
        ),
        (
            price("prompt_tokens = 1, cached_prompt_tokens = \"-1\", completion_tokens = 1"),
            "c:10: model `m`: `cached_prompt_tokens`: expected a price of a single token from 0 to 1000000 \
             such as \"0.000002\", found \"-1\"",
        ),
        (
            model("prices = [{ effective_at = 2024-01-01, prompt_tokens = 1, completion_tokens = 1 }]"),
            "c:10: model `m`: `effective_at`: expected a timestamp such as \"2024-01-01T00:00:00Z\", found \
             2024-01-01",
        ),
        (
            model(
                "prices = [{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = 1, completion_tokens = 1 \
                 }, { effective_at = 2024-01-01T01:00:00+01:00, prompt_tokens = 1, completion_tokens = 1 \
                 }]",
            ),
            "c:10: model `m`: `effective_at`: two prices begin at 2024-01-01T00:00:00.000Z",
        ),
        (
            model("prices = [1]"),
            "c:10: model `m`: `prices`: expected tables: write `[[models.prices]]` and their \
             keys below",
        ),
        (
            format!("{ok}[[volume_discounts]]\nthreshold = 1\ndiscount = 0.05\n"),
            "c:13: volume discount: `discount`: expected a fraction from 0 to 1 such as \"0.05\"; write it \
             in quotes, so that it stays exact, found 0.05",
        ),
        (
            format!("{ok}[[volume_discounts]]\nthreshold = 1\ndiscount = \"1.5\"\n"),
            "c:13: volume discount: `discount`: expected a fraction from 0 to 1 such as \"0.05\", found \
             \"1.5\"",
        ),
        (
            format!("{ok}[[volume_discounts]]\nthreshold = 1\ndiscount = 0\n").repeat(1)
                + "[[volume_discounts]]\nthreshold = 1\ndiscount = 1\n",
            "c:14: volume discount: `threshold`: two discounts have the threshold 1",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(Catalog::parse(&text, "c").unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn all_breaches_of_rules_are_reported_at_once() {
    let discounts = "[[volume_discounts]]\nthreshold = 1\ndiscount = \"0.1\"\n".repeat(2);
    let models = ["", "id = \"e\"\nkind = \"embeddings\"", "dimension = 3"];
    let text = models.map(model).concat() + &discounts;
    let expected = [
        "c:11: model `e`: the key `dimension` is missing",
        "c:18: model `e`: `completion_tokens`: embedding models don't have it: remove the key",
        "c:21: model `m`: `id`: two models have this id",
        "c:31: model `m`: `dimension`: only embedding models have one",
        "c:35: volume discount: `threshold`: two discounts have the threshold 1",
    ];
    assert_eq!(Catalog::parse(&text, "c").unwrap_err().problems, expected);
    let missing = Catalog::load(Path::new("/nonexistent/c.toml")).unwrap_err();
    assert!(missing.to_string().starts_with("/nonexistent/c.toml: the file can't be read: "), "{missing}");
}

const NOW: Time = Time::from_unix_ms(1_800_000_000_000);

fn price(instant: &str, prompt: i64) -> String {
    format!("{{ effective_at = {instant}, prompt_tokens = {prompt}, completion_tokens = 0 }}")
}

/// Returns a catalog of models with these changes.
fn catalog_of(models: &[&str]) -> Catalog {
    let models: Vec<_> = models.iter().map(|changes| model(changes)).collect();
    Catalog::parse(&models.concat(), "c").unwrap()
}

#[test]
fn retired_model_is_known_for_late_usage_only() {
    let catalog = catalog_of(&["", "id = \"old\"\nretired = true"]);
    assert!(catalog.get("old").is_none());
    assert!(catalog.get_any("old").is_some_and(|model| model.price_at(NOW).is_some()));
    assert!(catalog.get_any("m").is_some() && catalog.get_any("none").is_none());
    assert_eq!((catalog.models().count(), catalog.all_models().count()), (1, 2));
    let error = Catalog::parse(&model("retired = \"yes\""), "c").unwrap_err().to_string();
    assert_eq!(error, "c:11: model `m`: `retired`: expected true or false, found \"yes\"");
}

#[test]
fn warnings_name_unusable_models() {
    let later = format!("id = \"later\"\nprices = [{}]", price("2027-02-01T00:00:00Z", 1));
    let catalog =
        catalog_of(&["", "id = \"free\"\n-prices", &later, "id = \"old\"\nretired = true\n-prices"]);
    let expected = [
        "c:11: model `free`: it has no price: it is listed, and can't be used now",
        "c:20: model `later`: its first price applies from 2027-02-01T00:00:00.000Z on: it is listed, and \
         can't be used now",
    ];
    assert_eq!(catalog.warnings(NOW), expected);
    assert_eq!(catalog.warnings(Time::parse("2027-02-01T00:00:00Z").unwrap()), expected[..1]);
}

#[test]
fn difference_lists_each_changed_model() {
    let old = catalog_of(&["", "id = \"a\"", "id = \"b\"", "id = \"c\"\nretired = true", "id = \"d\""]);
    let same = old.clone().changes_from(&old);
    assert!(same.is_empty(), "{same:?}");
    let new = catalog_of(&[
        "max_tokens = 9",
        "id = \"b\"\nretired = true",
        "id = \"c\"",
        "id = \"d\"",
        "id = \"e\"",
    ]);
    let words = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let expected = Difference {
        added: words(&["c", "e"]),
        retired: words(&["b"]),
        removed: words(&["a"]),
        changed: words(&["m"]),
        ..Difference::default()
    };
    assert_eq!(new.changes_from(&old), expected);
    let turned = catalog_of(&["id = \"a\"", ""]);
    let difference = turned.changes_from(&catalog_of(&["", "id = \"a\""]));
    assert_eq!(difference, Difference { others: true, ..Difference::default() });
}

fn with_discounts(discounts: &[(&str, i64, i64)]) -> Catalog {
    let mut text = model("");
    for (instant, threshold, discount) in discounts {
        let at = if instant.is_empty() { String::new() } else { format!("effective_at = {instant}\n") };
        text += &format!("[[volume_discounts]]\n{at}threshold = {threshold}\ndiscount = {discount}\n");
    }
    Catalog::parse(&text, "c").unwrap()
}

#[test]
fn catalog_names_its_currency() {
    let text = format!("currency = \"JPY\"\n{}", model(""));
    let catalog = Catalog::parse(&text, "c").unwrap();
    assert_eq!(catalog.currency(), Some("JPY"));
    assert!(catalog.check_currency("JPY").is_ok() && catalog_of(&[""]).check_currency("JPY").is_ok());
    let error = catalog.check_currency("USD").unwrap_err().to_string();
    assert!(
        error.starts_with("c:1: `currency`: the prices are in JPY, and `billing.currency` is USD: "),
        "{error}"
    );
    let error = Catalog::parse(&text.replace("JPY", "YEN"), "c").unwrap_err().to_string();
    assert!(
        error.starts_with("c:1: `currency`: expected a currency code of ISO 4217 such as \"USD\""),
        "{error}"
    );
}

#[test]
fn files_with_equal_content_are_equal_catalogs() {
    let one = with_discounts(&[("", 5, 1), ("2026-02-01T00:00:00Z", 6, 1)]);
    let same = Catalog::parse(
        &format!(
            "# a comment\n{}[[volume_discounts]]\neffective_at = \"2026-02-01T01:00:00+01:00\"\nthreshold = \
             6\ndiscount = 1\n\
             [[volume_discounts]]\nthreshold = 5\ndiscount = \"1.0\"\n",
            model("")
        ),
        "other",
    );
    assert_eq!(one.canonical(), same.unwrap().canonical());
    for other in [
        with_discounts(&[("", 5, 1)]),
        with_discounts(&[("", 5, 1), ("2026-02-01T00:00:00Z", 7, 1)]),
        catalog_of(&["max_tokens = 11"]),
        catalog_of(&["retired = true"]),
        catalog_of(&["-prices"]),
    ] {
        assert_ne!(one.canonical(), other.canonical());
    }
}

#[test]
fn aliases_have_one_meaning() {
    let named = |id: &str, aliases: &str| model(&format!("id = \"{id}\"\naliases = [{aliases}]"));
    let text = [named("a", r#""x", "y""#), named("b", r#""z""#), named("c", "")].concat();
    let catalog = Catalog::parse(&text, "c.toml").unwrap();
    for (name, id) in [("a", "a"), ("x", "a"), ("y", "a"), ("z", "b"), ("c", "c")] {
        assert_eq!(catalog.find(name).unwrap().id, id, "{name}");
    }
    assert!(catalog.get("x").is_none() && catalog.find("w").is_none());
    // The name of a retired model stays reserved, because its usage may be reported late.
    let retired = model("id = \"r\"\naliases = [\"old\"]\nretired = true");
    let catalog = Catalog::parse(&[named("a", ""), retired].concat(), "c.toml").unwrap();
    assert!(catalog.find("old").is_none());
    assert_eq!(catalog.find_any("old").unwrap().id, "r");

    let refused = |text: &str| Catalog::parse(text, "c.toml").unwrap_err().problems;
    // Each table has eleven lines, and the aliases are on the last one.
    assert_eq!(
        refused(&[named("a", r#""b""#), named("b", "")].concat()),
        ["c.toml:11: model `a`: `aliases`: `b` is the id of the model on line 12"]
    );
    assert_eq!(
        refused(&[named("a", r#""x""#), named("b", r#""x""#)].concat()),
        ["c.toml:22: model `b`: `aliases`: `x` is an alias on line 11 already"]
    );
    assert_eq!(
        refused(&named("a", r#""a""#)),
        ["c.toml:11: model `a`: `aliases`: `a` is the id of the model on line 1"]
    );
    assert_eq!(
        refused(&named("a", r#""x y""#)),
        ["c.toml:11: model `a`: `aliases`: expected 1 to 128 letters, digits and `. _ - / :`, found \"x y\""]
    );
    let more = Catalog::parse(&named("a", r#""x""#), "c.toml").unwrap();
    let less = Catalog::parse(&named("a", ""), "c.toml").unwrap();
    assert_ne!(more.canonical(), less.canonical(), "another catalog for other servers");
    assert_eq!(more.changes_from(&less).changed, ["a"]);
}

#[test]
fn limits_of_an_answer_fit_each_other() {
    let catalog =
        Catalog::parse(&model("default_max_tokens = 10\nmax_tokens_policy = \"refuse\""), "c").unwrap();
    let found = catalog.get("m").unwrap();
    assert_eq!((found.default_max_tokens, found.max_tokens_policy), (Some(10), MaxTokensPolicy::Refuse));
    let plain = Catalog::parse(&model(""), "c").unwrap();
    let found = plain.get("m").unwrap();
    assert_eq!((found.default_max_tokens, found.max_tokens_policy), (None, MaxTokensPolicy::Lower));
    assert_ne!(catalog.canonical(), plain.canonical());

    let refused = |changes: &str| Catalog::parse(&model(changes), "c.toml").unwrap_err().problems;
    assert_eq!(
        refused("default_max_tokens = 11"),
        [
            "c.toml:11: model `m`: `default_max_tokens`: 11 is more than `max_tokens`, 10, of the model on line 1"
        ]
    );
    assert_eq!(
        refused("default_max_tokens = 0"),
        ["c.toml:11: model `m`: `default_max_tokens`: expected a whole number from 1 to 1000000000, found 0"]
    );
    let embeddings = "kind = \"embeddings\"\ndimension = 8\nprices = [{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"1\" }]";
    for key in ["default_max_tokens = 5", "max_tokens_policy = \"lower\""] {
        let problems = refused(&format!("{embeddings}\n{key}"));
        let name = key.split(' ').next().unwrap();
        let expected = format!(
            "c.toml:12: model `m`: `{name}`: only chat models have it: an embedding model generates no tokens"
        );
        assert_eq!(problems, [expected]);
    }
}
