//! Components and conditions of prices, from usage events to invoices, credit notes and exports. All sums are
//! calculated by hand.

use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::db::sql;

use support::books::{assert_books, wallet};
use support::csv::{self, Row};
use support::transcript::{Books, with_configured_books};
use support::{Database, on_each_database};

const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/components.toml");
/// The time of the first events, on a Thursday.
const JANUARY: &str = "2026-01-15T09:00:00Z";

fn event(books: &Books<'_>, id: &str, tokens: (i64, i64, i64), parts: &Value) -> Value {
    event_of(&books.keys[0], id, tokens, parts)
}

fn event_of(key: &str, id: &str, tokens: (i64, i64, i64), parts: &Value) -> Value {
    let (prompt, cached, completion) = tokens;
    json!({"id": id, "source": "s", "time": JANUARY, "api_key_id": key, "model": "multi",
           "kind": "chat", "prompt_tokens": prompt, "cached_prompt_tokens": cached,
           "completion_tokens": completion, "parts": parts})
}

fn with(mut event: Value, field: &str, value: Value) -> Value {
    event[field] = value;
    event
}

/// Reports one event. Returns its status or the code of its refusal, and the message.
async fn report(books: &Books<'_>, event: &Value) -> (String, String) {
    let answer = books.world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await;
    let result = &answer["results"][0];
    let detail = result["details"][0]["message"].as_str().or(result["message"].as_str());
    let word = result["code"].as_str().or(result["status"].as_str()).unwrap();
    (word.to_owned(), detail.unwrap_or_default().to_owned())
}

/// Reports an event that must be accepted. Returns the amount charged to the wallet, in nano.
async fn charge(books: &Books<'_>, event: &Value) -> i64 {
    let before = wallet(books.world, &books.place.organization).await.0;
    assert_eq!(report(books, event).await, ("accepted".to_owned(), String::new()), "{event}");
    before - wallet(books.world, &books.place.organization).await.0
}

/// Returns the lines of invoices or credit notes as `description | quantity | unit price | amount`, in order.
async fn lines(books: &Books<'_>, table: &str, document: &str) -> Vec<String> {
    let text = format!(
        "SELECT description, quantity, unit_price, amount FROM {table} ORDER BY {document}, position"
    );
    let rows: Vec<(String, i64, String, String)> =
        sql(text).all(&mut books.world.app.db.read().await.unwrap()).await.unwrap();
    let line =
        |(description, quantity, price, amount)| format!("{description} | {quantity} | {price} | {amount}");
    rows.into_iter().map(line).collect()
}

async fn assert_clean(books: &Books<'_>) {
    assert_books(books.world).await;
    let report = audit::check(&books.world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.drifts);
}

/// Asserts that the usage reports have the components of the events of `each_component_has_its_price`.
async fn assert_reported(books: &Books<'_>) {
    let token = books.world.session(books.ada.id).await.access_token;
    let read = async |path: String| books.world.get(&path).bearer(&token).data().await;
    let (organization, project) = (books.place.organization_path(), books.place.project_path());
    let days = "start_date=2026-01-01&end_date=2026-02-01";
    // Four of the calls have a price per request.
    let multi = json!({"cached_prompt": 201, "cache_write_5m": 100, "cache_write_1h": 50, "audio_prompt": 30,
                       "image_prompt": 20, "reasoning": 300, "request": 4, "search": 2});
    let by_model =
        read(format!("{organization}/billing/usage?{days}&group_by=month,model&components=true")).await;
    let of = |row: &Value| (row["chat"]["components"].clone(), row["embeddings"]["components"].clone());
    assert_eq!(of(&by_model["usage"][0]), (multi.clone(), json!({})));
    assert_eq!(of(&by_model["usage"][1]), (json!({}), json!({"image": 3})));
    assert_eq!(of(&by_model["total"]), (multi.clone(), json!({"image": 3})));
    let mut by_key = read(format!("{project}/usage?{days}&components=true")).await;
    let rows = by_key["usage"].as_array_mut().unwrap();
    assert_eq!(rows.len(), 3, "the 15th, 16th and 17th: {rows:?}");
    let mut first_day = multi;
    first_day["request"] = json!(3);
    assert_eq!(of(&rows[0]), (first_day, json!({"image": 3})));
    assert_eq!(of(&rows[1]), (json!({"request": 1}), json!({})));
    assert_eq!(of(&rows[2]), (json!({}), json!({})));
    let plain = read(format!("{project}/usage?{days}")).await;
    assert_eq!(of(&plain["total"]), (Value::Null, Value::Null), "unless it was asked for");

    let path = format!("{project}/usage?{days}&components=true&format=csv&group_by=month");
    let csv = books.world.get(&path).bearer(&token).send().await.text;
    let lines: Vec<_> = csv.lines().collect();
    let names = "user_id,chat_cached_prompt,chat_cache_write_5m,chat_cache_write_1h,chat_audio_prompt,chat_image_prompt,\
                 chat_reasoning,chat_request,chat_search,embeddings_image";
    assert!(lines[0].ends_with(names), "{csv}");
    assert!(lines[1].ends_with(",201,100,50,30,20,300,4,2,3") && lines.len() == 2, "{csv}");
}

