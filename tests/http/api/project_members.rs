//! Members of a project over HTTP (docs/contract/projects.md#members).

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::ids::OrganizationId;
use tollkeeper::tenants::roles::ProjectRole::{self, Admin, Developer, Owner, Viewer};
use tollkeeper::tenants::roles::{OrganizationRole, effective_project_role};
use tollkeeper::trail;

use support::http::Call;
use support::on_each_database;
use support::world::{Place, START, TestUser, World};

const ROLES: [ProjectRole; 4] = [Owner, Admin, Developer, Viewer];

fn members(place: &Place) -> String {
    format!("{}/members", place.project_path())
}

fn add(world: &World, caller: &TestUser, place: &Place, user: &TestUser, role: &str) -> Call {
    let body = json!({"user_id": user.id.to_string(), "role": role});
    world.post(&members(place), &body).bearer(&caller.access_token)
}

fn change(world: &World, caller: &TestUser, place: &Place, user: &TestUser, role: &str) -> Call {
    let path = format!("{}/{}", members(place), user.id);
    world.call(Method::PUT, &path).bearer(&caller.access_token).json(&json!({ "role": role }))
}

fn remove(world: &World, caller: &TestUser, place: &Place, user: &TestUser) -> Call {
    world.call(Method::DELETE, &format!("{}/{}", members(place), user.id)).bearer(&caller.access_token)
}

async fn add_organization_member(
    world: &World,
    place: &Place,
    name: &str,
    role: OrganizationRole,
) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, role).await;
    user
}

async fn add_member(world: &World, place: &Place, name: &str, role: ProjectRole) -> TestUser {
    let user = add_organization_member(world, place, name, OrganizationRole::Member).await;
    world.join_project(place, &user, role).await;
    user
}

/// Returns `name=role` of all members, in the order of the caller's list.
async fn list_members(world: &World, caller: &TestUser, place: &Place, query: &str) -> String {
    let data = world.get(&format!("{}{query}", members(place))).bearer(&caller.access_token).data().await;
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = data["members"].as_array().unwrap().clone();
    let rows: Vec<_> =
        rows.iter().map(|row| format!("{}={}", text(row, "username"), text(row, "role"))).collect();
    format!("{} of {}", rows.join(" "), data["total"])
}

/// Returns a user's role in the project and in the organization, as stored.
async fn roles_of(world: &World, place: &Place, user: &TestUser) -> (Option<String>, Option<String>) {
    let mut tx = world.app.db.read().await.unwrap();
    let project = sql("SELECT role FROM project_members WHERE project_id = $1 AND user_id = $2")
        .bind(place.project.as_str())
        .bind(user.id)
        .optional::<(String,)>(&mut tx)
        .await
        .unwrap();
    let organization =
        sql("SELECT role FROM organization_members WHERE organization_id = $1 AND user_id = $2")
            .bind(place.organization.as_str())
            .bind(user.id)
            .optional::<(String,)>(&mut tx)
            .await
            .unwrap();
    (project.map(|row| row.0), organization.map(|row| row.0))
}

