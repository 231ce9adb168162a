//! Checks the books against rules that must hold after every movement of money.

use std::collections::BTreeMap;

use tollkeeper::app::App;
use tollkeeper::clock::{Day, Month};
use tollkeeper::db::{Tx, sql};

use super::world::World;

/// SQL queries that select the rows that break a rule. In correct books each returns no rows.
const RULES: &[(&str, &str)] = &[
    (
        "every movement sums to zero",
        "SELECT t.id FROM ledger_transactions t LEFT JOIN ledger_entries e ON e.transaction_id = t.id
         GROUP BY t.id HAVING COUNT(e.account) <> 2 OR SUM(e.amount_nano) <> 0",
    ),
    (
        "no movement has the amount 0",
        "SELECT transaction_id FROM ledger_entries WHERE amount_nano = 0",
    ),
    (
        "the balance is the sum of the wallet's entries",
        "SELECT organization_id FROM wallets w WHERE posted_nano <>
            (SELECT COALESCE(SUM(amount_nano), 0) FROM ledger_entries e
             WHERE e.organization_id = w.organization_id AND e.account = 'wallet')",
    ),
    (
        "the reserved amount is the sum of the reservations",
        "SELECT organization_id FROM wallets w WHERE reserved_nano <>
            (SELECT COALESCE(SUM(amount_nano), 0) FROM reservations r WHERE r.organization_id = w.organization_id)",
    ),
    (
        "reservations have a wallet",
        "SELECT id FROM reservations WHERE organization_id NOT IN (SELECT organization_id FROM wallets)",
    ),
    (
        "the posted amounts of daily rows match the usage in the ledger",
        "SELECT organization_id FROM wallets w WHERE
            (SELECT COALESCE(SUM(posted_nano), 0) FROM usage_daily d WHERE d.organization_id = w.organization_id) <>
            (SELECT COALESCE(SUM(-e.amount_nano), 0) FROM ledger_entries e
             JOIN ledger_transactions t ON t.id = e.transaction_id AND t.kind = 'usage'
             WHERE e.organization_id = w.organization_id AND e.account = 'wallet')",
    ),
    (
        "the posted amount of a daily row is its whole nanos",
        "SELECT api_key_id FROM usage_daily WHERE
            (posted_nano / 1000000000 - amount_whole) * 1000000000000 + posted_nano % 1000000000 * 1000 > amount_pico
            OR (posted_nano / 1000000000 - amount_whole) * 1000000000000 + posted_nano % 1000000000 * 1000 + 1000 <= amount_pico",
    ),
    (
        "totals are the sums of daily rows",
        "SELECT subject_id FROM usage_totals t WHERE requests <>
            (SELECT COALESCE(SUM(d.requests), 0) FROM usage_daily d
             WHERE d.organization_id = t.organization_id AND t.subject_id IN (d.project_id, d.api_key_id))
            OR tokens <> (SELECT COALESCE(SUM(d.prompt_tokens) + SUM(d.completion_tokens), 0) FROM usage_daily d
             WHERE d.organization_id = t.organization_id AND t.subject_id IN (d.project_id, d.api_key_id))",
    ),
    (
        "projects and keys with usage have totals, but users don't",
        "SELECT project_id FROM usage_daily d WHERE (SELECT COUNT(*) FROM usage_totals t
             WHERE t.organization_id = d.organization_id AND t.subject_id IN (d.project_id, d.api_key_id))
             <> CASE WHEN d.api_key_id LIKE 'user%' THEN 1 ELSE 2 END",
    ),
    (
        "parts belong to a daily row",
        "SELECT component FROM usage_daily_parts p WHERE NOT EXISTS (SELECT 1 FROM usage_daily d
             WHERE d.organization_id = p.organization_id AND d.project_id = p.project_id AND d.day = p.day
                AND d.api_key_id = p.api_key_id AND d.model = p.model AND d.price_version = p.price_version
                AND d.kind = p.kind AND d.month = p.month)",
    ),
    (
        "every debt comes from a charge",
        "SELECT organization_id FROM wallets w WHERE posted_nano >
            (SELECT COALESCE(SUM(remaining_nano), 0) FROM credits c WHERE c.organization_id = w.organization_id)",
    ),
    ("no credit exceeds its original amount", "SELECT id FROM credits WHERE remaining_nano > amount_nano"),
];

