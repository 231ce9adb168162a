//! Statements about payments and related rows. They use an index, regardless of the number of payments.

use support::on_each_database;
use support::world::World;
use tollkeeper::billing::store::{audit, payment_pages};
use tollkeeper::db::sql;
use tollkeeper::payments::statements as payments;

use super::plan;

/// The number of payments, a few of which are in progress, and of events from Stripe, a few of which are
/// pending.
const ROWS: i64 = 12_000;

#[on_each_database]
async fn payments_are_found_by_their_index(world: World) {
    let series = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!(
            "{series} INSERT INTO payments (id, organization_id, kind, invoice_id, amount_minor, currency, status, intent_id,
                     next_at, caller, created_at, updated_at, paid_at)
                 SELECT 'p' || CAST(1000000 + i AS TEXT), 'o' || CAST(i % 3000 AS TEXT),
                        CASE WHEN i % 4 = 0 THEN 'credit' ELSE 'invoice' END, 'i' || CAST(i AS TEXT), 1, 'USD',
                        CASE WHEN i % 100 = 0 THEN 'open' ELSE 'succeeded' END, 'pi' || CAST(i AS TEXT),
                        CASE WHEN i % 100 = 0 THEN i END, 'system', 0, 0, CASE WHEN i % 100 > 0 THEN i END FROM n"
        ),
        format!(
            "{series} INSERT INTO payment_refunds (id, payment_id, organization_id, amount_minor, status, next_at, created_at,
                     updated_at)
                 SELECT 'r' || CAST(i AS TEXT), 'p' || CAST(1000000 + i AS TEXT), 'o' || CAST(i % 3000 AS TEXT), 1, 'succeeded',
                        CASE WHEN i % 100 = 0 THEN i END, 0, 0 FROM n"
        ),
        format!(
            "{series} INSERT INTO stripe_events (id, event_type, object_id, received_at, done_at, next_at)
                 SELECT 'e' || CAST(i AS TEXT), 'x', 'x', i, CASE WHEN i % 100 > 0 THEN i END, i FROM n"
        ),
        format!(
            "{series} INSERT INTO auto_top_ups (organization_id, is_enabled, threshold_nano, restore_to_nano, next_try_at,
                     created_at, updated_at)
                 SELECT 'o' || CAST(i AS TEXT), 1, 1, 2, CASE WHEN i % 100 = 0 THEN i END, 0, 0 FROM n"
        ),
        format!(
            "{series} INSERT INTO stripe_tasks (kind, object_id, next_at)
                 SELECT 'detach_method', 'm' || CAST(i AS TEXT), i FROM n"
        ),
        "ANALYZE".to_owned(),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let of_organization = "payments_organization_id_id";
    let cases: [(&str, &[&str], &str); 18] = [
        // Each case has a statement, its parameters, and the expected indexes, any of which may be used.
        (payments::COUNT, &["o7"], of_organization),
        (&payments::LIST, &["o7", "20", "0"], of_organization),
        (&payments::OPEN_OF_INVOICE, &["o7", "i7"], of_organization),
        (payments::TOPPED_UP_SINCE, &["o7", "p", "q", "5"], of_organization),
        (payments::TOP_UP_UNDER_WAY, &["o7"], "payments_top_up_under_way|payments_organization_id_id"),
        (payments::DUE, &["9", "50"], "payments_next_at"),
        (&payments::PAID_BETWEEN, &["5", "9"], "payments_paid_at"),
        (&payments::OF_PAYMENT, &["p1000007"], "payment_refunds_payment_id"),
        (&payments::REFUNDS_DUE, &["9", "50"], "payment_refunds_next_at"),
        (payments::EVENTS_DUE, &["9", "50"], "stripe_events_next_at"),
        (payments::REMOVE_DONE, &["9", "50"], "stripe_events_done_at"),
        (payments::TOP_UPS_DUE, &["9", "50"], "auto_top_ups_next_try_at"),
        (payments::TASKS_DUE, &["9", "50"], "stripe_tasks_next_at"),
        (audit::PAYMENTS, &["o7"], of_organization),
        (payment_pages::EXPIRE_OF_INVOICE, &["o7", "i7", "9"], of_organization),
        (payment_pages::CANCEL_OF_INVOICE, &["o7", "i7", "9"], of_organization),
        (payment_pages::EXPIRE_ALL, &["o7", "9"], of_organization),
        (payment_pages::CANCEL_ALL, &["o7", "9"], of_organization),
    ];
    for (text, parameters, index) in cases {
        let plan = plan(&world, text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
    }
}
