//! Checks every route of the console with every kind of caller and target against a golden table, like
//! `tests/http/access/matrix.rs` does for the API.
//! `TOLLKEEPER_TEST_BLESS=1 cargo test --test http console::access` rewrites the table. The test also checks
//! the headers and the size of each page.

use http::Method;
use tollkeeper::api::routes::Route;
use tollkeeper::console::routes;
use tollkeeper::db::sql;
use tollkeeper::ids::{SessionId, UserId};
use tollkeeper::operators::roles;
use tollkeeper::trail::Trail;

use super::pages::{check_headers, check_size};
use crate::access::matrix::scene::{self, Caller, Member, NamedKey, NamedSession, Scene, Target};
use crate::access::matrix::table::{Row, Table};
use support::console::Browser;
use support::http::Call;
use support::world::World;
use support::{Database, on_each_database};

const GOLDEN: &str = "tests/http/console/access.txt";

const HOW_TO_READ: &str =
    "Permissions of the console: the status that each kind of caller gets, page by page and place by place. A page that leads to
sign-in counts as 401.

A column is a kind of caller. Two letters are a person who is signed in: the role in the organization (m member, a admin, o
owner, a dot for none) and the role in its private project (v viewer, d developer, a admin, o owner, a dot for none).
";

const PLACES: &str =
    "A line is a place: the callers' own organization or project (`private`), a private `sibling` and a `public` project next to
it, a `foreign` organization, an `unknown` id, and paths that mix them (organization/project). With a key, a member or a session
in the path, what is named besides. Forms are good, empty, or refused for themselves: 303, 200, 400 and 409 mean that the gate
lets the call through. What a call took away was put back before the next one.
";

#[on_each_database]
fn access_matrix_of_the_console(database: Database) {
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let bless = std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some();
    database.run(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world| {
        let scene = Scene::new(&world).await;
        let mut callers = callers(&scene);
        callers.extend(operators(&world, &callers[0]).await);
        let mut table = Table::new(&callers, HOW_TO_READ, PLACES);
        for route in routes::table() {
            let mut rows = Vec::new();
            // A form may end its session, so each form gets a new session. Pages share one.
            let mut sessions: Vec<Option<(Browser, SessionId)>> = vec![None; callers.len()];
            for target in scene.targets(route.path) {
                let mut statuses = Vec::new();
                for ((number, caller), session) in callers.iter().enumerate().zip(&mut sessions) {
                    if route.method == Method::POST {
                        *session = None;
                    }
                    statuses.push(status(&world, &route, caller, number, session, &target).await);
                }
                rows.push(Row { place: target.title, statuses });
            }
            table.add(&route, rows);
        }
        let found = table.render();
        if bless {
            std::fs::write(GOLDEN, &found).unwrap();
        } else if found != golden {
            let wrong: Vec<_> = found.lines().filter(|line| !golden.contains(line)).collect();
            panic!("on {}, these lines differ from {GOLDEN}:\n{}", world.backend, wrong.join("\n"));
        }
    });
}

/// Returns the users of the scene, and callers without a valid cookie.
fn callers(scene: &Scene) -> Vec<Caller> {
    let find = |head: &str| scene.callers.iter().find(|caller| caller.head == head).unwrap();
    let owner = find("o.");
    let special = |head: &str, meaning: &str, is_authenticated| Caller {
        head: head.to_owned(),
        meaning: meaning.to_owned(),
        bearer: owner.bearer.clone(),
        user_id: owner.user_id.clone(),
        key_id: owner.key_id.clone(),
        is_authenticated,
    };
    let person = |caller: &Caller| Caller {
        head: caller.head.clone(),
        meaning: caller.meaning.clone(),
        bearer: String::new(),
        user_id: caller.user_id.clone(),
        key_id: caller.key_id.clone(),
        is_authenticated: true,
    };
    let mut callers = vec![
        special("non", "no cookie", false),
        special("bea", "no cookie, and an owner's access token as bearer", false),
        special("acc", "an owner's access token as cookie", false),
        special("out", "an owner, from a page of another origin", false),
        person(find("for")),
    ];
    let roles = scene.callers.iter().filter(|caller| caller.head.len() == 2);
    callers.extend(roles.map(person));
    callers
}

