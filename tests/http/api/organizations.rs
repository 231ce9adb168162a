//! Organizations and their projects over HTTP (docs/contract/organizations.md, docs/contract/projects.md).

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};
use tollkeeper::trail;

use support::http::Call;
use support::world::{PASSWORD, Place, START, TestUser, World, id};
use support::{Database, on_each_database};

#[on_each_database]
async fn organization_is_created_listed_and_read(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"name": "  Acme  ", "description": "Anvils", "settings": {"default_role": "admin"}});
    let made = world.post("/v1/organizations", &body).bearer(&ada.access_token).data().await;
    let expected = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
        "settings": {"default_role": "admin", "allow_public_projects": false, "require_second_factor": false,
        "require_sign_on": false},
        "owner": {"id": ada.id.to_string(), "email": "ada@example.com", "username": "ada"}});
    assert_eq!(made, expected);

    let listed = world.get("/v1/organizations").bearer(&ada.access_token).data().await;
    let item = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
        "role": "owner"});
    assert_eq!(listed, json!({"organizations": [item], "total": 1, "page": 1, "page_size": 20}));

    let path = format!("/v1/organizations/{}", id(&made));
    let read = world.get(&path).bearer(&ada.access_token).data().await;
    let expected = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
        "settings": {"default_role": "admin", "allow_public_projects": false, "require_second_factor": false,
        "require_sign_on": false}, "members_count": 1, "projects_count": 0});
    assert_eq!(read, expected);
}

#[on_each_database]
async fn name_is_unique_for_each_creator(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    world.organization(&ada, "Acme").await;
    let again =
        world.post("/v1/organizations", &json!({"name": "ACME"})).bearer(&ada.access_token).send().await;
    assert_eq!((again.status, again.code().as_str()), (409, "name_taken"));
    assert_eq!(again.json()["error"]["param"], "name");
    assert_eq!(again.details(), ["name name_taken"]);
    world.organization(&bob, "Acme").await;
}

#[on_each_database]
async fn concurrent_creations_have_one_winner(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"name": "Acme"});
    let calls = (0..32).map(|_| world.post("/v1/organizations", &body).bearer(&ada.access_token).send());
    let answers = futures_util::future::join_all(calls).await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(409)), (1, 31));
}

#[on_each_database]
async fn lists_support_pages_search_and_filters(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    for n in 0..5 {
        world.organization(&ada, &format!("Org {n}")).await;
        world.clock.advance_ms(1);
    }
    let other = world.place(&bob, "100%_sure").await;
    world.join_organization(&other, &ada, OrganizationRole::Member).await;
    let names = async |query: &str| {
        let path = format!("/v1/organizations{query}");
        let data = world.get(&path).bearer(&ada.access_token).data().await;
        let rows = data["organizations"].as_array().unwrap().clone();
        let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        (names.join(","), data["total"].as_i64().unwrap())
    };
    assert_eq!(names("").await, ("100%_sure,Org 4,Org 3,Org 2,Org 1,Org 0".into(), 6));
    assert_eq!(names("?page=2&page_size=2").await, ("Org 3,Org 2".into(), 6));
    assert_eq!(names("?page=9").await, (String::new(), 6));
    assert_eq!(names("?search=ORG+3").await, ("Org 3".into(), 1));
    assert_eq!(names("?search=%25_").await, ("100%_sure".into(), 1));
    assert_eq!(names("?role=member").await, ("100%_sure".into(), 1));
    assert_eq!(names("?unknown=1").await.1, 6);
    for bad in [
        "?page=0",
        "?page=x",
        "?page_size=101",
        "?page_size=0",
        "?role=king",
        "?page=1&page=2",
        "?search=%ff",
    ] {
        let answer = world.get(&format!("/v1/organizations{bad}")).bearer(&ada.access_token).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{bad}");
    }
}

