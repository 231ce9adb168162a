//! The audit of the books: correct books pass, and each broken rule is reported by its name.

mod call_log;
mod components;
mod faults;
mod recount;

use serde_json::{Value, json};
use tollkeeper::billing::audit::{self, Report};
use tollkeeper::clock::{DAY_MS, Day};
use tollkeeper::db::{Db, FromRow, Row, Settings, Tx, sql};
use tollkeeper::ids::OrganizationId;

use support::process::Start;
use support::world::{Folder, World};
use support::{Database, on_each_database};

/// January 2026, in months since 1970-01.
const JANUARY: i64 = 672;

/// The name of a trigger.
struct Name(String);

impl FromRow for Name {
    fn from_row(row: &Row) -> Result<Self, tollkeeper::db::Error> {
        row.get("name").map(Self)
    }
}

/// Drops the triggers that protect rows from changes.
pub async fn drop_triggers(db: &Db) {
    let tables = [
        "ledger_transactions",
        "ledger_entries",
        "invoice_items",
        "invoices",
        "usage_events",
        "credit_notes",
        "credit_note_items",
        "price_versions",
        "conditional_prices",
        "discount_versions",
        "audit_log",
    ];
    let mut tx = db.write().await.unwrap();
    for table in tables {
        if db.is_postgres() {
            sql(format!("ALTER TABLE {table} DISABLE TRIGGER USER")).execute(&mut tx).await.unwrap();
            continue;
        }
        let broken_rules =
            sql("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = $1").bind(table);
        let triggers: Vec<Name> = broken_rules.all(&mut tx).await.unwrap();
        for Name(trigger) in triggers {
            sql(format!("DROP TRIGGER {trigger}")).execute(&mut tx).await.unwrap();
        }
    }
    tx.commit().await.unwrap();
}

/// Runs statements in one transaction, with the organization's id as `$1`.
async fn run(db: &Db, organization: &str, statements: &[&str]) {
    let mut tx = db.write().await.unwrap();
    for text in statements {
        let statement = sql((*text).to_owned());
        let statement = if text.contains("$1") { statement.bind(organization) } else { statement };
        let changed = statement.execute(&mut tx).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(changed > 0, "{text}");
    }
    tx.commit().await.unwrap();
}

async fn event(
    tx: &mut Tx,
    organization: &str,
    id: &str,
    corrects: Option<&str>,
    day: &str,
    tokens: i64,
    amount_pico: i64,
) {
    sql("INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model, kind,
             occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico, corrects)
         VALUES ($1, 's', $2, $3, 'p', 'k', 'm', 'chat', $4, $4, $5, 0, 0, $6, $7)")
    .bind(organization)
    .bind(id)
    .bind([7_u8; 32])
    .bind(Day::parse(day).unwrap().start().plus_ms(5))
    .bind(tokens)
    .bind(amount_pico)
    .bind(corrects)
    .execute(tx)
    .await
    .unwrap();
}

