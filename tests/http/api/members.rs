//! Members of an organization over HTTP (docs/contract/organizations.md#members).

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::{Tx, sql};
use tollkeeper::ids::{OrganizationId, UserId};
use tollkeeper::tenants::roles::OrganizationRole::{self, Admin, Member, Owner};
use tollkeeper::tenants::roles::ProjectRole;
use tollkeeper::tenants::store::{organization_members, organizations};
use tollkeeper::trail;

use support::http::Call;
use support::on_each_database;
use support::world::{Place, START, TestUser, World};

const ROLES: [OrganizationRole; 3] = [Owner, Admin, Member];

fn members(place: &Place) -> String {
    format!("{}/members", place.organization_path())
}

fn change(world: &World, caller: &TestUser, place: &Place, target: &TestUser, role: &str) -> Call {
    let path = format!("{}/{}", members(place), target.id);
    world.call(Method::PUT, &path).bearer(&caller.access_token).json(&json!({ "role": role }))
}

fn remove(world: &World, caller: &TestUser, place: &Place, target: &TestUser) -> Call {
    world.call(Method::DELETE, &format!("{}/{}", members(place), target.id)).bearer(&caller.access_token)
}

async fn add_member(world: &World, place: &Place, name: &str, role: OrganizationRole) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, role).await;
    user
}

/// Returns `name=role` of all members, in the order of the caller's list.
async fn list_members(world: &World, caller: &TestUser, place: &Place, query: &str) -> String {
    let path = format!("{}{query}", members(place));
    let data = world.get(&path).bearer(&caller.access_token).data().await;
    let rows = data["members"].as_array().unwrap().clone();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows: Vec<_> =
        rows.iter().map(|row| format!("{}={}", text(row, "username"), text(row, "role"))).collect();
    format!("{} of {}", rows.join(" "), data["total"])
}

async fn role_of(world: &World, caller: &TestUser, place: &Place, user: &TestUser) -> Option<String> {
    let data =
        world.get(&format!("{}?page_size=100", members(place))).bearer(&caller.access_token).data().await;
    let rows = data["members"].as_array().unwrap().clone();
    let row = rows.into_iter().find(|row| row["id"] == user.id.to_string())?;
    Some(row["role"].as_str().unwrap().to_owned())
}

#[on_each_database]
async fn members_are_listed_searched_and_filtered(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let item = json!({"id": ada.id.to_string(), "email": "ada@example.com", "username": "ada", "role": "owner",
        "joined_at": START});
    let first = world.get(&members(&place)).bearer(&ada.access_token).data().await;
    assert_eq!(first, json!({"members": [item], "total": 1, "page": 1, "page_size": 20}));

    for (name, role) in [("bob", Admin), ("cy_d", Member), ("dan", Member), ("eve", Member)] {
        world.clock.advance_ms(1);
        add_member(&world, &place, name, role).await;
    }
    let list = async |query: &str| list_members(&world, &ada, &place, query).await;
    assert_eq!(list("").await, "eve=member dan=member cy_d=member bob=admin ada=owner of 5");
    assert_eq!(list("?page_size=2").await, "eve=member dan=member of 5");
    assert_eq!(list("?page_size=2&page=2").await, "cy_d=member bob=admin of 5");
    assert_eq!(list("?page_size=2&page=3").await, "ada=owner of 5");
    assert_eq!(list("?page_size=2&page=4").await, " of 5");
    assert_eq!(list("?page=1000000000&page_size=100").await, " of 5");
    assert_eq!(list("?search=DAN").await, "dan=member of 1");
    assert_eq!(list("?search=@EXAMPLE.com&page_size=2").await, "eve=member dan=member of 5");
    assert_eq!(list("?search=y_d").await, "cy_d=member of 1");
    assert_eq!(list("?search=c%25d").await, " of 0");
    assert_eq!(list("?role=member&page_size=1&page=2").await, "dan=member of 3");
    assert_eq!(list("?role=admin").await, "bob=admin of 1");
    assert_eq!(list("?role=owner&search=bob").await, " of 0");
    for bad in ["?page=0", "?page_size=101", "?role=king", "?role=developer", "?search=a&search=b"] {
        let refused =
            world.get(&format!("{}{bad}", members(&place))).bearer(&ada.access_token).refused().await;
        assert_eq!(refused, (400, "invalid_request".into()), "{bad}");
    }
    // Members who joined at the same time are sorted by id.
    for name in ["one", "two", "three"] {
        add_member(&world, &place, name, Member).await;
    }
    let page = world.get(&members(&place)).bearer(&ada.access_token).data().await;
    let ids: Vec<_> = page["members"].as_array().unwrap()[..4].iter().map(|row| &row["id"]).collect();
    assert!(ids.is_sorted_by_key(|id| id.as_str()), "{ids:?}");
}

