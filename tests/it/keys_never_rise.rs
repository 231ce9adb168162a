//! Nothing that a person or an API key does with a key gives them more than they had.
//!
//! Every caller, a person or a key, with every mix of roles, makes, changes and rotates the keys of every maker. The gate is
//! then asked what each secret that the caller has got may do, and nothing of it may be beyond what the caller may.

use std::collections::BTreeSet;

use http::{HeaderMap, Method, Uri, header};
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::gate::{self, Access, Bearer, KeyAction, Org, OrgMember, Project, ProjectMember};
use tollkeeper::ids::RequestId;
use tollkeeper::input::RequestBody;
use tollkeeper::tenants::access::KeyKind;
use tollkeeper::tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};

use crate::support::http::Answer;
use crate::support::world::{Place, Somebody, World, on_each_database_with};

const ADDRESS: &str = "10.9.9.9";
const LIMITS_OFF: (&str, &str) = ("TOLLKEEPER_LIMITS__ENABLED", "false");

/// A credential and what it is bound to.
#[derive(Clone)]
struct Caller {
    name: String,
    bearer: String,
    /// Whether it is a key with the bounds of [`bounds`].
    is_bound: bool,
}

/// A key that others act on, and the newest of its secrets that anybody was told.
struct Target {
    maker: String,
    id: String,
    secret: String,
}

struct Scene {
    place: Place,
    people: Vec<(String, Somebody)>,
    callers: Vec<Caller>,
    targets: Vec<Target>,
    /// Keys that are only asked about.
    probes: Vec<(String, String)>,
}

fn bounds() -> Value {
    json!({"allowed_ips": ["10.9.0.0/16"], "rate_limit": 100_000})
}

const ENDS: &str = "2026-03-20T00:00:00.000Z";

/// Keys that a caller may be: whole, whole with bounds, and narrowed in each way.
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

/// People with every mix of roles that differ in what they may, their keys, and a target of each maker.
async fn scene(world: &World) -> Scene {
    let owner = world.somebody("founder").await;
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
            let who = world.somebody(&name).await;
            // They make their keys as an admin, and become what they are afterwards.
            world.join_organization(&place, &who, OrganizationRole::Admin).await;
            for (kind, body) in kinds() {
                // One way of narrowing stands for the others, but for the highest of all.
                if matches!(kind, "models" | "tokens") && in_organization != Some(OrganizationRole::Owner) {
                    continue;
                }
                let key = world.key(&who, &place, &with_name(&body, &format!("{kind} of {name}"))).await;
                scene.callers.push(Caller {
                    name: format!("{kind} key of {name}"),
                    bearer: key.1,
                    is_bound: kind == "bound",
                });
            }
            let body = json!({"name": format!("target of {name}")});
            let (id, secret) = world.key(&who, &place, &body).await;
            scene.targets.push(Target { maker: name.clone(), id, secret });
            let probe = world.key(&who, &place, &json!({"name": format!("probe of {name}")})).await;
            scene.probes.push((name.clone(), probe.0));
            execute(world, "DELETE FROM organization_members WHERE user_id = $1", &who.id.to_string()).await;
            if let Some(role) = in_organization {
                world.join_organization(&place, &who, role).await;
            }
            if let Some(role) = in_project {
                world.join_project(&place, &who, role).await;
            }
            scene.callers.push(Caller {
                name: name.clone(),
                bearer: who.access_token.clone(),
                is_bound: false,
            });
            scene.people.push((name, who));
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

    /// What the gate lets this bearer do: every action on the organization, the project, their members and the keys of each
    /// maker, and the roles under the lock.
    async fn powers(&self, world: &World, bearer: &str) -> BTreeSet<String> {
        let mut powers = BTreeSet::new();
        let app = &world.app;
        let call = |key_id: &str, member_id: &str| self.call(world, bearer, key_id, member_id);
        macro_rules! ask {
            ($access:expr, $call:expr, $name:expr) => {
                if $access.admit(app, &mut $call).await.is_ok() {
                    powers.insert($name);
                }
            };
        }
        ask!(Bearer { with: KeyKind::Unrestricted }, call("", ""), "list organizations".to_owned());
        for action in OrganizationAction::ALL {
            ask!(Org(action), call("", ""), format!("organization {action:?}"));
        }
        for action in ProjectAction::ALL {
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
        if let Ok(scope) = Project::to(ProjectAction::View).admit(app, &mut call("", "")).await
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
            body: RequestBody::Whole(Vec::new().into()),
            who: String::new(),
            credential: gate::Credential::default(),
        }
    }

    /// Holds what a secret may do against what its caller may.
    async fn must_not_rise(
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

/// The key of a secret, and who made that.
async fn find(world: &World, secret: &str) -> (String, Option<String>) {
    let now = world.clock.now();
    let key = world.app.keys.authenticate(secret, now).await.unwrap();
    (key.id.to_string(), key.rotated_by.map(|id| id.to_string()))
}

async fn send(world: &World, method: Method, path: &str, bearer: &str, body: &Value) -> Answer {
    world.call(method, path).bearer(bearer).from(ADDRESS).json(body).send().await
}

/// A refusal for want of a right; anything else is a mistake of this test.
fn is_let(answer: &Answer) -> bool {
    assert!(matches!(answer.status, 200 | 403), "{}", answer.text);
    answer.status == 200
}

/// Every operation on keys that hands out a secret, or changes what a known secret may; how many were let.
async fn try_everything(world: &World, scene: &mut Scene, caller: &Caller, number: &mut u32) -> u32 {
    let had = scene.powers(world, &caller.bearer).await;
    let mut let_through = 0;
    for (kind, body) in kinds() {
        *number += 1;
        let body = with_name(&body, &format!("made {number}"));
        let answer = send(world, Method::POST, &scene.keys(), &caller.bearer, &body).await;
        if is_let(&answer) {
            let_through += 1;
            let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
            scene.must_not_rise(world, caller, &had, &secret, &format!("a new {kind} key")).await;
        }
    }
    for target in 0..scene.targets.len() {
        let maker = scene.targets[target].maker.clone();
        for body in
            [json!({"restrictions": null}), json!({"permissions": ["chat", "embeddings", "models", "files"]})]
        {
            let answer = send(world, Method::PUT, &scene.key(target), &caller.bearer, &body).await;
            if is_let(&answer) {
                let_through += 1;
                let secret = scene.targets[target].secret.clone();
                scene
                    .must_not_rise(world, caller, &had, &secret, &format!("a change of {maker}'s key"))
                    .await;
            }
        }
        let path = format!("{}/rotate", scene.key(target));
        let answer = send(world, Method::POST, &path, &caller.bearer, &json!({})).await;
        if is_let(&answer) {
            let_through += 1;
            let data = answer.json()["data"].clone();
            let (new, previous) = (data["key"].as_str().unwrap(), data["previous_key"].as_str().unwrap());
            scene.must_not_rise(world, caller, &had, new, &format!("a rotation of {maker}'s key")).await;
            if !previous.ends_with('…') {
                scene
                    .must_not_rise(world, caller, &had, previous, &format!("{maker}'s previous secret"))
                    .await;
            }
            new.clone_into(&mut scene.targets[target].secret);
        }
    }
    let_through
}

#[test]
fn nothing_done_with_a_key_gives_more_than_its_caller_had() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let mut scene = scene(&world).await;
        let (mut number, mut let_through) = (0, 0);
        for caller in scene.callers.clone() {
            let count = try_everything(&world, &mut scene, &caller, &mut number).await;
            let is_narrowed = ["chat", "models", "tokens"].iter().any(|kind| caller.name.starts_with(kind));
            assert!(!is_narrowed || count == 0, "{} manages", caller.name);
            let_through += count;
        }
        assert!(let_through > 500, "only {let_through} operations were let through");
    });
}