/// Fills the books so that every rule has rows to check: a closed month with a discount and an invoice, an
/// open month with usage and a correction of the closed one, a credit and a reservation.
async fn fill(world: &World, organization: &str) {
    let mut tx = world.app.db.write().await.unwrap();
    event(&mut tx, organization, "e1", None, "2026-02-10", 10, 2_500_500).await;
    event(&mut tx, organization, "e2", None, "2026-02-10", 10, 2_499_600).await;
    event(&mut tx, organization, "e3", None, "2026-03-05", 7, 7_000_999).await;
    event(&mut tx, organization, "e4", Some("e1"), "2026-02-10", -10, -2_500_500).await;
    tx.commit().await.unwrap();
    let feb = Day::parse("2026-02-10").unwrap().unix_days();
    let mar = Day::parse("2026-03-05").unwrap().unix_days();
    let daily = |day: i64, month: i64, requests: i64, tokens: i64, pico: i64, posted: i64| {
        format!(
            "INSERT INTO usage_daily VALUES ($1, 'p', 'k', 'm', 0, 'chat', {day}, {month}, {requests}, {tokens}, 0, {pico}, {posted}, 0, 0, 0)"
        )
    };
    let movement = |id: &str, kind: &str, key: &str, account: &str, to_wallet: i64| {
        [
            format!("INSERT INTO ledger_transactions VALUES ('{id}', $1, '{kind}', '{key}', 0)"),
            format!("INSERT INTO ledger_entries VALUES ('{id}', 'wallet', $1, {to_wallet})"),
            format!("INSERT INTO ledger_entries VALUES ('{id}', '{account}', $1, {})", -to_wallet),
        ]
    };
    let mut statements = vec![
        daily(feb, JANUARY + 1, 2, 20, 5_000_100, 5_000),
        daily(mar, JANUARY + 2, 1, 7, 7_000_999, 7_000),
        // Posted amounts are rounded down, so half a nano more is refunded.
        daily(feb, JANUARY + 2, 0, -10, -2_500_500, -2_501),
        // The wallet is older than the records of which credits paid which charges.
        "UPDATE wallets SET posted_nano = 990601, reserved_nano = 50, created_at = 0 WHERE organization_id = $1".to_owned(),
        "INSERT INTO reservations (id, organization_id, project_id, api_key_id, model, amount_nano, created_at, expires_at)
             VALUES ('res_1', $1, 'p', 'k', 'm', 50, 0, 1)".to_owned(),
        "INSERT INTO credits VALUES ('credit_1', $1, 'purchase', 'r', 1000000, 990601, 0, NULL, NULL, NULL)"
            .to_owned(),
        "INSERT INTO credits VALUES ('credit_2', $1, 'discount', 'discount:2026-02', 100, 0, 0, NULL, NULL, NULL)"
            .to_owned(),
        "INSERT INTO invoices VALUES ('invoice_1', 1, $1, 'Acme', 673, 'USD', 4900, 0, 'paid', 0, 0, NULL, '', '', 0)"
            .to_owned(),
        "INSERT INTO invoice_items VALUES ('invoice_1', 1, 'usage', 'm', 2, '0.0000025', '0.000005')"
            .to_owned(),
        "INSERT INTO invoice_items VALUES ('invoice_1', 2, 'discount', 'd', 1, '-0.0000001', '-0.0000001')"
            .to_owned(),
        "UPDATE sequences SET last = 1 WHERE name = 'invoices'".to_owned(),
    ];
    statements.extend(movement("ltx_1", "credit", "credit:r", "purchases", 1_000_000));
    statements.extend(movement("ltx_2", "usage", "u1", "usage", -5_000));
    statements.extend(movement("ltx_3", "usage", "u2", "usage", -4_499));
    statements.extend(movement("ltx_4", "discount", "discount:2026-02", "discounts", 100));
    let statements: Vec<_> = statements.iter().map(String::as_str).collect();
    run(&world.app.db, organization, &statements).await;
}

/// Returns each broken rule with its subject, without those of the recount.
fn broken_rules(report: &Report) -> Vec<String> {
    let rules = report.drifts.iter().map(|drift| format!("{} {}", drift.invariant, drift.subject));
    rules.filter(|rule| !is_recounted(rule)).collect()
}

/// Returns `true` for a rule of the recount. The recount finds the same faults by a separate computation.
pub fn is_recounted(rule: &str) -> bool {
    rule.starts_with("recount_")
}

async fn assert_clean(world: &World) -> Report {
    let report = audit::check(&world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "on {}: {:#?}", world.backend, report.drifts);
    report
}

#[on_each_database]
async fn new_installation_passes(world: World) {
    assert_eq!(assert_clean(&world).await.checked.organizations, 0);
    let ada = world.user("ada").await;
    world.place(&ada, "Acme").await;
    world.place(&ada, "Other").await;
    assert_eq!(assert_clean(&world).await.checked.organizations, 2);
}

