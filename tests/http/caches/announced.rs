//! Removals and role changes are announced to all replicas, in the same transaction.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::{sessions, signing_keys};
use tollkeeper::cluster::changes;
use tollkeeper::db::Change;
use tollkeeper::ids::{ApiKeyId, OrganizationId, ProjectId};
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

/// Returns the changes that an operation announces.
async fn announced_by(world: &World, operation: impl Future<Output = ()>) -> Vec<Change> {
    let read = async || world.app.db.read().await.unwrap();
    let before = changes::newest(&mut read().await).await.unwrap();
    operation.await;
    let found = changes::fetch_after(&mut read().await, before, 10).await.unwrap();
    found.into_iter().map(|recorded| recorded.change.unwrap()).collect()
}

/// Returns the changes that a request announces.
async fn announced_changes(
    world: &World,
    method: Method,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> Vec<Change> {
    let call = world.call(method, path).bearer(token);
    announced_by(world, async {
        match body {
            Some(body) => call.json(&body).data().await,
            None => call.data().await,
        };
    })
    .await
}

#[on_each_database]
async fn removals_and_roles_are_announced(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    world.join_project(&place, &bob, ProjectRole::Viewer).await;
    let (organization, project) = (place.organization_path(), place.project_path());
    let (member, project_member) =
        (format!("{organization}/members/{}", bob.id), format!("{project}/members/{}", bob.id));
    let role = |role: &str| Some(json!({"role": role}));
    let user = Change::User(bob.id);
    let cases = [
        (Method::PUT, &member, role("admin"), vec![user]),
        (Method::PUT, &member, role("admin"), vec![]),
        (Method::PUT, &project_member, role("developer"), vec![user]),
        (Method::PUT, &project_member, role("developer"), vec![]),
        (Method::DELETE, &project_member, None, vec![user]),
        (Method::DELETE, &member, None, vec![user]),
        (Method::DELETE, &project, None, vec![Change::Project(ProjectId::parse(&place.project).unwrap())]),
        (
            Method::DELETE,
            &organization,
            None,
            vec![Change::Organization(OrganizationId::parse(&place.organization).unwrap())],
        ),
    ];
    for (method, path, body, due) in cases {
        let what = format!("{method} {path} {body:?} on {}", world.backend);
        assert_eq!(announced_changes(&world, method, path, &ada.access_token, body).await, due, "{what}");
    }
}

#[on_each_database]
async fn changes_of_keys_are_announced(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, _) = world.key(&ada, &place, &json!({"name": "line"})).await;
    let key = format!("{}/api-keys/{id}", place.project_path());
    let (rotate, end_rotation) = (format!("{key}/rotate"), format!("{key}/end-rotation"));
    let change = vec![Change::ApiKey(ApiKeyId::parse(&id).unwrap())];
    let cases = [
        (Method::PUT, &key, Some(json!({"restrictions": {"rate_limit": 5}}))),
        (Method::POST, &rotate, None),
        (Method::POST, &end_rotation, None),
        (Method::DELETE, &key, None),
    ];
    for (method, path, body) in cases {
        let what = format!("{method} {path} on {}", world.backend);
        assert_eq!(announced_changes(&world, method, path, &ada.access_token, body).await, change, "{what}");
    }
}

#[on_each_database]
fn ends_of_sessions_are_announced(database: Database) {
    // A third session ends the oldest.
    database.run(&[("TOLLKEEPER_LIMITS__SESSIONS_PER_PERSON", "2")], async |world| {
        let ada = world.user("ada").await;
        let login = json!({"email": "ada@example.com", "password": PASSWORD});
        let log_in = async || {
            world.clock.advance_ms(1_000);
            let answer = world.post("/v1/auth/login", &login).data().await;
            answer["access_token"].as_str().unwrap().to_owned()
        };
        let second = log_in().await;
        let oldest = vec![Change::Session(ada.session_id)];
        assert_eq!(announced_by(&world, async { drop(log_in().await) }).await, oldest, "a third login");

        let logout = announced_changes(&world, Method::POST, "/v1/auth/logout", &second, None).await;
        assert!(matches!(logout[..], [Change::Session(id)] if id != ada.session_id), "{logout:?}");

        let user = vec![Change::User(ada.id)];
        let new = "Violet-Kettle-Orbit-9";
        let passwords =
            json!({"current_password": PASSWORD, "new_password": new, "new_password_confirmation": new});
        let token = world.session(ada.id).await.access_token;
        let path = "/v1/auth/change-password";
        assert_eq!(announced_changes(&world, Method::POST, path, &token, Some(passwords)).await, user);

        world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
        let token = world.mailed_token("ada@example.com").await;
        let other = "Walnut-Harbor-Comet-4";
        let passwords = json!({"token": token, "password": other, "password_confirmation": other});
        let reset = announced_by(&world, async {
            world.post("/v1/auth/reset-password", &passwords).data().await;
        });
        assert!(reset.await.contains(&Change::User(ada.id)), "a new password");

        let accounts = &world.app.accounts;
        let of_one = announced_by(&world, async {
            sessions::end_all(accounts, Some(ada.id)).await.unwrap();
        });
        assert_eq!(of_one.await, user, "the operator ends a user's sessions");
        let all = vec![Change::AllSessions];
        let of_all = announced_by(&world, async {
            sessions::end_all(accounts, None).await.unwrap();
        });
        assert_eq!(of_all.await, all, "the operator ends all sessions");
        let revoked =
            announced_by(&world, async { drop(signing_keys::revoke(accounts).await.unwrap()) }).await;
        assert!(revoked.contains(&Change::AllSessions), "a revoked signing key: {revoked:?}");
    });
}