#[on_each_database]
async fn project_is_created_listed_and_read(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let path = format!("/v1/organizations/{organization}/projects");
    let body = json!({"name": "Chat", "description": "Talks", "visibility": "public",
                      "settings": {"model": "svc-1", "max_tokens": 2048, "temperature": 0.7}});
    let made = world.post(&path, &body).bearer(&ada.access_token).data().await;
    let expected = json!({"id": made["id"], "name": "Chat", "description": "Talks", "created_at": START, "updated_at": START,
        "settings": {"model": "svc-1", "max_tokens": 2048, "temperature": 0.7}, "visibility": "public",
        "organization_id": organization});
    assert_eq!(made, expected);

    let listed = world.get(&path).bearer(&ada.access_token).data().await;
    let item = json!({"id": made["id"], "name": "Chat", "description": "Talks", "created_at": START, "updated_at": START,
        "visibility": "public", "role": "owner"});
    assert_eq!(listed, json!({"projects": [item], "total": 1, "page": 1, "page_size": 20}));

    let read = world.get(&format!("{path}/{}", id(&made))).bearer(&ada.access_token).data().await;
    let mut expected = expected;
    expected["members_count"] = json!(1);
    expected["api_keys_count"] = json!(0);
    expected["usage"] = json!({"tokens": 0, "requests": 0});
    assert_eq!(read, expected);
    let organization =
        world.get(&format!("/v1/organizations/{organization}")).bearer(&ada.access_token).data().await;
    assert_eq!(organization["projects_count"], 1);
}

#[on_each_database]
async fn invalid_projects_are_refused(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let path = format!("/v1/organizations/{organization}/projects");
    world.project(&ada, &organization, "Taken").await;
    let cases = [
        (json!({}), 400, "name required"),
        (json!({"name": null}), 400, "name required"),
        (json!({"name": " "}), 400, "name"),
        (json!({"name": "a\u{0}b"}), 400, "name"),
        (json!({"name": "x", "visibility": "secret"}), 400, "visibility unknown_value"),
        (json!({"name": "x", "settings": {"model": "gpt-9"}}), 400, "settings.model unknown_model"),
        (
            json!({"name": "x", "settings": {"model": "svc-1", "max_tokens": 4097}}),
            400,
            "settings.max_tokens out_of_range",
        ),
        (json!({"name": "x", "settings": {"max_tokens": 0}}), 400, "settings.max_tokens out_of_range"),
        (json!({"name": "x", "settings": {"temperature": 2.1}}), 400, "settings.temperature out_of_range"),
        (
            json!({"name": "x", "settings": {"temperature": 0.12345678}}),
            400,
            "settings.temperature out_of_range",
        ),
        (json!({"name": "x", "settings": []}), 400, "settings wrong_type"),
        (json!({"name": "x", "setings": {}}), 400, "setings unknown_field"),
        (json!({"name": "tAKEN"}), 409, ""),
    ];
    for (body, status, detail) in cases {
        let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        let details = answer.details();
        assert!(detail.is_empty() || details.iter().any(|d| d.starts_with(detail)), "{body}: {details:?}");
    }
    let closed = json!({"name": "Closed"});
    let closed = id(&world.post("/v1/organizations", &closed).bearer(&ada.access_token).data().await);
    let body = json!({"name": "x", "visibility": "public"});
    let path = format!("/v1/organizations/{closed}/projects");
    let refused = world.post(&path, &body).bearer(&ada.access_token).refused().await;
    assert_eq!(refused, (400, "public_projects_not_allowed".into()));
}

#[on_each_database]
async fn list_shows_visible_projects_with_the_effective_role(world: World) {
    let (ada, admin, member) =
        (world.user("ada").await, world.user("admin").await, world.user("member").await);
    let place = world.place(&ada, "Acme").await;
    let path = format!("/v1/organizations/{}/projects", place.organization);
    let public = json!({"name": "Open", "visibility": "public"});
    world.post(&path, &public).bearer(&ada.access_token).data().await;
    world.join_organization(&place, &admin, OrganizationRole::Admin).await;
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    let roles = async |token: &str, query: &str| {
        let data = world.get(&format!("{path}{query}")).bearer(token).data().await;
        let rows = data["projects"].as_array().unwrap().clone();
        assert_eq!(data["total"], rows.len());
        let mut roles: Vec<_> = rows
            .iter()
            .map(|row| format!("{}={}", row["name"].as_str().unwrap(), row["role"].as_str().unwrap()))
            .collect();
        roles.sort();
        roles.join(" ")
    };
    assert_eq!(roles(&admin.access_token, "").await, "Acme project=owner Open=owner");
    assert_eq!(roles(&member.access_token, "").await, "Open=viewer");
    world.join_project(&place, &member, ProjectRole::Developer).await;
    assert_eq!(roles(&member.access_token, "").await, "Acme project=developer Open=viewer");
    assert_eq!(roles(&member.access_token, "?role=viewer").await, "Open=viewer");
    assert_eq!(roles(&admin.access_token, "?role=viewer").await, "");
}

