//! Statements about webhooks and their deliveries. They use an index, regardless of the number of webhooks.

use support::on_each_database;
use support::world::World;
use tollkeeper::db::sql;
use tollkeeper::events::statements::{
    ANNOUNCED, RECEIVERS, RECEIVERS_OF_INSTALLATION, REMOVE_ANNOUNCED_BEFORE,
};
use tollkeeper::webhooks::store::{deliveries, endpoints};

use super::plan;

/// The number of organizations, which have one webhook each, and the number of deliveries of each webhook.
const ORGANIZATIONS: i64 = 3_000;
const DELIVERIES: i64 = 4;

#[on_each_database]
async fn deliveries_are_found_by_their_index(world: World) {
    let ada = world.user("ada").await;
    let series =
        |rows| format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let bytes = if world.app.db.is_postgres() { "BYTEA" } else { "BLOB" };
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{} INSERT INTO organizations (id, name, name_folded, created_by, default_role, allow_public_projects, plan,
                     created_at, updated_at)
                 SELECT 'o' || CAST(i AS TEXT), 'x', 'x' || CAST(i AS TEXT), '{}', 'member', 0, 'p', 0, 0 FROM n",
            series(ORGANIZATIONS),
            ada.id
        ),
        format!(
            "{} INSERT INTO webhooks (id, organization_id, url, event_types, sealed_secret, is_enabled, created_at, updated_at)
                 SELECT 'w' || CAST(i AS TEXT), 'o' || CAST(i AS TEXT), 'https://x', '[]', CAST('x' AS {bytes}), 1, 0, 0 FROM n",
            series(ORGANIZATIONS)
        ),
        format!(
            "{} INSERT INTO webhook_events (id, organization_id, event_type, body, created_at)
                 SELECT 'e' || CAST(i AS TEXT), 'o1', 'invoice.paid', CAST('{{}}' AS {bytes}), 0 FROM n",
            series(ORGANIZATIONS * DELIVERIES)
        ),
        // Of the deliveries, 5% are pending.
        format!(
            "{} INSERT INTO webhook_deliveries (id, webhook_id, event_id, state, created_at, next_attempt_at)
                 SELECT 'd' || CAST(1000000 + i AS TEXT), 'w' || CAST(i % {ORGANIZATIONS} AS TEXT), 'e' || CAST(i AS TEXT),
                        CASE WHEN i % 20 = 0 THEN 'pending' WHEN i % 20 = 1 THEN 'failed' ELSE 'succeeded' END, 0, i FROM n",
            series(ORGANIZATIONS * DELIVERIES)
        ),
        // The installation has two webhooks.
        format!(
            "{} INSERT INTO webhooks (id, url, event_types, sealed_secret, is_enabled, created_at, updated_at)
                 SELECT 'i' || CAST(i AS TEXT), 'https://x', '[]', CAST('x' AS {bytes}), 1, 0, 0 FROM n",
            series(2)
        ),
        format!(
            "{} INSERT INTO operator_announcements (event_type, subject, announced_at)
                 SELECT 't' || CAST(i % 100 AS TEXT), CAST(i AS TEXT), i FROM n",
            series(ORGANIZATIONS)
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let by_webhook = "webhook_deliveries_webhook_id_id|webhook_deliveries_webhook_id_state_id";
    let announcements = "operator_announcements_pkey|operator_announcements_1";
    let cases: [(&str, &[&str], &str); 20] = [
        // Each case has a statement, its parameters, and the expected indexes, any of which may be used.
        (RECEIVERS, &["o7"], "webhooks_organization_id_id"),
        (RECEIVERS_OF_INSTALLATION, &[], "webhooks_organization_id_id"),
        (endpoints::COUNT_OF_INSTALLATION, &[], "webhooks_organization_id_id"),
        (endpoints::LIST_OF_INSTALLATION, &["20", "0"], "webhooks_organization_id_id"),
        (ANNOUNCED, &["t7"], announcements),
        (REMOVE_ANNOUNCED_BEFORE, &["t7", "5", "9"], announcements),
        (endpoints::COUNT, &["o7"], "webhooks_organization_id_id"),
        (endpoints::LIST, &["o7", "20", "0"], "webhooks_organization_id_id"),
        (deliveries::LIST, &["w7", "20", "0"], by_webhook),
        (deliveries::LIST_OF_STATE, &["w7", "20", "0", "failed"], "webhook_deliveries_webhook_id_state_id"),
        (deliveries::COUNT, &["w7"], by_webhook),
        (deliveries::COUNT_OF_STATE, &["w7", "failed"], "webhook_deliveries_webhook_id_state_id"),
        (deliveries::READY, &["9", "2", "32"], "webhook_deliveries_pending"),
        (deliveries::DUE, &["w7", "9", "2"], "webhook_deliveries_pending"),
        (deliveries::LEASED, &["w7", "9"], "webhook_deliveries_leased"),
        (deliveries::BEGIN_FAILED_ANEW, &["w7", "d", "9"], by_webhook),
        (
            deliveries::GIVE_UP_PENDING,
            &["w7"],
            "webhook_deliveries_pending|webhook_deliveries_webhook_id_state_id",
        ),
        (deliveries::REMOVE_OF, &["w7"], by_webhook),
        (
            deliveries::REMOVE_BEFORE,
            &["d1000009", "5"],
            "webhook_deliveries_pkey|sqlite_autoindex_webhook_deliveries_1",
        ),
        (
            deliveries::REMOVE_EVENTS_BEFORE,
            &["e1000009", "5"],
            "webhook_events_pkey|sqlite_autoindex_webhook_events_1",
        ),
    ];
    for (text, parameters, index) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        let is_scan = |line: &&str| {
            (line.contains("Seq Scan on webhook")
                || line.contains("Seq Scan on operator_announcements")
                || line.contains("SCAN operator_announcements")
                || line.contains("SCAN webhook")
                || line.contains("SCAN d"))
                && !line.contains("INDEX")
        };
        assert_eq!(plan.lines().filter(is_scan).count(), 0, "{what}");
    }
}
