//! `tollkeeper catalog check FILE`

use serde_json::{Value, json};

use super::{File, catalog};
use support::process::Start;
use support::world::Folder;

#[test]
fn components_and_conditions_are_shown() {
    let folder = Folder::new();
    let price = |rest: &str| {
        format!(
            "{{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"2\", completion_tokens = \"4\"{rest} }}"
        )
    };
    let flex =
        price(", service_tier = \"flex\", above_prompt_tokens = 5, components = { search = \"0.25\" }");
    let file = File::new(&[]);
    file.write(&catalog(&[&format!("m\nprices = [{}, {flex}]", price(""))]));
    let start = Start::new(&folder.0);
    let ended = start.command(&["catalog", "check", file.name()]);
    let lines: Vec<_> = ended.stdout.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "  from 2024-01-01T00:00:00.000Z (flex, above 5 prompt tokens): prompt 2, completion 4, search 0.25 per \
             token (in force)",
            "  from 2024-01-01T00:00:00.000Z: prompt 2, completion 4 per token (in force)",
        ]
    );
    let ended = start.command(&["catalog", "check", "--json", file.name()]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let found = &report["models"][0]["prices"][0];
    assert_eq!(found["components"], json!({"search": "0.25"}));
    let expected = json!({"service_tier": "flex", "above_prompt_tokens": 5, "hours": null});
    assert_eq!((&found["conditions"], &found["in_force"]), (&expected, &json!(true)));
}

#[test]
fn overlapping_prices_and_impossible_components_are_reported() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let file = File::new(&[]);
    let name = file.name();
    let price = |rest: &str| {
        format!(
            "{{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"2\", completion_tokens = \"4\"{rest} }}"
        )
    };
    for (one, two, shown) in [
        ("hours = [\"mon-fri\"]", "hours = [\"fri 10:00-11:00\"]", "fri 10:00 to fri 11:00 UTC"),
        ("service_tier = \"flex\"", "service_tier = \"flex\"", "flex"),
        ("above_prompt_tokens = 5", "above_prompt_tokens = 5", "above 5 prompt tokens"),
    ] {
        let prices = [price(""), price(&format!(", {one}")), price(&format!(", {two}"))].join(", ");
        file.write(&catalog(&[&format!("m\nprices = [{prices}]")]));
        let mistake = format!(
            "{name}:10: model `m`: `prices`: its conditions ({shown}) can apply to the same call as those of the price on \
             line 10: make them exclusive"
        );
        check_mistakes(&start, name, &[mistake]);
    }
    let vectors =
        "{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"2\", components = { reasoning = \"1\" } }";
    let model = format!("n\nkind = \"embeddings\"\ndimension = 3\nprices = [{vectors}]");
    file.write(&catalog(&[&model]));
    let mistake = format!(
        "{name}:11: model `n`: `components.reasoning`: embedding models don't have it: remove the key"
    );
    check_mistakes(&start, name, &[mistake]);
}

