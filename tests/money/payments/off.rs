//! Payments that aren't configured, and payments of other organizations.

use http::Method;
use serde_json::json;

use support::billed::budgets_path;
use support::shop::with_shop;
use support::world::World;
use support::{Database, on_each_database};

#[on_each_database]
async fn nothing_is_paid_without_secrets(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = |rest: &str| format!("{}/billing/{rest}", place.organization_path());
    let off = (403, "payments_disabled".to_owned());
    let post = world.post(&path("payments"), &json!({"amount": 10})).bearer(&ada.access_token);
    assert_eq!(post.refused().await, off);
    for method in [Method::PUT, Method::DELETE] {
        let call = world.call(method, &path("payment-method")).bearer(&ada.access_token);
        assert_eq!(call.refused().await, off);
    }
    let call = world.call(Method::PUT, &path("auto-top-up")).json(&json!({"enabled": false}));
    assert_eq!(call.bearer(&ada.access_token).refused().await, off);
    let event =
        world.call(Method::POST, "/v1/billing/stripe/events").json(&json!({"id": "evt_1", "type": "x"}));
    assert_eq!(event.refused().await, off);
    // Existing data is still readable.
    let list = world.get(&path("payments")).bearer(&ada.access_token).data().await;
    assert_eq!((&list["payments"], &list["total"]), (&json!([]), &json!(0)));
    let top_up = world.get(&path("auto-top-up")).bearer(&ada.access_token).data().await;
    assert_eq!(top_up["enabled"], false);
    // The job does nothing.
    tollkeeper::payments::jobs::run_due(&world.app.payments).await.unwrap();
}

#[on_each_database]
fn payments_of_others_do_not_exist(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("10", false).await;
        let eve = shop.world().user("eve").await;
        let other = shop.world().place(&eve, "Other").await;
        let id = id.as_str().unwrap();
        let call = |path: String| shop.world().get(&path).bearer(&eve.access_token);
        let path = format!("{}/billing/payments/{id}", other.organization_path());
        assert_eq!(call(path).refused().await, (404, "payment_not_found".to_owned()));
        let path = format!("{}/billing/payments", other.organization_path());
        assert_eq!(call(path).data().await["total"], 0);
        assert_eq!(call(shop.path(&format!("payments/{id}"))).refused().await.0, 403);
        let post =
            shop.world().post(&shop.path("payments"), &json!({"amount": 10})).bearer(&eve.access_token);
        assert_eq!(post.refused().await.0, 403);
    });
}

#[on_each_database]
fn no_key_moves_money_from_a_card(database: Database) {
    with_shop(database, async |shop| {
        let world = shop.world();
        let (ada, place) = (&shop.books.ada, &shop.books.place);
        let (_, key) = world.key(ada, place, &json!({"name": "Whole"})).await;
        let amount = json!({"amount": 10});
        let calls = |token: &str| {
            [
                world.post(&shop.path("payments"), &amount),
                world.call(Method::PUT, &shop.path("payment-method")),
                world.call(Method::DELETE, &shop.path("payment-method")),
                world.call(Method::PUT, &shop.path("auto-top-up")).json(&json!({"enabled": false})),
            ]
            .map(|call| call.bearer(token))
        };
        for call in calls(&key) {
            assert_eq!(call.refused().await, (403, "management_not_allowed".to_owned()));
        }
        for (call, status) in calls(&ada.access_token).into_iter().zip([200, 200, 409, 200]) {
            let answer = call.send().await;
            assert_eq!(answer.status, status, "{}", answer.text);
        }
        // The key can still read everything that its role allows.
        for path in ["payments", "auto-top-up"] {
            world.get(&shop.path(path)).bearer(&key).data().await;
        }
        let budget = json!({"name": "Month", "scope": "organization", "limit": 5, "period": "month"});
        let path = budgets_path(&place.organization);
        world.post(&path, &budget).bearer(&key).data().await;
    });
}
