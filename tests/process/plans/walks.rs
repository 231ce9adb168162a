//! Audits, the removal of old events, and lists of customers. They read slices and pages with an index.

use tollkeeper::billing::recount;
use tollkeeper::billing::store::usage::costs::{self, CostGroups};
use tollkeeper::billing::store::usage::{day_parts, recording, retention, totals};
use tollkeeper::billing::store::{audit, credits, ledger};
use tollkeeper::db::sql;

use super::plan;
use support::on_each_database;
use support::world::World;

/// The audit and the removal of old events read slices. An index finds the end of the previous slice. Lists
/// read a page.
#[on_each_database]
async fn walks_over_the_books_use_their_keys(world: World) {
    let db = &world.app.db;
    let (series, hash) = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)",
        if db.is_postgres() { "'\\x00'::bytea" } else { "x'00'" },
    );
    // PostgreSQL would read a small ledger as a whole.
    let longer = series.replace("6000", "40000");
    let organization = "'org_' || CAST(i % 10 AS TEXT)";
    let mut tx = db.write().await.unwrap();
    for text in [
        format!("{series} INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model,
                         kind, occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
                     SELECT {organization}, 's', CAST(i AS TEXT), {hash}, 'p', 'k', 'm', 'chat', i, i, 1, 0, 0, 1 FROM n"),
        format!("{series} INSERT INTO usage_daily SELECT {organization}, 'p', 'k', 'm', 0, 'chat', i, 1, 1, 1, 1, 1, 0, 0, 0, 0 FROM n"),
        format!("{series} INSERT INTO daily_costs SELECT i / 10, {organization}, 'm', 'up', 1, 1, 1, 0, 1, 0, 1 FROM n"),
        // PostgreSQL would read all rows if the rows of an organization were spread over the whole table.
        format!("{longer} INSERT INTO usage_daily_parts SELECT 'org_' || CAST(i / 4000 AS TEXT), 'p', i, 'k', 'm', 0, 'chat', i % 50,
                     'search', 1 FROM n"),
        format!("{longer} INSERT INTO ledger_transactions SELECT 'ltx_' || CAST(i AS TEXT), {organization}, 'usage', CAST(i AS TEXT), i FROM n"),
        format!("{longer} INSERT INTO ledger_entries SELECT 'ltx_' || CAST(i AS TEXT), 'wallet', {organization}, 0 FROM n"),
        format!("{series} INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano, created_at)
                     SELECT 'credit_' || CAST(i AS TEXT), {organization}, 'grant', CAST(i AS TEXT), 1, 1, i FROM n"),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let (by_time, credits_by_time) =
        ("ledger_transactions_organization_id_happened_at", "credits_organization_id_created_at");
    let by_organization = costs::days_text(CostGroups { organization: true, ..CostGroups::default() });
    let cases: [(&str, &[&str], &str); 24] = [
        // The days of a report on margins.
        (&by_organization, &["100", "131", "1000"], "daily_costs_pkey|PRIMARY KEY"),
        // Lists of customers: a page from either end, and the number of rows.
        (&ledger::FROM_START, &["org_5", "0", "90000", "20", "100"], by_time),
        (&ledger::FROM_END, &["org_5", "0", "90000", "20", "100"], by_time),
        (ledger::COUNT, &["org_5", "0", "3000"], by_time),
        (&credits::PAGE, &["org_5", "20", "100"], credits_by_time),
        (credits::COUNT, &["org_5"], "credits_organization_id_"),
        (audit::NEXT_ORGANIZATION, &["org_5"], "usage_events"),
        (audit::MOVEMENTS, &["org_5", "k", "20"], "ledger_transactions_organization_id_idempotency_key"),
        (
            audit::DAILY,
            &["org_5", "p", "7", "k", "m", "0", "chat", "1", "20"],
            "usage_daily_pkey|PRIMARY KEY",
        ),
        (
            audit::DAILY_PARTS,
            &["org_5", "p", "7", "k", "m", "0", "chat", "1", "search", "20"],
            "usage_daily_parts_pkey|PRIMARY KEY",
        ),
        (day_parts::BILLED, &["org_5", "7"], "usage_daily_parts_month"),
        (audit::SUMS, &["org_5", "p", "model", "7", "m", "chat", "20"], "usage_daily_sums_pkey|PRIMARY KEY"),
        (audit::TOTALS, &["org_5", "p", "20"], "usage_totals_pkey|PRIMARY KEY"),
        (totals::GET, &["org_5", "p"], "usage_totals_pkey|PRIMARY KEY"),
        (audit::EVENTS, &["org_5", "s", "e", "20"], "usage_events_pkey|PRIMARY KEY"),
        (recount::DAILY, &["org_5"], "usage_daily_pkey|PRIMARY KEY|usage_daily_project_month"),
        (recount::DAILY_PARTS, &["org_5"], "usage_daily_parts_pkey|PRIMARY KEY|usage_daily_parts_month"),
        (recount::EVENTS_END, &["org_5", "s", "e", "20"], "usage_events_pkey|PRIMARY KEY"),
        (recount::EVENTS, &["org_5", "s", "e", "s", "f"], "usage_events_pkey|PRIMARY KEY"),
        (recount::CALLS, &["org_5", "s", "e", "s", "f"], "usage_events_pkey|PRIMARY KEY"),
        (
            recount::LEDGER,
            &["org_5", "payment:", "payment;"],
            "ledger_transactions_organization_id_idempotency_key",
        ),
        (retention::SLICE_END, &["org_5", "s", "e", "20"], "usage_events_pkey|PRIMARY KEY"),
        (recording::OF_CALL, &["org_5", "s", "e", "e.2", "e.3", "p"], "usage_events_pkey|PRIMARY KEY"),
        (
            retention::COUNT_OLDER,
            &["org_5", "s", "a", "org_5", "s", "b", "9"],
            "usage_events_pkey|PRIMARY KEY",
        ),
    ];
    for (text, parameters, index) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        // Scans may read only small tables, which are empty here, and rows that a slice has already found.
        let large = ["usage_events", "usage_daily", "daily_costs", "usage_totals", "ledger_", "credits"];
        let scans = |line: &&str| {
            (line.contains("Seq Scan") || line.starts_with("SCAN "))
                && large.iter().any(|name| line.contains(name))
        };
        assert_eq!(plan.lines().filter(scans).count(), 0, "{what}");
    }
}
