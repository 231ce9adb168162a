//! Step 38, after which payments have a tax.

use tollkeeper::db::{Db, sql};

use super::{undo_last_steps, with_db};
use support::{Database, on_each_database};

/// Makes the schema that of step 37.
pub async fn undo(db: &Db) {
    let mut tx = db.write().await.unwrap();
    let texts = [
        "ALTER TABLE payments DROP COLUMN is_taxed",
        "ALTER TABLE payments DROP COLUMN tax_minor",
        "ALTER TABLE payments DROP COLUMN tax_calculation_id",
        "ALTER TABLE payments DROP COLUMN receipt_url",
        "ALTER TABLE payments DROP COLUMN returned_tax_minor",
        "ALTER TABLE payment_refunds DROP COLUMN tax_minor",
        "ALTER TABLE payment_disputes DROP COLUMN tax_minor",
        "DROP TABLE auto_top_ups",
        "CREATE TABLE auto_top_ups (
             organization_id TEXT NOT NULL PRIMARY KEY,
             is_enabled BIGINT NOT NULL,
             threshold_nano BIGINT NOT NULL,
             restore_to_nano BIGINT NOT NULL,
             monthly_cap_nano BIGINT,
             paused_reason TEXT CHECK (paused_reason IN ('declined', 'authentication_required', 'monthly_cap',
                 'no_payment_method', 'refunded', 'disputed')),
             failures BIGINT NOT NULL DEFAULT 0,
             next_try_at BIGINT,
             created_at BIGINT NOT NULL,
             updated_at BIGINT NOT NULL)",
        "CREATE INDEX auto_top_ups_next_try_at ON auto_top_ups (next_try_at) WHERE next_try_at IS NOT NULL",
        "DELETE FROM refinery_schema_history WHERE version >= 38",
    ];
    for text in undo_last_steps(db).iter().chain(&texts) {
        sql(*text).execute(&mut tx).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    tx.commit().await.unwrap();
}

const PAUSE_FOR_TAX: &str = "UPDATE auto_top_ups SET paused_reason = 'tax_location', updated_at = 9";

async fn run(db: &Db, text: &'static str) -> Result<u64, tollkeeper::db::Error> {
    let mut tx = db.write().await.unwrap();
    let changed = sql(text).execute(&mut tx).await?;
    tx.commit().await.unwrap();
    Ok(changed)
}

#[on_each_database]
fn payments_of_earlier_servers_have_no_tax(database: Database) {
    with_db(database, async |db| {
        undo(&db).await;
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
        // By an earlier server that runs on.
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
