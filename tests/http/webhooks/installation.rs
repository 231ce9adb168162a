//! Webhooks of the installation: they get the events of every organization, and only operators manage them.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::error::Code;
use tollkeeper::events::EventType;
use tollkeeper::ids::{DeliveryId, WebhookId};
use tollkeeper::kernel::page::Page;
use tollkeeper::kernel::patch::Patch;
use tollkeeper::kernel::version::Expected;
use tollkeeper::operators::roles;
use tollkeeper::trail::{self, Filter, Trail};
use tollkeeper::webhooks::deliveries::{self, Delivery, State};
use tollkeeper::webhooks::endpoints::{self, Change, DisabledReason, New, Webhook};
use tollkeeper::webhooks::owners::Owner;
use tollkeeper::webhooks::rules::urls::WebhookUrl;
use tollkeeper::webhooks::targets::{Target, TargetDelivery};

use super::{cause, hook, run_on, send};
use support::receiver::{OK, Receiver};
use support::webhooks::{OperatorHook, operator_hook};
use support::world::World;
use support::{Database, on_each_database};

/// A change that only switches a webhook on or off.
fn switch(is_enabled: bool) -> Change {
    Change { url: None, events: None, description: Patch::Keep, is_enabled: Some(is_enabled) }
}

async fn read(world: &World, hook: &OperatorHook) -> Webhook {
    let trail = Trail::operator();
    endpoints::read(&world.app.webhooks, Target::of_installation(hook.id, &trail)).await.unwrap()
}

async fn list(world: &World, hook: &OperatorHook, state: Option<State>) -> Vec<Delivery> {
    let (trail, page) = (Trail::operator(), Page { page: 1, page_size: 100 });
    let target = Target::of_installation(hook.id, &trail);
    deliveries::list(&world.app.webhooks, target, state, page).await.unwrap().rows
}

async fn change(world: &World, hook: &OperatorHook, change: Change) -> Webhook {
    let trail = Trail::operator();
    let target = Target::of_installation(hook.id, &trail);
    endpoints::update(&world.app.webhooks, target, &Expected::Any, change).await.unwrap()
}

/// Returns the entries of the audit trail about webhooks, the oldest first: action, target, actor,
/// organization.
async fn entries(world: &World) -> Vec<(String, String, String, Option<String>)> {
    let filter = Filter { limit: 1_000, ..Filter::default() };
    let rows = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let rows = rows.into_iter().rev().filter(|row| row.action.starts_with("webhook."));
    rows.map(|row| (row.action, row.target, row.actor, row.organization_id.map(|id| id.to_string())))
        .collect()
}

#[on_each_database]
fn it_gets_the_named_events_of_every_organization(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let (acme, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
        let (all, own) = (Receiver::start(OK).await, Receiver::start(OK).await);
        operator_hook(&world, &all.url(), &[EventType::ApiKeyCreated]).await;
        hook(&world, &ada, &acme, &own.url(), &["api_key.created"]).await;
        let mut expected = Vec::new();
        for place in [&acme, &other] {
            let key = cause(&world, &ada, place, "one").await;
            let path = format!("{}/api-keys/{key}", place.project_path());
            world.call(Method::POST, &format!("{path}/rotate")).bearer(&ada.access_token).data().await;
            expected.push(json!({"organization_id": place.organization, "project_id": place.project,
                "api_key_id": key}));
        }
        // Queued deliveries are kept when their organization is deleted.
        world.call(Method::DELETE, &other.organization_path()).bearer(&ada.access_token).data().await;
        send(&world).await;
        let mut received = all.take();
        received.sort_by_key(|request| request.json()["data"]["organization_id"] != json!(acme.organization));
        let data: Vec<Value> = received.iter().map(|request| request.json()["data"].clone()).collect();
        assert_eq!(data, expected);
        assert!(received.iter().all(|request| request.event() == "api_key.created"));
        let [mine] = own.take().try_into().unwrap();
        assert_eq!((mine.id(), &mine.body), (received[0].id(), &received[0].body), "the same event");
        assert_ne!(mine.headers["webhook-signature"], received[0].headers["webhook-signature"]);
    });
}