#[on_each_database]
async fn books_pass_after_usage_reservations_and_corrections(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, secret) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    let event = |id: &str, time: &str, tokens: i64| {
        json!({"id": id, "source": "s", "time": time, "api_key_id": key, "model": "svc-1", "kind": "chat",
               "prompt_tokens": tokens, "completion_tokens": 0})
    };
    let question =
        json!({"credential": secret, "operation": "chat", "model": "svc-1", "estimated_prompt_tokens": 9});
    let reserve =
        async || world.ask("/service/v1/authorize", &question).bare().await["reservation"]["id"].clone();
    let (captured, kept) = (reserve().await, reserve().await);
    assert!(captured.is_string() && kept.is_string());
    let mut capture = event("e1", "2026-03-09T10:00:00Z", 1_001);
    capture["reservation_id"] = captured;
    let mut correction = event("e3", "2026-03-09T10:00:00Z", -500);
    correction["corrects"] = json!("e1");
    let events = json!([capture, event("e2", "2026-02-09T10:00:00Z", 7), correction]);
    let results = world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    let accepted = |result: &Value| result["status"] == "accepted";
    assert!(results["results"].as_array().unwrap().iter().all(accepted), "{results}");
    let checked = assert_clean(&world).await.checked;
    assert_eq!((checked.events, checked.reservations, checked.daily_rows), (3, 1, 2));
}