#[on_each_database]
fn management_calls_are_limited(database: Database) {
    let limits =
        [("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "2"), ("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE", "1")];
    database.run(&limits, async |world| {
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        let list = |token: &str| world.get("/v1/organizations").bearer(token);
        world.organization(&ada, "Acme").await;
        let write =
            world.post("/v1/organizations", &json!({"name": "x"})).bearer(&ada.access_token).send().await;
        assert_eq!((write.status, write.code().as_str()), (429, "rate_limited"));
        assert_eq!(write.header("retry-after"), "60");
        // Reads have their own limit, and each user has their own limits.
        for _ in 0..2 {
            list(&ada.access_token).data().await;
        }
        assert_eq!(list(&ada.access_token).refused().await, (429, "rate_limited".into()));
        list(&bob.access_token).data().await;
        // Lists of models don't count as management: their limit is as high, but separate.
        for _ in 0..2 {
            world.get("/v1/models").bearer(&ada.access_token).bare().await;
        }
        let refused = world.get("/v1/models").bearer(&ada.access_token).refused().await;
        assert_eq!(refused, (429, "rate_limited".into()));
        world.clock.advance_ms(30_000);
        list(&ada.access_token).data().await;
    });
    let off = [limits[0], limits[1], ("TOLLKEEPER_LIMITS__ENABLED", "false")];
    database.run(&off, async |world| {
        let ada = world.user("ada").await;
        for _ in 0..5 {
            world.get("/v1/organizations").bearer(&ada.access_token).data().await;
        }
    });
}

fn put(world: &World, user: &TestUser, path: &str, body: &Value) -> Call {
    world.call(Method::PUT, path).bearer(&user.access_token).json(body)
}

#[on_each_database]
async fn organization_fields_change_one_by_one(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"name": "Acme", "description": "Anvils", "settings": {"default_role": "admin"}});
    let made = world.post("/v1/organizations", &body).bearer(&ada.access_token).data().await;
    let path = format!("/v1/organizations/{}", id(&made));
    world.clock.advance_ms(1_000);
    let mut due = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "updated_at": START,
        "settings": {"default_role": "admin", "allow_public_projects": false, "require_second_factor": false,
        "require_sign_on": false}});
    assert_eq!(put(&world, &ada, &path, &json!({})).data().await, due, "nothing is changed");
    let same = json!({"name": " Acme ", "settings": {}});
    assert_eq!(put(&world, &ada, &path, &same).data().await, due, "the same values aren't a change");

    due["updated_at"] = json!("2026-03-10T12:00:01.000Z");
    due["settings"]["allow_public_projects"] = json!(true);
    let patch = json!({"settings": {"allow_public_projects": true}});
    assert_eq!(put(&world, &ada, &path, &patch).data().await, due);
    due["name"] = json!("ACME");
    due["description"] = json!(null);
    assert_eq!(put(&world, &ada, &path, &json!({"name": "ACME", "description": null})).data().await, due);
    due["settings"]["default_role"] = json!("member");
    due["description"] = json!("");
    let patch = json!({"description": "", "settings": {"default_role": "member"}});
    assert_eq!(put(&world, &ada, &path, &patch).data().await, due);
    let read = world.get(&path).bearer(&ada.access_token).data().await;
    for field in ["id", "name", "description", "updated_at", "settings"] {
        assert_eq!(read[field], due[field]);
    }
    assert_eq!(read["created_at"], START);

    for (body, detail) in [
        (json!({"name": null}), "name required"),
        (json!({"name": " "}), "name required"),
        (json!({"settings": null}), "settings required"),
        (json!({"settings": {"default_role": null}}), "settings.default_role required"),
        (json!({"settings": {"default_role": "owner"}}), "settings.default_role unknown_value"),
        (json!({"settings": {"allow_public_projects": null}}), "settings.allow_public_projects required"),
        (json!({"settings": {"public": true}}), "settings.public unknown_field"),
        (json!({"role": "owner"}), "role unknown_field"),
    ] {
        let answer = put(&world, &ada, &path, &body).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    assert_eq!(world.get(&path).bearer(&ada.access_token).data().await, read);
}

