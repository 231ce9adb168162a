//! Projects over HTTP (docs/contract/projects.md): changes, deletion and visibility.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};
use tollkeeper::trail;

use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{Place, START, TestUser, World, id};

fn put(world: &World, user: &TestUser, place: &Place, body: &Value) -> Call {
    world.call(Method::PUT, &place.project_path()).bearer(&user.access_token).json(body)
}

fn delete(world: &World, user: &TestUser, place: &Place) -> Call {
    world.call(Method::DELETE, &place.project_path()).bearer(&user.access_token)
}

async fn read(world: &World, user: &TestUser, place: &Place) -> Value {
    world.get(&place.project_path()).bearer(&user.access_token).data().await
}

/// Creates another project in the same organization.
async fn sibling_project(world: &World, user: &TestUser, place: &Place, body: &Value) -> Place {
    let path = format!("{}/projects", place.organization_path());
    let project = id(&world.post(&path, body).bearer(&user.access_token).data().await);
    Place { organization: place.organization.clone(), project }
}

async fn add_member(world: &World, place: &Place, name: &str, role: ProjectRole) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, OrganizationRole::Member).await;
    world.join_project(place, &user, role).await;
    user
}

async fn run(world: &World, text: &'static str, id: &str) -> u64 {
    let mut tx = world.app.db.write().await.unwrap();
    let changed = sql(text).bind(id).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    changed
}

async fn count(world: &World, text: &'static str, id: &str) -> i64 {
    let (count,): (i64,) = sql(text).bind(id).one(&mut world.app.db.read().await.unwrap()).await.unwrap();
    count
}

async fn report(world: &World, event: &str, key: &str) -> Value {
    let event = json!({"id": event, "source": "s", "time": START, "api_key_id": key, "model": "svc-1", "kind": "chat",
        "prompt_tokens": 5, "completion_tokens": 1});
    world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await["results"][0].clone()
}

fn ask(world: &World, secret: &str) -> Call {
    let body = json!({"credential": secret, "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": 5});
    world.ask("/service/v1/authorize", &body)
}

#[on_each_database]
async fn project_fields_change_one_by_one(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let due = |name: &str, description: Value, second: i64, settings: [Value; 3]| {
        let [model, max_tokens, temperature] = settings;
        json!({"id": place.project, "name": name, "description": description,
            "updated_at": format!("2026-03-10T12:00:0{second}.000Z"),
            "settings": {"model": model, "max_tokens": max_tokens, "temperature": temperature}})
    };
    let none = || [Value::Null, Value::Null, Value::Null];
    let (model, talks) = (json!("svc-1"), json!("Talks"));
    let cases = [
        (json!({}), due("Acme project", Value::Null, 0, none())),
        (json!({"name": " Chat "}), due("Chat", Value::Null, 2, none())),
        (json!({"description": "Talks"}), due("Chat", talks.clone(), 3, none())),
        (
            json!({"settings": {"model": "svc-1", "max_tokens": 4096}}),
            due("Chat", talks.clone(), 4, [model.clone(), json!(4096), Value::Null]),
        ),
        (
            json!({"settings": {"temperature": 0.25}}),
            due("Chat", talks.clone(), 5, [model.clone(), json!(4096), json!(0.25)]),
        ),
        (
            json!({"settings": {"max_tokens": null}, "description": null}),
            due("Chat", Value::Null, 6, [model.clone(), Value::Null, json!(0.25)]),
        ),
        // An empty patch and unchanged values change nothing.
        (json!({"settings": {}}), due("Chat", Value::Null, 6, [model.clone(), Value::Null, json!(0.25)])),
        (
            json!({"name": "Chat", "settings": {"model": "svc-1"}, "visibility": "private"}),
            due("Chat", Value::Null, 6, [model, Value::Null, json!(0.25)]),
        ),
        (json!({"settings": null}), due("Chat", Value::Null, 9, none())),
    ];
    for (body, due) in cases {
        assert_eq!(put(&world, &ada, &place, &body).data().await, due, "{body}");
        let found = read(&world, &ada, &place).await;
        for field in ["id", "name", "description", "updated_at", "settings"] {
            assert_eq!(found[field], due[field], "{body}");
        }
        assert_eq!((&found["visibility"], &found["created_at"]), (&json!("private"), &json!(START)));
        world.clock.advance_ms(if found["updated_at"] == START { 2_000 } else { 1_000 });
    }
    put(&world, &ada, &place, &json!({"visibility": "public"})).data().await;
    assert_eq!(read(&world, &ada, &place).await["visibility"], "public");
    // A project may change the case of its own name.
    put(&world, &ada, &place, &json!({"name": "CHAT"})).data().await;
    assert_eq!(read(&world, &ada, &place).await["name"], "CHAT");
}

