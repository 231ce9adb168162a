//! The audit log of an organization, as JSON and as CSV.

use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::ids::OrganizationId;
use tollkeeper::tenants::roles::OrganizationRole::{Admin, Member};
use tollkeeper::trail::{self, Action, Event, Trail};

use support::http::Answer;
use support::on_each_database;
use support::world::{Place, TestUser, World};

/// An organization in which a user, an API key and an operator did something, a millisecond apart.
struct Scene {
    ada: TestUser,
    place: Place,
    key_id: String,
    /// A project that the key has created.
    made_by_key: String,
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    world.clock.advance_ms(1);
    let project = world.project(&ada, &organization, "Shop").await;
    let place = Place { organization, project };
    world.clock.advance_ms(1);
    let (key_id, secret) = world.key(&ada, &place, &json!({"name": "whole"})).await;
    world.clock.advance_ms(1);
    let path = format!("{}/projects", place.organization_path());
    let made = world.post(&path, &json!({"name": "By key"})).bearer(&secret).from("192.0.2.7").data().await;
    world.clock.advance_ms(1);
    let mut tx = world.app.db.write().await.unwrap();
    let event = Event {
        action: Action::CreditLimitSet,
        target: place.organization.clone(),
        organization_id: OrganizationId::parse(&place.organization),
    };
    trail::record(&mut tx, &Trail::operator(), &event, world.clock.now(), &world.app.random).await.unwrap();
    tx.commit().await.unwrap();
    Scene { ada, place, key_id, made_by_key: made["id"].as_str().unwrap().to_owned() }
}

impl Scene {
    fn path(&self, query: &str) -> String {
        format!("{}/audit-log{query}", self.place.organization_path())
    }

    async fn data(&self, world: &World, query: &str) -> Value {
        world.get(&self.path(query)).bearer(&self.ada.access_token).data().await
    }

    async fn csv(&self, world: &World, query: &str) -> Answer {
        let call = world.get(&self.path(query)).bearer(&self.ada.access_token);
        call.header("accept", "text/csv").send().await
    }