#[on_each_database]
async fn each_broken_rule_is_reported(world: World) {
    let ada = world.user("ada").await;
    let organization = world.place(&ada, "Acme").await.organization;
    let other = world.place(&ada, "Other").await.organization;
    fill(&world, &organization).await;
    drop_triggers(&world.app.db).await;
    let checked = assert_clean(&world).await.checked;
    let counts = [
        checked.organizations,
        checked.movements,
        checked.credits,
        checked.reservations,
        checked.daily_rows,
        checked.events,
        checked.invoices,
    ];
    assert_eq!(counts, [2, 4, 2, 1, 3, 4, 1]);

    // Statements that break the rule, statements that repair it, and the report.
    let feb = "2026-02-10 p k m chat price 0";
    let daily = |words: &str| format!("daily_usage {words}");
    let of_feb = daily(feb);
    let posted_of = |month: &str| format!("daily_posted {feb} billed in {month}");
    let (posted_feb, posted_mar) = (posted_of("2026-02"), posted_of("2026-03"));
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "UPDATE ledger_entries SET amount_nano = amount_nano + 1 WHERE transaction_id = 'ltx_2' AND account = 'usage'",
            "UPDATE ledger_entries SET amount_nano = amount_nano - 1 WHERE transaction_id = 'ltx_2' AND account = 'usage'",
            &["movement_unbalanced ltx_2"],
        ),
        (
            "DELETE FROM ledger_entries WHERE transaction_id = 'ltx_4' AND account = 'discounts'",
            "INSERT INTO ledger_entries VALUES ('ltx_4', 'discounts', $1, -100)",
            &["movement_unbalanced ltx_4", "movement_one_sided ltx_4"],
        ),
        (
            "UPDATE ledger_entries SET organization_id = 'org_x' WHERE transaction_id = 'ltx_3' AND account = 'wallet'",
            "UPDATE ledger_entries SET organization_id = $1 WHERE transaction_id = 'ltx_3' AND account = 'wallet'",
            &["movement_elsewhere ltx_3"],
        ),
        (
            "UPDATE wallets SET posted_nano = posted_nano + 1 WHERE organization_id = $1",
            "UPDATE wallets SET posted_nano = posted_nano - 1 WHERE organization_id = $1",
            &["wallet_posted wallet", "credits_too_small credits"],
        ),
        (
            "UPDATE wallets SET posted_nano = posted_nano - 1 WHERE organization_id = $1",
            "UPDATE wallets SET posted_nano = posted_nano + 1 WHERE organization_id = $1",
            &["wallet_posted wallet", "credits_unused credit_1"],
        ),
        (
            "UPDATE wallets SET reserved_nano = 49 WHERE organization_id = $1",
            "UPDATE wallets SET reserved_nano = 50 WHERE organization_id = $1",
            &["wallet_reserved wallet"],
        ),
        (
            "UPDATE usage_daily SET requests = requests + 1 WHERE organization_id = $1 AND month = 673",
            "UPDATE usage_daily SET requests = requests - 1 WHERE organization_id = $1 AND month = 673",
            &[&of_feb],
        ),
        (
            "UPDATE usage_daily SET amount_pico = amount_pico + 1 WHERE organization_id = $1 AND day = 20494 AND month = 674",
            "UPDATE usage_daily SET amount_pico = amount_pico - 1 WHERE organization_id = $1 AND day = 20494 AND month = 674",
            &[&of_feb],
        ),
        (
            "UPDATE usage_daily SET posted_nano = posted_nano + 1 WHERE organization_id = $1 AND day = 20494 AND month = 674",
            "UPDATE usage_daily SET posted_nano = posted_nano - 1 WHERE organization_id = $1 AND day = 20494 AND month = 674",
            &[&posted_mar, "usage_posted daily rows"],
        ),
        (
            "UPDATE usage_daily SET posted_nano = posted_nano + 1 WHERE organization_id = $1 AND month = 673",
            "UPDATE usage_daily SET posted_nano = posted_nano - 1 WHERE organization_id = $1 AND month = 673",
            &[&posted_feb, "usage_posted daily rows", "invoice_amount invoice_1 of 2026-02"],
        ),
        (
            "UPDATE usage_events SET completion_tokens = 1 WHERE event_id = 'e2'",
            "UPDATE usage_events SET completion_tokens = 0 WHERE event_id = 'e2'",
            &[&of_feb],
        ),
        (
            "UPDATE usage_events SET cached_prompt_tokens = 1 WHERE event_id = 'e2'",
            "UPDATE usage_events SET cached_prompt_tokens = NULL WHERE event_id = 'e2'",
            &[&of_feb],
        ),
        (
            "UPDATE usage_daily SET cached_prompt_tokens = 1 WHERE organization_id = $1 AND month = 673",
            "UPDATE usage_daily SET cached_prompt_tokens = 0 WHERE organization_id = $1 AND month = 673",
            &[&of_feb],
        ),
        // The event is no longer a correction.
        (
            "UPDATE usage_events SET corrects = NULL WHERE event_id = 'e4'",
            "UPDATE usage_events SET corrects = 'e1' WHERE event_id = 'e4'",
            &[&of_feb],
        ),
        (
            "UPDATE usage_daily_sums SET prompt_tokens = prompt_tokens - 1 WHERE grouped_by = 'model' AND day = 20494",
            "UPDATE usage_daily_sums SET prompt_tokens = prompt_tokens + 1 WHERE grouped_by = 'model' AND day = 20494",
            &["daily_sums 2026-02-10 p model m chat"],
        ),
        (
            "UPDATE usage_daily_sums SET amount_pico = amount_pico + 1 WHERE day = 20494",
            "UPDATE usage_daily_sums SET amount_pico = amount_pico - 1 WHERE day = 20494",
            &["daily_sums 2026-02-10 p caller k chat", "daily_sums 2026-02-10 p model m chat"],
        ),
        (
            "UPDATE usage_daily_sums SET group_id = 'other' WHERE grouped_by = 'caller' AND day = 20494",
            "UPDATE usage_daily_sums SET group_id = 'k' WHERE grouped_by = 'caller' AND day = 20494",
            &["daily_sums 2026-02-10 p caller other chat", "daily_sums 2026-02-10 p caller k chat"],
        ),
        (
            "UPDATE usage_totals SET requests = requests - 1 WHERE subject_id = 'p'",
            "UPDATE usage_totals SET requests = requests + 1 WHERE subject_id = 'p'",
            &["usage_total p"],
        ),
        (
            "UPDATE usage_totals SET tokens = tokens + 1",
            "UPDATE usage_totals SET tokens = tokens - 1",
            &["usage_total k", "usage_total p"],
        ),
        (
            "DELETE FROM usage_totals WHERE subject_id = 'k'",
            "INSERT INTO usage_totals VALUES ($1, 'k', 3, 17)",
            &["usage_total k"],
        ),
        (
            "INSERT INTO usage_totals VALUES ($1, 'other', 0, 1)",
            "DELETE FROM usage_totals WHERE subject_id = 'other'",
            &["usage_total other"],
        ),
        (
            "UPDATE ledger_transactions SET kind = 'credit' WHERE id = 'ltx_3'",
            "UPDATE ledger_transactions SET kind = 'usage' WHERE id = 'ltx_3'",
            &["usage_posted daily rows"],
        ),
        (
            "UPDATE credits SET remaining_nano = 101 WHERE id = 'credit_2'",
            "UPDATE credits SET remaining_nano = 0 WHERE id = 'credit_2'",
            &[
                "credit_rest credit_2",
                "credit_remaining credit_2",
                "credits_unused credit_1",
                "credits_unused credit_2",
            ],
        ),
        (
            "UPDATE credits SET remaining_nano = remaining_nano - 1 WHERE id = 'credit_1'",
            "UPDATE credits SET remaining_nano = remaining_nano + 1 WHERE id = 'credit_1'",
            &["credits_too_small credits"],
        ),
        (
            "UPDATE invoice_items SET quantity = 3 WHERE position = 1",
            "UPDATE invoice_items SET quantity = 2 WHERE position = 1",
            &["invoice_item invoice_1 line 1"],
        ),
        (
            "UPDATE invoice_items SET amount = '-0.000000100001', unit_price = '-0.000000100001' WHERE position = 2",
            "UPDATE invoice_items SET amount = '-0.0000001', unit_price = '-0.0000001' WHERE position = 2",
            &["invoice_items invoice_1"],
        ),
        (
            "UPDATE invoices SET amount_nano = 4901",
            "UPDATE invoices SET amount_nano = 4900",
            &["invoice_items invoice_1", "invoice_amount invoice_1 of 2026-02"],
        ),
        (
            "UPDATE invoices SET due_nano = 1",
            "UPDATE invoices SET due_nano = 0",
            &["invoice_due invoice_1", "invoices_due invoices"],
        ),
        (
            "UPDATE invoices SET status = 'void', paid_at = NULL, voided_at = 0",
            "UPDATE invoices SET status = 'paid', paid_at = 0, voided_at = NULL",
            &["invoice_void invoice_1"],
        ),
        // The key of the ledger transaction refers to the refund of an invoice that doesn't exist.
        (
            "UPDATE ledger_transactions SET kind = 'void', idempotency_key = 'void:invoice_2' WHERE id = 'ltx_1'",
            "UPDATE ledger_transactions SET kind = 'credit', idempotency_key = 'credit:r' WHERE id = 'ltx_1'",
            &["invoice_void invoice_2"],
        ),
        (
            "UPDATE invoices SET status = 'open', paid_at = NULL",
            "UPDATE invoices SET status = 'paid', paid_at = 0",
            &["invoice_due invoice_1"],
        ),
        (
            "UPDATE invoices SET month = 672",
            "UPDATE invoices SET month = 673",
            &["invoice_amount invoice_1 of 2026-01", "invoice_month 2026-02"],
        ),
        ("UPDATE invoices SET number = 2", "UPDATE invoices SET number = 1", &["invoice_number invoices"]),
        (
            "UPDATE sequences SET last = 2 WHERE name = 'invoices'",
            "UPDATE sequences SET last = 1 WHERE name = 'invoices'",
            &["invoice_number invoices"],
        ),
        (
            "UPDATE wallets SET open_month = 675 WHERE organization_id = $1",
            "UPDATE wallets SET open_month = 674 WHERE organization_id = $1",
            &["invoice_month 2026-03", "open_month wallet"],
        ),
        (
            "UPDATE wallets SET open_month = 673 WHERE organization_id = $1",
            "UPDATE wallets SET open_month = 674 WHERE organization_id = $1",
            &["invoice_month invoice_1 of 2026-02"],
        ),
    ];
    for (broken, mended, expected) in cases {
        run(&world.app.db, &organization, &[broken]).await;
        let report = audit::check(&world.app.billing, None).await.unwrap();
        assert_eq!(broken_rules(&report), *expected, "on {}: {broken}", world.backend);
        let organizations = report.drifts.iter().filter_map(|drift| drift.organization_id.as_deref());
        assert!(organizations.into_iter().all(|id| id == organization), "{broken}");
        let alone = OrganizationId::parse(&other).unwrap();
        assert!(
            audit::check(&world.app.billing, Some(alone)).await.unwrap().is_clean(),
            "the other one's books are fine"
        );
        run(&world.app.db, &organization, &[mended]).await;
    }
    assert_clean(&world).await;
    run(&world.app.db, &other, &["DELETE FROM wallets WHERE organization_id = $1"]).await;
    let report = audit::check(&world.app.billing, None).await.unwrap();
    assert_eq!(broken_rules(&report), ["wallet_missing wallet"]);
    assert_eq!(report.drifts[0].organization_id, Some(other));
}