#[on_each_database]
async fn new_name_is_unique_for_each_creator(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let mut paths = Vec::new();
    for n in 0..8 {
        paths.push(format!("/v1/organizations/{}", world.organization(&ada, &format!("Org {n}")).await));
    }
    let taken = put(&world, &ada, &paths[1], &json!({"name": "ORG 0"})).send().await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"));
    assert_eq!(taken.details(), ["name name_taken"]);
    let other = format!("/v1/organizations/{}", world.organization(&bob, "Org 0").await);
    put(&world, &bob, &other, &json!({"name": "Org 1"})).data().await;
    // A released name can be used again.
    put(&world, &ada, &paths[0], &json!({"name": "Former"})).data().await;
    put(&world, &ada, &paths[1], &json!({"name": "Org 0"})).data().await;
    let race = json!({"name": "Wanted"});
    let answers =
        futures_util::future::join_all(paths.iter().map(|path| put(&world, &ada, path, &race).send())).await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(409)), (1, 7));
}

#[on_each_database]
async fn public_projects_close_when_the_setting_is_off(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    let path = format!("{}/projects", place.organization_path());
    let open = json!({"name": "Open", "visibility": "public"});
    let open = id(&world.post(&path, &open).bearer(&ada.access_token).data().await);
    let see = || world.get(&format!("{path}/{open}")).bearer(&bob.access_token);
    see().data().await;
    for (allow, status) in [(false, 403), (true, 200)] {
        let patch = json!({"settings": {"allow_public_projects": allow}});
        put(&world, &ada, &place.organization_path(), &patch).data().await;
        assert_eq!(see().send().await.status, status);
    }
}

async fn rows(world: &World, table: &str, place: &Place) -> i64 {
    let text = format!("SELECT COUNT(*) FROM {table} WHERE organization_id = $1");
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) =
        tollkeeper::db::sql(text).bind(place.organization.as_str()).one(&mut tx).await.unwrap();
    count
}

#[on_each_database]
async fn organization_with_debt_cannot_be_deleted(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, secret) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let used = json!({"events": [{"id": "1", "source": "s", "time": START, "api_key_id": key_id, "model": "svc-1",
        "kind": "chat", "prompt_tokens": 5_000}]});
    assert_eq!(world.ask("/service/v1/usage", &used).bare().await["results"][0]["status"], "accepted");
    // The organization owes 0.01, the smallest payment.
    let delete =
        world.call(Method::DELETE, &place.organization_path()).bearer(&ada.access_token).send().await;
    assert_eq!((delete.status, delete.code().as_str()), (409, "unsettled_balance"), "{}", delete.text);
    assert_eq!(delete.header("x-should-retry"), "false");
    let body = json!({"credential": secret, "operation": "chat", "reserve": false, "model": "svc-1"});
    assert_eq!(world.ask("/service/v1/authorize", &body).bare().await["allowed"], true);
    world.get(&place.project_path()).bearer(&ada.access_token).data().await;
}

