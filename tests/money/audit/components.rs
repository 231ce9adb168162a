//! Faults in the usage of components other than tokens, and in the choice of prices. Each is planted by hand
//! into a history without faults. `$1` is the organization. In the catalog `components.toml`, 300 + 100
//! tokens cost the same at every hour.

use serde_json::json;

use super::faults::{Fault, fault};
use super::recount::Bench;
use support::transcript::{Books, with_configured_books};
use support::{Database, on_each_database};

/// Creates a history in which March is closed and has a credit note about parts, and April is open.
async fn history(books: &mut Books<'_>) {
    // 2026-03-10 is a Tuesday.
    books
        .use_parts("talk", [1_000, 100, 500], &json!({"cache_write_5m": 50, "reasoning": 200, "search": 2}))
        .await;
    books.set_time("2026-03-11T12:00:00Z");
    books.use_parts("talk", [300, 0, 100], &json!({})).await;
    books.set_time("2026-03-12T12:00:00Z");
    books.use_parts("talk", [3_000, 0, 1_000], &json!({})).await;
    books.set_time("2026-03-13T21:00:00Z");
    books.use_parts("talk", [300, 0, 100], &json!({})).await;
    books.set_time("2026-04-02T09:00:00Z");
    books.run_scheduler().await;
    books.correct_parts(1, [300, 0, 200], &json!({"reasoning": -100, "search": -1})).await;
    books.set_time("2026-04-02T12:00:00Z");
    // 600 x 0.000002 + 180 x 0.000006 + 20 x 0.000009 + 0.001 + 0.01 = 0.01346
    books.use_parts("talk", [600, 0, 200], &json!({"reasoning": 20, "search": 1})).await;
    books.set_time("2026-04-02T15:00:00Z");
}