#[on_each_database]
async fn deleted_old_events_are_not_reported_as_missing(world: World) {
    let ada = world.user("ada").await;
    let organization = world.place(&ada, "Acme").await.organization;
    fill(&world, &organization).await;
    let start = Day::parse("2026-02-10").unwrap().start();
    let keep = format!("UPDATE retention SET usage_events_before = {}", start.unix_ms() + DAY_MS);
    run(&world.app.db, &organization, &[&keep, "DELETE FROM usage_events WHERE event_id = 'e1'"]).await;
    assert_clean(&world).await;
    run(
        &world.app.db,
        &organization,
        &[&format!("UPDATE retention SET usage_events_before = {}", start.unix_ms())],
    )
    .await;
    assert_eq!(
        broken_rules(&audit::check(&world.app.billing, None).await.unwrap()),
        ["daily_usage 2026-02-10 p k m chat price 0"]
    );
}

/// The books have more rows than one statement reads.
#[on_each_database]
async fn large_books_are_read_in_slices_to_the_end(world: World) {
    let ada = world.user("ada").await;
    let organization = world.place(&ada, "Acme").await.organization;
    let series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4001)";
    let hash = if world.app.db.is_postgres() { "'\\x00'::bytea" } else { "x'00'" };
    let statements = [
        format!("{series} INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model,
                         kind, occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
                     SELECT $1, 's' || CAST(i % 3 AS TEXT), CAST(i AS TEXT), {hash}, 'p' || CAST(i % 5 AS TEXT), 'k', 'm', 'chat',
                            CAST(20000 + i % 1000 AS BIGINT) * 86400000, 0, 1, 0, 0, 1000 FROM n"),
        "INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                    requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
             SELECT organization_id, project_id, api_key_id, model, price_version, kind, occurred_at / 86400000, 674,
                    COUNT(*), COUNT(*), 0, 1000 * COUNT(*), COUNT(*) FROM usage_events WHERE organization_id = $1
             GROUP BY organization_id, project_id, api_key_id, model, price_version, kind, occurred_at / 86400000".to_owned(),
        format!("{series} INSERT INTO ledger_transactions SELECT 'ltx_' || CAST(i AS TEXT), $1, 'usage', CAST(i AS TEXT), 0 FROM n"),
        format!("{series} INSERT INTO ledger_entries SELECT 'ltx_' || CAST(i AS TEXT), 'wallet', $1, -1 FROM n"),
        format!("{series} INSERT INTO ledger_entries SELECT 'ltx_' || CAST(i AS TEXT), 'usage', $1, 1 FROM n"),
        "UPDATE wallets SET posted_nano = -4001 WHERE organization_id = $1".to_owned(),
    ];
    run(&world.app.db, &organization, &statements.each_ref().map(String::as_str)).await;
    let checked = assert_clean(&world).await.checked;
    assert_eq!((checked.movements, checked.events, checked.daily_rows), (4_001, 4_001, 1_000));
    run(
        &world.app.db,
        &organization,
        &["UPDATE usage_daily SET requests = requests + 1 WHERE organization_id = $1 AND day = 20999"],
    )
    .await;
    assert_eq!(audit::check(&world.app.billing, None).await.unwrap().drifts.len(), 1);
}