    /// Returns the actions of a page, and the total.
    async fn actions(&self, world: &World, query: &str) -> (Vec<String>, i64) {
        let data = self.data(world, query).await;
        let action = |entry: &Value| entry["action"].as_str().unwrap().to_owned();
        let actions = data["entries"].as_array().unwrap().iter().map(action).collect();
        (actions, data["total"].as_i64().unwrap())
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The actions of the scene, the newest first.
const ALL: [&str; 5] = [
    "organization.credit_limit_set",
    "project.created",
    "api_key.created",
    "project.created",
    "organization.created",
];

#[on_each_database]
async fn entries_of_the_organization_are_listed(world: World) {
    let scene = scene(&world).await;
    // Another organization, and a login, which belongs to no organization.
    world.place(&scene.ada, "Other").await;
    let login = json!({"email": "ada@example.com", "password": "wrong"});
    world.post("/v1/auth/login", &login).refused().await;
    let data = scene.data(&world, "").await;
    let entries = data["entries"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ALL);
    assert_eq!(json!([data["total"], data["page"], data["page_size"]]), json!([5, 1, 20]));
    for entry in entries {
        assert!(entry["id"].as_str().unwrap().starts_with("audit_"), "{entry}");
    }
    let id = |index: usize| entries[index]["id"].clone();
    let by_operator = json!({
        "id": id(0),
        "time": "2026-03-10T12:00:00.004Z",
        "actor": {"id": "operator", "email": null, "username": null},
        "action": "organization.credit_limit_set",
        "target": scene.place.organization,
        "address": null,
        "request_id": null,
    });
    assert_eq!(entries[0], by_operator);
    let request_id = entries[1]["request_id"].clone();
    assert!(request_id.as_str().unwrap().starts_with("req_"), "{request_id}");
    let by_key = json!({
        "id": id(1),
        "time": "2026-03-10T12:00:00.003Z",
        "actor": {"id": scene.key_id, "email": null, "username": null},
        "action": "project.created",
        "target": scene.made_by_key,
        "address": "192.0.2.7",
        "request_id": request_id,
    });
    assert_eq!(entries[1], by_key);
    assert_eq!(entries[2]["target"], scene.key_id);
    let person = json!({"id": scene.ada.id, "email": "ada@example.com", "username": "ada"});
    for entry in &entries[2..] {
        assert_eq!(entry["actor"], person);
    }
}

#[on_each_database]
async fn filters_choose_entries_and_combine(world: World) {
    let scene = scene(&world).await;
    // The same actor in another organization.
    world.place(&scene.ada, "Other").await;
    let (ada, key, organization) = (scene.ada.id, &scene.key_id, &scene.place.organization);
    let [limit, by_key, key_made, project, made] = ALL;
    let cases: [(String, &[&str]); 16] = [
        (format!("?actor={ada}"), &[key_made, project, made]),
        (format!("?actor={key}"), &[by_key]),
        ("?actor=operator".into(), &[limit]),
        ("?actor=nobody".into(), &[]),
        ("?action=project.created".into(), &[by_key, project]),
        ("?action=user.registered".into(), &[]),
        (format!("?target={organization}"), &[limit, made]),
        (format!("?target={organization}&actor={ada}"), &[made]),
        (format!("?actor={ada}&action=project.created"), &[project]),
        (format!("?target={organization}&actor={ada}&action=project.created"), &[]),
        // The start is included, the end isn't.
        ("?start_date=2026-03-10T12:00:00.003Z".into(), &[limit, by_key]),
        ("?end_date=2026-03-10T12:00:00.001Z".into(), &[made]),
        (
            "?start_date=2026-03-10T12:00:00.001Z&end_date=2026-03-10T13:00:00.003%2B01:00".into(),
            &[key_made, project],
        ),
        ("?start_date=2026-03-10&end_date=2026-03-11".into(), &ALL),
        ("?end_date=2026-03-10".into(), &[]),
        ("?start_date=2026-03-10&end_date=2026-03-10".into(), &[]),
    ];
    for (query, due) in cases {
        let total = i64::try_from(due.len()).unwrap();
        assert_eq!(scene.actions(&world, &query).await, (texts(due), total), "{query}");
    }
    for (query, due) in
        [("?page_size=2", &ALL[..2]), ("?page_size=2&page=3", &ALL[4..]), ("?page_size=2&page=4", &[])]
    {
        assert_eq!(scene.actions(&world, query).await, (texts(due), 5), "{query}");
    }
    let second = format!("?actor={ada}&page_size=2&page=2");
    assert_eq!(scene.actions(&world, &second).await, (texts(&[made]), 3));
}

#[on_each_database]
async fn invalid_filters_are_refused(world: World) {
    let scene = scene(&world).await;
    let long = format!("?target={}", "x".repeat(129));
    let cases: [(&str, &[&str]); 10] = [
        ("?actor=", &["actor empty"]),
        ("?target=a&target=b", &["target wrong_type"]),
        (&long, &["target too_long"]),
        ("?actor=%00", &["actor invalid_characters"]),
        ("?action=fly", &["action unknown_value"]),
        ("?action=", &["action unknown_value"]),
        ("?start_date=yesterday", &["start_date invalid_date"]),
        ("?start_date=2026-03-11&end_date=2026-03-10", &["end_date end_before_start"]),
        (
            "?page=0&end_date=x&action=x",
            &["page out_of_range", "action unknown_value", "end_date invalid_date"],
        ),
        ("?start_date=2026-03-10T00:00:00.001Z&end_date=2026-03-10", &["end_date end_before_start"]),
    ];
    for (query, details) in cases {
        for accept in ["application/json", "text/csv"] {
            let call = world.get(&scene.path(query)).bearer(&scene.ada.access_token);
            let answer = call.header("accept", accept).send().await;
            assert_eq!((answer.status, answer.details()), (400, texts(details)), "{query}");
        }
    }
}

#[on_each_database]
async fn only_owners_and_admins_read_it(world: World) {
    let scene = scene(&world).await;
    let (bob, eve) = (world.user("bob").await, world.user("eve").await);
    world.join_organization(&scene.place, &bob, Admin).await;
    world.join_organization(&scene.place, &eve, Member).await;
    let read = |bearer: &str| world.get(&scene.path("")).bearer(bearer).header("accept", "text/csv").send();
    assert_eq!(read(&bob.access_token).await.status, 200);
    let refused = read(&eve.access_token).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "insufficient_role"));
    let other = world.place(&eve, "Other").await;
    let path = format!("{}/audit-log?target={}", other.organization_path(), scene.place.organization);
    assert_eq!(world.get(&path).bearer(&eve.access_token).data().await["total"], 0);
}

