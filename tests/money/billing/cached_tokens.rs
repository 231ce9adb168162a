//! Cached prompt tokens: their price in events, corrections, daily rows, invoices and credit notes.

use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::db::sql;

use super::golden::golden_with_settings;
use crate::audit::drop_triggers;
use support::books::{assert_books, wallet};
use support::http::Call;
use support::transcript::{Books, with_configured_books};
use support::{Database, on_each_database};

const TIERED: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/half_price.toml");
const JANUARY: &str = "2026-01-15T09:00:00Z";

#[on_each_database]
fn invoices_and_credit_notes_show_cached_tokens(database: Database) {
    golden_with_settings(database, &[TIERED], "cached_tokens", JANUARY, async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_cached("chat-cached", 2_000_000, 500_000, 100_000).await;
        books.correct_cached(1, 200_000, 100_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.set_time("2026-02-03T09:00:00Z");
        books.correct_cached(1, 900_000, 300_000, 0).await;
        books.write_balance().await;
        books.use_cached_at(JANUARY, "chat-cached", 300_000, 200_000, 0).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

/// Returns an event of `chat-cached`, which costs 0.000001 per prompt token, 0.0000001 per cached token and
/// 0.000003 per completion token.
fn event(books: &Books<'_>, id: &str, prompt: i64, cached: Value, completion: i64) -> Value {
    json!({"id": id, "source": "s", "time": JANUARY, "api_key_id": books.keys[0], "model": "chat-cached",
           "kind": "chat", "prompt_tokens": prompt, "cached_prompt_tokens": cached,
           "completion_tokens": completion})
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

/// Returns the prompt, cached and completion tokens of all daily rows, and their amount in pico.
async fn days(books: &Books<'_>) -> [i64; 4] {
    let (prompt, cached, completion, amount): (i64, i64, i64, i64) =
        sql("SELECT CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(cached_prompt_tokens) AS BIGINT),
                CAST(SUM(completion_tokens) AS BIGINT), CAST(SUM(amount_pico) AS BIGINT) FROM usage_daily")
        .one(&mut books.world.app.db.read().await.unwrap())
        .await
        .unwrap();
    [prompt, cached, completion, amount]
}

#[on_each_database]
fn cached_tokens_are_charged_at_their_price(database: Database) {
    with_configured_books(database, &[TIERED], JANUARY, async |books| {
        let ok = ("accepted".to_owned(), String::new());
        // 600 x 0.000001 + 400 x 0.0000001 + 200 x 0.000003 = 0.00124.
        let first = event(books, "e1", 1_000, json!(400), 200);
        assert_eq!(report(books, &first).await, ok);
        assert_eq!(days(books).await, [1_000, 400, 200, 1_240_000_000]);
        assert_eq!(wallet(books.world, &books.place.organization).await.0, -1_240_000);
        // An unknown number of cached tokens is charged as zero: 1,000 x 0.000001 = 0.001.
        assert_eq!(report(books, &event(books, "e2", 1_000, Value::Null, 0)).await, ok);
        assert_eq!(days(books).await, [2_000, 400, 200, 2_240_000_000]);
        // A prompt may be completely cached: 50 x 0.0000001 = 0.000005.
        let all = with(event(books, "e3", 50, json!(50), 0), "estimated", json!(true));
        assert_eq!(report(books, &all).await, ok);
        assert_eq!(days(books).await, [2_050, 450, 200, 2_245_000_000]);
        let mut tx = books.world.app.db.read().await.unwrap();
        let stored: Vec<(Option<i64>, i64)> =
            sql("SELECT cached_prompt_tokens, estimated FROM usage_events ORDER BY event_id")
                .all(&mut tx)
                .await
                .unwrap();
        drop(tx);
        assert_eq!(stored, [(Some(400), 0), (None, 0), (Some(50), 1)]);

        // The same event again is a duplicate, even with a default value written out. Any other difference is
        // a conflict.
        let again = with(first.clone(), "estimated", json!(false));
        assert_eq!(report(books, &again).await.0, "duplicate");
        for other in [
            with(first.clone(), "cached_prompt_tokens", json!(401)),
            with(first.clone(), "cached_prompt_tokens", Value::Null),
            with(first, "estimated", json!(true)),
            event(books, "e2", 1_000, json!(0), 0),
        ] {
            assert_eq!(report(books, &other).await.0, "event_conflict", "{other}");
        }
        assert_eq!(days(books).await, [2_050, 450, 200, 2_245_000_000]);
        assert_books(books.world).await;
    });
}

#[on_each_database]
fn wrong_counts_of_cached_tokens_are_refused(database: Database) {
    with_configured_books(database, &[TIERED], JANUARY, async |books| {
        for (cached, message) in [
            (
                json!(11),
                "`cached_prompt_tokens` must be at most `prompt_tokens`, because it is a part of them.",
            ),
            (
                json!(-1),
                "`cached_prompt_tokens` must be 0 or more. Only an event that `corrects` another one can take tokens back.",
            ),
        ] {
            let refused = ("invalid_event".to_owned(), message.to_owned());
            assert_eq!(report(books, &event(books, "e", 10, cached, 0)).await, refused);
        }
        assert_eq!(report(books, &event(books, "e1", 1_000, json!(400), 200)).await.0, "accepted");
        let correction = |id: &str, prompt, cached, completion| {
            with(event(books, id, prompt, json!(cached), completion), "corrects", json!("e1"))
        };
        let part = "In a correction `cached_prompt_tokens` is 0 or less, and not below `prompt_tokens`, of which it \
                    is a part.";
        let left = "Corrections can't take back more than the remainder of the event: 1000 prompt tokens \
                    (of which 400 are cached) \
                    and 200 completion tokens.";
        for (prompt, cached, completion, code, message) in [
            (-5, -6, 0, "invalid_correction", part),
            (-5, 1, 0, "invalid_correction", part),
            (0, -1, -1, "invalid_correction", part),
            // The correction takes back more cached or other tokens than the event has.
            (-401, -401, 0, "correction_too_large", left),
            (-601, 0, 0, "correction_too_large", left),
            (-1_000, 0, -200, "correction_too_large", left),
            (-1_000, -399, -200, "correction_too_large", left),
        ] {
            let refused = (code.to_owned(), message.to_owned());
            assert_eq!(report(books, &correction("c", prompt, cached, completion)).await, refused);
        }
        // 100 x 0.000001 + 100 x 0.0000001 + 100 x 0.000003 = 0.00041 of 0.00124 is refunded.
        assert_eq!(report(books, &correction("c1", -200, -100, -100)).await.0, "accepted");
        assert_eq!(days(books).await, [800, 300, 100, 830_000_000]);
        assert_eq!(report(books, &correction("c1", -200, -100, -100)).await.0, "duplicate");
        assert_eq!(report(books, &correction("c1", -200, -99, -100)).await.0, "event_conflict");
        assert_eq!(report(books, &correction("c2", -800, -300, -100)).await.0, "accepted");
        assert_eq!(days(books).await, [0; 4]);
        assert_eq!(wallet(books.world, &books.place.organization).await.0, 0);
        assert!(audit::check(&books.world.app.billing, None).await.unwrap().is_clean());
    });
}

#[on_each_database]
fn cloud_events_have_cached_tokens(database: Database) {
    with_configured_books(database, &[TIERED], JANUARY, async |books| {
        let data = json!({"api_key_id": books.keys[0], "model": "chat-cached", "kind": "chat",
            "prompt_tokens": 1_000, "cached_prompt_tokens": 400, "completion_tokens": 200, "estimated": false});
        let cloud = json!({"specversion": "1.0", "type": "tollkeeper.usage.v1", "id": "e1", "source": "s",
            "time": JANUARY, "data": data});
        let world = books.world;
        let call = Call::new(&world.service, http::Method::POST, "/service/v1/usage");
        let call = call.bearer(world.app.api.service_token.expose());
        let call = call.header("content-type", "application/cloudevents+json");
        let answer = call.raw(cloud.to_string().into_bytes()).bare().await;
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
        assert_eq!(days(books).await, [1_000, 400, 200, 1_240_000_000]);
        // A plain event with the same fields is a duplicate.
        assert_eq!(report(books, &event(books, "e1", 1_000, json!(400), 200)).await.0, "duplicate");
    });
}

#[on_each_database]
fn audit_finds_another_count_of_cached_tokens(database: Database) {
    with_configured_books(database, &[TIERED], JANUARY, async |books| {
        books.use_cached("chat-cached", 2_000_000, 500_000, 100_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let db = &books.world.app.db;
        drop_triggers(db).await;
        let check = async |text: &str| {
            let mut tx = db.write().await.unwrap();
            sql(text.to_owned()).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            let report = audit::check(&books.world.app.billing, None).await.unwrap();
            let rules = report.drifts.iter().map(|drift| drift.invariant.to_string());
            rules.filter(|rule| !crate::audit::is_recounted(rule)).collect::<Vec<_>>()
        };
        let event = "UPDATE usage_events SET cached_prompt_tokens =";
        assert_eq!(check(&format!("{event} 499999")).await, ["event_amount", "daily_usage"]);
        assert_eq!(check(&format!("{event} 500000")).await, [""; 0]);
        let day = "UPDATE usage_daily SET cached_prompt_tokens =";
        assert_eq!(check(&format!("{day} 499999")).await, ["daily_usage", "invoice_recomputed"]);
        assert_eq!(check(&format!("{day} 500000")).await, [""; 0]);
        let price = "UPDATE price_versions SET cached_prompt_pico =";
        let of = "WHERE model = 'chat-cached'";
        assert_eq!(check(&format!("{price} 100001 {of}")).await, ["event_amount", "invoice_recomputed"]);
        assert_eq!(check(&format!("{price} NULL {of}")).await, ["event_amount", "invoice_recomputed"]);
        assert_eq!(check(&format!("{price} 100000 {of}")).await, [""; 0]);
    });
}