#[on_each_database]
async fn member_is_added_notified_and_listed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_organization_member(&world, &place, "bob", OrganizationRole::Member).await;
    world.clock.advance_ms(1_000);
    let added = add(&world, &ada, &place, &bob, "developer").data().await;
    let now = "2026-03-10T12:00:01.000Z";
    let due = json!({"id": bob.id.to_string(), "email": "bob@example.com", "username": "bob", "role": "developer",
        "added_at": now});
    assert_eq!(added, due);
    let row = |user: &TestUser, name: &str, role: &str, at: &str| {
        json!({"id": user.id.to_string(), "email": format!("{name}@example.com"), "username": name,
            "role": role, "joined_at": at})
    };
    let page = world.get(&members(&place)).bearer(&bob.access_token).data().await;
    let rows = json!([row(&bob, "bob", "developer", now), row(&ada, "ada", "owner", START)]);
    assert_eq!(page, json!({"members": rows, "total": 2, "page": 1, "page_size": 20}));
    let detail = world.get(&place.project_path()).bearer(&bob.access_token).data().await;
    assert_eq!(detail["members_count"], 2);

    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let mails: Vec<_> = std::fs::read_dir(world.data_dir.join("mail"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert_eq!(mails.len(), 1);
    for words in [
        "bob@example.com",
        "Subject: You were added to Acme project",
        "ada added you to the project Acme project",
        "organization Acme.",
        "Your role: developer.",
    ] {
        assert!(mails[0].contains(words), "{words}: {}", mails[0]);
    }
}

#[on_each_database]
async fn invalid_additions_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Viewer).await;
    let (user_id, no_user) = (bob.id.to_string(), "user_01h2xcejqtf2nbrexx3vqjhp41");
    let cases = [
        (json!({}), 400, "invalid_request", vec!["user_id required", "role required"]),
        (json!({"user_id": user_id}), 400, "invalid_request", vec!["role required"]),
        (
            json!({"user_id": 1, "role": "king"}),
            400,
            "invalid_request",
            vec!["user_id wrong_type", "role unknown_value"],
        ),
        (json!({"user_id": user_id, "role": "member"}), 400, "invalid_request", vec!["role unknown_value"]),
        (
            json!({"user_id": user_id, "role": "viewer", "email": "x"}),
            400,
            "invalid_request",
            vec!["email unknown_field"],
        ),
        (
            json!({"user_id": no_user, "role": "viewer"}),
            404,
            "user_not_found",
            vec!["user_id user_not_found"],
        ),
        (json!({"user_id": "bob", "role": "viewer"}), 404, "user_not_found", vec!["user_id user_not_found"]),
        (json!({"user_id": "", "role": "viewer"}), 404, "user_not_found", vec!["user_id user_not_found"]),
        (
            json!({"user_id": place.project, "role": "viewer"}),
            404,
            "user_not_found",
            vec!["user_id user_not_found"],
        ),
        (
            json!({"user_id": "a\u{0}", "role": "viewer"}),
            404,
            "user_not_found",
            vec!["user_id user_not_found"],
        ),
        (json!({"user_id": user_id, "role": "owner"}), 409, "already_member", vec!["user_id already_member"]),
    ];
    for (body, status, code, details) in cases {
        let answer = world.post(&members(&place), &body).bearer(&ada.access_token).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}: {}", answer.text);
        assert_eq!(answer.details(), details, "{body}");
    }
    assert_eq!(list_members(&world, &ada, &place, "").await, list_members(&world, &bob, &place, "").await);
    let mails =
        tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap();
    assert_eq!(mails, 0);
}

