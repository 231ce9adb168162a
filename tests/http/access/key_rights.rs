//! No operation on keys gives a user or an API key more rights than they had.
//!
//! Every caller (a user or a key, with every mix of roles) creates, changes and rotates the keys of every
//! creator. For each secret that the caller got, the test then lists what the gate allows, which must not
//! exceed the caller's rights.

use std::collections::BTreeSet;

use http::{HeaderMap, Method, Uri, header};
use serde_json::{Value, json};
use tollkeeper::api::gate::{self, Access, Bearer, KeyAction, Org, OrgMember, Project, ProjectMember};
use tollkeeper::db::sql;
use tollkeeper::ids::RequestId;
use tollkeeper::tenants::access::KeyKind;
use tollkeeper::tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};
use tollkeeper::web::reply::Body;

use support::http::Answer;
use support::on_each_database;
use support::world::{Place, TestUser, World};

const ADDRESS: &str = "10.9.9.9";
const LIMITS_OFF: (&str, &str) = ("TOLLKEEPER_LIMITS__ENABLED", "false");

/// A credential and its restrictions.
#[derive(Clone)]
struct Caller {
    name: String,
    bearer: String,
    /// `true` for a key with the restrictions of [`bounds`].
    is_bound: bool,
}

/// A key that other callers act on, and its newest known secret.
struct Target {
    maker: String,
    id: String,
    secret: String,
}

struct Scene {
    place: Place,
    people: Vec<(String, TestUser)>,
    callers: Vec<Caller>,
    targets: Vec<Target>,
    /// Keys that are only read.
    probes: Vec<(String, String)>,
}

fn bounds() -> Value {
    json!({"allowed_ips": ["10.9.0.0/16"], "rate_limit": 100_000})
}

const ENDS: &str = "2026-03-20T00:00:00.000Z";