#[test]
fn a_secret_acts_with_the_lower_roles_of_maker_and_rotator() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let mut scene = scene(&world).await;
        let (mut number, mut pairs) = (0, 0);
        let people: Vec<_> = scene.people.iter().map(|(name, who)| (name.clone(), who.clone())).collect();
        for target in 0..scene.targets.len() {
            for (name, rotator) in &people {
                let path = format!("{}/rotate", scene.key(target));
                let answer = send(&world, Method::POST, &path, &rotator.access_token, &json!({})).await;
                let maker = scene.targets[target].maker.clone();
                if !is_let(&answer) {
                    continue;
                }
                let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
                let rotated_by = (*name != maker).then(|| rotator.id.to_string());
                assert_eq!(find(&world, &secret).await, (scene.targets[target].id.clone(), rotated_by));
                // The secret of two people calls in its turn.
                if *name != maker && pairs % 7 == 0 {
                    let bearer = secret.clone();
                    let caller =
                        Caller { name: format!("{maker}'s key, rotated by {name}"), bearer, is_bound: false };
                    // A key doesn't change itself, so it is out of its own reach.
                    let own = scene.targets.remove(target);
                    try_everything(&world, &mut scene, &caller, &mut number).await;
                    scene.targets.insert(target, own);
                }
                pairs += 1;
            }
        }
        assert!(pairs > 60, "only {pairs} pairs");
        // An owner's key that an owner has rotated: when either loses the role, so does the secret.
        let names: Vec<_> = people.iter().filter(|(name, _)| name.starts_with("Owner")).collect();
        let (maker, rotator) = (&names[0], &names[1]);
        let target = scene.targets.iter().position(|target| target.maker == maker.0).unwrap();
        let path = format!("{}/rotate", scene.key(target));
        let answer = send(&world, Method::POST, &path, &rotator.1.access_token, &json!({})).await;
        let secret = answer.json()["data"]["key"].as_str().unwrap().to_owned();
        for who in [rotator, maker] {
            assert!(scene.powers(&world, &secret).await.contains("organization Delete"));
            let text = "UPDATE organization_members SET role = 'member' WHERE user_id = $1";
            execute(&world, text, &who.1.id.to_string()).await;
            let has = scene.powers(&world, &secret).await;
            assert!(!has.contains("organization Delete") && !has.contains("organization Modify"), "{has:?}");
            let text = "UPDATE organization_members SET role = 'owner' WHERE user_id = $1";
            execute(&world, text, &who.1.id.to_string()).await;
        }
    });
}