/// Both sort directions return the same rows.
#[on_each_database]
async fn pages_cover_the_list_once(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for number in 0..12 {
        world.clock.advance_ms(i64::from(number % 3 == 0));
        add_member(&world, &place, &format!("user{number}"), Member).await;
    }
    let names = async |query: String| {
        let text = list_members(&world, &ada, &place, &query).await;
        text.strip_suffix(" of 13").unwrap().to_owned()
    };
    let whole = names("?page_size=100".into()).await;
    for size in [1, 2, 3, 5, 7, 12, 13, 14] {
        let mut pages = Vec::new();
        for page in 1..=13 {
            let page = names(format!("?page_size={size}&page={page}")).await;
            if !page.is_empty() {
                pages.push(page);
            }
        }
        assert_eq!(pages.join(" "), whole, "by {size}");
    }
}

/// Caller, target, and the statuses of setting owner, admin, member, and of removing. Another owner exists.
#[rustfmt::skip]
const ESCALATION: [(OrganizationRole, OrganizationRole, [u16; 4]); 9] = [
    // caller, target      to: owner admin member gone
    (Owner,  Owner,  [200, 200, 200, 200]),
    (Owner,  Admin,  [200, 200, 200, 200]),
    (Owner,  Member, [200, 200, 200, 200]),
    (Admin,  Owner,  [403, 403, 403, 403]),
    (Admin,  Admin,  [403, 200, 200, 200]),
    (Admin,  Member, [403, 200, 200, 200]),
    (Member, Owner,  [403, 403, 403, 403]),
    (Member, Admin,  [403, 403, 403, 403]),
    (Member, Member, [403, 403, 403, 403]),
];

#[on_each_database]
async fn role_changes_follow_the_escalation_table(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut cases = 0;
    for (caller, before, due) in ESCALATION {
        let user = add_member(&world, &place, &format!("caller{cases}"), caller).await;
        for (after, status) in ROLES.map(Some).into_iter().chain([None]).zip(due) {
            let target = add_member(&world, &place, &format!("target{cases}"), before).await;
            let call = match after {
                Some(role) => change(&world, &user, &place, &target, role.as_str()),
                None => remove(&world, &user, &place, &target),
            };
            let answer = call.send().await;
            assert_eq!(answer.status, status, "{caller:?} {before:?} {after:?}: {}", answer.text);
            if status == 403 {
                assert_eq!(answer.code(), "insufficient_role");
            }
            let role = if status == 200 { after } else { Some(before) };
            let found = role_of(&world, &ada, &place, &target).await;
            assert_eq!(found.as_deref(), role.map(OrganizationRole::as_str));
            remove(&world, &ada, &place, &target).send().await;
            cases += 1;
        }
        // The same rules apply to the caller's own role, except that every member may leave.
        for (after, status) in ROLES.into_iter().zip(due) {
            let status = if caller == before { status } else { continue };
            let user = add_member(&world, &place, &format!("self{cases}"), caller).await;
            let answer = change(&world, &user, &place, &user, after.as_str()).send().await;
            assert_eq!(answer.status, status, "{caller:?} makes themselves {after:?}: {}", answer.text);
            let left = remove(&world, &user, &place, &user).data().await;
            assert_eq!(left["message"], "You have left the organization.");
            assert_eq!(role_of(&world, &ada, &place, &user).await, None);
            cases += 2;
        }
    }
    assert_eq!(cases, 36 + 18);
}