/// Days since 1970: 2026-03-10 is 20522, 2026-04-02 is 20545.
const FAULTS: &[Fault] = &[
    fault(
        "an event has more of a part",
        &["UPDATE usage_events SET parts = REPLACE(parts, 'r20q', 'r21q') WHERE occurred_at / 86400000 = 20545"],
        &["recount_price", "recount_events"],
    ),
    fault(
        "a daily row has more of a part",
        &["UPDATE usage_daily_parts SET quantity = quantity + 1 WHERE day = 20545 AND component = 'search'"],
        &["recount_day", "recount_events"],
    ),
    fault(
        "a part of a daily row is lost",
        &["DELETE FROM usage_daily_parts WHERE day = 20545 AND component = 'reasoning'"],
        &["recount_day", "recount_events"],
    ),
    fault(
        "a part has another daily row",
        &["UPDATE usage_daily_parts SET kind = 'embeddings' WHERE day = 20545 AND component = 'search'"],
        &["recount_day", "recount_events"],
    ),
    fault(
        "a component has another price",
        &["UPDATE price_versions SET components = REPLACE(components, 'search:10000000000', 'search:10000000001')
           WHERE components LIKE '%search%'"],
        &["recount_price", "recount_day", "recount_credit_notes"],
    ),
    fault(
        "a part of tokens has another price, and so has its discount",
        &[
            "UPDATE price_versions SET components = REPLACE(components, 'reasoning:9000000', 'reasoning:6000000')
             WHERE components LIKE '%search%'",
        ],
        &["recount_price", "recount_day", "recount_invoice"],
    ),
    fault(
        "a price of other hours",
        &[
            "UPDATE usage_events SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at > 1750000000000) WHERE occurred_at / 86400000 = 20523",
            "UPDATE usage_daily SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at > 1750000000000) WHERE day = 20523",
            "UPDATE usage_daily_parts SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at > 1750000000000) WHERE day = 20523",
        ],
        &["recount_price"],
    ),
    fault(
        "the price of a long prompt for a short one",
        &[
            "UPDATE usage_events SET price_version = (SELECT version FROM conditional_prices WHERE conditions LIKE 'above:%')
             WHERE occurred_at / 86400000 = 20523",
            "UPDATE usage_daily SET price_version = (SELECT version FROM conditional_prices WHERE conditions LIKE 'above:%')
             WHERE day = 20523",
            "UPDATE usage_daily_parts SET price_version = (SELECT version FROM conditional_prices WHERE conditions LIKE 'above:%')
             WHERE day = 20523",
        ],
        &["recount_price"],
    ),
    fault(
        "the price of a short prompt for a long one",
        &[
            "UPDATE usage_events SET price_version = 1769904000000 WHERE occurred_at / 86400000 = 20524",
            "UPDATE usage_daily SET price_version = 1769904000000 WHERE day = 20524",
            "UPDATE usage_daily_parts SET price_version = 1769904000000 WHERE day = 20524",
        ],
        &["recount_price"],
    ),
    fault(
        "the earlier price for these hours",
        &[
            "UPDATE usage_events SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at < 1750000000000) WHERE occurred_at / 86400000 = 20525",
            "UPDATE usage_daily SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at < 1750000000000) WHERE day = 20525",
            "UPDATE usage_daily_parts SET price_version = (SELECT version FROM conditional_prices
                 WHERE conditions LIKE 'hours:%' AND effective_at < 1750000000000) WHERE day = 20525",
        ],
        &["recount_price"],
    ),
    fault(
        "a correction at another price than the corrected event",
        &[
            "UPDATE usage_events SET price_version = (SELECT MIN(version) FROM conditional_prices) WHERE corrects IS NOT NULL",
            "UPDATE usage_daily SET price_version = (SELECT MIN(version) FROM conditional_prices) WHERE requests = 0",
            "UPDATE usage_daily_parts SET price_version = (SELECT MIN(version) FROM conditional_prices) WHERE quantity < 0",
        ],
        &["recount_price"],
    ),
    fault(
        "a request is charged twice in every sum",
        &[
            "UPDATE usage_events SET parts = REPLACE(parts, 'q1', 'q2'), amount_pico = amount_pico + 1000000000
             WHERE occurred_at / 86400000 = 20545",
            "UPDATE usage_daily_parts SET quantity = 2 WHERE day = 20545 AND component = 'request'",
            "UPDATE usage_daily SET amount_pico = amount_pico + 1000000000, posted_nano = posted_nano + 1000000 WHERE day = 20545",
            "UPDATE usage_daily_sums SET amount_pico = amount_pico + 1000000000 WHERE day = 20545",
            "UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN -1000000 ELSE 1000000 END
             WHERE transaction_id = (SELECT transaction_id FROM ledger_entries WHERE account = 'wallet' AND amount_nano = -13460000)",
            "UPDATE wallets SET posted_nano = posted_nano - 1000000 WHERE organization_id = $1",
        ],
        &["recount_price"],
    ),
    fault(
        "a credit note forgets a part",
        &[
            "UPDATE credit_notes SET amount_nano = amount_nano - 10000000",
            "UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN -10000000 ELSE 10000000 END
             WHERE transaction_id = (SELECT t.id FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id
                 WHERE t.kind = 'usage' AND e.account = 'wallet' AND e.amount_nano > 0)",
            "UPDATE wallets SET posted_nano = posted_nano - 10000000 WHERE organization_id = $1",
        ],
        &["recount_credit_notes"],
    ),
    fault(
        "the usage that a credit note took back has lost its parts",
        &["UPDATE credited_usage SET parts = NULL"],
        &["recount_credit_notes"],
    ),
];

#[on_each_database]
fn planted_faults_in_components_are_found(database: Database) {
    let catalog = [("TOLLKEEPER_CATALOG_FILE", "tests/support/src/components.toml")];
    with_configured_books(database, &catalog, "2026-03-10T12:00:00Z", async |books| {
        history(books).await;
        Bench::new(books).await.find_all(FAULTS).await;
    });
}