#[on_each_database]
async fn invalid_changes_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let other = sibling_project(&world, &ada, &place, &json!({"name": "Taken"})).await;
    let settings = json!({"settings": {"model": "svc-1", "max_tokens": 4096, "temperature": 1}});
    put(&world, &ada, &place, &settings).data().await;
    let before = read(&world, &ada, &place).await;
    world.clock.advance_ms(1_000);
    let cases: [(Value, &[&str]); 19] = [
        (json!({"name": null}), &["name required"]),
        (json!({"name": " "}), &["name required"]),
        (json!({"name": 1}), &["name wrong_type"]),
        (json!({"visibility": null}), &["visibility required"]),
        (json!({"visibility": "secret"}), &["visibility unknown_value"]),
        (json!({"settings": []}), &["settings wrong_type"]),
        (json!({"settings": {"model": "gpt-9"}}), &["settings.model unknown_model"]),
        (json!({"settings": {"model": 1}}), &["settings.model wrong_type"]),
        (json!({"settings": {"max_tokens": 0}}), &["settings.max_tokens out_of_range"]),
        (json!({"settings": {"temperature": 2.1}}), &["settings.temperature out_of_range"]),
        // The rule applies to the combined settings.
        (json!({"settings": {"max_tokens": 4097}}), &["settings.max_tokens out_of_range"]),
        (json!({"settings": {"model": "svc-1-turbo"}}), &["settings.max_tokens out_of_range"]),
        (
            json!({"settings": {"model": "svc-1-pro", "max_tokens": 8193}}),
            &["settings.max_tokens out_of_range"],
        ),
        (json!({"setings": {}}), &["setings unknown_field"]),
        (json!({"settings": {"tokens": 1}}), &["settings.tokens unknown_field"]),
        (json!({"organization_id": place.organization}), &["organization_id unknown_field"]),
        (json!({"description": "x".repeat(1001)}), &["description too_long"]),
        (json!({"name": "a\u{0}"}), &["name invalid_characters"]),
        (
            json!({"name": null, "visibility": 1, "settings": {"model": "x", "temperature": 3, "max_tokens": "1"}}),
            &[
                "name required",
                "settings.max_tokens wrong_type",
                "settings.temperature out_of_range",
                "settings.model unknown_model",
                "visibility wrong_type",
            ],
        ),
    ];
    for (body, details) in cases {
        let answer = put(&world, &ada, &place, &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
        assert_eq!(answer.details(), details, "{body}: {}", answer.text);
    }
    for name in ["Taken", "tAKEN"] {
        let taken = put(&world, &ada, &place, &json!({"name": name})).send().await;
        assert_eq!((taken.status, taken.details()), (409, vec!["name name_taken".to_owned()]));
    }
    assert_eq!(read(&world, &ada, &place).await, before, "nothing was written");
    // With a smaller limit, the smaller model is accepted.
    let fits = json!({"settings": {"model": "svc-1-turbo", "max_tokens": 2048}});
    put(&world, &ada, &place, &fits).data().await;
    // In another organization the name is available.
    let elsewhere = world.place(&ada, "Elsewhere").await;
    put(&world, &ada, &elsewhere, &json!({"name": "Taken"})).data().await;
    assert_eq!(read(&world, &ada, &other).await["name"], "Taken");
}