#[on_each_database]
async fn audit_log_is_available_as_csv(world: World) {
    let scene = scene(&world).await;
    let answer = scene.csv(&world, "?page_size=1").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for (name, value) in [
        ("content-type", "text/csv; charset=utf-8"),
        ("cache-control", "private, no-store"),
        ("vary", "accept"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    let file = format!("attachment; filename=\"audit_log_{}.csv\"", scene.place.organization);
    assert_eq!(answer.header("content-disposition"), file);
    // The file contains all entries, regardless of the page.
    let data = scene.data(&world, "").await;
    let mut due =
        "id,time,actor_id,actor_email,actor_username,action,target,address,request_id\r\n".to_owned();
    for entry in data["entries"].as_array().unwrap() {
        let actor = &entry["actor"];
        let cells = [
            &entry["id"],
            &entry["time"],
            &actor["id"],
            &actor["email"],
            &actor["username"],
            &entry["action"],
            &entry["target"],
            &entry["address"],
            &entry["request_id"],
        ];
        due += &cells.map(|cell| cell.as_str().unwrap_or_default()).join(",");
        due += "\r\n";
    }
    assert_eq!(answer.text, due);
    assert_eq!(answer.text.lines().count(), 6);
    let one = scene.csv(&world, "?actor=operator").await.text;
    let lines: Vec<_> = one.lines().collect();
    assert_eq!(lines.len(), 2, "{one}");
    assert!(lines[1].contains(",operator,,,organization.credit_limit_set,"), "{one}");
    assert!(lines[1].ends_with(",,"), "{one}");
    let json = world.get(&scene.path("")).bearer(&scene.ada.access_token).send().await;
    assert_eq!((json.header("vary"), json.header("content-type")), ("accept", "application/json"));
}

#[on_each_database]
async fn cells_of_the_file_are_no_formulas(world: World) {
    for (name, cell) in [("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@a", "'@a")] {
        let user = world.user(name).await;
        let organization = world.organization(&user, "Acme").await;
        let path = format!("/v1/organizations/{organization}/audit-log");
        let call = world.get(&path).bearer(&user.access_token).header("accept", "text/csv");
        let text = call.send().await.text;
        let due = format!(",{},{cell}@example.com,{cell},organization.created,", user.id);
        assert!(text.contains(&due), "{due}: {text}");
    }
}

#[on_each_database]
async fn too_many_entries_for_a_file_are_refused(world: World) {
    let scene = scene(&world).await;
    // The scene already has five entries.
    let rows = 9_995;
    let mut tx = world.app.db.write().await.unwrap();
    let series = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let insert = format!(
        "{series} INSERT INTO audit_log (id, happened_at, actor, action, target, organization_id)
             SELECT 'audit_01000000000000000000' || CAST(100000 + i AS TEXT), i, 'system', 'api_key.changed', 'key',
                    '{}' FROM n",
        scene.place.organization
    );
    sql(insert).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let all = scene.csv(&world, "").await;
    assert_eq!((all.status, all.text.lines().count()), (200, 10_001));
    world.organization(&scene.ada, "Other").await;
    assert_eq!(scene.csv(&world, "").await.status, 200);
    world.project(&scene.ada, &scene.place.organization, "One more").await;
    let refused = scene.csv(&world, "").await;
    assert_eq!((refused.status, refused.details()), (400, vec!["start_date too_many".to_owned()]));
    let message = refused.json()["error"]["message"].clone();
    assert_eq!(message, "More than 10000 entries match: narrow the range with `start_date` and `end_date`.");
    assert_eq!(scene.csv(&world, "?start_date=2026-03-10").await.text.lines().count(), 7);
    assert_eq!(scene.csv(&world, "?actor=system").await.text.lines().count(), 9_996);
    assert_eq!(scene.actions(&world, "?page=9999").await, (texts(&[]), 10_001));
    let (last, _) = scene.actions(&world, "?page=101&page_size=100").await;
    assert_eq!(last, ["api_key.changed"]);
}
