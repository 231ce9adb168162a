//! Events about members and API keys, and what causes them. Events about money are in
//! `tests/money/billing/webhook_events.rs`.

use http::Method;
use serde_json::{Value, json};

use super::{hook, run_on, send};
use support::receiver::{OK, Receiver};
use support::world::{Place, id};
use support::{Database, on_each_database};

const ALL: &[&str] =
    &["api_key.created", "api_key.rotated", "api_key.deleted", "member.added", "member.removed"];

/// Takes the received events: types and data, sorted by type.
fn take(receiver: &Receiver) -> Vec<(String, Value)> {
    let mut events: Vec<_> =
        receiver.take().iter().map(|request| (request.event(), request.json()["data"].clone())).collect();
    events.sort_by_key(|(of, data)| (of.clone(), data.to_string()));
    events
}

#[on_each_database]
fn keys_and_members_cause_events_of_their_organization_only(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let elsewhere = world.place(&ada, "Elsewhere").await;
        let receiver = Receiver::start(OK).await;
        hook(&world, &ada, &place, &receiver.url(), ALL).await;
        let none = Receiver::start(OK).await;
        hook(&world, &ada, &elsewhere, &none.url(), ALL).await;
        hook(&world, &ada, &place, &none.url(), &["invoice.paid"]).await;

        let data_of = |key: &str| json!({"organization_id": place.organization, "project_id": place.project, "api_key_id": key});
        let (key, _) = world.key(&ada, &place, &json!({"name": "one"})).await;
        let path = format!("{}/api-keys/{key}", place.project_path());
        world.call(Method::POST, &format!("{path}/rotate")).bearer(&ada.access_token).data().await;
        world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
        // A refused request causes no event.
        world.call(Method::DELETE, &path).bearer(&ada.access_token).refused().await;
        send(&world).await;
        let expected = ["api_key.created", "api_key.deleted", "api_key.rotated"]
            .map(|of| (of.to_owned(), data_of(&key)));
        assert_eq!(take(&receiver), expected);

        // Deleting a project also deletes its keys.
        let project = world.project(&ada, &place.organization, "Two").await;
        let second = Place { project, ..place.clone() };
        let mut keys = Vec::new();
        for name in ["a", "b"] {
            keys.push(world.key(&ada, &second, &json!({ "name": name })).await.0);
        }
        send(&world).await;
        assert_eq!(take(&receiver).len(), 2);
        world.call(Method::DELETE, &second.project_path()).bearer(&ada.access_token).data().await;
        send(&world).await;
        keys.sort();
        let deleted: Vec<_> =
            take(&receiver).into_iter().map(|(of, data)| (of, data["api_key_id"].clone())).collect();
        assert_eq!(
            deleted,
            keys.into_iter().map(|key| ("api_key.deleted".to_owned(), json!(key))).collect::<Vec<_>>()
        );

        // Members join through a project or an invitation, and are removed or leave.
        let bob = world.user("bob").await;
        let body = json!({"user_id": bob.id, "role": "viewer"});
        let members = format!("{}/members", place.project_path());
        world.post(&members, &body).bearer(&ada.access_token).data().await;
        let eve = world.user("eve").await;
        let body = json!({"email": "eve@example.com", "role": "admin"});
        let invited = format!("{}/invitations", place.organization_path());
        id(
            &json!({"id": world.post(&invited, &body).bearer(&ada.access_token).data().await["invitation_id"]}),
        );
        let mut tx = world.app.db.write().await.unwrap();
        let trail = tollkeeper::trail::Trail::system();
        let person = (eve.id, "eve@example.com");
        tollkeeper::tenants::invitations::accept_all(
            &world.app.tenants,
            &mut tx,
            &trail,
            person,
            world.clock.now(),
        )
        .await
        .unwrap();
        tx.commit().await.unwrap();
        let of =
            |user: &support::world::TestUser| format!("{}/members/{}", place.organization_path(), user.id);
        world.call(Method::DELETE, &of(&bob)).bearer(&ada.access_token).data().await;
        world.call(Method::DELETE, &of(&eve)).bearer(&eve.access_token).data().await;
        send(&world).await;
        let added = |user: &support::world::TestUser, role: &str| {
            let data = json!({"organization_id": place.organization, "user_id": user.id, "role": role});
            ("member.added".to_owned(), data)
        };
        let removed = |user: &support::world::TestUser| {
            let data = json!({"organization_id": place.organization, "user_id": user.id});
            ("member.removed".to_owned(), data)
        };
        let mut expected = vec![added(&bob, "member"), added(&eve, "admin"), removed(&bob), removed(&eve)];
        expected.sort_by_key(|(of, data)| (of.clone(), data.to_string()));
        assert_eq!(take(&receiver), expected);
        assert!(none.received().is_empty(), "{:?}", none.received());
    });
}

#[on_each_database]
fn deleted_organization_takes_its_webhooks_with_it(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        hook(&world, &ada, &place, &receiver.url(), ALL).await;
        world.key(&ada, &place, &json!({"name": "one"})).await;
        world.call(Method::DELETE, &place.organization_path()).bearer(&ada.access_token).data().await;
        send(&world).await;
        assert!(receiver.received().is_empty());
        let (left,): (i64,) = tollkeeper::db::sql("SELECT COUNT(*) FROM webhook_deliveries")
            .one(&mut world.app.db.read().await.unwrap())
            .await
            .unwrap();
        assert_eq!(left, 0);
    });
}