#[on_each_database]
async fn removed_model_does_not_block_changes(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    run(&world, "UPDATE projects SET model = 'gone', max_tokens = 9 WHERE id = $1", &place.project).await;
    put(&world, &ada, &place, &json!({"name": "Renamed", "settings": {"temperature": 1}})).data().await;
    let refused = put(&world, &ada, &place, &json!({"settings": {"max_tokens": 10}})).send().await;
    assert_eq!(refused.details(), ["settings.model unknown_model"]);
    put(&world, &ada, &place, &json!({"settings": {"max_tokens": 10, "model": null}})).data().await;
}

#[on_each_database]
async fn public_needs_an_organization_that_allows_it(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let member = world.user("member").await;
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    let outsider = world.user("outsider").await;
    let viewer = add_member(&world, &place, "viewer", ProjectRole::Viewer).await;
    let paths = ["", "/members", "/usage"].map(|tail| format!("{}{tail}", place.project_path()));
    let listed = async |user: &TestUser| {
        let path = format!("{}/projects", place.organization_path());
        let data = world.get(&path).bearer(&user.access_token).data().await;
        assert_eq!(data["projects"].as_array().unwrap().len() as u64, data["total"]);
        data["projects"].as_array().unwrap().iter().map(|row| row["role"].clone()).collect::<Vec<_>>()
    };
    let sees = async |user: &TestUser, status: u16| {
        for path in &paths {
            let answer = world.get(path).bearer(&user.access_token).send().await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
        }
    };
    sees(&member, 403).await;
    put(&world, &ada, &place, &json!({"visibility": "public"})).data().await;
    sees(&member, 200).await;
    sees(&outsider, 403).await;
    assert_eq!(listed(&member).await, ["viewer"]);

    // While public projects are turned off, the project acts as private and can't be made public.
    let allow = async |allow: bool| {
        let body = json!({"settings": {"allow_public_projects": allow}});
        let call = world.call(Method::PUT, &place.organization_path());
        call.bearer(&ada.access_token).json(&body).data().await;
    };
    allow(false).await;
    sees(&member, 403).await;
    sees(&viewer, 200).await;
    assert_eq!(listed(&member).await, Vec::<Value>::new());
    assert_eq!(listed(&viewer).await, ["viewer"]);
    assert_eq!(listed(&ada).await, ["owner"]);
    let refused = put(&world, &ada, &place, &json!({"visibility": "public"})).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "public_projects_not_allowed"));
    assert_eq!(refused.json()["error"]["param"], "visibility");
    // Other changes don't affect the visibility.
    put(&world, &ada, &place, &json!({"name": "Still"})).data().await;
    allow(true).await;
    sees(&member, 200).await;
    put(&world, &ada, &place, &json!({"visibility": "private"})).data().await;
    sees(&member, 403).await;
}

#[on_each_database]
async fn checks_run_in_the_order_401_404_403_400(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let foreign = world.place(&ada, "Foreign").await;
    let mixed = Place { organization: place.organization.clone(), project: foreign.project.clone() };
    let malformed = Place { organization: place.organization.clone(), project: "nonsense".into() };
    let outsider = world.user("outsider").await;
    let bad = json!({"name": null, "x": 1});
    let answers = async |place: &Place, user: &TestUser| {
        let calls = [
            put(&world, user, place, &bad),
            put(&world, user, place, &json!({})),
            delete(&world, user, place),
        ];
        join_all(calls.map(Call::refused)).await
    };
    let all = |status: u16, code: &str| vec![(status, code.to_owned()); 3];
    let unauthenticated = TestUser { access_token: String::new(), ..outsider.clone() };
    assert_eq!(answers(&mixed, &unauthenticated).await, all(401, "missing_credentials"));
    for user in [&ada, &outsider] {
        assert_eq!(answers(&mixed, user).await, all(404, "project_not_found"));
        assert_eq!(answers(&malformed, user).await, all(404, "project_not_found"));
    }
    let lost = Place { organization: "org_x".into(), ..place.clone() };
    assert_eq!(answers(&lost, &outsider).await, all(404, "organization_not_found"));
    assert_eq!(answers(&place, &outsider).await, all(403, "insufficient_role"));
    for (name, role) in [("viewer", ProjectRole::Viewer), ("developer", ProjectRole::Developer)] {
        let user = add_member(&world, &place, name, role).await;
        assert_eq!(answers(&place, &user).await, all(403, "insufficient_role"));
    }
    let admin = add_member(&world, &place, "admin", ProjectRole::Admin).await;
    assert_eq!(put(&world, &admin, &place, &bad).refused().await.0, 400);
    put(&world, &admin, &place, &json!({})).data().await;
    assert_eq!(delete(&world, &admin, &place).refused().await, (403, "insufficient_role".into()));
    let owner = add_member(&world, &place, "owner", ProjectRole::Owner).await;
    delete(&world, &owner, &place).data().await;
    assert_eq!(answers(&place, &owner).await, all(404, "project_not_found"));
}

