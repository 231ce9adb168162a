//! Counts before creations, and the outbox. Their statements use an index, regardless of the number of rows.

use support::on_each_database;
use support::world::World;
use tollkeeper::db::sql;
use tollkeeper::mail::store::outbox;
use tollkeeper::tenants::store::{invitations, organizations};

use super::plan;

#[on_each_database]
async fn counts_and_the_outbox_use_an_index(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (mine, me, they) = (world.organization(&ada, "Mine").await, ada.id.to_string(), bob.id.to_string());
    let series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)";
    let name = "'x' || CAST(i AS TEXT)";
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{series} INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at)
                 SELECT 'user_' || {name}, {name}, {name}, {name}, {name}, 'x', 0 FROM n"
        ),
        format!(
            "{series} INSERT INTO organizations (id, name, name_folded, default_role, allow_public_projects, plan,
                     created_by, created_at, updated_at)
                 SELECT 'org_' || {name}, {name}, {name}, 'member', 0, 'p', 'user_' || {name}, 0, 0 FROM n"
        ),
        // Most invitations have expired without being marked as ended, and the others have ended.
        format!(
            "{series} INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at,
                     expires_at, ended_at)
                 SELECT 'inv_' || {name}, '{mine}', 'x', {name}, 'member', '{they}', 0, i,
                     CASE WHEN i % 3 = 0 THEN 7 END FROM n"
        ),
        format!(
            "{series} INSERT INTO outbox (id, template, email, priority, created_at, next_attempt_at, attempts)
                 SELECT 'mail_' || {name}, 'invitation', 'x', i % 2, 0, i, 0 FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let cases: [(&str, &[&str], &str, usize); 5] = [
        // Each case has a statement, its parameters, the expected index, and the number of allowed sorts of
        // the few matches.
        (organizations::CREATOR, &[&me], "organizations_created_by_name_folded", 0),
        (organizations::FIRST_WITHOUT_CREDIT, &[&me], "organizations_created_by_name_folded", 1),
        (invitations::OPEN_COUNT, &[&mine, "5990"], "invitations_open_until", 0),
        (outbox::DUE, &["8", "5000"], "outbox_due", 1),
        (outbox::RECALL, &["7", "5990"], "outbox_due", 0),
    ];
    for (text, parameters, index, sorts) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(plan.contains(index), "{what}");
        let scans = |line: &&str| {
            ["organizations", "invitations", "outbox"].iter().any(|table| {
                line.contains(&format!("Seq Scan on {table}")) || line.starts_with(&format!("SCAN {table}"))
            })
        };
        assert_eq!(plan.lines().filter(scans).count(), 0, "{what}");
        let found = plan.matches("Sort Key").count() + plan.matches("TEMP B-TREE").count();
        assert!(found <= sorts, "{what}");
    }
}
