//! The operations on webhooks.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::OrganizationRole;

use super::{act, deliveries, hook, read, run_on};
use support::world::{World, id};
use support::{Database, on_each_database};

#[on_each_database]
async fn webhook_is_created_read_changed_and_deleted(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/webhooks", place.organization_path());
    // Event types are returned in the order of the contract, each once.
    let body = json!({"url": "https://example.com/events?a=b", "description": "Ours",
        "events": ["member.added", "invoice.paid", "member.added"]});
    let created = world.post(&path, &body).bearer(&ada.access_token).data().await;
    let secret = created["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    assert_eq!(
        created,
        json!({"id": created["id"], "secret": secret, "url": "https://example.com/events?a=b",
            "description": "Ours", "events": ["invoice.paid", "member.added"], "enabled": true,
            "created_at": "2026-03-10T12:00:00.000Z"})
    );
    let one = format!("{path}/{}", id(&created));
    let expected = json!({"id": created["id"], "url": "https://example.com/events?a=b", "description": "Ours",
        "events": ["invoice.paid", "member.added"], "enabled": true, "disabled_reason": null,
        "failing_since": null, "previous_secret_ends_at": null,
        "created_at": "2026-03-10T12:00:00.000Z", "updated_at": "2026-03-10T12:00:00.000Z"});
    let answer = world.get(&one).bearer(&ada.access_token).send().await;
    assert_eq!(answer.json()["data"], expected);
    let tag = answer.header("etag").to_owned();
    let listed = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(listed, json!({"webhooks": [expected], "total": 1, "page": 1, "page_size": 20}));

    world.clock.advance_ms(1_000);
    let put = |body: &Value, tag: &str| {
        world.call(Method::PUT, &one).bearer(&ada.access_token).header("if-match", tag).json(body)
    };
    let changed = put(&json!({"events": ["api_key.created"], "description": null, "enabled": false}), &tag);
    let changed = changed.send().await;
    let after = json!({"id": created["id"], "url": "https://example.com/events?a=b", "description": null,
        "events": ["api_key.created"], "enabled": false, "disabled_reason": "owner", "failing_since": null,
        "previous_secret_ends_at": null, "created_at": "2026-03-10T12:00:00.000Z",
        "updated_at": "2026-03-10T12:00:01.000Z"});
    assert_eq!((changed.status, &changed.json()["data"]), (200, &after));
    let new_tag = changed.header("etag").to_owned();
    assert_eq!(world.get(&one).bearer(&ada.access_token).send().await.header("etag"), new_tag);
    assert_eq!(put(&json!({"enabled": true}), &tag).refused().await, (412, "precondition_failed".to_owned()));
    // A change to the same values writes nothing.
    assert_eq!(put(&json!({"enabled": false}), &new_tag).data().await, after);
    let delete =
        |tag: &str| world.call(Method::DELETE, &one).bearer(&ada.access_token).header("if-match", tag);
    assert_eq!(delete(&tag).refused().await.0, 412);
    delete(&new_tag).data().await;
    assert_eq!(
        world.get(&one).bearer(&ada.access_token).refused().await,
        (404, "webhook_not_found".to_owned())
    );
    let log = format!("{}/audit-log", place.organization_path());
    let log = world.get(&log).bearer(&ada.access_token).data().await;
    let actions = log["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap());
    let mut actions: Vec<_> = actions.filter(|action| action.starts_with("webhook.")).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["webhook.changed", "webhook.created", "webhook.deleted"]);
}

#[on_each_database]
async fn only_owners_change_and_members_see_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let hook = hook(&world, &ada, &place, "https://example.com/events", &["invoice.paid"]).await;
    let (admin, member) = (world.user("admin").await, world.user("member").await);
    world.join_organization(&place, &admin, OrganizationRole::Admin).await;
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    read(&world, &admin, &hook).await;
    deliveries(&world, &admin, &hook, "").await;
    assert_eq!(world.get(&hook.path).bearer(&member.access_token).refused().await.0, 403);
    for (method, path) in [
        (Method::PUT, String::new()),
        (Method::DELETE, String::new()),
        (Method::POST, "/rotate".to_owned()),
        (Method::POST, "/test".to_owned()),
    ] {
        let call = world.call(method.clone(), &format!("{}{path}", hook.path)).bearer(&admin.access_token);
        let call = if method == Method::DELETE { call } else { call.json(&json!({})) };
        assert_eq!(call.refused().await, (403, "insufficient_role".to_owned()), "{method} {path}");
    }
}

