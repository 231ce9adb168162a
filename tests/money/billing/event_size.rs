//! The disk space of a usage event without parts, and of its row in the call log. The event must not exceed the
//! size before prices had components.

use serde_json::json;
use tollkeeper::db::sql;

use support::transcript::{Books, CATALOG, with_configured_books};
use support::{Database, on_sqlite};

/// Maximum number of bytes per event: the size in the database file before components, and 5% more.
const MAX_BYTES: f64 = 228.9 * 1.05;
/// Maximum number of bytes per row of the call log, including its indexes.
const MAX_LOGGED_BYTES: f64 = 220.0;
const BATCH: usize = 1_000;

/// Returns the size of the database, in bytes.
async fn bytes(books: &Books<'_>) -> i64 {
    let text = "SELECT p.page_count * s.page_size FROM pragma_page_count() p, pragma_page_size() s";
    let (bytes,): (i64,) = sql(text).one(&mut books.world.app.db.read().await.unwrap()).await.unwrap();
    bytes
}

async fn report_batches(books: &Books<'_>, batches: std::ops::Range<usize>) {
    for batch in batches {
        let time = books.world.clock.now().to_string();
        let event = |number: usize| {
            json!({"id": format!("call-{batch:05}-{number:04}"), "source": "bench", "time": time,
                "api_key_id": books.keys[number % 2], "model": "chat-a", "kind": "chat", "prompt_tokens": 120,
                "completion_tokens": 240})
        };
        let events: Vec<_> = (0..BATCH).map(event).collect();
        let answer = books.world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
        let results = answer["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["status"] == "accepted"), "{}", results[0]);
    }
}

#[on_sqlite]
fn event_without_parts_is_small(database: Database) {
    for (days, max_bytes) in [("0", MAX_BYTES), ("30", MAX_BYTES + MAX_LOGGED_BYTES)] {
        let settings = [CATALOG, ("TOLLKEEPER_CALLS__DAYS", days)];
        with_configured_books(database, &settings, "2026-01-15T09:00:00Z", async |books| {
            report_batches(books, 0..4).await;
            let before = bytes(books).await;
            report_batches(books, 4..14).await;
            let each = (bytes(books).await - before) as f64 / (10 * BATCH) as f64;
            println!("{each:.1} bytes per event, kept in the log for {days} days");
            assert!(each <= max_bytes, "{days} days: {each:.1} bytes, and at most {max_bytes:.1}");
        });
    }
}
