//! Statements about an organization's audit log. Each filter has an index, regardless of the length of the
//! log.

use support::on_each_database;
use support::world::World;
use tollkeeper::db::sql;
use tollkeeper::tenants::store::audit_log::{BY_ACTION, BY_ACTOR, BY_TARGET, BY_TIME, Statements};

use super::plan;

/// The number of entries of each organization.
const ENTRIES: i64 = 1_000;
const ORGANIZATIONS: i64 = 12;

#[on_each_database]
async fn every_filter_of_the_audit_log_uses_its_index(world: World) {
    let series =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ENTRIES})");
    let mut tx = world.app.db.write().await.unwrap();
    for number in 0..ORGANIZATIONS {
        let insert = format!(
            "{series} INSERT INTO audit_log (id, happened_at, actor, action, target, organization_id)
                 SELECT 'audit_' || CAST(100000 + i AS TEXT) || '_{number}', i,
                        'actor_' || CAST(i % 500 AS TEXT), 'action_' || CAST(i % 500 AS TEXT),
                        'target_' || CAST(i % 500 AS TEXT), 'org_{number}' FROM n"
        );
        sql(insert).execute(&mut tx).await.unwrap();
    }
    sql("ANALYZE").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let cases: [(&Statements, [&str; 3], &[&str]); 6] = [
        // Each case has a statement, an actor, an action and a target, and the expected indexes. If a case
        // has several indexes, PostgreSQL may use any of them.
        (&BY_TIME, ["", "", ""], &["id"]),
        (&BY_ACTOR, ["actor_7", "", ""], &["actor_id"]),
        (&BY_ACTION, ["", "action_7", ""], &["action_id"]),
        (&BY_TARGET, ["", "", "target_7"], &["target_id"]),
        (&BY_ACTOR, ["actor_7", "action_7", ""], &["actor_id", "action_id"]),
        (&BY_TARGET, ["actor_7", "action_7", "target_7"], &["actor_id", "action_id", "target_id"]),
    ];
    for (statements, [actor, action, target], indexes) in cases {
        let filter = ["org_7", "audit_0", "audit_8", actor, action, target];
        let page = [&filter[..], &["20", "20"]].concat();
        for (text, parameters) in [(&statements.page, &page[..]), (&statements.count, &filter)] {
            let plan = plan(&world, text, parameters).await;
            let what = format!("on {}: {text}\n{plan}", world.backend);
            let is_used = |index: &&str| plan.contains(&format!("audit_log_organization_id_{index}"));
            assert!(indexes.iter().any(is_used), "{what}");
            let is_scan = |line: &&str| line.contains("Seq Scan on audit_log") || line.starts_with("SCAN e");
            assert_eq!(plan.lines().filter(is_scan).count(), 0, "{what}");
            // Few entries have this actor, action or target, so these may be sorted. The complete log must
            // never be sorted.
            let is_sorted = plan.contains("Sort Key") || plan.contains("TEMP B-TREE");
            assert!(!is_sorted || indexes != ["id"], "{what}");
        }
    }
}