#[on_each_database]
async fn role_is_changed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Member).await;
    world.clock.advance_ms(1_000);
    let changed = change(&world, &ada, &place, &bob, "admin").data().await;
    let due = json!({"id": bob.id.to_string(), "email": "bob@example.com", "username": "bob", "role": "admin",
        "updated_at": "2026-03-10T12:00:01.000Z"});
    assert_eq!(changed, due);
    world.clock.advance_ms(1_000);
    // The same role again and an empty patch change nothing.
    assert_eq!(change(&world, &ada, &place, &bob, "admin").data().await, due);
    let path = format!("{}/{}", members(&place), bob.id);
    let put = |body: &Value| world.call(Method::PUT, &path).bearer(&ada.access_token).json(body);
    assert_eq!(put(&json!({})).data().await, due);
    for (body, detail) in [
        (json!({"role": null}), "role required"),
        (json!({"role": "king"}), "role unknown_value"),
        (json!({"role": "developer"}), "role unknown_value"),
        (json!({"role": 1}), "role wrong_type"),
        (json!({"rol": "admin"}), "rol unknown_field"),
    ] {
        let answer = put(&body).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    assert_eq!(role_of(&world, &ada, &place, &bob).await.unwrap(), "admin");
}

#[on_each_database]
async fn last_owner_cannot_leave_or_be_demoted(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Admin).await;
    let last = (409, "last_owner".to_owned());
    for role in ["admin", "member"] {
        assert_eq!(change(&world, &ada, &place, &ada, role).refused().await, last);
    }
    let refused = remove(&world, &ada, &place, &ada).send().await;
    assert_eq!((refused.status, refused.code()), last);
    assert_eq!(refused.header("x-should-retry"), "false");
    change(&world, &ada, &place, &ada, "owner").data().await;
    assert_eq!(
        remove(&world, &bob, &place, &ada).refused().await,
        (403, "insufficient_role".into()),
        "an admin must not learn the number of owners"
    );
    change(&world, &ada, &place, &bob, "owner").data().await;
    change(&world, &ada, &place, &ada, "member").data().await;
    assert_eq!(change(&world, &bob, &place, &bob, "member").refused().await, last);
    assert_eq!(list_members(&world, &ada, &place, "?role=owner").await, "bob=owner of 1");
    remove(&world, &ada, &place, &ada).data().await;
    assert_eq!(list_members(&world, &bob, &place, "").await, "bob=owner of 1");
}

#[on_each_database]
async fn checks_run_in_the_order_401_404_403_400(world: World) {
    let (ada, zed) = (world.user("ada").await, world.user("zed").await);
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Member).await;
    let unknown = "01h2xcejqtf2nbrexx3vqjhp41";
    let cases = [
        ("", members(&place), bob.id.to_string(), 401, "missing_credentials"),
        (
            &ada.access_token,
            format!("/v1/organizations/org_{unknown}/members"),
            bob.id.to_string(),
            404,
            "organization_not_found",
        ),
        (&ada.access_token, "/v1/organizations/x/members".into(), "x".into(), 404, "organization_not_found"),
        (&ada.access_token, members(&place), format!("user_{unknown}"), 404, "member_not_found"),
        (&ada.access_token, members(&place), "nonsense".into(), 404, "member_not_found"),
        (&ada.access_token, members(&place), zed.id.to_string(), 404, "member_not_found"),
        (&zed.access_token, members(&place), zed.id.to_string(), 404, "member_not_found"),
        (&zed.access_token, members(&place), bob.id.to_string(), 403, "insufficient_role"),
        (&bob.access_token, members(&place), zed.id.to_string(), 404, "member_not_found"),
        (&bob.access_token, members(&place), ada.id.to_string(), 403, "insufficient_role"),
    ];
    for (token, path, member, status, code) in cases {
        for method in [Method::PUT, Method::DELETE] {
            let call = world.call(method.clone(), &format!("{path}/{member}")).bearer(token).raw("{");
            assert_eq!(call.refused().await, (status, code.to_owned()), "{method} {path}/{member}");
        }
    }
    let list = |token: &str| world.get(&members(&place)).bearer(token);
    assert_eq!(list("").refused().await.0, 401);
    assert_eq!(list(&zed.access_token).refused().await, (403, "insufficient_role".into()));
    list(&bob.access_token).data().await;
    assert_eq!(list_members(&world, &ada, &place, "").await.matches('=').count(), 2, "nothing has happened");
}

