//! What is removed or changes its role is announced to all replicas, in the transaction that does it.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::cluster::changes;
use tollkeeper::db::Change;
use tollkeeper::ids::{OrganizationId, ProjectId};
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use crate::support::world::{World, on_each_database};

/// The changes that a request announces.
async fn announced(
    world: &World,
    method: Method,
    path: &str,
    token: &str,
    body: Option<Value>,
) -> Vec<Change> {
    let read = async || world.app.db.read().await.unwrap();
    let before = changes::newest(&mut read().await).await.unwrap();
    let call = world.call(method, path).bearer(token);
    match body {
        Some(body) => call.json(&body).data().await,
        None => call.data().await,
    };
    let found = changes::fetch_after(&mut read().await, before, 10).await.unwrap();
    found.into_iter().map(|recorded| recorded.change.unwrap()).collect()
}

#[test]
fn removals_and_roles_are_announced() {
    on_each_database(async |world| {
        let (ada, bob) = (world.somebody("ada").await, world.somebody("bob").await);
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
            (
                Method::DELETE,
                &project,
                None,
                vec![Change::Project(ProjectId::parse(&place.project).unwrap())],
            ),
            (
                Method::DELETE,
                &organization,
                None,
                vec![Change::Organization(OrganizationId::parse(&place.organization).unwrap())],
            ),
        ];
        for (method, path, body, due) in cases {
            let what = format!("{method} {path} {body:?} on {}", world.backend);
            assert_eq!(announced(&world, method, path, &ada.access_token, body).await, due, "{what}");
        }
    });
}