/// Checks the statuses of adding each kind of user with each role, including users who aren't in the
/// organization yet.
#[on_each_database]
async fn additions_follow_the_role_table(world: World) {
    use OrganizationRole as O;
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let callers = [O::Owner, O::Admin, O::Member].into_iter().flat_map(|organization| {
        [None, Some(Owner), Some(Admin), Some(Developer), Some(Viewer)].map(|own| (organization, own))
    });
    let mut cases = 0;
    for (organization, own) in callers {
        let caller = add_organization_member(&world, &place, &format!("caller{cases}"), organization).await;
        if let Some(role) = own {
            world.join_project(&place, &caller, role).await;
        }
        let effective = effective_project_role(Some(organization), own, false);
        for role in ROLES {
            for is_newcomer in [false, true] {
                let user = world.user(&format!("who{cases}")).await;
                if !is_newcomer {
                    world.join_organization(&place, &user, O::Member).await;
                }
                let grants = effective == Some(Owner) || (effective == Some(Admin) && role != Owner);
                let allowed = grants && (!is_newcomer || organization != O::Member);
                let answer = add(&world, &caller, &place, &user, role.as_str()).send().await;
                let what = format!("{organization:?} {own:?} adds {role:?} {is_newcomer}: {}", answer.text);
                assert_eq!(answer.status, if allowed { 200 } else { 403 }, "{what}");
                let due = match (allowed, is_newcomer) {
                    (true, _) => (Some(role.as_str().to_owned()), Some("member".to_owned())),
                    (false, true) => (None, None),
                    (false, false) => (None, Some("member".to_owned())),
                };
                assert_eq!(roles_of(&world, &place, &user).await, due, "{what}");
                if !allowed {
                    assert_eq!(answer.code(), "insufficient_role", "{what}");
                }
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 15 * 8);
}

#[on_each_database]
async fn newcomer_gets_the_organizations_default_role(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"settings": {"default_role": "admin"}});
    let call = world.call(Method::PUT, &place.organization_path()).bearer(&ada.access_token);
    call.json(&body).data().await;
    let (bob, eve) = (world.user("bob").await, add_member(&world, &place, "eve", Owner).await);
    let refused = add(&world, &eve, &place, &bob, "viewer").send().await;
    assert_eq!((refused.status, refused.details()), (403, vec!["user_id insufficient_role".to_owned()]));
    add(&world, &ada, &place, &bob, "viewer").data().await;
    assert_eq!(roles_of(&world, &place, &bob).await, (Some("viewer".into()), Some("admin".into())));
    let organization = world.get(&place.organization_path()).bearer(&bob.access_token).data().await;
    assert_eq!(organization["members_count"], 3);
    let filter = trail::Filter { limit: 99, actor: ada.id.to_string(), ..Default::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let entries: Vec<_> =
        entries.into_iter().map(|entry| format!("{} {}", entry.action, entry.target)).collect();
    for due in [
        format!("organization_member.added {}", bob.id),
        format!("project_member.added {}/{}", place.project, bob.id),
    ] {
        assert!(entries.contains(&due), "{due}: {entries:?}");
    }
    // An API key acts for its creator, and can add other users. Users who add themselves get no notice.
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let joe = world.user("joe").await;
    let body = json!({"user_id": joe.id.to_string(), "role": "admin"});
    world.post(&members(&place), &body).bearer(&key).data().await;
    remove(&world, &ada, &place, &ada).data().await;
    let before =
        tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap();
    add(&world, &ada, &place, &ada, "viewer").data().await;
    let after =
        tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap();
    assert_eq!((before, after), (2, 2), "the caller gets no notice");
}

/// The caller's role, the target's role, and the statuses of making the target owner, admin, developer and
/// viewer, and of removing the target.
#[rustfmt::skip]
const ESCALATION: [(ProjectRole, ProjectRole, [u16; 5]); 16] = [
    (Owner,     Owner,     [200, 200, 200, 200, 200]),
    (Owner,     Admin,     [200, 200, 200, 200, 200]),
    (Owner,     Developer, [200, 200, 200, 200, 200]),
    (Owner,     Viewer,    [200, 200, 200, 200, 200]),
    (Admin,     Owner,     [403, 403, 403, 403, 403]),
    (Admin,     Admin,     [403, 200, 200, 200, 200]),
    (Admin,     Developer, [403, 200, 200, 200, 200]),
    (Admin,     Viewer,    [403, 200, 200, 200, 200]),
    (Developer, Owner,     [403, 403, 403, 403, 403]),
    (Developer, Admin,     [403, 403, 403, 403, 403]),
    (Developer, Developer, [403, 403, 403, 403, 403]),
    (Developer, Viewer,    [403, 403, 403, 403, 403]),
    (Viewer,    Owner,     [403, 403, 403, 403, 403]),
    (Viewer,    Admin,     [403, 403, 403, 403, 403]),
    (Viewer,    Developer, [403, 403, 403, 403, 403]),
    (Viewer,    Viewer,    [403, 403, 403, 403, 403]),
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
            assert!(status == 200 || answer.code() == "insufficient_role");
            let role = if status == 200 { after } else { Some(before) };
            let found = roles_of(&world, &place, &target).await.0;
            assert_eq!(found.as_deref(), role.map(ProjectRole::as_str));
            cases += 1;
        }
        // The same rules apply to the caller's own role, except that every member may leave.
        for (after, status) in ROLES.into_iter().zip(due) {
            let status = if caller == before { status } else { continue };
            let user = add_member(&world, &place, &format!("self{cases}"), caller).await;
            let answer = change(&world, &user, &place, &user, after.as_str()).send().await;
            assert_eq!(answer.status, status, "{caller:?} makes themselves {after:?}: {}", answer.text);
            let left = remove(&world, &user, &place, &user).data().await;
            assert_eq!(left["message"], "You have left the project.");
            assert_eq!(roles_of(&world, &place, &user).await, (None, Some("member".into())));
            cases += 2;
        }
    }
    assert_eq!(cases, 80 + 32);
    // Owners and admins of the organization act as owners, regardless of their role in the project.
    for role in [OrganizationRole::Owner, OrganizationRole::Admin] {
        let boss = add_organization_member(&world, &place, &format!("boss{}", role.as_str()), role).await;
        let target = add_member(&world, &place, &format!("of{}", role.as_str()), Viewer).await;
        change(&world, &boss, &place, &target, "owner").data().await;
        world.join_project(&place, &boss, Viewer).await;
        change(&world, &boss, &place, &boss, "owner").data().await;
        remove(&world, &boss, &place, &target).data().await;
    }
}