/// The kinds of keys that call: full, full with restrictions, and limited in each way.
fn kinds() -> [(&'static str, Value); 5] {
    [
        ("whole", json!({})),
        ("bound", json!({"restrictions": bounds(), "expires_at": ENDS})),
        ("chat", json!({"permissions": ["chat"]})),
        ("models", json!({"restrictions": {"models": ["svc-1"]}})),
        ("tokens", json!({"restrictions": {"max_tokens": 10}})),
    ]
}

fn with_name(body: &Value, name: &str) -> Value {
    let mut body = body.clone();
    body["name"] = json!(name);
    body
}

/// Creates users with every mix of roles that gives different rights, their keys, and a target key by each
/// creator.
async fn scene(world: &World) -> Scene {
    let owner = world.user("founder").await;
    let place = world.place(&owner, "Acme").await;
    let mut scene =
        Scene { place: place.clone(), people: vec![], callers: vec![], targets: vec![], probes: vec![] };
    let organization_roles =
        [None, Some(OrganizationRole::Member), Some(OrganizationRole::Admin), Some(OrganizationRole::Owner)];
    let project_roles = [None, Some(ProjectRole::Admin), Some(ProjectRole::Owner)];
    for in_organization in organization_roles {
        for in_project in project_roles {
            let name = format!("{in_organization:?}-{in_project:?}");
            let name = name.replace("Some(", "").replace(')', "");
            let user = world.user(&name).await;
            // Users create their keys as admins, and get their final roles afterward.
            world.join_organization(&place, &user, OrganizationRole::Admin).await;
            for (kind, body) in kinds() {
                // A single kind of limited key is enough, except for the highest role.
                if matches!(kind, "models" | "tokens") && in_organization != Some(OrganizationRole::Owner) {
                    continue;
                }
                let key = world.key(&user, &place, &with_name(&body, &format!("{kind} of {name}"))).await;
                scene.callers.push(Caller {
                    name: format!("{kind} key of {name}"),
                    bearer: key.1,
                    is_bound: kind == "bound",
                });
            }
            let body = json!({"name": format!("target of {name}")});
            let (id, secret) = world.key(&user, &place, &body).await;
            scene.targets.push(Target { maker: name.clone(), id, secret });
            let probe = world.key(&user, &place, &json!({"name": format!("probe of {name}")})).await;
            scene.probes.push((name.clone(), probe.0));
            execute(world, "DELETE FROM organization_members WHERE user_id = $1", &user.id.to_string()).await;
            if let Some(role) = in_organization {
                world.join_organization(&place, &user, role).await;
            }
            if let Some(role) = in_project {
                world.join_project(&place, &user, role).await;
            }
            scene.callers.push(Caller {
                name: name.clone(),
                bearer: user.access_token.clone(),
                is_bound: false,
            });
            scene.people.push((name, user));
        }
    }
    scene
}

async fn execute(world: &World, text: &str, id: &str) {
    let mut tx = world.app.db.write().await.unwrap();
    sql(text.to_owned()).bind(id).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

impl Scene {
    fn keys(&self) -> String {
        format!("{}/api-keys", self.place.project_path())
    }

    fn key(&self, target: usize) -> String {
        format!("{}/{}", self.keys(), self.targets[target].id)
    }

    /// Returns everything that the gate allows this bearer: every action on the organization, the project,
    /// their members and the keys of each creator, and the roles under the lock.
    async fn powers(&self, world: &World, bearer: &str) -> BTreeSet<String> {
        let mut powers = BTreeSet::new();
        let app = &world.app;
        let call = |key_id: &str, member_id: &str| self.call(world, bearer, key_id, member_id);
        macro_rules! ask {
            ($access:expr, $call:expr, $name:expr) => {
                if $access.admit(&app.api, &mut $call).await.is_ok() {
                    powers.insert($name);
                }
            };
        }
        ask!(Bearer { with: KeyKind::Unrestricted }, call("", ""), "list organizations".to_owned());
        for &action in OrganizationAction::ALL {
            ask!(Org(action), call("", ""), format!("organization {action:?}"));
        }
        for &action in ProjectAction::ALL {
            ask!(Project::to(action), call("", ""), format!("project {action:?}"));
        }
        for (maker, key_id) in &self.probes {
            for change in [KeyAction::Update, KeyAction::Rotate, KeyAction::Delete] {
                ask!(change, call(key_id, ""), format!("{change:?} the key of {maker}"));
            }
        }
        let (_, founder) = &self.people[self.people.len() - 1];
        ask!(OrgMember::Managed, call("", &founder.id.to_string()), "manage members".to_owned());
        ask!(ProjectMember::Managed, call("", &founder.id.to_string()), "manage project members".to_owned());
        let mut tx = world.app.db.write().await.unwrap();
        if let Ok(scope) = Project::to(ProjectAction::View).admit(&app.api, &mut call("", "")).await
            && let Ok((_, held)) = scope.lock_and_recheck(&mut tx).await
        {
            let organization = [OrganizationRole::Member, OrganizationRole::Admin, OrganizationRole::Owner];
            for role in organization.into_iter().filter(|role| held.organization_role >= Some(*role)) {
                powers.insert(format!("organization role {role:?}"));
            }
            let project =
                [ProjectRole::Viewer, ProjectRole::Developer, ProjectRole::Admin, ProjectRole::Owner];
            for role in project.into_iter().filter(|role| held.grantor.role >= *role) {
                powers.insert(format!("project role {role:?}"));
            }
        }
        powers
    }

    fn call(&self, world: &World, bearer: &str, key_id: &str, member_id: &str) -> gate::Call {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {bearer}").parse().unwrap());
        let path = [
            ("organization_id", self.place.organization.as_str()),
            ("project_id", &self.place.project),
            ("key_id", key_id),
            ("member_id", member_id),
        ];
        gate::Call {
            method: Method::POST,
            uri: Uri::from_static("/"),
            headers,
            path: path.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            address: Some(ADDRESS.parse().unwrap()),
            request_id: RequestId::new(world.clock.now(), &world.app.random),
            body: Body::empty(),
            form: None,
            caller: String::new(),
            credential: gate::Credential::default(),
        }
    }

    /// Asserts that a secret has no right that its caller lacks.
    async fn check_rights(
        &self,
        world: &World,
        caller: &Caller,
        had: &BTreeSet<String>,
        secret: &str,
        how: &str,
    ) {
        let has = self.powers(world, secret).await;
        let risen: Vec<_> = has.difference(had).collect();
        assert!(risen.is_empty(), "{}: {how} gives more than they had: {risen:?}", caller.name);
        if caller.is_bound {
            let (id, _) = find(world, secret).await;
            let path = format!("{}/{id}", self.keys());
            let owner = &self.people[self.people.len() - 1].1;
            let key = world.get(&path).bearer(&owner.access_token).data().await;
            let (restrictions, ends) = (&key["restrictions"], key["expires_at"].as_str());
            assert_eq!(restrictions["allowed_ips"], bounds()["allowed_ips"], "{}: {how}", caller.name);
            assert!(restrictions["rate_limit"].as_i64().is_some_and(|rate| rate <= 100_000), "{how}");
            assert!(ends.is_some_and(|ends| ends <= ENDS), "{}: {how}: {ends:?}", caller.name);
        }
    }
}

/// Returns the key of a secret, and its creator.
async fn find(world: &World, secret: &str) -> (String, Option<String>) {
    let now = world.clock.now();
    let key = world.app.keys.authenticate(secret, now).await.unwrap();
    (key.id.to_string(), key.rotated_by.map(|id| id.to_string()))
}

async fn send(world: &World, method: Method, path: &str, bearer: &str, body: &Value) -> Answer {
    world.call(method, path).bearer(bearer).from(ADDRESS).json(body).send().await
}

/// Returns `true` if the call was allowed. Any status other than 200 and 403 is a mistake in this test.
fn is_allowed(answer: &Answer) -> bool {
    assert!(matches!(answer.status, 200 | 403), "{}", answer.text);
    answer.status == 200
}

/// Tries every operation on keys that returns a secret or changes the rights of a known secret; returns the
/// number of allowed ones.
async fn try_everything(world: &World, scene: &mut Scene, caller: &Caller, number: &mut u32) -> u32 {
    let had = scene.powers(world, &caller.bearer).await;
    let mut let_through = 0;
    for (kind, body) in kinds() {
        *number += 1;
        let body = with_name(&body, &format!("made {number}"));
        let answer = send(world, Method::POST, &scene.keys(), &caller.bearer, &body).await;
        if is_allowed(&answer) {
            let_through += 1;
            let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
            scene.check_rights(world, caller, &had, &secret, &format!("a new {kind} key")).await;
        }
    }
    for target in 0..scene.targets.len() {
        let maker = scene.targets[target].maker.clone();
        for body in
            [json!({"restrictions": null}), json!({"permissions": ["chat", "embeddings", "models", "files"]})]
        {
            let answer = send(world, Method::PUT, &scene.key(target), &caller.bearer, &body).await;
            if is_allowed(&answer) {
                let_through += 1;
                let secret = scene.targets[target].secret.clone();
                scene.check_rights(world, caller, &had, &secret, &format!("a change of {maker}'s key")).await;
            }
        }
        let path = format!("{}/rotate", scene.key(target));
        let answer = send(world, Method::POST, &path, &caller.bearer, &json!({})).await;
        if is_allowed(&answer) {
            let_through += 1;
            let data = answer.json()["data"].clone();
            let (new, previous) = (data["key"].as_str().unwrap(), data["previous_key"].as_str().unwrap());
            scene.check_rights(world, caller, &had, new, &format!("a rotation of {maker}'s key")).await;
            if !previous.ends_with('…') {
                scene
                    .check_rights(world, caller, &had, previous, &format!("{maker}'s previous secret"))
                    .await;
            }
            new.clone_into(&mut scene.targets[target].secret);
        }
    }
    let_through
}

#[on_each_database(&[LIMITS_OFF])]
async fn no_operation_on_keys_adds_rights(world: World) {
    let mut scene = scene(&world).await;
    let (mut number, mut let_through) = (0, 0);
    for caller in scene.callers.clone() {
        let count = try_everything(&world, &mut scene, &caller, &mut number).await;
        let is_narrowed = ["chat", "models", "tokens"].iter().any(|kind| caller.name.starts_with(kind));
        assert!(!is_narrowed || count == 0, "{} manages", caller.name);
        let_through += count;
    }
    assert!(let_through > 500, "only {let_through} operations were let through");
}

#[on_each_database(&[LIMITS_OFF])]
async fn secret_has_the_lower_roles_of_creator_and_rotator(world: World) {
    let mut scene = scene(&world).await;
    let (mut number, mut pairs) = (0, 0);
    let people: Vec<_> = scene.people.iter().map(|(name, user)| (name.clone(), user.clone())).collect();
    for target in 0..scene.targets.len() {
        for (name, rotator) in &people {
            let path = format!("{}/rotate", scene.key(target));
            let answer = send(&world, Method::POST, &path, &rotator.access_token, &json!({})).await;
            let maker = scene.targets[target].maker.clone();
            if !is_allowed(&answer) {
                continue;
            }
            let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
            let rotated_by = (*name != maker).then(|| rotator.id.to_string());
            assert_eq!(find(&world, &secret).await, (scene.targets[target].id.clone(), rotated_by));
            // The rotated secret calls next: its key was made by one user and rotated by another.
            if *name != maker && pairs % 7 == 0 {
                let bearer = secret.clone();
                let caller =
                    Caller { name: format!("{maker}'s key, rotated by {name}"), bearer, is_bound: false };
                // A key can't change itself.
                let own = scene.targets.remove(target);
                try_everything(&world, &mut scene, &caller, &mut number).await;
                scene.targets.insert(target, own);
            }
            pairs += 1;
        }
    }
    assert!(pairs > 60, "only {pairs} pairs");
    // An owner's key rotated by another owner: when either owner loses the role, the secret loses it too.
    let names: Vec<_> = people.iter().filter(|(name, _)| name.starts_with("Owner")).collect();
    let (maker, rotator) = (&names[0], &names[1]);
    let target = scene.targets.iter().position(|target| target.maker == maker.0).unwrap();
    let path = format!("{}/rotate", scene.key(target));
    let answer = send(&world, Method::POST, &path, &rotator.1.access_token, &json!({})).await;
    let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
    for user in [rotator, maker] {
        assert!(scene.powers(&world, &secret).await.contains("organization Delete"));
        let text = "UPDATE organization_members SET role = 'member' WHERE user_id = $1";
        execute(&world, text, &user.1.id.to_string()).await;
        let has = scene.powers(&world, &secret).await;
        assert!(!has.contains("organization Delete") && !has.contains("organization Modify"), "{has:?}");
        let text = "UPDATE organization_members SET role = 'owner' WHERE user_id = $1";
        execute(&world, text, &user.1.id.to_string()).await;
    }
}

#[on_each_database(&[LIMITS_OFF])]
async fn key_cannot_make_an_owner(world: World) {
    let ada = world.user("ada").await;
    let bob = world.user("bob").await;
    let eve = world.user("eve").await;
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    world.join_project(&place, &bob, ProjectRole::Viewer).await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "whole"})).await;
    let (organization, project) = (place.organization_path(), place.project_path());
    let calls = [
        (
            Method::POST,
            format!("{organization}/invitations"),
            json!({"email": "x@example.com", "role": "owner"}),
        ),
        (Method::PUT, format!("{organization}/members/{}", bob.id), json!({"role": "owner"})),
        (Method::POST, format!("{project}/members"), json!({"user_id": eve.id.to_string(), "role": "owner"})),
        (Method::PUT, format!("{project}/members/{}", bob.id), json!({"role": "owner"})),
    ];
    for (method, path, body) in &calls {
        let answer = send(&world, method.clone(), path, &key, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"), "{path}");
        assert_eq!(answer.json()["error"]["param"], "role", "{path}");
    }
    // The key may give the next lower role, and the user may give both.
    for (method, path, body) in &calls {
        let admin = json!({"role": "admin"});
        let mut lower = body.clone();
        lower["role"] = admin["role"].clone();
        let answer = send(&world, method.clone(), path, &key, &lower).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    for (method, path, body) in calls.iter().filter(|(method, ..)| *method == Method::PUT) {
        let answer = send(&world, method.clone(), path, &ada.access_token, body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
}

#[on_each_database(&[LIMITS_OFF])]
async fn key_cannot_change_itself_or_exceed_its_restrictions(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let keys = format!("{}/api-keys", place.project_path());
    let body = json!({"name": "bound", "restrictions": bounds(), "expires_at": ENDS});
    let (own_id, own) = world.key(&ada, &place, &body).await;
    for (method, path) in [
        (Method::PUT, format!("{keys}/{own_id}")),
        (Method::POST, format!("{keys}/{own_id}/rotate")),
        (Method::POST, format!("{keys}/{own_id}/end-rotation")),
        (Method::DELETE, format!("{keys}/{own_id}")),
    ] {
        let answer = world.call(method.clone(), &path).bearer(&own).from(ADDRESS);
        let answer = if method == Method::PUT { answer.json(&json!({})) } else { answer }.send().await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "management_not_allowed"), "{method}");
    }
    let within = json!({"name": "within", "restrictions": bounds(), "expires_at": ENDS});
    let field = |field: &str, value: Value| {
        let mut body = with_name(&within, field);
        if field == "expires_at" {
            body[field] = value;
        } else {
            body["restrictions"][field] = value;
        }
        body
    };
    for (param, body) in [
        ("restrictions.allowed_ips", field("allowed_ips", json!(["10.0.0.0/8"]))),
        ("restrictions.allowed_ips", field("allowed_ips", Value::Null)),
        ("restrictions.rate_limit", field("rate_limit", json!(100_001))),
        ("restrictions.rate_limit", field("rate_limit", Value::Null)),
        ("expires_at", field("expires_at", json!("2026-03-20T00:00:00.001Z"))),
        ("expires_at", field("expires_at", Value::Null)),
    ] {
        let answer = send(&world, Method::POST, &keys, &own, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"), "{param}");
        assert_eq!(answer.json()["error"]["param"], param);
    }
    let made = send(&world, Method::POST, &keys, &own, &within).await;
    let made_id = made.json()["data"]["id"].as_str().unwrap().to_owned();
    // The key may change keys that it made, within its restrictions.
    let path = format!("{keys}/{made_id}");
    assert_eq!(send(&world, Method::PUT, &path, &own, &json!({"name": "renamed"})).await.status, 200);
    let answer = send(&world, Method::PUT, &path, &own, &json!({"restrictions": {"rate_limit": null}})).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"));
    // The key may not change or rotate a key without these restrictions, but it may end that key's previous
    // secret, and delete the key.
    let (free_id, _) = world.key(&ada, &place, &json!({"name": "free"})).await;
    let path = format!("{keys}/{free_id}");
    let change = send(&world, Method::PUT, &path, &own, &json!({"name": "taken"})).await;
    assert_eq!((change.status, change.code().as_str()), (403, "key_exceeds_caller"));
    let rotation = send(&world, Method::POST, &format!("{path}/rotate"), &own, &json!({})).await;
    assert_eq!((rotation.status, rotation.code().as_str()), (403, "key_exceeds_caller"));
    world.post(&format!("{path}/rotate"), &json!({})).bearer(&ada.access_token).data().await;
    let end = send(&world, Method::POST, &format!("{path}/end-rotation"), &own, &json!({})).await;
    assert_eq!(end.status, 200, "{}", end.text);
    let delete = world.call(Method::DELETE, &path).bearer(&own).from(ADDRESS).send().await;
    assert_eq!(delete.status, 200, "{}", delete.text);
}

#[on_each_database(&[LIMITS_OFF])]
async fn expiring_secret_creates_no_longer_lived_key(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let keys = format!("{}/api-keys", place.project_path());
    let (id, old) = world.key(&ada, &place, &json!({"name": "leaked"})).await;
    let rotation =
        send(&world, Method::POST, &format!("{keys}/{id}/rotate"), &ada.access_token, &json!({})).await;
    let ends = rotation.json()["data"]["grace_period_ends"].clone();
    let answer = send(&world, Method::POST, &keys, &old, &json!({"name": "for ever"})).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"));
    let body = json!({"name": "as long", "expires_at": ends});
    assert_eq!(send(&world, Method::POST, &keys, &old, &body).await.status, 200);
}

#[on_each_database(&[LIMITS_OFF])]
async fn previous_secret_is_shown_to_its_creator_and_to_owners(world: World) {
    let owner = world.user("owner").await;
    let place = world.place(&owner, "Acme").await;
    let keys = format!("{}/api-keys", place.project_path());
    let (maker, other) = (world.user("maker").await, world.user("other").await);
    for user in [&maker, &other] {
        world.join_organization(&place, user, OrganizationRole::Admin).await;
    }
    let (id, mut secret) = world.key(&maker, &place, &json!({"name": "shared"})).await;
    for (user, sees) in [(&maker, true), (&other, false), (&owner, true), (&other, false), (&maker, true)] {
        let path = format!("{keys}/{id}/rotate");
        let data =
            send(&world, Method::POST, &path, &user.access_token, &json!({})).await.json()["data"].clone();
        let previous = data["previous_key"].as_str().unwrap();
        assert_eq!(previous == secret, sees, "{previous}");
        assert!(sees || previous.ends_with('…'), "{previous}");
        data["key"].as_str().unwrap().clone_into(&mut secret);
    }
}
