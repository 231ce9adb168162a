//! The list of an organization's invitations.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::OrganizationRole::Admin;

use super::{accept_by_link, add_member, invite, new_session};
use support::on_each_database;
use support::world::{Place, TestUser, World};

async fn list(world: &World, caller: &TestUser, place: &Place, query: &str) -> Value {
    let path = format!("{}/invitations{query}", place.organization_path());
    world.get(&path).bearer(&caller.access_token).data().await
}

/// Returns each invitation as its guest, status, role and sender, and the total.
fn rows(data: &Value) -> (Vec<String>, i64) {
    let row = |row: &Value| {
        let guest = row["email"].as_str().unwrap().split('@').next().unwrap();
        let [status, role] = ["status", "role"].map(|field| row[field].as_str().unwrap());
        format!("{guest} {status} {role} {}", row["invited_by"]["username"].as_str().unwrap())
    };
    let rows = data["invitations"].as_array().unwrap().iter().map(row).collect();
    (rows, data["total"].as_i64().unwrap())
}

/// Invites a guest a millisecond after the previous one, because the list is ordered by time.
async fn invite_next(world: &World, caller: &TestUser, place: &Place, body: Value) -> Value {
    world.clock.advance_ms(1);
    invite(world, caller, place, &body).data().await
}

#[on_each_database]
async fn invitations_are_listed_with_their_status(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    assert_eq!(rows(&list(&world, &ada, &place, "").await), (Vec::<String>::new(), 0));
    for guest in ["old", "again"] {
        let body = json!({"email": format!("{guest}@example.com"), "message": "Come!"});
        invite_next(&world, &ada, &place, body).await;
    }
    invite_next(&world, &ada, &other, json!({"email": "else@example.com"})).await;
    world.clock.advance_ms(7 * DAY_MS);
    let ada = TestUser { access_token: new_session(&world, &ada).await, ..ada };
    let bob = add_member(&world, &place, "bob", Admin).await;
    // This invitation replaces the expired one.
    invite_next(&world, &ada, &place, json!({"email": "again@example.com", "role": "admin"})).await;
    world.user("guest").await;
    invite_next(&world, &bob, &place, json!({"email": "guest@example.com"})).await;
    let token = world.mailed_token("guest@example.com").await;
    assert_eq!(accept_by_link(&world, &token).await.status, 200);
    let open = invite_next(&world, &bob, &place, json!({"email": "Open@Example.com"})).await;
    let gone = invite_next(&world, &ada, &place, json!({"email": "gone@example.com"})).await;
    let path =
        format!("{}/invitations/{}", place.organization_path(), gone["invitation_id"].as_str().unwrap());
    world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;

    let data = list(&world, &bob, &place, "").await;
    let [old, again, guest, is_open] = [
        "old expired member ada",
        "again pending admin ada",
        "guest accepted member bob",
        "Open pending member bob",
    ];
    let due = [is_open, guest, again, old].map(str::to_owned).to_vec();
    assert_eq!(rows(&data), (due, 4));
    assert_eq!((data["page"].as_i64(), data["page_size"].as_i64()), (Some(1), Some(20)));
    let due = json!({
        "id": open["invitation_id"],
        "email": "Open@Example.com",
        "role": "member",
        "status": "pending",
        "created_at": "2026-03-17T12:00:00.006Z",
        "expires_at": "2026-03-24T12:00:00.006Z",
        "invited_by": {"id": bob.id, "email": "bob@example.com", "username": "bob"},
    });
    assert_eq!(data["invitations"][0], due);

    let cases: [(&str, &[&str], i64); 7] = [
        ("?status=pending", &[is_open, again], 2),
        ("?status=accepted", &[guest], 1),
        ("?status=expired", &[old], 1),
        ("?page_size=3", &[is_open, guest, again], 4),
        ("?page_size=3&page=2", &[old], 4),
        ("?status=pending&page_size=1&page=2", &[again], 2),
        ("?page=3", &[], 4),
    ];
    for (query, due, total) in cases {
        let due: Vec<_> = due.iter().map(|row| (*row).to_owned()).collect();
        assert_eq!(rows(&list(&world, &ada, &place, query).await), (due, total), "{query}");
    }
    assert_eq!(rows(&list(&world, &ada, &other, "").await), (vec!["else expired member ada".into()], 1));
}

#[on_each_database]
async fn invalid_filters_of_invitations_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let cases = [
        ("?status=withdrawn", "status unknown_value"),
        ("?status=", "status unknown_value"),
        ("?status=pending&status=expired", "status wrong_type"),
        ("?page=0", "page out_of_range"),
        ("?page_size=101", "page_size out_of_range"),
        ("?page=x", "page wrong_type"),
    ];
    for (query, detail) in cases {
        let path = format!("{}/invitations{query}", place.organization_path());
        let answer = world.get(&path).bearer(&ada.access_token).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{query}");
    }
}