#[on_each_database]
async fn role_is_changed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Viewer).await;
    world.clock.advance_ms(1_000);
    let due = json!({"id": bob.id.to_string(), "email": "bob@example.com", "username": "bob", "role": "admin",
        "updated_at": "2026-03-10T12:00:01.000Z"});
    assert_eq!(change(&world, &ada, &place, &bob, "admin").data().await, due);
    world.clock.advance_ms(1_000);
    // The same role again and an empty patch change nothing.
    assert_eq!(change(&world, &ada, &place, &bob, "admin").data().await, due);
    let path = format!("{}/{}", members(&place), bob.id);
    let put = |body: &Value| world.call(Method::PUT, &path).bearer(&ada.access_token).json(body);
    assert_eq!(put(&json!({})).data().await, due);
    for (body, detail) in [
        (json!({"role": null}), "role required"),
        (json!({"role": "member"}), "role unknown_value"),
        (json!({"role": 1}), "role wrong_type"),
        (json!({"rolle": "viewer"}), "rolle unknown_field"),
    ] {
        let answer = put(&body).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]));
    }
    let page = world.get(&members(&place)).bearer(&bob.access_token).data().await;
    assert_eq!(page["members"][1]["joined_at"], START, "{page}");
    let filter =
        trail::Filter { target: format!("{}/{}", place.project, bob.id), limit: 9, ..Default::default() };
    remove(&world, &ada, &place, &bob).data().await;
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["project_member.removed", "project_member.role_changed"]);
}

#[on_each_database]
async fn last_owner_may_leave(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Owner).await;
    remove(&world, &ada, &place, &ada).data().await;
    remove(&world, &bob, &place, &bob).data().await;
    let gone = world.get(&place.project_path()).bearer(&bob.access_token).refused().await;
    assert_eq!(gone, (403, "insufficient_role".into()));
    // The organization's owner still has an owner's rights.
    assert_eq!(list_members(&world, &ada, &place, "").await, " of 0");
    add(&world, &ada, &place, &bob, "owner").data().await;
    // The only owner of the project can also be demoted.
    change(&world, &bob, &place, &bob, "viewer").data().await;
    assert_eq!(change(&world, &bob, &place, &bob, "owner").refused().await.0, 403);
}