/// The sums of the events, and below the sums of the daily rows. The test selects the differences between
/// them.
const EVENTS: &str = "SELECT organization_id, project_id, api_key_id, model, price_version, kind, day,
     CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(p) AS BIGINT) AS p, CAST(SUM(c) AS BIGINT) AS c,
     CAST(SUM(cached) AS BIGINT) AS cached,
     CAST(SUM(amount / 1000000000000) AS BIGINT) AS whole, CAST(SUM(amount % 1000000000000) AS BIGINT) AS rest
  FROM (SELECT organization_id, project_id, api_key_id, model, price_version, kind, occurred_at / 86400000 AS day,
               CASE WHEN corrects IS NULL THEN 1 ELSE 0 END AS requests, prompt_tokens AS p, completion_tokens AS c,
               COALESCE(cached_prompt_tokens, 0) AS cached, amount_pico AS amount FROM usage_events) e
  GROUP BY organization_id, project_id, api_key_id, model, price_version, kind, day";
const DAYS: &str = "SELECT organization_id, project_id, api_key_id, model, price_version, kind, day,
     CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(prompt_tokens) AS BIGINT) AS p,
     CAST(SUM(completion_tokens) AS BIGINT) AS c, CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached,
     CAST(SUM(amount_whole + amount_pico / 1000000000000) AS BIGINT) AS whole,
     CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest
  FROM usage_daily GROUP BY organization_id, project_id, api_key_id, model, price_version, kind, day";

/// The sums by model and by caller that follow from the daily rows, and below the stored sums. Both have the
/// columns of [`DAYS`].
const DUE_SUMS: &str = "SELECT organization_id, project_id, grouped_by AS api_key_id, group_id AS model, 0 AS price_version, kind, day,
     CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(prompt_tokens) AS BIGINT) AS p,
     CAST(SUM(completion_tokens) AS BIGINT) AS c, 0 AS cached,
     CAST(SUM(amount_whole + amount_pico / 1000000000000) AS BIGINT) AS whole,
     CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest
  FROM (SELECT d.*, 'model' AS grouped_by, model AS group_id FROM usage_daily d
        UNION ALL SELECT d.*, 'caller', api_key_id FROM usage_daily d) each_sum
  GROUP BY organization_id, project_id, grouped_by, group_id, kind, day";
const SUMS: &str = "SELECT organization_id, project_id, grouped_by AS api_key_id, group_id AS model, 0 AS price_version, kind, day,
     requests, prompt_tokens AS p, completion_tokens AS c, 0 AS cached,
     amount_whole + amount_pico / 1000000000000 AS whole, amount_pico % 1000000000000 AS rest
  FROM usage_daily_sums";

const PER_WHOLE: i64 = 1_000_000_000_000;

/// Asserts that the books are correct.
pub async fn assert_books(world: &World) {
    assert_books_of(&world.app).await;
}

