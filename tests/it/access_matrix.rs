//! Every route × every kind of caller, held against a table that a person can read in one sitting.
//!
//! `TOLLKEEPER_TEST_BLESS=1 cargo test --test it access_matrix` writes the table anew; the diff is then to be read like any
//! other change of who may do what. A route that isn't in the table fails, because the table is made from the routes.

use std::fmt::Write;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::ids::ApiKeyId;
use tollkeeper::roles::{OrganizationRole, ProjectRole};
use tollkeeper::routes::{self, Listener, Route};

use crate::support::http::Call;
use crate::support::world::{Place, World, on_each_database};

const GOLDEN: &str = "tests/it/access_matrix.txt";

/// A kind of caller: the column's head, what it means, and the bearer.
struct Caller {
    head: &'static str,
    meaning: &'static str,
    bearer: String,
}

/// Where a request goes.
struct Target {
    title: &'static str,
    place: Place,
    key: String,
    /// A plain member of the organization, whom nobody calls as.
    member: String,
}

#[test]
fn access_matrix() {
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let bless = std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some();
    on_each_database(async |world| {
        let found = matrix(&world).await;
        if bless {
            std::fs::write(GOLDEN, &found).unwrap();
        } else if found != golden {
            let wrong: Vec<_> = found.lines().filter(|line| !golden.contains(line)).collect();
            panic!("on {}, these rows differ from {GOLDEN}:\n{}", world.backend, wrong.join("\n"));
        }
    });
}

/// The callers and where they go. A call that removes something leaves the next one a scene of its own.
struct Scene {
    callers: Vec<Caller>,
    targets: Vec<Target>,
}

async fn scene(world: &World, number: usize) -> Scene {
    let owner = world.somebody(&format!("owner{number}")).await;
    let own = world.place(&owner, "Own").await;
    let (key, _) = world.key(&owner, &own, &json!({"name": "target"})).await;
    let public = json!({"name": "Public", "visibility": "public"});
    let path = format!("{}/projects", own.organization_path());
    let public = world.post(&path, &public).bearer(&owner.access_token).data().await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let public = Place { organization: own.organization.clone(), project: public };
    let (public_key, _) = world.key(&owner, &public, &json!({"name": "target"})).await;
    let stranger = world.somebody(&format!("stranger{number}")).await;
    let foreign = world.place(&stranger, "Foreign").await;
    let (foreign_key, _) = world.key(&stranger, &foreign, &json!({"name": "target"})).await;
    let member = world.somebody(&format!("target{number}")).await;
    world.join_organization(&own, &member, OrganizationRole::Member).await;
    let member = member.id.to_string();
    let callers = callers(world, number, &owner, &own, &stranger, &foreign).await;
    let mixed = Place { organization: own.organization.clone(), project: foreign.project.clone() };
    let nobody =
        Place { organization: own.organization.clone(), project: "proj_01h2xcejqtf2nbrexx3vqjhp41".into() };
    let target = |title, place, key| Target { title, place, key, member: member.clone() };
    let targets = vec![
        target("a private project of the callers' organization", own, key.clone()),
        target("a public project of the callers' organization", public, public_key),
        target("own organization, a foreign project", mixed, foreign_key),
        target("own organization, no such project", nobody, key),
    ];
    Scene { callers, targets }
}

async fn callers(
    world: &World,
    number: usize,
    owner: &crate::support::world::Somebody,
    own: &Place,
    stranger: &crate::support::world::Somebody,
    foreign: &Place,
) -> Vec<Caller> {
    let mut callers = Vec::new();
    let mut add = |head, meaning, bearer: String| callers.push(Caller { head, meaning, bearer });
    add("none", "no credential", String::new());
    add("junk", "a bearer that is nothing", "nonsense".into());
    add("refr", "the owner's refresh token", owner.refresh_token.clone());
    add("strg", "a stranger: owner of another organization", stranger.access_token.clone());
    for (head, meaning, role) in [
        ("o:me", "organization member", OrganizationRole::Member),
        ("o:ad", "organization admin", OrganizationRole::Admin),
    ] {
        let who = world.somebody(&format!("{}{number}", head.replace(':', "-"))).await;
        world.join_organization(own, &who, role).await;
        add(head, meaning, who.access_token);
    }
    add("o:ow", "organization owner", owner.access_token.clone());
    for (head, meaning, role) in [
        ("p:vi", "organization member, viewer of the private project", ProjectRole::Viewer),
        ("p:de", "organization member, developer of the private project", ProjectRole::Developer),
        ("p:ad", "organization member, admin of the private project", ProjectRole::Admin),
        ("p:ow", "organization member, owner of the private project", ProjectRole::Owner),
    ] {
        let who = world.somebody(&format!("{}{number}", head.replace(':', "-"))).await;
        world.join_organization(own, &who, OrganizationRole::Member).await;
        world.join_project(own, &who, role).await;
        add(head, meaning, who.access_token);
    }
    let sibling = world.project(owner, &own.organization, "Sibling").await;
    let sibling = Place { organization: own.organization.clone(), project: sibling };
    add(
        "k:ow",
        "API key of the private project, made by the organization owner",
        world.key(owner, own, &json!({"name": "own"})).await.1,
    );
    add(
        "k:si",
        "API key of a sibling project, made by the organization owner",
        world.key(owner, &sibling, &json!({"name": "sib"})).await.1,
    );
    add(
        "k:fo",
        "API key of another organization",
        world.key(stranger, foreign, &json!({"name": "for"})).await.1,
    );
    let no_models = json!({"name": "chat", "permissions": ["chat"]});
    add("k:ch", "like k:ow, with the permission `chat` only", world.key(owner, own, &no_models).await.1);
    add("serv", "the service token", world.app.service_token.expose().to_owned());
    callers
}