#[on_each_database]
async fn nobody_but_the_operator_reaches_it(world: World) {
    let ada = world.user("ada").await;
    roles::grant(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
    let ada = world.session(ada.id).await;
    world.add_authenticator(&ada.access_token).await;
    let place = world.place(&ada, "Acme").await;
    let hook = operator_hook(&world, "https://example.com/in", &[EventType::AuditDrift]).await;
    let path = format!("{}/webhooks", place.organization_path());
    let listed = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(listed["total"], 0);
    let one = format!("{path}/{}", hook.id);
    let not_found = (404, "webhook_not_found".to_owned());
    for below in ["", "/deliveries"] {
        let call = world.get(&format!("{one}{below}")).bearer(&ada.access_token);
        assert_eq!(call.refused().await, not_found, "{below}");
    }
    for (method, below) in [
        (Method::PUT, ""),
        (Method::DELETE, ""),
        (Method::POST, "/rotate"),
        (Method::POST, "/test"),
        (Method::POST, "/redeliver"),
    ] {
        let call = world.call(method.clone(), &format!("{one}{below}")).bearer(&ada.access_token);
        let call = if method == Method::DELETE { call } else { call.json(&json!({})) };
        assert_eq!(call.refused().await, not_found, "{method} {below}");
    }
    // An organization can't subscribe to the operator's events either.
    for event in ["audit.drift", "usage.refused", "catalog.refused"] {
        let body = json!({"url": "https://example.com", "events": [event]});
        let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec!["events[0] unknown_value".to_owned()]));
    }
    // The operator's commands manage only the webhooks of the installation.
    let body = json!({"url": "https://example.com", "events": ["invoice.paid"]});
    let own = world.post(&path, &body).bearer(&ada.access_token).data().await;
    let trail = Trail::operator();
    let target = Target::of_installation(WebhookId::parse(own["id"].as_str().unwrap()).unwrap(), &trail);
    let refused = endpoints::read(&world.app.webhooks, target).await.unwrap_err();
    assert_eq!(refused.code, Code::WebhookNotFound);
    let refused = endpoints::delete(&world.app.webhooks, target, &Expected::Any).await.unwrap_err();
    assert_eq!(refused.code, Code::WebhookNotFound);
}

