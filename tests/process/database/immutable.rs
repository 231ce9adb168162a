//! Rows of billed usage and of prices are immutable.

use tollkeeper::db::sql;

use super::with_db;
use support::{Database, on_each_database};

#[on_each_database]
fn usage_events_are_immutable(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        sql("INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id,
                 model, kind, occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
             VALUES ('org_1', 's', 'e', $1, 'proj_1', 'key_1', 'm', 'chat', 1, 1, 5, 7, 1, 12)")
        .bind([1_u8; 32])
        .execute(&mut tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        let mut changes = vec![
            "UPDATE usage_events SET amount_pico = 0",
            "DELETE FROM usage_events WHERE event_id = 'e'",
            "INSERT INTO usage_events SELECT * FROM usage_events WHERE event_id = 'e'
             ON CONFLICT (organization_id, source, event_id) DO UPDATE SET amount_pico = 0",
        ];
        if !db.is_postgres() {
            changes.push("REPLACE INTO usage_events SELECT * FROM usage_events");
        } else {
            changes.push("TRUNCATE usage_events");
        }
        for change in changes {
            let mut tx = db.write().await.unwrap();
            let refused = sql(change).execute(&mut tx).await;
            let text = refused.expect_err(change).to_string();
            assert!(text.contains("usage_events is append-only"), "{change}: {text}");
        }
        let mut tx = db.read().await.unwrap();
        let row =
            sql("SELECT payload_hash, amount_pico FROM usage_events").one::<([u8; 32], i64)>(&mut tx).await;
        assert_eq!(row, Ok(([1; 32], 12)));
    });
}

#[on_each_database]
fn prices_with_conditions_are_immutable(database: Database) {
    with_db(database, async |db| {
        let insert = async |version: i64| {
            let mut tx = db.write().await.unwrap();
            let inserted = sql(
                "INSERT INTO conditional_prices (model, version, revision, effective_at, conditions,
                     prompt_pico, completion_pico, recorded_at) VALUES ('m', $1, 1, 1, 'tier:flex', 5, 7, 1)",
            )
            .bind(version)
            .execute(&mut tx)
            .await;
            if inserted.is_ok() {
                tx.commit().await.unwrap();
            }
            inserted
        };
        insert(-5).await.unwrap();
        // Versions of 0 or more are the start times of prices without conditions.
        assert!(insert(0).await.is_err());
        let changes = [
            "UPDATE conditional_prices SET prompt_pico = 0",
            "DELETE FROM conditional_prices",
            match db.is_postgres() {
                true => "TRUNCATE conditional_prices",
                false => "REPLACE INTO conditional_prices SELECT * FROM conditional_prices",
            },
        ];
        for change in changes {
            let mut tx = db.write().await.unwrap();
            let text = sql(change).execute(&mut tx).await.expect_err(change).to_string();
            assert!(text.contains("conditional_prices is append-only"), "{change}: {text}");
        }
    });
}
