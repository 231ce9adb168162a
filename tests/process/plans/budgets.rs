//! Statements about budgets. They read only the rows of a call, of a page, or of one organization.

use support::on_each_database;
use support::world::World;
use tollkeeper::billing::store::{balance_alerts, budget_alerts, budgets, credits};
use tollkeeper::db::sql;

use super::plan;

#[on_each_database]
async fn budgets_are_found_by_their_indexes(world: World) {
    let series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)";
    let organization = "'org_' || CAST(i % 10 AS TEXT)";
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{series} INSERT INTO budgets (id, organization_id, scope, subject_id, name, name_folded, period, limit_nano,
                     hard, thresholds, reserved_nano, created_at, updated_at)
                 SELECT 'budget_' || CAST(i AS TEXT), {organization}, 'organization', 'subject_' || CAST(i / 5 AS TEXT), 'n',
                     CAST(i AS TEXT), 'day', 1, 1, '', 0, i, i FROM n"
        ),
        format!("{series} INSERT INTO budget_uses SELECT 'budget_' || CAST(i AS TEXT), 7, 0, 1 FROM n"),
        format!(
            "{series} INSERT INTO budget_alerts SELECT 'budget_' || CAST(i AS TEXT), 7, 50, 1, 0, 1, 1, 1 FROM n"
        ),
        format!(
            "{series} INSERT INTO reservations (id, organization_id, project_id, api_key_id, model, amount_nano, created_at,
                     expires_at)
                 SELECT 'res_' || CAST(i AS TEXT), {organization}, 'p', 'k', 'm', 1, i, i FROM n"
        ),
        format!(
            "{series} INSERT INTO usage_daily SELECT {organization}, 'p', 'k', 'm', 0, 'chat', i, 1, 1, 1, 1, 1, 0, 0, 0, 0
                 FROM n"
        ),
        format!(
            "{series} INSERT INTO wallets (organization_id, currency, credit_limit_nano, posted_nano, reserved_nano,
                     open_month, created_at, updated_at)
                 SELECT 'org_' || CAST(i AS TEXT), 'USD', 0, 0, 0, 0, 0, 0 FROM n"
        ),
        format!(
            "{series} INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano, created_at,
                     expires_at)
                 SELECT 'credit_' || CAST(i AS TEXT), {organization}, 'grant', CAST(i AS TEXT), 1, 1, i, i FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let (of_subjects, _) = budgets::OF_SUBJECTS.chunks(&[()]).next().unwrap();
    let [since_organization, since_project, since_key] = budgets::USAGE_SINCE.each_ref().map(String::as_str);
    let [reserved, reserved_project, reserved_key] = budgets::RESERVED.each_ref().map(String::as_str);
    let by_primary_key = "budgets_pkey|budgets_organization_id|PRIMARY KEY|autoindex";
    let (usage, of_organization) = ("usage_daily_|PRIMARY KEY", "reservations_organization_id_");
    let cases: [(&str, &[&str], &str); 12] = [
        (of_subjects, &["7", "0", "subject_5"], "budgets_subject_id"),
        (&budgets::PAGE, &["7", "0", "org_5", "20", "100"], "budgets_organization_id"),
        (&budgets::GET, &["7", "0", "org_5", "budget_5"], by_primary_key),
        (budget_alerts::DUE, &["100"], "budget_alerts_not_mailed"),
        (
            credits::LIST_EXPIRING,
            &["100", "200", "100", "", "20"],
            "credits_expiry_not_announced|credits_expires_at",
        ),
        (balance_alerts::DUE, &["100"], "wallets_low_not_mailed"),
        (since_organization, &["org_5", "7"], usage),
        (since_project, &["org_5", "7", "p"], usage),
        (since_key, &["org_5", "7", "p", "k"], usage),
        (reserved, &["org_5"], of_organization),
        (reserved_project, &["org_5", "p"], of_organization),
        (reserved_key, &["org_5", "p", "k"], of_organization),
    ];
    for (text, parameters, index) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        // Scans may read only rows that were already found, and small tables.
        let large =
            ["usage_daily", "budgets", "budget_uses", "budget_alerts", "reservations", "wallets", "credits"];
        let scans = |line: &&str| {
            let is_scan = line.contains("Seq Scan") || line.starts_with("SCAN ") && !line.contains("USING");
            is_scan && large.iter().any(|name| line.contains(name))
        };
        assert_eq!(plan.lines().filter(scans).count(), 0, "{what}");
    }
}