#[on_each_database]
async fn checks_run_in_the_order_401_404_403_400(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let foreign = world.place(&ada, "Foreign").await;
    let mixed = Place { organization: place.organization.clone(), project: foreign.project.clone() };
    let outsider = world.user("outsider").await;
    let bob = add_member(&world, &place, "bob", Viewer).await;
    let away = add_member(&world, &foreign, "away", Viewer).await;
    let no_user = TestUser { access_token: String::new(), ..outsider.clone() };
    let bad = json!({"role": 1});
    let answers = async |place: &Place, user: &TestUser, member: &str| {
        let one = format!("{}/{member}", members(place));
        let calls = [
            world.call(Method::PUT, &one).json(&bad),
            world.call(Method::DELETE, &one),
            world.post(&members(place), &bad),
        ];
        join_all(calls.map(|call| call.bearer(&user.access_token).refused())).await
    };
    let known = bob.id.to_string();
    for member in [known.as_str(), "nonsense"] {
        let found = answers(&mixed, &no_user, member).await;
        assert!(found.iter().all(|(status, _)| *status == 401), "{found:?}");
        for user in [&ada, &outsider] {
            let found = answers(&mixed, user, member).await;
            assert!(found.iter().all(|answer| *answer == (404, "project_not_found".into())), "{found:?}");
        }
    }
    // A member of another project, a malformed id, and an unknown user.
    for member in [away.id.to_string(), "nonsense".into(), "user_01h2xcejqtf2nbrexx3vqjhp41".into()] {
        for user in [&ada, &outsider, &bob] {
            let found = answers(&place, user, &member).await;
            assert!(found[..2].iter().all(|answer| *answer == (404, "member_not_found".into())), "{found:?}");
        }
    }
    for user in [&outsider, &away] {
        let found = answers(&place, user, &known).await;
        assert!(found.iter().all(|answer| *answer == (403, "insufficient_role".into())), "{found:?}");
        let list = world.get(&members(&place)).bearer(&user.access_token).refused().await;
        assert_eq!(list, (403, "insufficient_role".into()));
    }
    let other = add_member(&world, &place, "other", Developer).await;
    let found = answers(&place, &other, &known).await;
    assert!(found.iter().all(|answer| *answer == (403, "insufficient_role".into())), "{found:?}");
    let admin = add_member(&world, &place, "admin", Admin).await;
    let put = world.call(Method::PUT, &format!("{}/{known}", members(&place))).json(&bad);
    assert_eq!(put.bearer(&admin.access_token).refused().await.0, 400);
    // A user who can see a public project isn't a member of it.
    let plain = add_organization_member(&world, &place, "plain", OrganizationRole::Member).await;
    world
        .call(Method::PUT, &place.project_path())
        .bearer(&ada.access_token)
        .json(&json!({"visibility": "public"}))
        .data()
        .await;
    assert_eq!(list_members(&world, &plain, &place, "?role=owner").await, "ada=owner of 1");
    assert_eq!(remove(&world, &plain, &place, &plain).refused().await, (404, "member_not_found".into()));
}

#[on_each_database]
async fn members_are_listed_searched_and_filtered(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for (name, role) in [("bob", Admin), ("cy_d", Viewer), ("dan", Viewer), ("eve", Viewer)] {
        world.clock.advance_ms(1);
        add_member(&world, &place, name, role).await;
    }
    add_organization_member(&world, &place, "boss", OrganizationRole::Owner).await;
    let list = async |query: &str| list_members(&world, &ada, &place, query).await;
    assert_eq!(list("").await, "eve=viewer dan=viewer cy_d=viewer bob=admin ada=owner of 5");
    assert_eq!(list("?page_size=2").await, "eve=viewer dan=viewer of 5");
    assert_eq!(list("?page_size=2&page=2").await, "cy_d=viewer bob=admin of 5");
    assert_eq!(list("?page_size=2&page=3").await, "ada=owner of 5");
    assert_eq!(list("?page_size=2&page=4").await, " of 5");
    assert_eq!(list("?page=1000000000&page_size=100").await, " of 5");
    assert_eq!(list("?search=DAN").await, "dan=viewer of 1");
    assert_eq!(list("?search=@EXAMPLE.com&page_size=2").await, "eve=viewer dan=viewer of 5");
    assert_eq!(list("?search=y_d").await, "cy_d=viewer of 1");
    assert_eq!(list("?search=c%25d").await, " of 0");
    assert_eq!(list("?role=viewer&page_size=1&page=2").await, "dan=viewer of 3");
    assert_eq!(list("?role=owner&search=bob").await, " of 0");
    for bad in ["?page=0", "?page_size=101", "?role=king", "?role=member", "?search=a&search=b"] {
        let call = world.get(&format!("{}{bad}", members(&place))).bearer(&ada.access_token);
        assert_eq!(call.refused().await, (400, "invalid_request".into()), "{bad}");
    }
    // Both sort directions return the same rows; members who joined at the same time are sorted by id.
    for number in 0..7 {
        world.clock.advance_ms(i64::from(number % 3 == 0));
        add_member(&world, &place, &format!("user{number}"), Developer).await;
    }
    let whole = list("?page_size=100").await;
    for size in [1, 2, 5, 11, 12] {
        let mut pages = Vec::new();
        for page in 1..=12 {
            let page = list(&format!("?page_size={size}&page={page}")).await;
            pages.push(page.strip_suffix(" of 12").unwrap().to_owned());
        }
        pages.retain(|page| !page.is_empty());
        assert_eq!(format!("{} of 12", pages.join(" ")), whole, "by {size}");
    }
}