#[test]
fn valid_file_is_summarized() {
    let folder = Folder::new();
    let (past, future) = ("2024-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
    let price = |at: &str, prompt: &str| {
        format!("{{ effective_at = {at}, prompt_tokens = \"{prompt}\", completion_tokens = \"0.5\" }}")
    };
    let cached = price(future, "2\", cached_prompt_tokens = \"1");
    let prices = format!("m\nprices = [{}, {cached}]", price(past, "0.000000000001"));
    let later = format!("acme/later:v1\nprices = [{}]", price(future, "3"));
    let text = catalog(&[&prices, &later, "none\nprices = []", "old\nretired = true\nprices = []"]);
    let file = File::new(&[]);
    file.write(&format!("{text}[[volume_discounts]]\nthreshold = 5\ndiscount = \"0.05\"\n"));
    // Neither a valid configuration nor an installation is needed.
    let start = Start::new(&folder.0).set("TOLLKEEPER_LISTN", "x").set("TOLLKEEPER_CATALOG_FILE", "/nowhere");
    let ended = start.command(&["catalog", "check", file.name()]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    let name = file.name();
    let expected = format!(
        "{name} is a valid catalog: 3 models, 1 retired, 1 volume discounts, 0 upstreams.
m (chat): at most 100 tokens per request, 60 requests per minute, 5 concurrent requests
  from 2024-01-01T00:00:00.000Z: prompt 0.000000000001, completion 0.5 per token (in force)
  from 2999-01-01T00:00:00.000Z: prompt 2, cached prompt 1, completion 0.5 per token (to come)
acme/later:v1 (chat): at most 100 tokens per request, 60 requests per minute, 5 concurrent requests
  from 2999-01-01T00:00:00.000Z: prompt 3, completion 0.5 per token (to come)
none (chat): at most 100 tokens per request, 60 requests per minute, 5 concurrent requests
old (chat, retired): at most 100 tokens per request, 60 requests per minute, 5 concurrent requests
warning: {name}:11: model `acme/later:v1`: its first price applies from 2999-01-01T00:00:00.000Z on: it is listed, and can't be used now
warning: {name}:21: model `none`: it has no price: it is listed, and can't be used now
"
    );
    assert_eq!(ended.stdout, expected);

    let ended = start.command(&["catalog", "check", "--json", file.name()]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let all_calls = json!({"service_tier": null, "above_prompt_tokens": null, "hours": null});
    let expected = json!({"id": "m", "kind": "chat", "retired": false, "max_tokens": 100, "max_requests_per_min": 60,
        "max_concurrent_requests": 5, "prices": [
            {"effective_at": "2024-01-01T00:00:00.000Z", "prompt_tokens": "0.000000000001",
             "cached_prompt_tokens": null, "completion_tokens": "0.5", "components": {}, "conditions": all_calls, "in_force": true},
            {"effective_at": "2999-01-01T00:00:00.000Z", "prompt_tokens": "2",
             "cached_prompt_tokens": "1", "completion_tokens": "0.5", "components": {}, "conditions": all_calls,
             "in_force": false}], "routes": []});
    assert_eq!(report["models"][0], expected);
    let rest = (&report["valid"], &report["volume_discounts"], report["warnings"].as_array().unwrap().len());
    assert_eq!(rest, (&json!(true), &json!([{"threshold": 5, "discount": "0.05"}]), 2));
    assert_eq!(report["models"][3]["retired"], true);
    assert!(!start.data_dir().exists(), "looking made nothing");

    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/default.toml");
    let ended = start.command(&["catalog", "check", built_in]);
    assert_eq!(ended.code, Some(0), "the file to copy: {}", ended.log);
    assert!(!ended.stdout.contains("warning"), "{}", ended.stdout);
}

#[test]
fn mistakes_of_an_invalid_file_are_reported() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let file = File::new(&["m", "m\ndimension = 3", "n\nkind = \"embeddings\""]);
    let name = file.name();
    // Rules across keys are checked together, once every key and value is valid.
    let mistakes = [
        format!("{name}:11: model `m`: `id`: two models have this id"),
        format!("{name}:21: model `m`: `dimension`: only embedding models have one"),
        format!("{name}:22: model `n`: the key `dimension` is missing"),
    ];
    check_mistakes(&start, name, &mistakes);
    file.write(&catalog(&["m\nmax_tokens = 0", "n"]));
    let mistakes = [format!(
        "{name}:10: model `m`: `max_tokens`: expected a whole number from 1 to 1000000000, found 0"
    )];
    check_mistakes(&start, name, &mistakes);
    file.write(&catalog(&["m", "n\ncolour = 1"]));
    check_mistakes(&start, name, &[format!("{name}:21: model `n`: unknown key `colour`")]);
    // A mistake between two models or keys names both lines.
    file.write(&catalog(&["m\naliases = [\"n\"]", "n"]));
    let mistakes = [format!("{name}:11: model `m`: `aliases`: `n` is the id of the model on line 12")];
    check_mistakes(&start, name, &mistakes);
    file.write(&catalog(&["m\naliases = [\"x\"]", "n\naliases = [\"x\"]"]));
    let mistakes = [format!("{name}:22: model `n`: `aliases`: `x` is an alias on line 11 already")];
    check_mistakes(&start, name, &mistakes);
    file.write(&catalog(&["n", "m\ndefault_max_tokens = 101"]));
    let mistakes = [format!(
        "{name}:21: model `m`: `default_max_tokens`: 101 is more than `max_tokens`, 100, of the model on line 11"
    )];
    check_mistakes(&start, name, &mistakes);

    let ended = start.command(&["catalog", "check", "nowhere.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("nowhere.toml: the file can't be read"), "{}", ended.log);
    assert_eq!(start.command(&["catalog", "check"]).code, Some(2), "the file must be named");
}

fn check_mistakes(start: &Start, name: &str, mistakes: &[String]) {
    let ended = start.command(&["catalog", "check", name]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.log.starts_with("tollkeeper: "), "{}", ended.log);
    for mistake in mistakes {
        assert!(ended.log.contains(mistake), "no {mistake} in {}", ended.log);
    }
    let ended = start.command(&["catalog", "check", name, "--json"]);
    assert_eq!(ended.code, Some(1));
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["file"], &report["valid"]), (&json!(name), &json!(false)));
    let reported: Vec<_> =
        report["mistakes"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(mistakes.iter().all(|mistake| reported.contains(&mistake.as_str())), "{reported:?}");
}
