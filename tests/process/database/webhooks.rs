//! Step 37 of the schema, which allows webhooks without an organization.

use tollkeeper::db::{Db, Lock, sql};

use super::{insert_user, with_schema};
use support::{Database, on_each_database};

/// The columns `previous_ends_at`, `disabled_reason`, `failing_since` and `is_enabled` of a webhook.
type State = (Option<i64>, Option<String>, Option<i64>, i64);

/// Returns the id, the organization and the secrets of each webhook.
async fn webhooks(db: &Db) -> Vec<(String, Option<String>, Vec<u8>, Option<Vec<u8>>)> {
    sql("SELECT id, organization_id, sealed_secret, previous_sealed_secret FROM webhooks ORDER BY id")
        .all(&mut db.read().await.unwrap())
        .await
        .unwrap()
}

#[on_each_database]
fn webhooks_of_earlier_servers_stay_and_go_with_their_organization(database: Database) {
    with_schema(database, 36, async |db| {
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@example.com", "ada").await.unwrap();
        for text in [
            "INSERT INTO organizations (id, name, name_folded, created_by, default_role, allow_public_projects, plan, created_at,
                 updated_at) VALUES ('org_1', 'x', 'x', 'user_1', 'member', 0, 'p', 0, 0)",
            "INSERT INTO webhooks (id, organization_id, url, description, event_types, sealed_secret, previous_sealed_secret,
                 previous_ends_at, is_enabled, disabled_reason, failing_since, created_at, updated_at)
             VALUES ('webhook_1', 'org_1', 'https://x', 'd', '[]', $1, $2, 3, 0, 'gone', 4, 5, 6)",
            "INSERT INTO webhooks (id, organization_id, url, event_types, sealed_secret, is_enabled, created_at, updated_at)
             VALUES ('webhook_2', 'org_1', 'https://y', '[]', $1, 1, 7, 8)",
        ] {
            let statement = sql(text);
            let statement = if text.contains("$1") { statement.bind(vec![1_u8]) } else { statement };
            let statement = if text.contains("$2") { statement.bind(vec![2_u8]) } else { statement };
            statement.execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let before = webhooks(&db).await;
        assert_eq!(before.len(), 2);

        let migrated = db.migrate().await.unwrap();
        assert_eq!((migrated.from, migrated.applied[0].as_str()), (36, "V37__operator_webhooks"));
        assert_eq!(webhooks(&db).await, before);
        let mut tx = db.write().await.unwrap();
        let states: Vec<State> = sql(
            "SELECT previous_ends_at, disabled_reason, failing_since, is_enabled FROM webhooks ORDER BY id",
        )
        .all(&mut tx)
        .await
        .unwrap();
        assert_eq!(states, [(Some(3), Some("gone".to_owned()), Some(4), 0), (None, None, None, 1)]);
        let texts: Vec<(String, Option<String>, i64, i64)> =
            sql("SELECT url, description, created_at, updated_at FROM webhooks ORDER BY id")
                .all(&mut tx)
                .await
                .unwrap();
        let text = |url: &str, description: Option<&str>, times: (i64, i64)| {
            (url.to_owned(), description.map(str::to_owned), times.0, times.1)
        };
        assert_eq!(texts, [text("https://x", Some("d"), (5, 6)), text("https://y", None, (7, 8))]);
        sql("INSERT INTO webhooks (id, url, event_types, sealed_secret, is_enabled, created_at, updated_at)
             VALUES ('webhook_3', 'https://z', '[]', $1, 1, 0, 0)")
        .bind(vec![3_u8])
        .execute(&mut tx)
        .await
        .unwrap();
        // The lock on this row is the lock on the installation.
        let locked =
            sql("SELECT id FROM installation WHERE id = $1").bind(1_i64).lock(&mut tx, Lock::Change).await;
        locked.unwrap();
        sql("DELETE FROM organizations WHERE id = 'org_1'").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let left: Vec<_> = webhooks(&db).await.into_iter().map(|(id, owner, ..)| (id, owner)).collect();
        assert_eq!(left, [("webhook_3".to_owned(), None)]);
    });
}