#[on_each_database]
async fn deleting_a_project_deletes_all_but_its_usage(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let other = sibling_project(&world, &ada, &place, &json!({"name": "Other"})).await;
    let bob = add_member(&world, &place, "bob", ProjectRole::Owner).await;
    let (key, secret) = world.key(&bob, &place, &json!({"name": "Prod"})).await;
    let (_, unused) = world.key(&bob, &place, &json!({"name": "Spare"})).await;
    let (_, kept) = world.key(&ada, &other, &json!({"name": "Prod"})).await;
    assert_eq!(report(&world, "1", &key).await["status"], "accepted");
    assert_eq!(ask(&world, &secret).bare().await["allowed"], true);
    world.clock.advance_ms(1_000);
    let deleted = delete(&world, &bob, &place).data().await;
    assert_eq!(deleted, json!({"message": "The project is deleted."}));
    world.clock.advance_ms(1_000);
    for secret in [&secret, &unused] {
        assert_eq!(ask(&world, secret).bare().await["code"], "invalid_api_key");
        let refused = world.get(&place.organization_path()).bearer(secret).refused().await;
        assert_eq!(refused, (401, "invalid_api_key".into()));
    }
    assert_eq!(ask(&world, &kept).bare().await["allowed"], true);
    for table in ["api_keys", "project_members", "former_api_keys", "usage_daily", "usage_events"] {
        let text = format!("SELECT COUNT(*) FROM {table} WHERE project_id = $1");
        let left = count(&world, String::leak(text), &place.project).await;
        let due = [("former_api_keys", 2), ("usage_daily", 1), ("usage_events", 1)];
        assert_eq!(left, due.iter().find(|row| row.0 == table).map_or(0, |row| row.1), "{table}");
    }
    let secrets = "SELECT COUNT(*) FROM api_key_secrets s JOIN api_keys k ON k.id = s.api_key_id
                       WHERE k.organization_id = $1";
    assert_eq!(count(&world, secrets, &place.organization).await, 1);
    let change = "SELECT COUNT(*) FROM changes WHERE kind = 'project' AND subject = $1";
    assert_eq!(count(&world, change, &place.project).await, 1);
    for path in ["", "/members", "/usage", "/api-keys"] {
        let gone = world.get(&format!("{}{path}", place.project_path())).bearer(&ada.access_token);
        assert_eq!(gone.refused().await, (404, "project_not_found".into()));
    }
    let organization = world.get(&place.organization_path()).bearer(&ada.access_token).data().await;
    assert_eq!((&organization["projects_count"], &organization["members_count"]), (&json!(1), &json!(2)));

    // Usage still counts, even if it is reported late, but each event counts only once.
    for (event, status) in [("2", "accepted"), ("2", "duplicate"), ("1", "duplicate")] {
        assert_eq!(report(&world, event, &key).await["status"], status);
    }
    let path = format!("{}/billing/usage", place.organization_path());
    let usage = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(usage["total"]["chat"]["requests"], 2);
    // Its name is available again.
    sibling_project(&world, &ada, &place, &json!({"name": "Acme project"})).await;
}