#[on_each_database]
fn urls_lead_to_the_internet_over_tls(database: Database) {
    let cases = [
        ("example.com", "url invalid_url"),
        ("https://user:word@example.com/", "url invalid_url"),
        ("https://example.com/#top", "url invalid_url"),
        ("ftp://example.com/", "url invalid_url"),
        ("http://example.com/", "url https_required"),
        ("https://example.com:22/", "url port_not_allowed"),
        ("https://127.0.0.1/", "url address_not_allowed"),
        ("https://169.254.169.254/latest/meta-data/", "url address_not_allowed"),
        ("https://[::ffff:10.0.0.1]/", "url address_not_allowed"),
    ];
    database.run(&[], async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let path = format!("{}/webhooks", place.organization_path());
        let good = hook(&world, &ada, &place, "https://example.com/", &["invoice.paid"]).await;
        for (url, expected) in cases {
            let body = json!({"url": url, "events": ["invoice.paid"]});
            let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
            assert_eq!((answer.status, answer.details()), (400, vec![expected.to_owned()]), "{url}");
            let put = world.call(Method::PUT, &good.path).bearer(&ada.access_token);
            assert_eq!(put.json(&json!({ "url": url })).send().await.details(), [expected], "{url}");
        }
        for (body, expected) in [
            (json!({"events": ["invoice.paid"]}), "url required"),
            (json!({"url": "https://example.com"}), "events required"),
            (json!({"url": "https://example.com", "events": []}), "events empty"),
            (json!({"url": "https://example.com", "events": ["invoice.eaten"]}), "events[0] unknown_value"),
            // Tests are sent on request only.
            (json!({"url": "https://example.com", "events": ["webhook.test"]}), "events[0] unknown_value"),
        ] {
            let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
            assert_eq!((answer.status, answer.details()), (400, vec![expected.to_owned()]), "{body}");
        }
    });
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__WEBHOOKS_PER_ORGANIZATION", "2")])]
async fn organization_has_ten_webhooks_at_most(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({"url": "https://example.com", "events": ["invoice.paid"]});
    let create = || world.post(&path, &body).bearer(&ada.access_token);
    create().data().await;
    create().data().await;
    let refused = create().send().await;
    assert_eq!((refused.status, refused.code()), (409, "limit_reached".to_owned()));
    assert!(refused.text.contains("limits.webhooks_per_organization"), "{}", refused.text);
}

#[on_each_database]
async fn repetition_with_an_idempotency_key_gets_the_same_secret(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({"url": "https://example.com", "events": ["invoice.paid"]});
    let create = || world.post(&path, &body).bearer(&ada.access_token).header("idempotency-key", "one");
    let (first, second) = (create().send().await, create().send().await);
    assert_eq!((first.status, &first.text), (200, &second.text));
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(world.get(&path).bearer(&ada.access_token).data().await["total"], 1);
}

#[on_each_database]
fn switched_off_webhook_is_sent_nothing(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let hook = hook(&world, &ada, &place, "https://example.com", &["api_key.created"]).await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        let waiting = deliveries(&world, &ada, &hook, "?state=pending").await;
        let put = |body: &Value| world.call(Method::PUT, &hook.path).bearer(&ada.access_token).json(body);
        put(&json!({"enabled": false})).data().await;
        assert_eq!(
            deliveries(&world, &ada, &hook, "?state=failed").await.len(),
            1,
            "the delivery is given up"
        );
        // No delivery is created for events that happen in the meantime.
        super::cause(&world, &ada, &place, "meanwhile").await;
        assert_eq!(deliveries(&world, &ada, &hook, "").await.len(), 1);
        let redeliver = format!("{}/deliveries/{}/redeliver", hook.path, id(&waiting[0]));
        for path in [format!("{}/test", hook.path), redeliver] {
            let refused = world.call(Method::POST, &path).bearer(&ada.access_token).refused().await;
            assert_eq!(refused, (409, "webhook_disabled".to_owned()), "{path}");
        }
        let since = json!({"since": "2026-03-10T00:00:00Z"});
        let failed = world.post(&format!("{}/redeliver", hook.path), &since).bearer(&ada.access_token);
        assert_eq!(failed.refused().await, (409, "webhook_disabled".to_owned()));
        put(&json!({"enabled": true})).data().await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
    });
}

#[on_each_database]
fn old_deliveries_are_removed_with_their_events(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let hook = hook(&world, &ada, &place, "https://example.com", &["api_key.created"]).await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        world.clock.advance_ms(20 * DAY_MS);
        let ada = world.session(ada.id).await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        let webhooks = &world.app.webhooks;
        let now = world.clock.now();
        let before = now.plus_ms(-10 * DAY_MS);
        let removed = tollkeeper::webhooks::retention::remove_before(webhooks, before, 500).await.unwrap();
        assert_eq!(removed, (1, false));
        let counts: Vec<(i64, i64)> = tollkeeper::db::sql(
            "SELECT (SELECT COUNT(*) FROM webhook_deliveries), (SELECT COUNT(*) FROM webhook_events)",
        )
        .all(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
        assert_eq!(counts, [(1, 1)]);
    });
}