async fn matrix(world: &World) -> String {
    let mut scenes = 0;
    let mut now = scene(world, scenes).await;
    let mut text =
        String::from("Who may do what: the status that each kind of caller gets, route by route.\n\n");
    for caller in &now.callers {
        writeln!(text, "  {}  {}", caller.head, caller.meaning).unwrap();
    }
    let mut cases = 0;
    for index in 0..now.targets.len() {
        writeln!(text, "\n== {} ==\n", now.targets[index].title).unwrap();
        write!(text, "{:66}", "").unwrap();
        for caller in &now.callers {
            write!(text, " {}", caller.head).unwrap();
        }
        text.push('\n');
        for route in routes::table() {
            if index > 0 && !route.path.contains("{project_id}") {
                continue;
            }
            let label = format!("{:4} {}", route.method, short(route.path));
            write!(text, "{label:66}").unwrap();
            for caller in 0..now.callers.len() {
                let status = status(world, &route, &now.callers[caller], &now.targets[index], cases).await;
                write!(text, "  {status}").unwrap();
                cases += 1;
                if route.method == Method::DELETE && status == 200 {
                    scenes += 1;
                    now = scene(world, scenes).await;
                }
            }
            text.push('\n');
        }
    }
    writeln!(text, "\n{cases} cases").unwrap();
    text
}

fn short(path: &str) -> String {
    path.replace("organization_id", "org")
        .replace("project_id", "proj")
        .replace("key_id", "key")
        .replace("member_id", "member")
}

async fn status(world: &World, route: &Route, caller: &Caller, target: &Target, case: usize) -> u16 {
    let path = route
        .path
        .replace("{organization_id}", &target.place.organization)
        .replace("{project_id}", &target.place.project)
        .replace("{key_id}", &target.key)
        .replace("{member_id}", &target.member)
        .replace("{*model_id}", "svc-1");
    assert!(!path.contains('{'), "{path}: say here what this parameter stands for");
    let router = if route.listener == Listener::Service { &world.service } else { &world.public };
    // A session that logs out is gone: such calls get one of their own.
    let bearer = match (route.path, caller.bearer.matches('.').count()) {
        ("/v1/auth/logout", 2) => fresh_session(world, &caller.bearer).await,
        _ => caller.bearer.clone(),
    };
    let call = Call::new(router, route.method.clone(), &path).bearer(&bearer);
    let call = match (&route.method, route.content_type) {
        (&Method::GET | &Method::DELETE, _) => call,
        // A patch that changes nothing still needs the role.
        (&Method::PUT, _) => call.json(&json!({})),
        // Refused for its token, which tells as well that the gate let it through.
        (_, "text/html") => call.form(&[("token", "x"), ("password", "x"), ("password_confirmation", "x")]),
        _ => call.json(&body(route.path, case)),
    };
    call.send().await.status
}

async fn fresh_session(world: &World, bearer: &str) -> String {
    use tollkeeper::secrets::jwt::TokenKind;
    let keyset = world.app.signing_keys.keyset(&world.app).await.unwrap();
    let (now, url) = (world.clock.now(), &world.app.public_url);
    let (kind, claims) = [TokenKind::Access, TokenKind::Refresh]
        .into_iter()
        .find_map(|kind| Some((kind, keyset.verify(bearer, kind, url, url, now).ok()?)))
        .unwrap();
    let session = tollkeeper::ids::SessionId::new(now, &world.app.random);
    let mut tx = world.app.db.write().await.unwrap();
    tollkeeper::store::sessions::insert(&mut tx, session, claims.sub, false, now, now.plus_ms(1_000_000))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    world.token(kind, claims.sub, session, 60).await
}

/// A good body for each route that takes one; names differ from case to case. Public routes get one that is refused for
/// itself (400, 401), which tells as well that the gate let it through.
fn body(path: &str, case: usize) -> Value {
    match path {
        "/v1/auth/register" | "/v1/auth/logout" | "/v1/auth/refresh-token" => json!({}),
        "/v1/auth/verify-email" => json!({"token": "x"}),
        "/v1/auth/change-password" => json!({}),
        "/v1/auth/forgot-password" => json!({"email": format!("case{case}@example.com")}),
        "/v1/auth/reset-password" => {
            json!({"token": "x", "password": "Violet-Kettle-9", "password_confirmation": "Violet-Kettle-9"})
        }
        "/v1/auth/login" => json!({"email": format!("case{case}@example.com"), "password": "x"}),
        "/service/v1/authorize" => json!({"credential": "tk_x", "operation": "files"}),
        "/service/v1/usage" => {
            json!({"events": [{"id": "e", "source": "s", "time": "2026-03-10T00:00:00Z", "model": "svc-1",
            "api_key_id": ApiKeyId::parse("key_01h2xcejqtf2nbrexx3vqjhp41").unwrap().to_string(), "kind": "chat", "prompt_tokens": 1}]})
        }
        path if path.ends_with("/invitations") => json!({"email": format!("case{case}@example.com")}),
        path if path.ends_with("/api-keys")
            || path.ends_with("/projects")
            || path.ends_with("/organizations") =>
        {
            json!({"name": format!("case {case}")})
        }
        other => panic!("{other}: say here what a good body for this route is"),
    }
}