#[on_each_database]
async fn removed_members_key_keeps_model_calls_only(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Admin).await;
    world.join_project(&place, &bob, ProjectRole::Admin).await;
    let elsewhere = world.place(&bob, "Elsewhere").await;
    let (key_id, secret) = world.key(&bob, &place, &json!({"name": "k"})).await;
    let by_key = |path: String| world.get(&path).bearer(&secret);
    by_key(place.organization_path()).data().await;

    remove(&world, &ada, &place, &bob).data().await;
    let forbidden = (403, "insufficient_role".to_owned());
    for path in [place.organization_path(), members(&place), place.project_path()] {
        assert_eq!(world.get(&path).bearer(&bob.access_token).refused().await, forbidden, "{path}");
        assert_eq!(by_key(path.clone()).refused().await, forbidden, "{path}");
    }
    let list = by_key("/v1/organizations".into()).data().await;
    assert_eq!(list["total"], 0, "{list}");
    by_key("/v1/models".into()).bare().await;
    let ask = json!({"credential": secret, "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": 5});
    assert_eq!(world.ask("/service/v1/authorize", &ask).bare().await["allowed"], true);
    // The key still exists, with the same creator.
    let path = format!("{}/api-keys/{key_id}", place.project_path());
    let key = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(key["created_by"]["username"], "bob");

    let project = world.get(&place.project_path()).bearer(&ada.access_token).data().await;
    assert_eq!(project["members_count"], 1);
    let organization = world.get(&place.organization_path()).bearer(&ada.access_token).data().await;
    assert_eq!(organization["members_count"], 1);
    // Other memberships remain.
    let project = world.get(&elsewhere.project_path()).bearer(&bob.access_token).data().await;
    assert_eq!(project["members_count"], 1);
}

#[on_each_database]
async fn key_manages_members_as_its_creator_but_cannot_remove_its_creator(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Member).await;
    world.join_project(&place, &bob, ProjectRole::Owner).await;
    let (_, bobs) = world.key(&bob, &place, &json!({"name": "bobs"})).await;
    let (_, adas) = world.key(&ada, &place, &json!({"name": "adas"})).await;
    let path = |user: &TestUser| format!("{}/{}", members(&place), user.id);
    let delete = |user: &TestUser, key: &str| world.call(Method::DELETE, &path(user)).bearer(key);
    assert_eq!(delete(&bob, &bobs).refused().await, (403, "insufficient_role".into()));
    assert_eq!(delete(&ada, &adas).refused().await, (409, "last_owner".into()));
    delete(&bob, &adas).data().await;
    assert_eq!(list_members(&world, &ada, &place, "").await, "ada=owner of 1");
}

#[on_each_database]
async fn each_change_is_audited(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Member).await;
    change(&world, &ada, &place, &bob, "admin").data().await;
    change(&world, &ada, &place, &bob, "admin").data().await;
    change(&world, &bob, &place, &ada, "member").refused().await;
    remove(&world, &bob, &place, &bob).data().await;
    let filter = trail::Filter { target: bob.id.to_string(), limit: 9, ..Default::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = trail::list(&mut tx, &filter).await.unwrap();
    let found: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.actor.clone())).collect();
    let due = [
        ("organization_member.removed", bob.id.to_string()),
        ("organization_member.role_changed", ada.id.to_string()),
    ];
    let mut found = found;
    found.sort();
    assert_eq!(found, due);
    assert!(entries.iter().all(|e| e.organization_id.unwrap().to_string() == place.organization));
}

/// Two owners demote or remove each other at the same time: one succeeds, and one owner is left.
#[on_each_database]
async fn racing_owners_leave_one_owner(world: World) {
    let ada = world.user("ada").await;
    for round in 0..12 {
        let place = world.place(&ada, &format!("Race {round}")).await;
        let bob = add_member(&world, &place, &format!("bob{round}"), Owner).await;
        let calls = match round % 4 {
            0 => [change(&world, &ada, &place, &bob, "admin"), change(&world, &bob, &place, &ada, "member")],
            1 => [remove(&world, &ada, &place, &bob), remove(&world, &bob, &place, &ada)],
            2 => [remove(&world, &ada, &place, &ada), remove(&world, &bob, &place, &bob)],
            _ => [change(&world, &ada, &place, &ada, "admin"), remove(&world, &ada, &place, &bob)],
        };
        let answers = join_all(calls.map(Call::send)).await;
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        let won = statuses.iter().filter(|status| **status == 200).count();
        let codes: Vec<_> = answers.iter().map(|answer| answer.status.to_string() + &answer.text).collect();
        assert_eq!(won, 1, "{codes:?}");
        // The loser no longer has a role or membership, or is the last owner.
        assert!(statuses.iter().all(|status| [200, 403, 404, 409].contains(status)), "{codes:?}");
        let mut owners = 0;
        for user in [&ada, &bob] {
            let answer =
                world.get(&format!("{}?role=owner", members(&place))).bearer(&user.access_token).send().await;
            if answer.status == 200 {
                owners = answer.json()["data"]["total"].as_i64().unwrap();
            }
        }
        assert_eq!(owners, 1, "{codes:?}");
    }
}

