//! The audit of books with a long history. It finds and reports each kind of drift that is planted by hand.

use serde_json::json;
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::invoice_changes;
use tollkeeper::clock::Day;
use tollkeeper::db::{Db, sql};
use tollkeeper::trail::Trail;

use crate::audit::drop_triggers;
use support::billed::budgets_path;
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

/// Creates the history from January to April. Invoice 1 is open and has a credit note, invoice 2 has late
/// usage and is void, invoice 3 is paid, invoice 4 is uncollectible, and a grant expired.
async fn create_history(books: &mut Books<'_>) {
    books.grant_credit("20", "welcome", "2026-01-20T00:00:00Z").await;
    books.use_today("chat-a", 0, 500_000).await;
    books.set_time("2026-01-15T09:00:00Z");
    books.use_today("chat-a", 2_000_000, 0).await;
    books.correct_event(2, 100_000, 0).await;
    books.set_time("2026-01-21T09:00:00Z");
    books.run_scheduler().await;
    books.use_today("chat-a", 0, 1_000_000).await;
    books.set_time("2026-02-02T00:00:00Z");
    books.run_scheduler().await;
    books.use_on_day(Day::parse("2026-01-31").unwrap(), 1, "chat-a", 300_000, 0).await;
    books.use_today("embed-e", 1_001, 0).await;
    books.buy_credit("3", "payment 1").await;
    books.correct_event(1, 0, 100_000).await;
    books.set_time("2026-03-02T00:00:00Z");
    books.run_scheduler().await;
    books.void_invoice(2).await;
    books.use_today("chat-a", 0, 1_000_000).await;
    books.set_time("2026-04-02T00:00:00Z");
    books.run_scheduler().await;
    books.pay_invoice(3).await;
    books.use_today("chat-a", 0, 1_000_000).await;
    books.set_time("2026-05-02T00:00:00Z");
    books.run_scheduler().await;
    let last = books.invoices().await[3].id;
    invoice_changes::give_up(&books.world.app.billing, last, &Trail::operator()).await.unwrap();
    limit_all_usage(books).await;
}

/// Creates a budget for all usage until now.
async fn limit_all_usage(books: &mut Books<'_>) {
    let path = budgets_path(&books.place.organization);
    let body = json!({"name": "All", "scope": "organization", "period": "total", "limit": 1_000});
    let ada = books.world.session(books.ada.id).await;
    books.world.post(&path, &body).bearer(&ada.access_token).data().await;
}

/// Runs statements in one transaction, with the organization's id as `$1`.
async fn run(db: &Db, organization: &str, statements: &[&str]) {
    let mut tx = db.write().await.unwrap();
    for text in statements {
        let statement = sql((*text).to_owned());
        let statement = if text.contains("$1") { statement.bind(organization) } else { statement };
        let changed = statement.execute(&mut tx).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        let changes_tables = text.starts_with("CREATE") || text.starts_with("DROP");
        assert!(changed > 0 || changes_tables, "{text}");
    }
    tx.commit().await.unwrap();
}

/// A drift: its report, the statements that cause it, and the statements that repair it.
type Drift = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const FIRST_USE: &str = "(SELECT MIN(id) FROM ledger_transactions WHERE idempotency_key LIKE 'usage:%')";