/// Returns the parts of the first event, which has 1,000 prompt tokens, 500 completion tokens and two
/// searches.
fn all_parts() -> Value {
    json!({"cache_write_5m": 100, "cache_write_1h": 50, "audio_prompt": 30, "image_prompt": 20, "reasoning": 300,
           "search": 2})
}

#[on_each_database]
fn each_component_has_its_price(database: Database) {
    with_configured_books(database, &[CATALOG], JANUARY, async |books| {
        // 1,000 - 200 - 100 - 50 - 30 = 620 x 0.000003 = 0.00186, because image tokens have no separate
        // price.
        // 200 x 0.0000003 = 0.00006, 100 x 0.00000375 = 0.000375, 50 x 0.000006 = 0.0003, 30 x 0.00004 =
        // 0.0012, 500 - 300 = 200 x 0.000015 = 0.003, 300 x 0.00002 = 0.006, 2 x 0.01 = 0.02, and 0.001 for
        // the request.
        let first = event(books, "e1", (1_000, 200, 500), &all_parts());
        assert_eq!(charge(books, &first).await, 33_795_000);
        // A prompt of 200,000 tokens isn't above 200,000: 200,000 x 0.000003 + 0.001.
        assert_eq!(charge(books, &event(books, "e2", (200_000, 0, 0), &json!({}))).await, 601_000_000);
        // A prompt of 200,001 tokens, cached ones included, is above it: 200,000 x 0.000006 + 0.0000006 +
        // 0.001.
        assert_eq!(charge(books, &event(books, "e3", (200_001, 1, 0), &json!({}))).await, 1_201_000_600);
        // 1,000 x 0.0000015 + 100 x 0.0000075. The flex tier has no price per request.
        let flex = |id, prompt, completion| {
            with(event(books, id, (prompt, 0, completion), &Value::Null), "service_tier", json!("flex"))
        };
        assert_eq!(charge(books, &flex("e4", 1_000, 100)).await, 2_250_000);
        // The service tier takes precedence over the length of the prompt: 300,000 x 0.0000015.
        assert_eq!(charge(books, &flex("e5", 300_000, 0)).await, 450_000_000);
        // On Saturday: 1,000 x 0.000002 + 100 x 0.00001. A millisecond earlier: 0.003 + 0.0015 + 0.001.
        books.set_time("2026-01-17T09:00:00Z");
        let at = |id, time: &str| with(event(books, id, (1_000, 0, 100), &Value::Null), "time", json!(time));
        assert_eq!(charge(books, &at("e6", "2026-01-17T00:00:00Z")).await, 3_000_000);
        assert_eq!(charge(books, &at("e7", "2026-01-16T23:59:59.999Z")).await, 5_500_000);
        // 10 x 0.000001 + 3 x 0.0005.
        let vectors = json!({"id": "e8", "source": "s", "time": JANUARY, "api_key_id": books.keys[0],
            "model": "vectors", "kind": "embeddings", "prompt_tokens": 10, "parts": {"image": 3}});
        assert_eq!(charge(books, &vectors).await, 1_510_000);

        // The same event again counts once. Empty `parts` and no `parts` are the same.
        assert_eq!(report(books, &first).await.0, "duplicate");
        assert_eq!(report(books, &event(books, "e2", (200_000, 0, 0), &Value::Null)).await.0, "duplicate");
        for other in [
            with(first.clone(), "parts", json!({"reasoning": 300})),
            with(first, "service_tier", json!("flex")),
        ] {
            assert_eq!(report(books, &other).await.0, "event_conflict", "{other}");
        }
        assert_clean(books).await;
        assert_reported(books).await;

        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // The events cost 2.2980556 in total.
        let expected = [
            "multi, prompt tokens | 201620 | 0.000003 | 0.60486",
            "multi, prompt tokens, above 200000 prompt tokens | 200000 | 0.000006 | 1.2",
            "multi, prompt tokens, flex | 301000 | 0.0000015 | 0.4515",
            "multi, prompt tokens, sat 00:00 to mon 00:00 UTC | 1000 | 0.000002 | 0.002",
            "multi, cached prompt tokens | 200 | 0.0000003 | 0.00006",
            "multi, cached prompt tokens, above 200000 prompt tokens | 1 | 0.0000006 | 0.0000006",
            "multi, tokens written to the cache | 100 | 0.00000375 | 0.000375",
            "multi, tokens written to the cache for an hour | 50 | 0.000006 | 0.0003",
            "multi, audio tokens of prompts | 30 | 0.00004 | 0.0012",
            "multi, completion tokens | 300 | 0.000015 | 0.0045",
            "multi, completion tokens, flex | 100 | 0.0000075 | 0.00075",
            "multi, completion tokens, sat 00:00 to mon 00:00 UTC | 100 | 0.00001 | 0.001",
            "multi, reasoning tokens | 300 | 0.00002 | 0.006",
            "multi, requests | 3 | 0.001 | 0.003",
            "multi, requests, above 200000 prompt tokens | 1 | 0.001 | 0.001",
            "multi, searches | 2 | 0.01 | 0.02",
            "vectors, input tokens | 10 | 0.000001 | 0.00001",
            "vectors, images | 3 | 0.0005 | 0.0015",
        ];
        assert_eq!(lines(books, "invoice_items", "invoice_id").await, expected);
        assert_eq!(books.invoices().await[0].amount.to_string(), "2.2980556");
        assert_clean(books).await;
    });
}