#[on_each_database]
fn it_is_changed_tested_rotated_and_deleted_by_the_operator(database: Database) {
    run_on(database, async |world| {
        let receiver = Receiver::start("HTTP/1.1 500 Internal Server Error\r\n\r\n").await;
        let hook = operator_hook(&world, &receiver.url(), &[EventType::AuditDrift]).await;
        let (webhooks, trail) = (&world.app.webhooks, Trail::operator());
        let target = Target::of_installation(hook.id, &trail);
        let queued = endpoints::test(webhooks, target, None).await.unwrap().commit().await.unwrap();
        send(&world).await;
        let [request] = receiver.take().try_into().unwrap();
        assert_eq!(
            request.json(),
            json!({"type": "webhook.test", "timestamp": "2026-03-10T12:00:00.000Z", "data": {"webhook_id": hook.id}})
        );
        assert_eq!(request.id(), queued.0.to_string());
        let [failing] = list(&world, &hook, Some(State::Pending)).await.try_into().unwrap();
        assert_eq!((failing.id, failing.attempts, failing.last_status), (queued.1, 1, Some(500)));
        assert_eq!(read(&world, &hook).await.failing_since, Some(world.clock.now()));

        // While the webhook is off, pending deliveries are given up, and tests are refused.
        let off = change(&world, &hook, switch(false)).await;
        assert_eq!((off.is_enabled, off.disabled_reason), (false, Some(DisabledReason::Owner)));
        assert_eq!(list(&world, &hook, Some(State::Failed)).await.len(), 1);
        let refused = endpoints::test(webhooks, target, None).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.code, Code::WebhookDisabled);

        // The webhook is enabled again, with a new secret that signs in addition to the previous one.
        change(&world, &hook, switch(true)).await;
        let rotated = endpoints::rotate(webhooks, target, &Expected::Any).await.unwrap();
        let rotated = rotated.commit().await.unwrap();
        assert_eq!(rotated.previous_ends_at, world.clock.now().plus_ms(DAY_MS));
        assert_ne!(rotated.secret.expose(), hook.secret);
        receiver.answer(OK);
        let begun = deliveries::redeliver_failed(webhooks, target, world.clock.now()).await.unwrap();
        assert_eq!(begun.commit().await.unwrap(), 1);
        send(&world).await;
        let [again] = receiver.take().try_into().unwrap();
        assert_eq!((again.id(), &again.body), (request.id(), &request.body));
        assert_eq!(again.headers["webhook-signature"].split(' ').count(), 2);
        let one = TargetDelivery::of_installation(hook.id, queued.1, &trail);
        deliveries::redeliver(webhooks, one).await.unwrap().commit().await.unwrap();
        send(&world).await;
        assert_eq!(receiver.take().len(), 1);
        let none = DeliveryId::from_parts(world.clock.now(), 7);
        let none = TargetDelivery::of_installation(hook.id, none, &trail);
        let refused = deliveries::redeliver(webhooks, none).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.code, Code::DeliveryNotFound);

        endpoints::delete(webhooks, target, &Expected::Any).await.unwrap();
        assert_eq!(endpoints::read(webhooks, target).await.unwrap_err().code, Code::WebhookNotFound);
        let did =
            |action: &str| (action.to_owned(), hook.id.to_string(), "operator".to_owned(), None::<String>);
        let mut expected = [
            "webhook.created",
            "webhook.tested",
            "webhook.changed",
            "webhook.changed",
            "webhook.rotated",
            "webhook.redelivered",
            "webhook.redelivered",
            "webhook.deleted",
        ]
        .map(did);
        let mut found = entries(&world).await;
        // All entries have the same time, so their ids are in no order.
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    });
}

#[on_each_database]
fn operators_are_told_when_it_is_switched_off(database: Database) {
    run_on(database, async |world| {
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        roles::grant(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
        let place = world.place(&bob, "Acme").await;
        let receiver = Receiver::start("HTTP/1.1 410 Gone\r\n\r\n").await;
        let hook = operator_hook(&world, &receiver.url(), &[EventType::ApiKeyCreated]).await;
        cause(&world, &bob, &place, "one").await;
        send(&world).await;
        let off = read(&world, &hook).await;
        assert_eq!((off.is_enabled, off.disabled_reason), (false, Some(DisabledReason::Gone)));
        tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
        let files = std::fs::read_dir(world.data_dir.join("mail")).unwrap();
        let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let [mail] = texts.filter(|text| text.contains("webhook")).collect::<Vec<_>>().try_into().unwrap();
        assert!(mail.contains("Subject: An installation webhook was disabled"), "{mail}");
        assert!(mail.contains("ada@example.com") && mail.contains("is gone (status 410)"), "{mail}");
        assert!(
            mail.contains("installation that you operate") && mail.contains("tollkeeper webhook update"),
            "{mail}"
        );
        let found = entries(&world).await;
        let expected = ("webhook.disabled".to_owned(), hook.id.to_string(), "system".to_owned(), None);
        assert!(found.contains(&expected), "{found:?}");
    });
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__WEBHOOKS_PER_ORGANIZATION", "2")])]
async fn the_installation_has_as_many_as_an_organization(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    hook(&world, &ada, &place, "https://example.com", &["invoice.paid"]).await;
    for _ in 0..2 {
        operator_hook(&world, "https://example.com", &[EventType::InvoicePaid]).await;
    }
    let new = New {
        id: None,
        url: WebhookUrl::parse("https://example.com").unwrap(),
        events: vec![EventType::InvoicePaid],
        description: None,
    };
    let trail = Trail::operator();
    let refused = endpoints::create(&world.app.webhooks, Owner::Installation(&trail), new).await;
    assert_eq!(refused.map(|_| ()).unwrap_err().code, Code::LimitReached);
}