/// If a member is removed or demoted during a request, the request either succeeds first or is refused.
#[on_each_database]
async fn demoted_admin_loses_the_race(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for round in 0..6 {
        let bob = add_member(&world, &place, &format!("bob{round}"), Admin).await;
        let targets = [
            add_member(&world, &place, &format!("eve{round}"), Member).await,
            add_member(&world, &place, &format!("joe{round}"), Member).await,
        ];
        let calls = [
            change(&world, &bob, &place, &targets[0], "admin"),
            change(&world, &ada, &place, &bob, "member"),
            change(&world, &bob, &place, &targets[1], "admin"),
        ];
        let answers = join_all(calls.map(Call::send)).await;
        assert_eq!(answers[1].status, 200, "{}", answers[1].text);
        for (answer, target) in [(&answers[0], &targets[0]), (&answers[2], &targets[1])] {
            let role = role_of(&world, &ada, &place, target).await.unwrap();
            let due = if answer.status == 200 { "admin" } else { "member" };
            assert_eq!(role, due);
            assert!([200, 403].contains(&answer.status), "{}", answer.text);
        }
        let late = change(&world, &bob, &place, &targets[0], "member").refused().await;
        assert_eq!(late, (403, "insufficient_role".into()));
    }
}

async fn set_role(tx: &mut Tx, id: OrganizationId, user_id: UserId, role: OrganizationRole) {
    sql("UPDATE organization_members SET role = $3 WHERE organization_id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .bind(role.as_str())
        .execute(tx)
        .await
        .unwrap();
}

/// An owner who is demoted between the gate and the write is refused.
#[on_each_database]
async fn role_is_checked_again_before_writing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let id = OrganizationId::parse(&place.organization).unwrap();
    let (bob, eve) =
        (add_member(&world, &place, "bob", Owner).await, add_member(&world, &place, "eve", Member).await);
    let path = place.organization_path();
    let by_bob = |method: Method, path: &str| world.call(method, path).bearer(&bob.access_token);
    let guest = json!({"email": "guest@example.com"});
    let keys = format!("{}/api-keys", place.project_path());
    let calls = [
        by_bob(Method::POST, &keys).json(&json!({"name": "late"})),
        change(&world, &bob, &place, &eve, "owner"),
        change(&world, &bob, &place, &bob, "owner"),
        remove(&world, &bob, &place, &eve),
        by_bob(Method::PUT, &path).json(&json!({"description": "x"})),
        by_bob(Method::PUT, &path).json(&json!({"name": "x"})),
        by_bob(Method::POST, &format!("{path}/invitations")).json(&guest),
        by_bob(Method::DELETE, &path),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let mut tx = world.app.db.write().await.unwrap();
        set_role(&mut tx, id, bob.id, Owner).await;
        tx.commit().await.unwrap();
        let mut tx = world.app.db.write().await.unwrap();
        organizations::lock(&mut tx, id).await.unwrap();
        // The next statement takes the lock.
        organization_members::role(&mut tx, id, bob.id).await.unwrap();
        let call = tokio::spawn(call.send());
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        assert!(!call.is_finished(), "{number} waits");
        set_role(&mut tx, id, bob.id, Member).await;
        tx.commit().await.unwrap();
        let answer = call.await.unwrap();
        let found = (answer.status, answer.code());
        assert_eq!(found, (403, "insufficient_role".into()), "{number}: {}", answer.text);
    }
    assert_eq!(list_members(&world, &ada, &place, "?search=eve").await, "eve=member of 1");
    let read = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(json!([read["name"], read["description"]]), json!(["Acme", null]));
    assert_eq!(world.get(&keys).bearer(&ada.access_token).data().await["total"], 0);
}