#[on_each_database]
async fn key_manages_members_as_its_creator_but_cannot_remove_its_creator(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let sibling = Place {
        organization: place.organization.clone(),
        project: world.project(&ada, &place.organization, "Sibling").await,
    };
    let admin = add_member(&world, &place, "admin", Admin).await;
    let viewer = add_member(&world, &place, "viewer", Viewer).await;
    let (_, key) = world.key(&admin, &place, &json!({"name": "k"})).await;
    let key = TestUser { access_token: key, ..admin.clone() };
    change(&world, &key, &place, &viewer, "developer").data().await;
    assert_eq!(change(&world, &key, &place, &viewer, "owner").refused().await.0, 403);
    assert_eq!(remove(&world, &key, &place, &ada).refused().await.0, 403);
    let away = add_member(&world, &sibling, "away", Viewer).await;
    let refused = change(&world, &key, &sibling, &away, "viewer").refused().await;
    assert_eq!(refused, (403, "outside_api_key_scope".into()));
    // After a demotion the creator may still leave; the key may not do it for them.
    change(&world, &ada, &place, &admin, "viewer").data().await;
    assert_eq!(remove(&world, &key, &place, &admin).refused().await.0, 403);
    remove(&world, &admin, &place, &admin).data().await;
    assert_eq!(world.get(&members(&place)).bearer(&key.access_token).refused().await.0, 403);
}

#[on_each_database]
async fn leaving_the_organization_leaves_its_projects(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = add_member(&world, &place, "bob", Owner).await;
    let path = format!("{}/members/{}", place.organization_path(), bob.id);
    world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
    assert_eq!(roles_of(&world, &place, &bob).await, (None, None));
    assert_eq!(list_members(&world, &ada, &place, "").await, "ada=owner of 1");
    assert_eq!(remove(&world, &bob, &place, &bob).refused().await, (404, "member_not_found".into()));
}

#[on_each_database]
async fn one_of_32_concurrent_additions_succeeds(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for (name, is_newcomer) in [("inside", false), ("outside", true)] {
        let user = world.user(name).await;
        if !is_newcomer {
            world.join_organization(&place, &user, OrganizationRole::Member).await;
        }
        let calls = (0..32).map(|n| add(&world, &ada, &place, &user, ROLES[n % 4].as_str()).send());
        let answers = join_all(calls).await;
        let with = |status| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((with(200), with(409)), (1, 31));
        assert!(answers.iter().all(|answer| answer.status == 200 || answer.code() == "already_member"));
    }
    let mails =
        tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap();
    assert_eq!(mails, 2);
    let detail = world.get(&place.project_path()).bearer(&ada.access_token).data().await;
    assert_eq!(detail["members_count"], 3);
}

/// If a member is demoted or removed during a request, the request either succeeds first or is refused.
#[on_each_database]
async fn demoted_member_loses_the_race(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for round in 0..9 {
        // An admin of the project, or only of the organization.
        let bob = match round % 3 {
            0 => {
                add_organization_member(&world, &place, &format!("bob{round}"), OrganizationRole::Admin).await
            }
            _ => add_member(&world, &place, &format!("bob{round}"), Admin).await,
        };
        let target = add_member(&world, &place, &format!("eve{round}"), Viewer).await;
        let user =
            add_organization_member(&world, &place, &format!("joe{round}"), OrganizationRole::Member).await;
        let organization = format!("{}/members/{}", place.organization_path(), bob.id);
        let demote = match round % 3 {
            0 => world.call(Method::PUT, &organization).json(&json!({"role": "member"})),
            1 => world.call(Method::DELETE, &organization),
            _ => change(&world, &ada, &place, &bob, "viewer"),
        };
        let demote = if round % 3 == 2 { demote } else { demote.bearer(&ada.access_token) };
        let calls = [
            change(&world, &bob, &place, &target, "admin"),
            demote,
            add(&world, &bob, &place, &user, "admin"),
        ];
        let answers = join_all(calls.map(Call::send)).await;
        assert_eq!(answers[1].status, 200, "{}", answers[1].text);
        for (answer, person, before) in [(&answers[0], &target, Some("viewer")), (&answers[2], &user, None)] {
            assert!([200, 403].contains(&answer.status), "{}", answer.text);
            let due = if answer.status == 200 { Some("admin") } else { before };
            assert_eq!(roles_of(&world, &place, person).await.0.as_deref(), due);
        }
        assert_eq!(change(&world, &bob, &place, &target, "viewer").refused().await.0, 403);
    }
}