#[on_each_database]
fn parts_of_a_prompt_count_for_its_discount(database: Database) {
    with_configured_books(database, &[CATALOG], JANUARY, async |books| {
        // Six prompts of 200,000 tokens: 600,000 x 0.000003 = 1.8, 300,000 x 0.00000375 = 1.125, 300,000 x
        // 0.00004 = 12, and 6 x 0.001 for the requests.
        for number in 0..6 {
            let parts = json!({"cache_write_5m": 50_000, "audio_prompt": 50_000});
            charge(books, &event(books, &format!("e{number}"), (200_000, 0, 0), &parts)).await;
        }
        assert_eq!(wallet(books.world, &books.place.organization).await.0, -14_931_000_000);
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // Within a day the cheapest tokens come first, so the 200,000 above a million are audio tokens: half
        // of 200,000 x 0.00004.
        let expected = [
            "multi, prompt tokens | 600000 | 0.000003 | 1.8",
            "multi, tokens written to the cache | 300000 | 0.00000375 | 1.125",
            "multi, audio tokens of prompts | 300000 | 0.00004 | 12",
            "multi, requests | 6 | 0.001 | 0.006",
            "Volume discount: multi, prompt tokens | 1 | -4 | -4",
        ];
        assert_eq!(lines(books, "invoice_items", "invoice_id").await, expected);
        assert_eq!(books.invoices().await[0].amount.to_string(), "10.931");
        assert_clean(books).await;
    });
}