#[test]
fn a_key_makes_no_owner() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let ada = world.somebody("ada").await;
        let bob = world.somebody("bob").await;
        let eve = world.somebody("eve").await;
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
            (
                Method::POST,
                format!("{project}/members"),
                json!({"user_id": eve.id.to_string(), "role": "owner"}),
            ),
            (Method::PUT, format!("{project}/members/{}", bob.id), json!({"role": "owner"})),
        ];
        for (method, path, body) in &calls {
            let answer = send(&world, method.clone(), path, &key, body).await;
            assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"), "{path}");
            assert_eq!(answer.json()["error"]["param"], "role", "{path}");
        }
        // The next lower role is the key's to give, and the person may give both.
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
    });
}

#[test]
fn a_key_neither_changes_itself_nor_reaches_beyond_its_own_restrictions() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let ada = world.somebody("ada").await;
        let place = world.place(&ada, "Acme").await;
        let keys = format!("{}/api-keys", place.project_path());
        let body = json!({"name": "bound", "restrictions": bounds(), "expires_at": ENDS});
        let (own_id, own) = world.key(&ada, &place, &body).await;
        for (method, path) in [
            (Method::PUT, format!("{keys}/{own_id}")),
            (Method::POST, format!("{keys}/{own_id}/rotate")),
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
        // What it made it may change, but not beyond.
        let path = format!("{keys}/{made_id}");
        assert_eq!(send(&world, Method::PUT, &path, &own, &json!({"name": "renamed"})).await.status, 200);
        let answer =
            send(&world, Method::PUT, &path, &own, &json!({"restrictions": {"rate_limit": null}})).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"));
        // A key without these restrictions is neither its to change nor its to rotate, but its to delete.
        let (free_id, _) = world.key(&ada, &place, &json!({"name": "free"})).await;
        let path = format!("{keys}/{free_id}");
        let change = send(&world, Method::PUT, &path, &own, &json!({"name": "taken"})).await;
        assert_eq!((change.status, change.code().as_str()), (403, "key_exceeds_caller"));
        let rotation = send(&world, Method::POST, &format!("{path}/rotate"), &own, &json!({})).await;
        assert_eq!((rotation.status, rotation.code().as_str()), (403, "key_exceeds_caller"));
        let delete = world.call(Method::DELETE, &path).bearer(&own).from(ADDRESS).send().await;
        assert_eq!(delete.status, 200, "{}", delete.text);
    });
}

#[test]
fn a_secret_that_is_about_to_end_leaves_no_longer_key_behind() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let ada = world.somebody("ada").await;
        let place = world.place(&ada, "Acme").await;
        let keys = format!("{}/api-keys", place.project_path());
        let (id, old) = world.key(&ada, &place, &json!({"name": "leaked"})).await;
        let rotation =
            send(&world, Method::POST, &format!("{keys}/{id}/rotate"), &ada.access_token, &json!({})).await;
        let ends = rotation.json()["data"]["grace_period_end"].clone();
        let answer = send(&world, Method::POST, &keys, &old, &json!({"name": "for ever"})).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "key_exceeds_caller"));
        let body = json!({"name": "as long", "expires_at": ends});
        assert_eq!(send(&world, Method::POST, &keys, &old, &body).await.status, 200);
    });
}

#[test]
fn the_previous_secret_is_told_to_its_maker_and_to_owners() {
    on_each_database_with(&[LIMITS_OFF], async |world| {
        let owner = world.somebody("owner").await;
        let place = world.place(&owner, "Acme").await;
        let keys = format!("{}/api-keys", place.project_path());
        let (maker, other) = (world.somebody("maker").await, world.somebody("other").await);
        for who in [&maker, &other] {
            world.join_organization(&place, who, OrganizationRole::Admin).await;
        }
        let (id, mut secret) = world.key(&maker, &place, &json!({"name": "shared"})).await;
        for (who, sees) in [(&maker, true), (&other, false), (&owner, true), (&other, false), (&maker, true)]
        {
            let path = format!("{keys}/{id}/rotate");
            let data =
                send(&world, Method::POST, &path, &who.access_token, &json!({})).await.json()["data"].clone();
            let previous = data["previous_key"].as_str().unwrap();
            assert_eq!(previous == secret, sees, "{previous}");
            assert!(sees || previous.ends_with('…'), "{previous}");
            data["key"].as_str().unwrap().clone_into(&mut secret);
        }
    });
}