#[on_each_database]
async fn deleting_an_organization_deletes_all_but_its_usage(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    world.join_organization(&place, &bob, OrganizationRole::Owner).await;
    world.join_project(&place, &bob, ProjectRole::Viewer).await;
    let (key_id, secret) = world.key(&bob, &place, &json!({"name": "k"})).await;
    let (_, kept) = world.key(&ada, &other, &json!({"name": "k"})).await;
    let invitation = json!({"email": "guest@example.com"});
    let path = format!("{}/invitations", place.organization_path());
    world.post(&path, &invitation).bearer(&bob.access_token).data().await;
    let link = world.mailed_token("guest@example.com").await;
    let event = |id: &str| {
        json!({"events": [{"id": id, "source": "s", "time": START, "api_key_id": key_id, "model": "svc-1",
        "kind": "chat", "prompt_tokens": 0, "completion_tokens": 0}]})
    };
    let used = world.ask("/service/v1/usage", &event("1")).bare().await;
    assert_eq!(used["results"][0]["status"], "accepted", "{used}");
    let ask = |secret: &str| {
        let body = json!({"credential": secret, "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": 5});
        world.ask("/service/v1/authorize", &body)
    };
    assert_eq!(ask(&secret).bare().await["allowed"], true);

    let delete = |token: &str| world.call(Method::DELETE, &place.organization_path()).bearer(token);
    world.clock.advance_ms(1_000);
    let deleted = delete(&ada.access_token).data().await;
    assert_eq!(deleted, json!({"message": "The organization is deleted."}));
    world.clock.advance_ms(1_000);
    assert_eq!(ask(&secret).bare().await["code"], "invalid_api_key");
    assert_eq!(ask(&kept).bare().await["allowed"], true);
    for table in ["api_keys", "projects", "organization_members", "invitations"] {
        assert_eq!(rows(&world, table, &place).await, 0, "{table}");
        assert!(table == "invitations" || rows(&world, table, &other).await == 1, "{table}");
    }
    for table in ["usage_events", "usage_daily", "former_api_keys"] {
        assert_eq!(rows(&world, table, &place).await, 1, "{table}");
    }
    let late = world.ask("/service/v1/usage", &event("2")).bare().await;
    assert_ne!(late["results"][0]["code"], "internal_error", "{late}");
    for path in
        [place.organization_path(), format!("{}/members", place.organization_path()), place.project_path()]
    {
        let gone = world.get(&path).bearer(&bob.access_token).refused().await;
        assert_eq!(gone, (404, "organization_not_found".into()), "{path}");
    }
    assert_eq!(delete(&ada.access_token).refused().await, (404, "organization_not_found".into()));
    assert_eq!(world.get("/v1/organizations").bearer(&bob.access_token).data().await["total"], 0);
    let page = world.call(Method::POST, "/invitations/accept").form(&[("token", &link)]).send().await;
    assert_eq!(page.status, 400);
    // The name is available again.
    world.organization(&ada, "Acme").await;

    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let mails = std::fs::read_dir(world.data_dir.join("mail")).unwrap();
    let mails: Vec<_> = mails.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let notices: Vec<_> = mails.iter().filter(|mail| mail.contains("Subject: Acme was deleted")).collect();
    assert_eq!(notices.len(), 1, "the caller gets no notice");
    assert!(
        notices[0].contains("To: bob@example.com") && notices[0].contains("ada deleted"),
        "{}",
        notices[0]
    );

    let filter = trail::Filter { action: "organization.deleted".into(), limit: 9, ..Default::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = trail::list(&mut tx, &filter).await.unwrap();
    assert_eq!((entries.len(), &entries[0].target), (1, &place.organization));
    let text = "SELECT kind, subject FROM changes WHERE kind = 'organization'";
    let change: (String, String) = tollkeeper::db::sql(text).one(&mut tx).await.unwrap();
    assert_eq!(change, ("organization".into(), place.organization.clone()));
}

/// The organization has more members than one statement notifies.
#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR", "500")])]
async fn every_member_of_a_deleted_organization_is_notified(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for n in 0..203 {
        let user = world.user(&format!("member{n}")).await;
        world.join_organization(&place, &user, OrganizationRole::Member).await;
    }
    world.call(Method::DELETE, &place.organization_path()).bearer(&ada.access_token).data().await;
    let mut tx = world.app.db.read().await.unwrap();
    let text = "SELECT email, details FROM outbox WHERE template = 'organization_deleted'";
    let mails: Vec<(String, String)> = tollkeeper::db::sql(text).all(&mut tx).await.unwrap();
    let addresses: std::collections::HashSet<_> = mails.iter().map(|(email, _)| email).collect();
    assert_eq!((mails.len(), addresses.len()), (203, 203));
    let details: std::collections::HashSet<_> = mails.iter().map(|(_, details)| details).collect();
    assert_eq!(details.len(), 1, "all of one request");
    let details: serde_json::Value = serde_json::from_str(details.iter().next().unwrap()).unwrap();
    assert_eq!((&details["organization"], &details["by"]), (&json!("Acme"), &json!("ada")));
}

/// Creates projects, invitations and members during a deletion: each succeeds before it or finds no
/// organization.
#[on_each_database]
async fn deletion_races_with_creations(world: World) {
    let ada = world.user("ada").await;
    for round in 0..10 {
        let place = world.place(&ada, &format!("Race {round}")).await;
        let bob = world.user(&format!("bob{round}")).await;
        world.join_organization(&place, &bob, OrganizationRole::Admin).await;
        let path = place.organization_path();
        let mut calls = Vec::new();
        for n in 0..4 {
            let project = json!({"name": format!("p{n}")});
            calls.push(world.post(&format!("{path}/projects"), &project).bearer(&bob.access_token));
            let guest = json!({"email": format!("guest{n}@example.com")});
            calls.push(world.post(&format!("{path}/invitations"), &guest).bearer(&bob.access_token));
            let key = json!({"name": format!("k{n}")});
            calls.push(
                world.post(&format!("{}/api-keys", place.project_path()), &key).bearer(&ada.access_token),
            );
        }
        calls.push(put(&world, &bob, &path, &json!({"name": "Renamed"})));
        calls.push(put(&world, &ada, &format!("{path}/members/{}", bob.id), &json!({"role": "owner"})));
        let at = round % calls.len();
        calls.insert(at, world.call(Method::DELETE, &path).bearer(&ada.access_token));
        let answers = futures_util::future::join_all(calls.into_iter().map(Call::send)).await;
        for (index, answer) in answers.iter().enumerate() {
            let due: &[u16] = if index == at { &[200] } else { &[200, 404] };
            assert!(due.contains(&answer.status), "{index}: {}", answer.text);
        }
        for table in ["api_keys", "projects", "organization_members", "invitations"] {
            assert_eq!(rows(&world, table, &place).await, 0, "{table}");
        }
    }
}

#[on_each_database]
async fn old_session_ends_no_organization_and_makes_no_owner(world: World) {
    let (ada, bob, carl) = (world.user("ada").await, world.user("bob").await, world.user("carl").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    world.join_organization(&place, &carl, OrganizationRole::Owner).await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "Prod"})).await;
    let organization = place.organization_path();
    let member = |of: &TestUser| format!("{organization}/members/{}", of.id);
    let invitation = json!({"email": "new@example.com", "role": "owner"});
    let dangerous = |token: &str| {
        [
            world.call(Method::PUT, &member(&bob)).json(&json!({"role": "owner"})),
            world.call(Method::PUT, &member(&carl)).json(&json!({"role": "admin"})),
            world.call(Method::DELETE, &member(&carl)),
            world.post(&format!("{organization}/invitations"), &invitation),
            world.call(Method::DELETE, &organization),
        ]
        .map(|call| call.bearer(token))
    };
    world.clock.advance_ms(15 * MINUTE_MS);
    for (number, call) in dangerous(&ada.access_token).into_iter().enumerate() {
        assert_eq!(call.refused().await, (403, "reauthentication_required".to_owned()), "{number}");
    }
    // Roles are checked first: a proof of identity wouldn't help.
    let role = (403, "insufficient_role".to_owned());
    assert_eq!(world.call(Method::DELETE, &organization).bearer(&bob.access_token).refused().await, role);
    // Changes that an owner can undo need no proof, and neither do requests that change nothing.
    for role in ["admin", "admin", "member"] {
        let call = world.call(Method::PUT, &member(&bob)).json(&json!({ "role": role }));
        call.bearer(&ada.access_token).data().await;
    }
    let call = world.call(Method::PUT, &member(&carl)).json(&json!({"role": "owner"}));
    call.bearer(&ada.access_token).data().await;
    // An owner can still leave without a proof.
    world.call(Method::DELETE, &member(&carl)).bearer(&carl.access_token).data().await;
    world.join_organization(&place, &carl, OrganizationRole::Owner).await;

    let body = json!({"password": PASSWORD});
    let proof = world.post("/v1/auth/reauthenticate", &body).bearer(&ada.access_token).data().await;
    for call in dangerous(proof["access_token"].as_str().unwrap()) {
        call.data().await;
    }
    // An owner's key has no session, so it needs no proof.
    let other = world.place(&carl, "Other").await;
    let (_, other_key) = world.key(&carl, &other, &json!({"name": "Prod"})).await;
    world.clock.advance_ms(15 * MINUTE_MS);
    world.call(Method::DELETE, &other.organization_path()).bearer(&other_key).data().await;
    assert_eq!(
        world.get(&organization).bearer(&key).refused().await.0,
        401,
        "it was deleted with the organization"
    );
}