/// Like [`assert_books`], for an application.
pub async fn assert_books_of(app: &App) {
    let mut tx = app.db.read().await.unwrap();
    for (rule, text) in RULES {
        let broken: Vec<(String,)> = sql(*text).all(&mut tx).await.unwrap();
        assert!(broken.is_empty(), "{rule}: {broken:?}");
    }
    let days: Vec<(Day, Month)> = sql("SELECT day, month FROM usage_daily").all(&mut tx).await.unwrap();
    assert!(
        days.iter().all(|(day, month)| day.month() <= *month),
        "a daily row is billed in its month or later"
    );
    // Normalizes the smaller part of each sum to 0 or more, so that equal sums compare equal.
    let of = |sums: &str| {
        let rest = format!("((rest % {PER_WHOLE} + {PER_WHOLE}) % {PER_WHOLE})");
        format!(
            "SELECT organization_id, project_id, api_key_id, model, price_version, kind, day, requests, p, c, cached,
                    whole + (rest - {rest}) / {PER_WHOLE} AS whole, {rest} AS rest FROM ({sums}) s"
        )
    };
    for (rule, a, b) in [
        ("daily rows are the sums of their events", EVENTS, DAYS),
        ("totals are the sums of daily rows", DUE_SUMS, SUMS),
    ] {
        let (a, b) = (of(a), of(b));
        for text in [format!("{a} EXCEPT {b}"), format!("{b} EXCEPT {a}")] {
            let broken: Vec<(String, String, String, String)> = sql(text).all(&mut tx).await.unwrap();
            assert!(broken.is_empty(), "{rule}: {broken:?}");
        }
    }
    let of_events: Vec<PartsRow> = sql(PARTS_OF_EVENTS).all(&mut tx).await.unwrap();
    let of_days: Vec<PartsRow> = sql(PARTS_OF_DAYS).all(&mut tx).await.unwrap();
    assert_eq!(
        sum_parts(of_events),
        sum_parts(of_days),
        "parts of daily rows are the sums of the parts of events"
    );
}

/// A string that identifies the usage, and its components other than tokens: the name of each with its
/// quantity.
type PartsRow = (String, String);

const PARTS_OF_EVENTS: &str =
    "SELECT organization_id || ' ' || project_id || ' ' || api_key_id || ' ' || model || ' ' || kind || ' '
         || CAST(price_version AS TEXT) || ' ' || CAST(occurred_at / 86400000 AS TEXT) AS used, parts
     FROM usage_events WHERE parts IS NOT NULL";
const PARTS_OF_DAYS: &str = "SELECT organization_id || ' ' || project_id || ' ' || api_key_id || ' ' || model || ' ' || kind || ' '
         || CAST(price_version AS TEXT) || ' ' || CAST(day AS TEXT) AS used, component || ':' || CAST(quantity AS TEXT) AS parts
     FROM usage_daily_parts";

/// Expands the letters of an event's components to names: `r30f2` becomes `reasoning:30 search:2`.
fn named(parts: &str) -> String {
    const NAMES: [(char, &str); 11] = [
        ('w', "cache_write_5m"),
        ('h', "cache_write_1h"),
        ('a', "audio_prompt"),
        ('i', "image_prompt"),
        ('r', "reasoning"),
        ('o', "audio_completion"),
        ('q', "request"),
        ('m', "image"),
        ('s', "second"),
        ('c', "character"),
        ('f', "search"),
    ];
    let words = parts.chars().map(|c| match NAMES.iter().find(|(letter, _)| *letter == c) {
        Some((_, name)) => format!(" {name}:"),
        None => c.to_string(),
    });
    words.collect()
}

/// Adds up components by usage and name.
fn sum_parts(rows: Vec<PartsRow>) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (used, parts) in rows {
        let parts = if parts.contains(':') { parts } else { named(&parts) };
        for part in parts.split_whitespace() {
            let (name, quantity) = part.split_once(':').unwrap();
            *sums.entry(format!("{used} {name}")).or_insert(0) += quantity.parse::<i64>().unwrap();
        }
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Returns the number that an SQL query selects.
pub async fn number(world: &World, text: &str) -> i64 {
    let mut tx: Tx = world.app.db.read().await.unwrap();
    let (number,): (i64,) = sql(text.to_owned()).one(&mut tx).await.unwrap();
    number
}

/// Changes rows directly in the database, without the server.
pub async fn change(world: &World, text: &str) {
    let mut tx = world.app.db.write().await.unwrap();
    sql(text.to_owned()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Returns the posted and the reserved amount of an organization, in nanos.
pub async fn wallet(world: &World, organization: &str) -> (i64, i64) {
    let mut tx = world.app.db.read().await.unwrap();
    sql("SELECT posted_nano, reserved_nano FROM wallets WHERE organization_id = $1")
        .bind(organization)
        .one(&mut tx)
        .await
        .unwrap()
}