#[on_each_database]
fn corrections_name_parts(database: Database) {
    with_configured_books(database, &[CATALOG], JANUARY, async |books| {
        charge(books, &event(books, "e1", (1_000, 200, 500), &all_parts())).await;
        let key = books.keys[0].clone();
        let correction = |id: &str, tokens, parts: Value| {
            with(event_of(&key, id, tokens, &parts), "corrects", json!("e1"))
        };
        let whole = "A correction can't take back more parts of the prompt or the completion than it takes \
                     back of the whole.";
        let left = "Corrections can't take back more than the remainder of the event: 1000 prompt tokens \
                    (of which 200 are cached) and \
                    500 completion tokens, `cache_write_5m` 100, `cache_write_1h` 50, `audio_prompt` 30, `image_prompt` 20, \
                    `reasoning` 300, `request` 1, `search` 2.";
        for (tokens, parts, code, message) in [
            (
                (-10, 0, 0),
                json!({"search": 1}),
                "invalid_correction",
                "In a correction `parts.search` is 0 or less.",
            ),
            ((-10, 0, 0), json!({"request": -2}), "correction_too_large", left),
            ((-101, 0, 0), json!({"cache_write_5m": -101}), "correction_too_large", left),
            // 200 of the completion tokens are not reasoning.
            ((0, 0, -201), json!({}), "correction_too_large", left),
        ] {
            let refused = (code.to_owned(), message.to_owned());
            assert_eq!(report(books, &correction("c", tokens, parts)).await, refused);
        }
        let (code, message) =
            report(books, &correction("c", (-10, 0, 0), json!({"cache_write_5m": -11}))).await;
        assert_eq!(code, "invalid_event", "{message} {whole}");

        // 50 x 0.000003 + 100 x 0.00000375 + 300 x 0.00002 + 0.01 is refunded.
        let parts = json!({"cache_write_5m": -100, "reasoning": -300, "search": -1});
        assert_eq!(charge(books, &correction("c1", (-150, 0, -300), parts)).await, -16_525_000);
        // A correction can take back only the request.
        assert_eq!(charge(books, &correction("c2", (0, 0, 0), json!({"request": -1}))).await, -1_000_000);
        assert_clean(books).await;

        // After the close, the correction is a credit note about the remaining 0.01627.
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.set_time("2026-02-03T09:00:00Z");
        let parts = json!({"cache_write_1h": -50, "audio_prompt": -30, "image_prompt": -20, "search": -1});
        assert_eq!(charge(books, &correction("c3", (-850, -200, -200), parts)).await, -16_270_000);
        let expected = [
            "Correction of 2026-01: multi, prompt tokens | -570 | 0.000003 | -0.00171",
            "Correction of 2026-01: multi, cached prompt tokens | -200 | 0.0000003 | -0.00006",
            "Correction of 2026-01: multi, tokens written to the cache for an hour | -50 | 0.000006 | -0.0003",
            "Correction of 2026-01: multi, audio tokens of prompts | -30 | 0.00004 | -0.0012",
            "Correction of 2026-01: multi, completion tokens | -200 | 0.000015 | -0.003",
            "Correction of 2026-01: multi, searches | -1 | 0.01 | -0.01",
        ];
        assert_eq!(lines(books, "credit_note_items", "credit_note_id").await, expected);
        // January's usage that is reported late is on the next invoice, at January's price.
        charge(books, &event(books, "e2", (100, 0, 0), &json!({"search": 3}))).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        let all = lines(books, "invoice_items", "invoice_id").await;
        let late = [
            "Late usage of 2026-01: multi, prompt tokens | 100 | 0.000003 | 0.0003",
            "Late usage of 2026-01: multi, requests | 1 | 0.001 | 0.001",
            "Late usage of 2026-01: multi, searches | 3 | 0.01 | 0.03",
        ];
        assert_eq!(all[all.len() - 3..], late);
        assert_clean(books).await;
    });
}

/// Returns the rows of the export of January.
async fn exported(books: &Books<'_>, version: &str) -> Vec<Row> {
    let token = books.world.session(books.ada.id).await.access_token;
    let path = format!("{}/billing/export?format=focus&month=2026-01", books.place.organization_path());
    let answer = books.world.get(&format!("{path}&version={version}")).bearer(&token).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    csv::rows(&answer.text)
}