#[on_each_database]
async fn deleted_keys_keep_their_name_in_reports_and_late_usage_is_billed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut keys = Vec::new();
    for name in ["b", "Ä", "C", "a"] {
        let key = world.key(&ada, &place, &json!({ "name": name })).await.0;
        assert_eq!(report(&world, &format!("{name}1"), &key).await["status"], "accepted");
        keys.push((name, key));
    }
    for (_, key) in &keys[1..3] {
        assert_eq!(run(&world, "DELETE FROM api_keys WHERE id = $1", key).await, 1);
    }
    for (name, key) in &keys {
        assert_eq!(report(&world, &format!("{name}2"), key).await["status"], "accepted");
    }
    let path = format!("{}/usage", place.project_path());
    let usage = world.get(&path).bearer(&ada.access_token).data().await;
    let mut rows: Vec<_> = usage["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["api_key_name"].as_str().unwrap().to_owned(), row["chat"]["requests"].clone()))
        .collect();
    rows.sort_by_key(|(name, _)| name.to_lowercase());
    assert_eq!(rows, ["a", "b", "C", "Ä"].map(|name| (name.to_owned(), json!(2))));
    assert_eq!(usage["total"]["chat"]["requests"], 8);
    let detail = read(&world, &ada, &place).await;
    assert_eq!(detail["usage"], json!({"tokens": 48, "requests": 8}));
    assert_eq!(detail["api_keys_count"], 2);

    // The organization is deleted, and its keys' usage still counts.
    let mut tx = world.app.db.write().await.unwrap();
    for text in ["DELETE FROM projects WHERE organization_id = $1", "DELETE FROM organizations WHERE id = $1"]
    {
        sql(text).bind(place.organization.as_str()).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    assert_eq!(report(&world, "late", &keys[0].1).await["status"], "accepted");
    let late = "SELECT CAST(SUM(requests) AS BIGINT) FROM usage_daily WHERE organization_id = $1";
    assert_eq!(count(&world, late, &place.organization).await, 9);
    let unauthenticated = report(&world, "x", "key_01h2xcejqtf2nbrexx3vqjhp41").await;
    assert_eq!(unauthenticated["code"], "unknown_api_key");
}

#[on_each_database]
async fn all_members_but_the_caller_are_notified(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    put(&world, &ada, &place, &json!({"name": "Chat <b>"})).data().await;
    let owner = add_member(&world, &place, "owner", ProjectRole::Owner).await;
    add_member(&world, &place, "viewer", ProjectRole::Viewer).await;
    let bystander = world.user("bystander").await;
    world.join_organization(&place, &bystander, OrganizationRole::Admin).await;
    delete(&world, &owner, &place).data().await;
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let mut recipients = Vec::new();
    for file in std::fs::read_dir(world.data_dir.join("mail")).unwrap() {
        let mail = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(mail.contains("Subject: Chat <b> was deleted"), "{mail}");
        assert!(mail.contains("owner deleted the project Chat <b>"), "{mail}");
        assert!(mail.contains("organization Acme.") && !mail.contains("project Chat <b><"), "{mail}");
        assert!(mail.contains("Chat &#60;b&#62;"), "{mail}");
        recipients.push(
            ["ada", "owner", "viewer", "bystander"].into_iter().find(|n| mail.contains(&format!("{n}@"))),
        );
    }
    recipients.sort_unstable();
    assert_eq!(recipients, [Some("ada"), Some("viewer")]);
}

#[on_each_database]
async fn lists_show_visible_projects(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let elsewhere = world.place(&ada, "Elsewhere").await;
    let (member, admin) = (world.user("member").await, world.user("admin").await);
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    world.join_organization(&place, &admin, OrganizationRole::Admin).await;
    world.join_project(&elsewhere, &member, ProjectRole::Owner).await;
    let mut mine = place.clone();
    for (name, visibility, role) in [
        ("Open 1", "public", None),
        ("Shut 1", "private", None),
        ("Open 2", "public", Some(ProjectRole::Admin)),
        ("Shut 2", "private", Some(ProjectRole::Developer)),
        ("Shut 100%", "private", Some(ProjectRole::Viewer)),
    ] {
        world.clock.advance_ms(1);
        mine = sibling_project(&world, &ada, &place, &json!({"name": name, "visibility": visibility})).await;
        if let Some(role) = role {
            world.join_project(&mine, &member, role).await;
        }
    }
    let list = async |bearer: &str, query: &str| {
        let path = format!("{}/projects{query}", place.organization_path());
        let data = world.get(&path).bearer(bearer).data().await;
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        let rows = data["projects"].as_array().unwrap().clone();
        let rows: Vec<_> =
            rows.iter().map(|row| format!("{}={}", text(row, "name"), text(row, "role"))).collect();
        format!("{} of {}", rows.join(", "), data["total"])
    };
    let all =
        "Shut 100%=owner, Shut 2=owner, Open 2=owner, Shut 1=owner, Open 1=owner, Acme project=owner of 6";
    let cases = [
        (&ada, "", all),
        (&admin, "", all),
        (&admin, "?role=owner", all),
        (&admin, "?role=viewer", " of 0"),
        (&admin, "?page_size=2", "Shut 100%=owner, Shut 2=owner of 6"),
        (&admin, "?page_size=4&page=2", "Open 1=owner, Acme project=owner of 6"),
        (&admin, "?page_size=2&page=3", "Open 1=owner, Acme project=owner of 6"),
        (&admin, "?page_size=2&page=4", " of 6"),
        (&admin, "?search=SHUT&page_size=2", "Shut 100%=owner, Shut 2=owner of 3"),
        (&admin, "?search=SHUT&page_size=2&page=2&role=owner", "Shut 1=owner of 3"),
        (&admin, "?search=0%25", "Shut 100%=owner of 1"),
        (&member, "", "Shut 100%=viewer, Shut 2=developer, Open 2=admin, Open 1=viewer of 4"),
        (&member, "?page_size=3&page=2", "Open 1=viewer of 4"),
        (&member, "?page=9", " of 4"),
        (&member, "?role=viewer", "Shut 100%=viewer, Open 1=viewer of 2"),
        (&member, "?role=admin", "Open 2=admin of 1"),
        (&member, "?role=owner", " of 0"),
        (&member, "?search=open", "Open 2=admin, Open 1=viewer of 2"),
        (&member, "?search=open&role=viewer", "Open 1=viewer of 1"),
        (&member, "?search=shut+1", "Shut 100%=viewer of 1"),
    ];
    for (user, query, due) in cases {
        assert_eq!(list(&user.access_token, query).await, due, "{query}");
    }
    // The organization's row counts its public projects; each change updates the count.
    let path = format!("{}/projects?search=open+1", place.organization_path());
    let open = world.get(&path).bearer(&ada.access_token).data().await;
    let open = format!("{}/projects/{}", place.organization_path(), id(&open["projects"][0]));
    for (path, patch, due) in [
        (&open, json!({"visibility": "private"}), "Shut 100%=viewer, Shut 2=developer of 3"),
        (&open, json!({"visibility": "public"}), "Shut 100%=viewer, Shut 2=developer of 4"),
        (
            &place.organization_path(),
            json!({"settings": {"allow_public_projects": false}}),
            "Shut 100%=viewer, Shut 2=developer of 3",
        ),
        (
            &place.organization_path(),
            json!({"settings": {"allow_public_projects": true}}),
            "Shut 100%=viewer, Shut 2=developer of 4",
        ),
    ] {
        world.call(Method::PUT, path).bearer(&ada.access_token).json(&patch).data().await;
        assert_eq!(list(&member.access_token, "?page_size=2").await, due, "{patch}");
    }
    // A key can see its own project, as its creator can.
    let (_, key) = world.key(&ada, &mine, &json!({"name": "k"})).await;
    for (query, due) in [
        ("", "Shut 100%=owner of 1"),
        ("?page=2", " of 1"),
        ("?search=100", "Shut 100%=owner of 1"),
        ("?search=open", " of 0"),
        ("?role=owner", "Shut 100%=owner of 1"),
        ("?role=viewer", " of 0"),
    ] {
        assert_eq!(list(&key, query).await, due, "{query}");
    }
    for bad in ["?page=0", "?page_size=101", "?role=member", "?role=king", "?search=a&search=b"] {
        let path = format!("{}/projects{bad}", place.organization_path());
        let refused = world.get(&path).bearer(&member.access_token).refused().await;
        assert_eq!(refused, (400, "invalid_request".into()), "{bad}");
    }
}

#[on_each_database]
async fn each_change_is_audited(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    world.clock.advance_ms(1);
    put(&world, &ada, &place, &json!({})).data().await;
    put(&world, &ada, &place, &json!({"name": "x"})).data().await;
    put(&world, &ada, &place, &json!({"name": "x"})).data().await;
    put(&world, &ada, &place, &json!({"name": null})).refused().await;
    world.clock.advance_ms(1);
    delete(&world, &ada, &place).data().await;
    let filter = trail::Filter { target: place.project.clone(), limit: 9, ..Default::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["project.deleted", "project.changed", "project.created"]);
    assert!(entries.iter().all(|entry| entry.actor == ada.id.to_string()
        && entry.organization_id.map(|id| id.to_string()).as_ref() == Some(&place.organization)));
}

fn tally(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

#[on_each_database]
async fn one_of_32_projects_and_one_of_32_keys_gets_the_name(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for path in ["projects".to_owned(), format!("projects/{}/api-keys", place.project)] {
        let path = format!("{}/{path}", place.organization_path());
        let calls = (0..32).map(|n| {
            let name = if n % 2 == 0 { "Same" } else { "sAME" };
            world.post(&path, &json!({ "name": name })).bearer(&ada.access_token).send()
        });
        let answers = join_all(calls).await;
        assert_eq!((tally(&answers, 200), tally(&answers, 409)), (1, 31), "{path}");
        assert!(answers.iter().all(|answer| answer.status == 200 || answer.code() == "name_taken"));
    }
    // The same applies to renaming.
    let mut places = Vec::new();
    for n in 0..8 {
        places.push(sibling_project(&world, &ada, &place, &json!({"name": format!("p{n}")})).await);
    }
    let calls = places.iter().map(|place| put(&world, &ada, place, &json!({"name": "One"})).send());
    let answers = join_all(calls).await;
    assert_eq!((tally(&answers, 200), tally(&answers, 409)), (1, 7));
    let detail = read(&world, &ada, &place).await;
    assert_eq!(detail["api_keys_count"], 1);
}

/// Creates keys, names and members while a project is deleted: each succeeds before the deletion or finds no
/// project.
#[on_each_database]
async fn deletion_races_with_creations(world: World) {
    let ada = world.user("ada").await;
    let first = world.place(&ada, "Acme").await;
    let bob = world.user("bob").await;
    world.join_organization(&first, &bob, OrganizationRole::Member).await;
    for round in 0..16_usize {
        let place = sibling_project(&world, &ada, &first, &json!({"name": format!("Race {round}")})).await;
        let keys = format!("{}/api-keys", place.project_path());
        let members = format!("{}/members", place.project_path());
        let mut calls = Vec::new();
        for n in 0..6 {
            calls.push(world.post(&keys, &json!({"name": format!("k{n}")})).bearer(&ada.access_token));
            calls.push(put(&world, &ada, &place, &json!({"name": format!("Race {round} {n}")})));
        }
        let add = json!({"user_id": bob.id.to_string(), "role": "viewer"});
        calls.push(world.post(&members, &add).bearer(&ada.access_token));
        // In every second round nothing is deleted, to check that the other calls don't block each other
        // either.
        let at = if round % 2 == 0 { usize::MAX } else { round % calls.len() };
        if at != usize::MAX {
            calls.insert(at, delete(&world, &ada, &place));
        }
        let answers = join_all(calls.into_iter().map(Call::send)).await;
        for (index, answer) in answers.iter().enumerate() {
            let due: &[u16] = if at == usize::MAX || index == at { &[200] } else { &[200, 404] };
            assert!(due.contains(&answer.status), "{round} {index}: {}", answer.text);
        }
        if at != usize::MAX {
            for table in ["api_keys", "project_members"] {
                let text = format!("SELECT COUNT(*) FROM {table} WHERE project_id = $1");
                assert_eq!(count(&world, String::leak(text), &place.project).await, 0, "{table}");
            }
        } else {
            let detail = read(&world, &ada, &place).await;
            assert_eq!((&detail["api_keys_count"], &detail["members_count"]), (&json!(6), &json!(2)));
        }
    }
    let organization = world.get(&first.organization_path()).bearer(&ada.access_token).data().await;
    assert_eq!(organization["projects_count"], 9);
}
