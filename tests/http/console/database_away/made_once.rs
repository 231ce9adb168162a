//! Objects that the forms have created: each exists once, even if its form was sent twice.

use super::{Scene, webhooks};
use support::world::World;

/// Checks the objects that exist after every form was sent twice.
pub async fn check_made_once(world: &World, scene: &Scene) {
    let token = world.session(scene.ada.id).await.access_token;
    let names = async |path: &str, name: &str| {
        let data = world.get(path).bearer(&token).data().await;
        let (_, rows) = data.as_object().unwrap().iter().find(|(_, value)| value.is_array()).unwrap();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row[name].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (organization, project) = (scene.place.organization_path(), scene.place.project_path());
    let count = |names: &[String], name: &str| names.iter().filter(|other| *other == name).count();
    for (path, field, made, gone) in [
        ("/v1/organizations".to_owned(), "name", "New one", "gone"),
        (format!("{organization}/projects"), "name", "New one", "over"),
        (format!("{organization}/webhooks"), "url", webhooks::URL, "https://example.com/events"),
        (format!("{project}/api-keys"), "name", "New one", "deleted"),
        (format!("{organization}/invitations"), "email", "third@example.com", "late@example.com"),
        (format!("{project}/members"), "username", "fay", "eve"),
    ] {
        let found = names(&path, field).await;
        assert_eq!((count(&found, made), count(&found, gone)), (1, 0), "{path}: {found:?}");
    }
    // Another payment existed before.
    let payments = names(&format!("{organization}/billing/payments"), "status").await;
    assert_eq!((count(&payments, "open"), count(&payments, "canceled")), (1, 1), "{payments:?}");
}