#[on_each_database]
fn pieces_are_billed_and_exported_in_their_units(database: Database) {
    with_configured_books(database, &[CATALOG], JANUARY, async |books| {
        let voice = |id, tokens, parts| with(event(books, id, tokens, parts), "model", json!("voice"));
        // 60 x 0.000001 = 0.00006, 40 x 0.000005 = 0.0002, 20 x 0.000002 = 0.00004, 30 x 0.00002 = 0.0006, 2
        // x 0.04 = 0.08, 7 x 0.0002 = 0.0014, 1,000 x 0.000015 = 0.015.
        let parts =
            json!({"image_prompt": 40, "audio_completion": 30, "image": 2, "second": 7, "character": 1_000});
        assert_eq!(charge(books, &voice("e1", (100, 0, 50), &parts)).await, 97_300_000);
        // 30 x 0.000005 = 0.00015, 0.04, 6 x 0.0002 = 0.0012 and 900 x 0.000015 = 0.0135 are refunded.
        let parts = json!({"image_prompt": -30, "image": -1, "second": -6, "character": -900});
        let correction = with(voice("c1", (-30, 0, 0), &parts), "corrects", json!("e1"));
        assert_eq!(charge(books, &correction).await, -54_850_000);
        assert_clean(books).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // The total is 0.04245: 0.0973 - 0.05485.
        let expected = [
            "voice, prompt tokens | 60 | 0.000001 | 0.00006",
            "voice, image tokens of prompts | 10 | 0.000005 | 0.00005",
            "voice, completion tokens | 20 | 0.000002 | 0.00004",
            "voice, audio tokens of completions | 30 | 0.00002 | 0.0006",
            "voice, images | 1 | 0.04 | 0.04",
            "voice, seconds | 1 | 0.0002 | 0.0002",
            "voice, characters | 100 | 0.000015 | 0.0015",
        ];
        assert_eq!(lines(books, "invoice_items", "invoice_id").await, expected);
        assert_eq!(books.invoices().await[0].amount.to_string(), "0.04245");
        let mut expected = [
            "voice/prompt: 60.0 Tokens x 0.000001 = 0.00006",
            "voice/image_prompt: 10.0 Tokens x 0.000005 = 0.00005",
            "voice/completion: 20.0 Tokens x 0.000002 = 0.00004",
            "voice/audio_completion: 30.0 Tokens x 0.00002 = 0.0006",
            "voice/image: 1.0 Images x 0.04 = 0.04",
            "voice/second: 1.0 Seconds x 0.0002 = 0.0002",
            "voice/character: 100.0 Characters x 0.000015 = 0.0015",
        ];
        expected.sort_unstable();
        for version in ["1.2", "1.3", "1.4"] {
            let rows = exported(books, version).await;
            let of = |row: &Row| {
                let cells =
                    ["ConsumedQuantity", "ConsumedUnit", "EffectiveCost"].map(|name| row[name].clone());
                let same = ["PricingQuantity", "PricingUnit", "BilledCost"].map(|name| row[name].clone());
                assert_eq!(cells, same, "{version}: {row:?}");
                let [quantity, unit, cost] = cells;
                format!("{}: {quantity} {unit} x {} = {cost}", row["SkuId"], row["ListUnitPrice"])
            };
            let mut found: Vec<_> = rows.iter().map(of).collect();
            found.sort();
            assert_eq!(found, expected, "{version}");
        }
        assert_clean(books).await;
    });
}

#[on_each_database]
fn wrong_parts_are_refused_by_name(database: Database) {
    with_configured_books(database, &[CATALOG], JANUARY, async |books| {
        let known = "`cache_write_5m`, `cache_write_1h`, `audio_prompt`, `image_prompt`, `reasoning`, \
                     `audio_completion`, `request`, `image`, `second`, `character`, `search`";
        let cases = [
            (json!({"thinking": 1}), format!("Unknown part `thinking`. Known parts are {known}.")),
            (json!({"prompt": 1}), format!("Unknown part `prompt`. Known parts are {known}.")),
            (json!([]), "`parts` must be an object, not an array.".to_owned()),
            (
                json!({"search": -1}),
                "`parts.search` must be 0 or more: only an event that `corrects` another takes something back.".to_owned(),
            ),
            (
                json!({"request": 1}),
                "`parts.request` is allowed only in an event that `corrects` another: every other event \
                 counts as one request."
                    .to_owned(),
            ),
            (
                json!({"cache_write_5m": 5, "audio_prompt": 4}),
                "Together, the `parts` of `prompt_tokens` and `cached_prompt_tokens` must be at most \
                 `prompt_tokens`: each token belongs to at most one part."
                    .to_owned(),
            ),
            (
                json!({"reasoning": 6}),
                "Together, the `parts` of `completion_tokens` must be at most `completion_tokens`: each \
                 token belongs to at most one part."
                    .to_owned(),
            ),
        ];
        for (parts, message) in cases {
            let wrong = event(books, "e", (10, 2, 5), &parts);
            let refused = report(books, &wrong).await;
            assert_eq!(refused, ("invalid_event".to_owned(), message), "{parts}");
            let answer = books.world.ask("/service/v1/usage", &json!({ "events": [wrong] })).bare().await;
            let field = answer["results"][0]["details"][0]["param"].as_str().unwrap();
            let names = ["parts", "parts.thinking", "parts.prompt"];
            assert!(names.contains(&field), "{field}: {parts}");
        }
        let tier = with(event(books, "e", (10, 0, 0), &json!({})), "service_tier", json!("fast"));
        let (code, message) = report(books, &tier).await;
        assert_eq!(code, "invalid_event", "{message}");
        assert_eq!(message, "`service_tier` must be one of `default`, `flex`, `priority`, `batch`.");
        let vectors = json!({"id": "e", "source": "s", "time": JANUARY, "api_key_id": books.keys[0],
            "model": "vectors", "kind": "embeddings", "prompt_tokens": 10, "parts": {"search": 3}});
        let refused = ("wrong_kind".to_owned(), "`parts.search` isn't possible for embeddings.".to_owned());
        assert_eq!(report(books, &vectors).await, refused);
        assert_eq!(wallet(books.world, &books.place.organization).await.0, 0);
    });
}