#[on_each_database]
async fn snapshot_is_consistent_and_read_only(world: World) {
    let ada = world.user("ada").await;
    let organization = world.place(&ada, "Acme").await.organization;
    let db = &world.app.db;
    let read = async |tx: &mut Tx| {
        let rows: Vec<(i64,)> = sql("SELECT reserved_nano FROM wallets").all(tx).await.unwrap();
        rows.iter().map(|(nano,)| *nano).sum::<i64>()
    };
    let mut snapshot = db.snapshot().await.unwrap();
    assert_eq!(read(&mut snapshot).await, 0);
    run(db, &organization, &["UPDATE wallets SET reserved_nano = 5 WHERE organization_id = $1"]).await;
    assert_eq!(read(&mut snapshot).await, 0);
    assert_eq!(read(&mut db.snapshot().await.unwrap()).await, 5);
    assert!(sql("UPDATE wallets SET reserved_nano = 6").execute(&mut snapshot).await.is_err());
    drop(snapshot);
    assert_eq!(read(&mut db.read().await.unwrap()).await, 5);
}

#[on_each_database]
fn exit_code_of_the_command_shows_the_result(database: Database) {
    database.run_processes(|url, folder: &Folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let organization = place.project_path.split('/').nth(3).unwrap().to_owned();
        let clean = start.command(&["audit"]);
        assert_eq!(clean.code, Some(0), "{}{}", clean.stdout, clean.log);
        assert!(
            clean.stdout.contains("Checked 1 organizations") && clean.stdout.contains("everything adds up"),
            "{}",
            clean.stdout
        );

        let settings = match url {
            None => Settings::Sqlite { path: start.data_dir().join("tollkeeper.db") },
            Some(url) => Settings::Postgres { url: url.to_owned() },
        };
        let break_it = async {
            let db = Db::open(&settings).unwrap();
            run(
                &db,
                &organization,
                &["UPDATE wallets SET reserved_nano = 1500000000 WHERE organization_id = $1"],
            )
            .await;
        };
        support::world::runtime().block_on(break_it);
        let text = start.command(&["audit"]);
        assert_eq!(text.code, Some(1));
        let line = format!("{organization}  wallet_reserved  wallet: expected 0, found 1.5");
        assert!(text.stdout.contains(&line), "{}", text.stdout);
        assert!(text.log.contains("the books don't add up: 1 drift"), "{}", text.log);
        let one = start.command(&["audit", "--json", "--organization", &organization]);
        assert_eq!(one.code, Some(1));
        let report: Value = serde_json::from_str(&one.stdout).unwrap();
        let drift = json!({"organization_id": organization, "what": "wallet_reserved", "subject": "wallet", "expected": "0", "found": "1.5"});
        assert_eq!((&report["drifts"], &report["checked"]["organizations"]), (&json!([drift]), &json!(1)));

        let unknown = "org_01h2xcejqtf2nbrexx3vqjhp41";
        for wrong in [unknown, "acme"] {
            let ended = start.command(&["audit", "--organization", wrong]);
            assert!(
                ended.code != Some(0) && ended.log.contains("organization") && ended.stdout.is_empty(),
                "{}",
                ended.log
            );
        }
        drop(server);
    });
}