const DRIFTS: &[Drift] = &[
    (
        &["wallet_missing"],
        &["CREATE TABLE keep AS SELECT * FROM wallets", "DELETE FROM wallets WHERE organization_id = $1"],
        &["INSERT INTO wallets SELECT * FROM keep", "DROP TABLE keep"],
    ),
    (
        &["wallet_posted", "debt_unbilled"],
        &["UPDATE wallets SET posted_nano = posted_nano - 1 WHERE organization_id = $1"],
        &["UPDATE wallets SET posted_nano = posted_nano + 1 WHERE organization_id = $1"],
    ),
    (
        &["wallet_reserved"],
        &["UPDATE wallets SET reserved_nano = reserved_nano + 1 WHERE organization_id = $1"],
        &["UPDATE wallets SET reserved_nano = reserved_nano - 1 WHERE organization_id = $1"],
    ),
    (
        &["budget_spent"],
        &["UPDATE budget_uses SET spent_pico = spent_pico + 1"],
        &["UPDATE budget_uses SET spent_pico = spent_pico - 1"],
    ),
    (
        &["budget_spent"],
        &["CREATE TABLE keep AS SELECT * FROM budget_uses", "DELETE FROM budget_uses"],
        &["INSERT INTO budget_uses SELECT * FROM keep", "DROP TABLE keep"],
    ),
    (
        &["budget_reserved"],
        &["UPDATE budgets SET reserved_nano = reserved_nano + 1 WHERE organization_id = $1"],
        &["UPDATE budgets SET reserved_nano = reserved_nano - 1 WHERE organization_id = $1"],
    ),
    (
        &["budget_count"],
        &["UPDATE wallets SET budgets = budgets + 1 WHERE organization_id = $1"],
        &["UPDATE wallets SET budgets = budgets - 1 WHERE organization_id = $1"],
    ),
    (
        &["movement_unbalanced"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano + 1 WHERE account = 'usage' AND transaction_id = FIRST_USE"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano - 1 WHERE account = 'usage' AND transaction_id = FIRST_USE"],
    ),
    (
        &["movement_unbalanced", "movement_one_sided"],
        &[
            "CREATE TABLE keep AS SELECT * FROM ledger_entries WHERE account = 'payments'",
            "DELETE FROM ledger_entries WHERE account = 'payments'",
        ],
        &["INSERT INTO ledger_entries SELECT * FROM keep", "DROP TABLE keep"],
    ),
    (
        &["movement_elsewhere"],
        &["UPDATE ledger_entries SET organization_id = 'org_x' WHERE account = 'payments'"],
        &["UPDATE ledger_entries SET organization_id = $1 WHERE account = 'payments'"],
    ),
    (
        &["daily_usage", "event_amount"],
        &["UPDATE usage_events SET amount_pico = amount_pico + 1 WHERE event_id = 'e3'"],
        &["UPDATE usage_events SET amount_pico = amount_pico - 1 WHERE event_id = 'e3'"],
    ),
    (
        &["daily_usage", "event_month", "event_price"],
        &["UPDATE usage_events SET price_version = price_version + 1 WHERE event_id = 'e1'"],
        &["UPDATE usage_events SET price_version = price_version - 1 WHERE event_id = 'e1'"],
    ),
    (
        &["event_month"],
        &["UPDATE usage_events SET billed_month = billed_month + 9 WHERE event_id = 'e1'"],
        &["UPDATE usage_events SET billed_month = billed_month - 9 WHERE event_id = 'e1'"],
    ),
    (
        &["daily_usage"],
        &["UPDATE usage_daily SET requests = requests + 1 WHERE month = 675"],
        &["UPDATE usage_daily SET requests = requests - 1 WHERE month = 675"],
    ),
    (
        &["daily_sums"],
        &["UPDATE usage_daily_sums SET amount_pico = amount_pico + 1 WHERE grouped_by = 'caller'"],
        &["UPDATE usage_daily_sums SET amount_pico = amount_pico - 1 WHERE grouped_by = 'caller'"],
    ),
    (
        &["daily_sums"],
        &["CREATE TABLE keep AS SELECT * FROM usage_daily_sums", "DELETE FROM usage_daily_sums"],
        &["INSERT INTO usage_daily_sums SELECT * FROM keep", "DROP TABLE keep"],
    ),
    (
        &["usage_total"],
        &["UPDATE usage_totals SET requests = requests + 1 WHERE subject_id LIKE 'proj_%'"],
        &["UPDATE usage_totals SET requests = requests - 1 WHERE subject_id LIKE 'proj_%'"],
    ),
    (
        &["usage_total"],
        &["UPDATE usage_totals SET tokens = tokens - 1 WHERE subject_id LIKE 'key_%'"],
        &["UPDATE usage_totals SET tokens = tokens + 1 WHERE subject_id LIKE 'key_%'"],
    ),
    (
        &["usage_total"],
        &["CREATE TABLE keep AS SELECT * FROM usage_totals", "DELETE FROM usage_totals"],
        &["INSERT INTO usage_totals SELECT * FROM keep", "DROP TABLE keep"],
    ),
    (
        &["daily_posted", "usage_posted", "invoice_amount", "invoice_recomputed"],
        &["UPDATE usage_daily SET posted_nano = posted_nano + 1 WHERE month = 675"],
        &["UPDATE usage_daily SET posted_nano = posted_nano - 1 WHERE month = 675"],
    ),
    (
        &["usage_posted"],
        &["UPDATE ledger_transactions SET kind = 'payment' WHERE id = FIRST_USE"],
        &["UPDATE ledger_transactions SET kind = 'usage' WHERE id = FIRST_USE"],
    ),
    (
        &["invoice_item", "invoice_recomputed"],
        &["UPDATE invoice_items SET quantity = quantity + 1 WHERE position = 1"],
        &["UPDATE invoice_items SET quantity = quantity - 1 WHERE position = 1"],
    ),
    (
        &["invoice_items", "invoice_amount", "invoice_void"],
        &["UPDATE invoices SET amount_nano = amount_nano + 1 WHERE number = 2"],
        &["UPDATE invoices SET amount_nano = amount_nano - 1 WHERE number = 2"],
    ),
    (
        &["invoice_recomputed"],
        &["UPDATE invoice_items SET description = description || 'x' WHERE kind = 'late_usage'"],
        &["UPDATE invoice_items SET description = REPLACE(description, 'x', '') WHERE kind = 'late_usage'"],
    ),
    (
        &["event_amount", "invoice_recomputed"],
        &["UPDATE price_versions SET completion_pico = completion_pico + 1 WHERE model = 'chat-a'"],
        &["UPDATE price_versions SET completion_pico = completion_pico - 1 WHERE model = 'chat-a'"],
    ),
    (
        &["invoice_recomputed"],
        &["UPDATE discount_versions SET tiers = '1000000:60000 10000000:100000'"],
        &["UPDATE discount_versions SET tiers = '1000000:50000 10000000:100000'"],
    ),
    (
        &["invoice_paid", "debt_unbilled"],
        &[
            "CREATE TABLE keep AS SELECT due_nano FROM invoices WHERE number = 1",
            "UPDATE invoices SET status = 'paid', paid_at = 0, due_nano = 0 WHERE number = 1",
        ],
        &[
            "UPDATE invoices SET status = 'open', paid_at = NULL, due_nano = (SELECT due_nano FROM keep) WHERE number = 1",
            "DROP TABLE keep",
        ],
    ),
    (
        &["invoice_due", "invoice_brought_forward"],
        &["UPDATE invoices SET brought_forward_nano = 1 WHERE number = 1"],
        &["UPDATE invoices SET brought_forward_nano = 0 WHERE number = 1"],
    ),
    (
        &["invoice_due", "debt_unbilled"],
        &["UPDATE invoices SET due_nano = due_nano - 1 WHERE number = 1"],
        &["UPDATE invoices SET due_nano = due_nano + 1 WHERE number = 1"],
    ),
    (
        &["invoice_due", "invoices_due"],
        &["UPDATE invoices SET due_nano = due_nano + 1 WHERE number = 1"],
        &["UPDATE invoices SET due_nano = due_nano - 1 WHERE number = 1"],
    ),
    (
        &["invoice_currency"],
        &["UPDATE invoices SET currency = 'EUR' WHERE number = 1"],
        &["UPDATE invoices SET currency = 'USD' WHERE number = 1"],
    ),
    (
        &["wallet_currency", "invoice_currency"],
        &["UPDATE wallets SET currency = 'EUR' WHERE organization_id = $1"],
        &["UPDATE wallets SET currency = 'USD' WHERE organization_id = $1"],
    ),
    (
        &["reservation_over"],
        &["INSERT INTO reservations (id, organization_id, project_id, model, amount_nano, created_at, expires_at)
           VALUES ('res_1', $1, 'p', 'm', 0, 0, 1)"],
        &["DELETE FROM reservations"],
    ),
    (
        &["credit_over"],
        &["UPDATE credits SET amount_nano = amount_nano + 1, remaining_nano = remaining_nano + 1 WHERE reference = 'welcome'"],
        &["UPDATE credits SET amount_nano = amount_nano - 1, remaining_nano = remaining_nano - 1 WHERE reference = 'welcome'"],
    ),
    (
        &["credits_unused"],
        &["UPDATE credits SET amount_nano = amount_nano + 1, remaining_nano = remaining_nano + 1 WHERE reference = 'payment 1'"],
        &["UPDATE credits SET amount_nano = amount_nano - 1, remaining_nano = remaining_nano - 1 WHERE reference = 'payment 1'"],
    ),
    (
        &["credit_rest"],
        &["UPDATE credits SET amount_nano = amount_nano + 1 WHERE reference = 'payment 1'"],
        &["UPDATE credits SET amount_nano = amount_nano - 1 WHERE reference = 'payment 1'"],
    ),
    (
        &["invoice_void"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN 1 ELSE -1 END
           WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE kind = 'void')"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano - CASE WHEN account = 'wallet' THEN 1 ELSE -1 END
           WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE kind = 'void')"],
    ),
    (
        &["invoice_write_off"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano + CASE WHEN account = 'wallet' THEN 1 ELSE -1 END
           WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE kind = 'write_off')"],
        &["UPDATE ledger_entries SET amount_nano = amount_nano - CASE WHEN account = 'wallet' THEN 1 ELSE -1 END
           WHERE transaction_id = (SELECT id FROM ledger_transactions WHERE kind = 'write_off')"],
    ),
    (
        &["credit_note_items", "credit_note_usage"],
        &["UPDATE credit_notes SET amount_nano = amount_nano + 1"],
        &["UPDATE credit_notes SET amount_nano = amount_nano - 1"],
    ),
    (
        &["credit_note_item"],
        &["UPDATE credit_note_items SET quantity = quantity + 1 WHERE position = 1"],
        &["UPDATE credit_note_items SET quantity = quantity - 1 WHERE position = 1"],
    ),
    (
        &["credit_note_usage"],
        &["UPDATE credited_usage SET amount_pico = amount_pico - 1"],
        &["UPDATE credited_usage SET amount_pico = amount_pico + 1"],
    ),
    (
        &["credit_note_number"],
        &["UPDATE credit_notes SET number = number + 1"],
        &["UPDATE credit_notes SET number = number - 1"],
    ),
    (
        &["open_month"],
        &["UPDATE wallets SET open_month = open_month + 2 WHERE organization_id = $1"],
        &["UPDATE wallets SET open_month = open_month - 2 WHERE organization_id = $1"],
    ),
    // The service is in use a month later, but May is not closed.
    (
        &["open_month"],
        &["UPDATE service_clock SET last_seen_at = last_seen_at + 2937600000"],
        &["UPDATE service_clock SET last_seen_at = last_seen_at - 2937600000"],
    ),
    (
        &["invoice_month", "invoice_amount"],
        &["UPDATE invoices SET month = month + 20 WHERE number = 3"],
        &["UPDATE invoices SET month = month - 20 WHERE number = 3"],
    ),
    (
        &["invoice_number"],
        &["UPDATE invoices SET number = number + 9 WHERE number = 3"],
        &["UPDATE invoices SET number = number - 9 WHERE number = 12"],
    ),
];

#[on_each_database]
fn each_kind_of_drift_is_found_and_reported(database: Database) {
    with_books(database, "2026-01-05T09:00:00Z", async |books| {
        create_history(books).await;
        let (app, organization) = (&books.world.app, books.place.organization.clone());
        let runs = format!(
            "INSERT INTO service_clock (id, last_seen_at, up_since_at) VALUES (1, {}, 0)
             ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at, up_since_at = 0",
            books.world.clock.now().unix_ms()
        );
        run(&app.db, &organization, &[&runs]).await;
        drop_triggers(&app.db).await;
        let clean = audit::check(&app.billing, None).await.unwrap();
        assert!(clean.is_clean(), "on {}: {:#?}", books.world.backend, clean.drifts);
        assert_eq!(clean.checked.invoices, 4);
        let mut missed = Vec::new();
        for (words, broken, mended) in DRIFTS {
            let plant = |statements: &[&str]| -> Vec<String> {
                statements.iter().map(|text| text.replace("FIRST_USE", FIRST_USE)).collect()
            };
            let (broken, mended) = (plant(broken), plant(mended));
            run(&app.db, &organization, &broken.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let report = audit::check(&app.billing, None).await.unwrap();
            run(&app.db, &organization, &mended.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let found: Vec<String> = report.drifts.iter().map(|drift| drift.invariant.to_string()).collect();
            for word in words.iter().filter(|word| !found.iter().any(|found| found == *word)) {
                missed.push(format!("{word} after {broken:?}: {:?}", report.drifts));
            }
        }
        assert!(missed.is_empty(), "on {}: {missed:#?}", books.world.backend);
        let clean = audit::check(&app.billing, None).await.unwrap();
        assert!(clean.is_clean(), "on {}: {:#?}", books.world.backend, clean.drifts);
    });
}
