//! Statements of exports. They read only the rows of one organization's month.

use support::on_each_database;
use support::world::World;
use tollkeeper::billing::store::usage::charges;
use tollkeeper::billing::store::{credit_notes, invoices, months};
use tollkeeper::db::sql;

use super::plan;

#[on_each_database]
async fn charges_of_a_month_are_found_by_their_indexes(world: World) {
    let series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)";
    let organization = "'org_' || CAST(i % 10 AS TEXT)";
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{series} INSERT INTO usage_daily SELECT {organization}, 'p', 'k' || CAST(i AS TEXT), 'm', 0, 'chat', i % 90, i % 3,
                     1, 1, 1, 1, 0, 0, 0, 0 FROM n"
        ),
        format!(
            "{series} INSERT INTO credited_usage SELECT {organization}, i, 1, 1, 'm', 'chat', 0, -1, 0, 0, -1, 0, 0, NULL FROM n"
        ),
        format!(
            "{series} INSERT INTO invoices (id, number, organization_id, organization_name, month, currency, amount_nano,
                     due_nano, status, finalized_at, voided_at, issuer_name, issuer_address)
                 SELECT 'invoice_' || CAST(i AS TEXT), i, {organization}, 'n', i, 'USD', 1, 0, 'void', 1, i, '', '' FROM n"
        ),
        format!(
            "{series} INSERT INTO credit_notes SELECT 'credit_note_' || CAST(i AS TEXT), i, {organization},
                     'invoice_' || CAST(i AS TEXT), i, i + 1, 'r', 1, 1 FROM n"
        ),
        format!(
            "{series} INSERT INTO credit_note_items SELECT 'credit_note_' || CAST(i AS TEXT), 1, 'correction', 'd', -1, '1', '-1'
                 FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (charges::DAYS, &["org_5", "2"], &["usage_daily_organization_month"]),
        (
            charges::OF_DAY,
            &["org_5", "7", "2"],
            &["usage_daily_organization_day|usage_daily_pkey|PRIMARY KEY"],
        ),
        (months::CREDITED_IN, &["org_5", "7"], &["credited_usage_pkey|PRIMARY KEY"]),
        (&invoices::VOIDED_IN, &["org_5", "7", "9"], &["invoices_organization_id_month"]),
        (&credit_notes::BOOKED_IN, &["org_5", "7"], &["credit_notes_organization_id_month"]),
        (
            credit_notes::ITEMS_BOOKED_IN,
            &["org_5", "7"],
            &["credit_notes_organization_id_month", "credit_note_items_pkey|PRIMARY KEY"],
        ),
    ];
    for (text, parameters, indexes) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        for index in indexes {
            assert!(index.split('|').any(|index| plan.contains(index)), "{index} {what}");
        }
        // Scans may read only rows that were already found, and tables that are empty here.
        let found = ["SCAN d", "SCAN i", "SCAN callers", "SCAN named_projects"];
        let scans = |line: &&str| line.contains("Seq Scan") || line.starts_with("SCAN ");
        let is_found = |line: &&str| {
            found.contains(line) || ["api_keys", "users", "projects"].iter().any(|name| line.contains(name))
        };
        let scanned: Vec<_> = plan.lines().filter(scans).filter(|line| !is_found(line)).collect();
        assert!(scanned.is_empty(), "{what}");
    }
}