/// Returns an operator, who belongs to no organization, and one without a second factor.
pub(super) async fn operators(world: &World, any: &Caller) -> Vec<Caller> {
    let mut found = Vec::new();
    for (head, meaning, has_factor) in
        [("ope", "an operator", true), ("opw", "an operator without a second factor", false)]
    {
        let user = world.user(&format!("operator-{head}")).await;
        if has_factor {
            world.add_authenticator_now(&user.access_token).await;
        }
        roles::grant(&world.app.operators, user.id, &Trail::operator()).await.unwrap();
        found.push(Caller {
            head: head.to_owned(),
            meaning: meaning.to_owned(),
            bearer: String::new(),
            user_id: user.id.to_string(),
            key_id: any.key_id.clone(),
            is_authenticated: true,
        });
    }
    found
}

/// Restores a second factor that an earlier call has removed. No call reads its secret.
async fn keep_factor(world: &World, user_id: UserId) {
    let mut tx = world.app.db.write().await.unwrap();
    sql("INSERT INTO totp (user_id, sealed_seed, confirmed_at, last_step) VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING")
        .bind(user_id)
        .bind(vec![0_u8])
        .bind(world.clock.now())
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn status(
    world: &World,
    route: &Route,
    caller: &Caller,
    number: usize,
    session: &mut Option<(Browser, SessionId)>,
    target: &Target,
) -> u16 {
    let user_id = UserId::parse(&caller.user_id).unwrap();
    if caller.head == "ope" {
        keep_factor(world, user_id).await;
    }
    if session.is_none() {
        *session = Some(world.browser_session(user_id, false).await);
    }
    let (browser, own_session) = session.as_ref().unwrap();
    let path = path_of(route, target, &caller.user_id, &caller.key_id, &own_session.to_string());
    let call = Call::new(&world.public, route.method.clone(), &path).from(&format!("10.0.0.{number}"));
    let call = match caller.head.as_str() {
        "non" => call,
        "bea" => call.bearer(&caller.bearer),
        "acc" => Browser { cookie: caller.bearer.clone() }.sends(call),
        _ => browser.sends(call),
    };
    let is_post = route.method == Method::POST;
    let call = match caller.head.as_str() {
        // Links from other sites are accepted, but forms aren't.
        "out" => call.header("sec-fetch-site", "same-site").header("sec-fetch-mode", "navigate"),
        _ => call.header("sec-fetch-site", "same-origin"),
    };
    let name = format!("{number} in {}", target.title);
    let call = if is_post { call.form(&form(route.path, &name)) } else { call };
    let answer = call.send().await;
    check_headers(&answer, &path);
    check_size(&answer, &path);
    if is_post && answer.status == 303 && !route.path.ends_with("/new") {
        scene::restore(world).await;
    }
    let is_sent_to_sign_in = answer.header("location").starts_with("/console/sign-in");
    let leads_there =
        ["/console/sign-out", "/console/register", "/console/forgot-password", "/console/sign-in/confirm"];
    if is_sent_to_sign_in && !leads_there.contains(&route.path) { 401 } else { answer.status }
}

/// Returns a route's path to a target, for a caller with this session and this key.
pub(super) fn path_of(
    route: &Route,
    target: &Target,
    user_id: &str,
    key_id: &str,
    own_session: &str,
) -> String {
    let member = match &target.member {
        Member::Caller => user_id,
        Member::Other(member) => member,
    };
    let key = match &target.key {
        NamedKey::Caller => key_id,
        NamedKey::Other(key) => key,
    };
    let session = match &target.session {
        NamedSession::Caller => own_session,
        NamedSession::Other(id) => id,
    };
    let path = route
        .path
        .replace("{organization_id}", &target.organization)
        .replace("{project_id}", &target.project)
        .replace("{key_id}", key)
        .replace("{member_id}", member)
        .replace("{invoice_id}", &target.invoice)
        .replace("{budget_id}", &target.budget)
        .replace("{payment_id}", &target.payment)
        .replace("{webhook_id}", &target.webhook)
        .replace("{delivery_id}", &target.delivery)
        .replace("{user_id}", user_id)
        .replace("{session_id}", session)
        .replace("{passkey_id}", "passkey_01h2xcejqtf2nbrexx3vqjhp41")
        .replace("{invitation_id}", &target.invitation)
        .replace("{connection_id}", "con_01h2xcejqtf2nbrexx3vqjhp41")
        .replace("{provider_id}", "acme")
        .replace("{*model_id}", "svc-1")
        .replace("{hash}/{name}", "000000000000/console.css")
        .replace("{*path}", "no/such/page");
    assert!(!path.contains('{'), "{path}: say here what this parameter stands for");
    path
}

/// Returns a form for the route that takes one: a good one where it can do no harm.
fn form<'a>(path: &str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    if path.ends_with("/organizations/new") { vec![("name", name)] } else { Vec::new() }
}
