//! Webhook events about money, with amounts calculated by hand.

use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::{credits, invoice_changes};
use tollkeeper::clock::Time;
use tollkeeper::db::sql;
use tollkeeper::trail::Trail;

use support::transcript::with_books;
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

const ALL: &[&str] = &["invoice.created", "invoice.paid", "invoice.voided", "credit.added", "credit.expired"];

/// Creates a webhook that receives events of these types.
pub async fn subscribe(world: &World, owner: &TestUser, place: &Place, events: &[&str]) {
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({"url": "https://example.com", "events": events});
    world.post(&path, &body).bearer(&owner.access_token).data().await;
}

/// Takes the queued events, ordered by type and threshold.
pub async fn take_events(world: &World) -> Vec<Value> {
    let mut tx = world.app.db.write().await.unwrap();
    let rows: Vec<(Vec<u8>,)> = sql("SELECT body FROM webhook_events").all(&mut tx).await.unwrap();
    sql("DELETE FROM webhook_events").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut events: Vec<Value> =
        rows.into_iter().map(|(body,)| serde_json::from_slice(&body).unwrap()).collect();
    events.sort_by_key(|event| (event["type"].to_string(), event["data"]["threshold"].as_i64()));
    events
}

#[on_each_database]
fn money_causes_events_with_its_exact_amounts(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        let organization = books.place.organization.clone();
        subscribe(books.world, &books.ada, &books.place, ALL).await;

        // A credit of 3 pays for January's usage. The rest expires in February.
        let new = credits::NewCredit {
            expires_at: Time::parse("2026-02-10T00:00:00Z"),
            ..books.new_credit("3", "payment 1")
        };
        let added = books.add(&new).await.unwrap();
        let at = "2026-01-15T09:00:00.000Z";
        assert_eq!(
            take_events(books.world).await,
            [json!({"type": "credit.added", "timestamp": at, "data": {"organization_id": organization,
                "credit_id": added.credit.id, "kind": "purchase", "currency": "USD", "amount": 3,
                "expires_at": "2026-02-10T00:00:00.000Z"}})]
        );

        // 400,001 x 0.0000025 = 1.0000025.
        books.use_today("chat-a", 400_001, 0).await;
        books.set_time("2026-02-02T09:00:00Z");
        books.run_scheduler().await;
        let [invoice] = books.invoices().await.try_into().unwrap();
        let at = "2026-02-02T09:00:00.000Z";
        let data = |status: &str| {
            json!({"organization_id": organization, "invoice_id": invoice.id, "number": invoice.number,
                "status": status, "month": "2026-01", "currency": "USD", "amount": 1.0000025})
        };
        assert_eq!(
            take_events(books.world).await,
            [
                json!({"type": "invoice.created", "timestamp": at, "data": data("paid")}),
                json!({"type": "invoice.paid", "timestamp": at, "data": data("paid")}),
            ]
        );

        books.set_time("2026-02-11T09:00:00Z");
        books.run_scheduler().await;
        let at = "2026-02-11T09:00:00.000Z";
        assert_eq!(
            take_events(books.world).await,
            [json!({"type": "credit.expired", "timestamp": at, "data": {"organization_id": organization,
                "credit_id": added.credit.id, "currency": "USD", "amount": 1.9999975}})]
        );

        // The credit is used up, so the invoice of February is open until it is paid.
        books.use_today("chat-a", 800_000, 0).await;
        books.set_time("2026-03-02T09:00:00Z");
        books.run_scheduler().await;
        let open = books.invoices().await.into_iter().find(|one| one.id != invoice.id).unwrap();
        let created = take_events(books.world).await;
        assert_eq!(created.len(), 1);
        assert_eq!(
            (&created[0]["type"], &created[0]["data"]["status"]),
            (&json!("invoice.created"), &json!("open"))
        );
        assert_eq!(created[0]["data"]["amount"], 2);
        let app = &books.world.app;
        invoice_changes::mark_paid(&app.billing, open.id, None, &Trail::operator()).await.unwrap();
        let paid = take_events(books.world).await;
        let types: Vec<_> = paid.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["credit.added", "invoice.paid"], "{paid:?}");
        assert_eq!(paid[0]["data"]["kind"], "payment");
        invoice_changes::void(&app.billing, open.id, &Trail::operator()).await.unwrap();
        let voided = take_events(books.world).await;
        let voided: Vec<_> = voided.iter().filter(|event| event["type"] == "invoice.voided").collect();
        assert_eq!((voided.len(), &voided[0]["data"]["status"]), (1, &json!("void")));
    });
}