/// A caller who loses the role between the gate and the write is refused.
#[on_each_database]
async fn demotion_after_the_gate_is_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let organization = OrganizationId::parse(&place.organization).unwrap();
    for number in 0..6 {
        // Even rounds use an admin of the organization, whose role the creation of a project requires; odd
        // rounds use an owner of the project.
        let name = format!("bob{number}");
        let bob = match number % 2 {
            0 => add_organization_member(&world, &place, &name, OrganizationRole::Admin).await,
            _ => add_member(&world, &place, &name, Owner).await,
        };
        let eve = add_member(&world, &place, &format!("eve{number}"), Viewer).await;
        let joe =
            add_organization_member(&world, &place, &format!("joe{number}"), OrganizationRole::Member).await;
        let put = world.call(Method::PUT, &place.project_path()).json(&json!({"name": name}));
        let made = world.post(&format!("{}/projects", place.organization_path()), &json!({"name": name}));
        let call = match number {
            0 => made.bearer(&bob.access_token),
            1 => change(&world, &bob, &place, &eve, "admin"),
            2 => add(&world, &bob, &place, &joe, "viewer"),
            3 => world.call(Method::DELETE, &place.project_path()).bearer(&bob.access_token),
            4 => remove(&world, &bob, &place, &eve),
            _ => put.bearer(&bob.access_token),
        };
        let mut tx = world.app.db.write().await.unwrap();
        tollkeeper::tenants::store::organizations::lock(&mut tx, organization).await.unwrap();
        for text in [
            "UPDATE organization_members SET role = 'member' WHERE user_id = $1",
            "DELETE FROM project_members WHERE user_id = $1",
        ] {
            sql(text).bind(bob.id).execute(&mut tx).await.unwrap();
        }
        let demotion = async {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            tx.commit().await.unwrap();
        };
        let (answer, ()) = futures_util::future::join(call.send(), demotion).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "insufficient_role"), "{number}");
        assert_eq!(roles_of(&world, &place, &eve).await.0.as_deref(), Some("viewer"), "{number}");
        assert_eq!(roles_of(&world, &place, &joe).await.0, None, "{number}");
    }
}

/// A member removed from the organization is in none of its projects.
#[on_each_database]
async fn addition_races_with_leaving_the_organization(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let owner = add_member(&world, &place, "owner", Owner).await;
    for round in 0..12 {
        let bob =
            add_organization_member(&world, &place, &format!("bob{round}"), OrganizationRole::Member).await;
        let path = format!("{}/members/{}", place.organization_path(), bob.id);
        let leave = world.call(Method::DELETE, &path).bearer(&bob.access_token);
        let adding = add(&world, &owner, &place, &bob, "viewer");
        let (left, added) = match round % 2 {
            0 => futures_util::future::join(leave.send(), adding.send()).await,
            _ => {
                let (added, left) = futures_util::future::join(adding.send(), leave.send()).await;
                (left, added)
            }
        };
        assert_eq!(left.status, 200, "{}", left.text);
        // After the removal the user isn't in the organization, and a project's owner can't add users from
        // outside.
        assert!([200, 403].contains(&added.status), "{}", added.text);
        assert_eq!(roles_of(&world, &place, &bob).await, (None, None));
    }
}
