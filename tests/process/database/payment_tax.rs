//! Step 38 of the schema, which adds the tax of payments.

use tollkeeper::db::{Db, sql};

use super::with_schema;
use support::{Database, on_each_database};

const PAUSE_FOR_TAX: &str = "UPDATE auto_top_ups SET paused_reason = 'tax_location', updated_at = 9";

async fn run(db: &Db, text: &'static str) -> Result<u64, tollkeeper::db::Error> {
    let mut tx = db.write().await.unwrap();
    let changed = sql(text).execute(&mut tx).await?;
    tx.commit().await.unwrap();
    Ok(changed)
}

#[on_each_database]
fn payments_of_earlier_servers_have_no_tax(database: Database) {
    with_schema(database, 37, async |db| {
        let pay = async |text: &'static str| assert_eq!(run(&db, text).await.unwrap(), 1, "{text}");
        pay("INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, refunded_minor, caller, created_at,
                 updated_at) VALUES ('payment_1', 'org_1', 'credit', 2500, 'USD', 'succeeded', 500, 'c', 1, 1)")
        .await;
        pay("INSERT INTO payment_refunds (id, payment_id, organization_id, amount_minor, status, created_at, updated_at)
             VALUES ('refund_1', 'payment_1', 'org_1', 500, 'succeeded', 2, 2)")
        .await;
        pay("INSERT INTO payment_disputes (id, payment_id, organization_id, amount_minor, withdrawn_at)
             VALUES ('dp_1', 'payment_1', 'org_1', 300, 3)")
        .await;
        pay("INSERT INTO auto_top_ups (organization_id, is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano,
                 paused_reason, failures, next_try_at, created_at, updated_at)
             VALUES ('org_1', 1, 10, 50, 90, 'monthly_cap', 2, 7, 5, 6)")
        .await;
        run(&db, PAUSE_FOR_TAX).await.unwrap_err();

        let migrated = db.migrate().await.unwrap();
        assert_eq!((migrated.from, migrated.applied[0].as_str()), (37, "V38__payment_tax"));
        // An earlier server that is still running writes this row.
        pay("INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, caller, created_at, updated_at)
             VALUES ('payment_2', 'org_1', 'credit', 700, 'USD', 'open', 'c', 1, 1)")
        .await;
        let mut tx = db.read().await.unwrap();
        let rows: Vec<(i64, Option<i64>, i64, i64)> =
            sql("SELECT is_taxed, tax_minor, refunded_minor, returned_tax_minor FROM payments ORDER BY id")
                .all(&mut tx)
                .await
                .unwrap();
        assert_eq!(rows, [(0, Some(0), 500, 0), (0, Some(0), 0, 0)]);
        let parts: Vec<(i64, i64)> = sql("SELECT amount_minor, tax_minor FROM payment_refunds
             UNION ALL SELECT amount_minor, tax_minor FROM payment_disputes ORDER BY 1")
        .all(&mut tx)
        .await
        .unwrap();
        assert_eq!(parts, [(300, 0), (500, 0)]);
        let top_ups: Vec<(i64, i64, i64, Option<i64>)> =
            sql("SELECT is_enabled, threshold_nano, restore_to_nano, monthly_cap_nano FROM auto_top_ups")
                .all(&mut tx)
                .await
                .unwrap();
        assert_eq!(top_ups, [(1, 10, 50, Some(90))]);
        let pauses: Vec<(Option<String>, i64, Option<i64>)> =
            sql("SELECT paused_reason, failures, next_try_at FROM auto_top_ups").all(&mut tx).await.unwrap();
        assert_eq!(pauses, [(Some("monthly_cap".to_owned()), 2, Some(7))]);
        let times: Vec<(i64, i64)> =
            sql("SELECT created_at, updated_at FROM auto_top_ups").all(&mut tx).await.unwrap();
        assert_eq!(times, [(5, 6)]);
        drop(tx);
        pay(PAUSE_FOR_TAX).await;
    });
}
