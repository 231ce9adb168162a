//! If the database can't be reached, every page explains that, no one is signed out, and every form can be
//! sent again.

mod budgets;
mod made_once;
mod operators;
mod routes_of_forms;
mod second_factors;
mod sign_ons;
mod webhooks;

use http::Method;
use serde_json::json;
use tollkeeper::console::routes;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use self::made_once::check_made_once;
use self::operators::{Operators, asks_owners};
use self::routes_of_forms::{OPEN, ROUTES};
use self::second_factors::SecondFactors;
use self::sign_ons::{SignOns, with_providers};
use super::pages::{check_headers, page_paths};
use support::billed;
use support::console::{Browser, hidden, hidden_fields};
use support::http::Answer;
use support::identity_provider::ProvidersFile;
use support::world::{PASSWORD, Place, TestUser, World};
use support::{Database, on_each_database};

/// A text that users typed, which no template may treat as markup.
const TYPED: &str = "\"A\" <b>good</b> & 'short' one";

/// The fields that are never sent back.
const SECRETS: [&str; 7] = [
    "password",
    "current_password",
    "new_password",
    "new_password_confirmation",
    "one_time_code",
    "code",
    "token",
];

const NEW_PASSWORD: &str = "Another-Horse-8-Paper";

const PROJECT_MEMBER: &str = "/organizations/{organization_id}/projects/{project_id}/members/{member_id}";

/// A filled-in form.
struct Form {
    /// The path of its route in the table of routes, after `/console`.
    route: &'static str,
    path: String,
    fields: Vec<(&'static str, String)>,
    /// The status of a successful answer.
    status: u16,
    /// `true` if visitors who aren't signed in send the form.
    is_open: bool,
}

/// The organizations and users that the forms need.
struct Scene {
    ada: TestUser,
    browser: Browser,
    place: Place,
    factors: SecondFactors,
    operators: Operators,
    sign_ons: SignOns,
    /// The cookies of a browser in which Ada hasn't confirmed a connection yet.
    waiting: String,
    ids: Vec<(&'static str, String)>,
    /// The ids of routes that need other ids than `ids`: the path of each route, with its ids.
    others: Vec<(&'static str, Vec<(&'static str, String)>)>,
}

impl Scene {
    async fn new(world: &World, file: &ProvidersFile) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "acme").await;
        let gone = world.organization(&ada, "gone").await;
        let over = world.project(&ada, &place.organization, "over").await;
        let mut members = Vec::new();
        for name in ["bob", "cy", "dan", "eve", "fay"] {
            let user = world.user(name).await;
            world.join_organization(&place, &user, OrganizationRole::Member).await;
            if name != "fay" {
                world.join_project(&place, &user, ProjectRole::Viewer).await;
            }
            members.push(user.id.to_string());
        }
        let mut keys = Vec::new();
        for name in ["kept", "rotated", "ended", "deleted"] {
            keys.push(world.key(&ada, &place, &json!({ "name": name })).await.0);
        }
        let rotate = format!("{}/api-keys/{}/rotate", place.project_path(), keys[2]);
        world.call(Method::POST, &rotate).bearer(&ada.access_token).data().await;
        let mut invitations = Vec::new();
        for address in ["guest@example.com", "late@example.com"] {
            let role = OrganizationRole::Member;
            let id = world.insert_invitation(&place, (address, address), role, ada.id).await;
            invitations.push(id.to_string());
        }
        let (browser, _) = world.browser_session(ada.id, false).await;
        let (_, session) = world.browser_session(ada.id, false).await;
        let factors = SecondFactors::new(world).await;
        let operators = Operators::new(world).await;
        let sign_ons = SignOns::new(world, file, &operators.organization).await;
        let connection = world.connection(ada.id, sign_ons.issuer(), "ada").await;
        let waiting = sign_ons.connect(world, &browser).await;
        let (webhook, delivery) = support::webhooks::webhook(world, &ada, &place).await;
        let [bob, cy, dan, eve, fay] = members.try_into().unwrap();
        let [kept, rotated, ended, deleted] = keys.try_into().unwrap();
        let [resent, withdrawn] = invitations.try_into().unwrap();
        let ids = vec![
            ("organization_id", place.organization.clone()),
            ("project_id", place.project.clone()),
            ("member_id", bob),
            ("key_id", kept),
            ("invitation_id", resent),
            ("session_id", session.to_string()),
            ("fay", fay),
            ("passkey_id", factors.passkeys.id.clone()),
            ("connection_id", connection.to_string()),
            ("user_id", operators.user_id.clone()),
            ("invoice_id", billed::invoice(world, &place.organization).await),
            ("budget_id", billed::budget(world, &ada, &place).await),
            ("payment_id", billed::payment(world, &place).await),
            ("webhook_id", webhook),
            ("delivery_id", delivery),
        ];
        let invoice = |number: usize| vec![("invoice_id", operators.invoices[number].clone())];
        let own = vec![("organization_id", operators.organization.clone())];
        let others = vec![
            ("/organizations/{organization_id}/settings/second-factor", own.clone()),
            ("/organizations/{organization_id}/settings/sign-on", own),
            ("/installation/invoices/{invoice_id}/mark-paid", invoice(0)),
            ("/installation/invoices/{invoice_id}/void", invoice(1)),
            ("/organizations/{organization_id}/delete", vec![("organization_id", gone)]),
            ("/organizations/{organization_id}/members/{member_id}/remove", vec![("member_id", cy)]),
            (
                "/organizations/{organization_id}/members/invitations/{invitation_id}/withdraw",
                vec![("invitation_id", withdrawn)],
            ),
            ("/organizations/{organization_id}/projects/{project_id}/delete", vec![("project_id", over)]),
            (PROJECT_MEMBER, vec![("member_id", dan)]),
            (
                "/organizations/{organization_id}/projects/{project_id}/members/{member_id}/remove",
                vec![("member_id", eve)],
            ),
            (
                "/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
                vec![("key_id", rotated)],
            ),
            (
                "/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation",
                vec![("key_id", ended)],
            ),
            (
                "/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/delete",
                vec![("key_id", deleted)],
            ),
        ];
        Self { ada, browser, place, factors, operators, sign_ons, waiting, ids, others }
    }

    fn id(&self, name: &str) -> &str {
        &self.ids.iter().find(|(other, _)| *other == name).unwrap().1
    }

    /// Returns the path of a form, with the ids of its objects.
    fn path(&self, route: &str) -> String {
        let own = self.others.iter().find(|(path, _)| *path == route).map(|(_, ids)| ids.as_slice());
        let ids = own.unwrap_or_default().iter().chain(&self.ids);
        let path = ids.fold(route.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id));
        assert!(!path.contains('{'), "{path}: say here what this parameter stands for");
        format!("/console{path}")
    }

    /// Returns every form of the console, in an order in which all of them succeed.
    async fn forms(&self, world: &World) -> Vec<Form> {
        let mut forms = Vec::new();
        for route in ROUTES {
            let path = self.path(route);
            forms.push(Form {
                route,
                fields: self.fields(world, route, &path).await,
                path,
                status: if shows_a_secret(route) || route.contains("/playground") { 200 } else { 303 },
                is_open: OPEN.contains(route),
            });
        }
        forms
    }

    /// Returns the fields of a form, filled in.
    async fn fields(&self, world: &World, route: &str, path: &str) -> Vec<(&'static str, String)> {
        let page = async |path: &str| self.browser.page(world, path).await;
        if let Some(fields) = self.operators.fields(route) {
            return fields;
        }
        if let Some(fields) = webhooks::fields(&self.browser, world, route, path).await {
            return fields;
        }
        let version = async || ("version", hidden(&page(path).await, "version"));
        let text = |name, value: &str| (name, value.to_owned());
        let place = "/organizations/{organization_id}";
        match route.strip_prefix(place).unwrap_or(route) {
            "/sign-in" => {
                let email = text("email", "bob@example.com");
                vec![email, text("password", PASSWORD), text("next", "/console/account?done=<")]
            }
            "/register" => vec![
                text("email", "new@example.com"),
                text("username", "new"),
                text("full_name", TYPED),
                text("password", PASSWORD),
            ],
            "/forgot-password" => vec![text("email", "ada@example.com")],
            "/account" => vec![text("username", "ada"), text("full_name", TYPED), text("phone", "")],
            "/account/theme" => vec![text("theme", "dark")],
            "/account/email" => vec![text("new_email", "lovelace@example.com"), text("password", PASSWORD)],
            "/account/password" => vec![
                text("current_password", PASSWORD),
                text("new_password", NEW_PASSWORD),
                text("new_password_confirmation", NEW_PASSWORD),
            ],
            "/sign-in/second-factor" => {
                vec![
                    ("one_time_code", self.factors.recovery_codes[0].clone()),
                    text("next", "/console/account"),
                ]
            }
            "/reauthenticate" => vec![
                text("next", "/console/account"),
                text("password", PASSWORD),
                ("one_time_code", self.factors.recovery_codes[1].clone()),
            ],
            "/sign-in/passkey" => self.factors.passkeys.sign_in.to_vec(),
            "/reauthenticate/passkey" => self.factors.passkeys.reauthentication.to_vec(),
            "/account/second-factor/passkeys/new" => {
                [self.factors.passkeys.new.to_vec(), vec![text("name", TYPED)]].concat()
            }
            "/account/second-factor/passkeys/{passkey_id}" => vec![text("name", TYPED)],
            "/account/second-factor/totp/confirm" => vec![("code", self.factors.first_code.clone())],
            "/account/second-factor/recovery-codes" => {
                let page = self.factors.browsers[0].page(world, path).await;
                vec![("replaced", hidden(&page, "replaced"))]
            }
            "/organizations/new" | "/projects/new" => {
                vec![text("name", "New one"), text("description", TYPED)]
            }
            "/delete" => vec![text("name", "gone")],
            "/members/invite" => {
                vec![text("email", "third@example.com"), text("role", "member"), text("message", TYPED)]
            }
            "/members/invitations/{invitation_id}/resend" => {
                let list = path.split("/inv_").next().unwrap();
                vec![("expires_at", hidden(&page(list).await, "expires_at"))]
            }
            "/members/{member_id}" | "/projects/{project_id}/members/{member_id}" => {
                vec![version().await, text("role", "admin")]
            }
            "/settings" => vec![version().await, text("name", "acme"), text("description", TYPED)],
            "/projects/{project_id}/settings" => {
                vec![version().await, text("name", "acme project"), text("description", TYPED)]
            }
            "/projects/{project_id}/delete" => vec![version().await, text("name", "over")],
            "/projects/{project_id}/members/new" => {
                vec![("user_id", self.id("fay").to_owned()), text("role", "viewer"), text("search", TYPED)]
            }
            "/projects/{project_id}/playground" | "/projects/{project_id}/playground/stream" => vec![
                text("model", "svc-1"),
                text("instructions", ""),
                text("message", TYPED),
                text("max_tokens", "20"),
            ],
            "/projects/{project_id}/api-keys/new" => vec![
                ("new_id", hidden(&page(path).await, "new_id")),
                text("name", "New one"),
                text("description", TYPED),
                text("lasts", "always"),
                text("shown", "permissions"),
                text("permissions", "chat"),
                text("permissions", "models"),
                text("restrictions.allowed_ips", "10.0.0.1\r\n10.0.0.2"),
            ],
            "/projects/{project_id}/api-keys/{key_id}/edit" => {
                vec![version().await, text("name", "kept"), text("description", TYPED)]
            }
            "/projects/{project_id}/api-keys/{key_id}/rotate" => {
                vec![version().await, text("grace_seconds", "3600")]
            }
            // Forms with only a button.
            "/account/verification"
            | "/account/sessions/{session_id}/delete"
            | "/account/sessions/others/delete"
            | "/account/second-factor/totp"
            | "/account/second-factor/remove"
            | "/account/second-factor/passkeys/{passkey_id}/remove"
            | "/members/invitations/{invitation_id}/withdraw"
            | "/members/{member_id}/remove"
            | "/projects/{project_id}/members/{member_id}/remove"
            | "/projects/{project_id}/api-keys/{key_id}/end-rotation"
            | "/projects/{project_id}/api-keys/{key_id}/delete"
            | "/account/connections/{connection_id}/delete"
            | "/account/connections/confirm"
            | "/sign-in/confirm"
            | "/sign-out" => Vec::new(),
            other => panic!("{other}: say here how this form is filled in"),
        }
    }

    /// Sends a form from the browser that its route needs.
    async fn send(&self, world: &World, form: &Form, fields: &[(String, String)]) -> Answer {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let signed_out = Browser::signed_out();
        let browser = match form.route {
            _ if form.is_open => &signed_out,
            "/sign-in/second-factor" => {
                let call = signed_out.post(world, &form.path, &fields);
                return call.header("cookie", &self.factors.pending_login).send().await;
            }
            "/account/connections/confirm" => {
                let call = signed_out.post(world, &form.path, &fields);
                return call.header("cookie", &self.waiting).send().await;
            }
            "/sign-in/confirm" => {
                let call = signed_out.post(world, &form.path, &fields);
                return call.header("cookie", &self.sign_ons.pending).send().await;
            }
            route if asks_owners(route) => &self.operators.browser,
            route if route.starts_with("/installation/") => &self.operators.browser,
            "/reauthenticate" => &self.factors.browsers[1],
            "/reauthenticate/passkey" => &self.factors.passkeys.browsers[1],
            route if route.starts_with("/account/second-factor/passkeys") => {
                &self.factors.passkeys.browsers[0]
            }
            "/account/second-factor/totp" | "/account/second-factor/totp/confirm" => &self.factors.enrolling,
            route if route.starts_with("/account/second-factor/") => &self.factors.browsers[0],
            _ => &self.browser,
        };
        browser.post(world, &form.path, &fields).send().await
    }
}

fn shows_a_secret(route: &str) -> bool {
    let ends = ["/api-keys/new", "/webhooks/new", "/rotate", "/totp", "/totp/confirm", "/recovery-codes"];
    ends.iter().any(|end| route.ends_with(end))
}

/// Returns the fields of a form as the browser sends them.
fn sent(form: &Form) -> Vec<(String, String)> {
    form.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Checks the parts that every answer has in common while the database is away.
fn check_away(answer: &Answer, path: &str, retry_after: &str) {
    assert_eq!(answer.status, 503, "{path}: {}", answer.text);
    check_headers(answer, path);
    assert_eq!(answer.header("retry-after"), retry_after, "{path}");
    assert_eq!(answer.header("set-cookie"), "", "{path}: a user was signed out");
    for secret in [PASSWORD, NEW_PASSWORD] {
        assert!(!answer.text.contains(secret), "{path}: {}", answer.text);
    }
}

/// Checks the page that answers a form while the database is away; returns the fields that the page sends
/// again.
fn check_form(answer: &Answer, form: &Form, retry_after: &str) -> Vec<(String, String)> {
    let page = &answer.text;
    check_away(answer, &form.path, retry_after);
    assert!(page.contains("<h1>Try again in a moment</h1>"), "{}: {page}", form.path);
    assert!(page.contains(&format!("<form method=\"post\" action=\"{}\">", form.path)), "{page}");
    assert!(page.contains(">Send it again</button>") && !page.contains("<nav"), "{}: {page}", form.path);
    let kept = hidden_fields(page);
    let (secrets, open): (Vec<_>, Vec<_>) =
        sent(form).into_iter().partition(|(name, _)| SECRETS.contains(&name.as_str()));
    assert_eq!(kept, open, "{}", form.path);
    assert_eq!(page.contains("except passwords"), !secrets.is_empty(), "{}: {page}", form.path);
    [kept, secrets].concat()
}

#[test]
fn list_of_forms_is_complete() {
    let posts = routes::table().into_iter().filter(|route| route.method == Method::POST);
    // A provider's request isn't a form.
    let posts = posts.filter(|route| route.path != "/console/sign-in/{provider_id}/logout");
    let mut of_table: Vec<_> = posts.map(|route| route.path.strip_prefix("/console").unwrap()).collect();
    let mut of_test = ROUTES.to_vec();
    of_table.sort_unstable();
    of_test.sort_unstable();
    assert_eq!(of_test, of_table, "the list lacks a form, or has a form that no longer exists");
}

#[on_each_database]
fn every_form_is_kept_and_can_be_sent_again(database: Database) {
    with_providers(database, async |world, database, file| {
        let scene = Scene::new(&world, file).await;
        let forms = scene.forms(&world).await;
        database.go(&world).await;
        let of_api = world.post("/v1/organizations", &json!({"name": "x"})).bearer(&scene.ada.access_token);
        let of_api = of_api.send().await;
        assert_eq!((of_api.status, of_api.code().as_str()), (503, "database_unavailable"));
        let retry_after = of_api.header("retry-after").to_owned();
        assert!(!retry_after.is_empty());

        // At first, the session is still cached.
        for form in &forms {
            let answer = scene.send(&world, form, &sent(form)).await;
            match form.route {
                // Setting a cookie needs no database.
                "/account/theme" => assert_eq!(answer.status, 303),
                // This includes the stream: its script then submits the form.
                _ => drop(check_form(&answer, form, &retry_after)),
            }
        }
        // Later the session can't be checked.
        world.clock.advance_ms(10_000);
        let mut again = Vec::new();
        for form in &forms {
            let answer = scene.send(&world, form, &sent(form)).await;
            again.push(check_form(&answer, form, &retry_after));
        }

        database.come_back(&world).await;
        for (form, fields) in forms.iter().zip(&again) {
            let answer = scene.send(&world, form, fields).await;
            assert_eq!(answer.status, form.status, "{}: {}", form.path, answer.text);
            // Sends each form a second time.
            let second = scene.send(&world, form, fields).await;
            assert!(second.status < 500, "{}: {}", form.path, second.text);
        }
        check_made_once(&world, &scene).await;
        scene.operators.check_invoices(&world).await;
    });
}

#[on_each_database]
fn every_page_says_so_and_nobody_is_signed_out(database: Database) {
    with_providers(database, async |world, database, file| {
        let mut scene = Scene::new(&world, file).await;
        // Adding a second factor ends Ada's other sessions.
        world.add_authenticator_now(&scene.ada.access_token).await;
        scene.browser = world.browser_session(scene.ada.id, false).await.0;
        let ids = scene.ids.iter().map(|(name, id)| (*name, id.as_str()));
        // The passkey belongs to another user.
        let ids: Vec<_> = ids.filter(|(name, _)| *name != "passkey_id").collect();
        let mut paths = page_paths(&ids);
        // Ada isn't an operator, and has no link for creating the first account.
        paths.retain(|path| {
            !["/console/installation", "/console/first-account"].iter().any(|top| path.starts_with(top))
        });
        for path in &paths {
            let status = scene.browser.get(&world, path).send().await.status;
            assert!([200, 303].contains(&status), "{path}: {status}");
        }
        database.go(&world).await;
        for is_trusted in [true, false] {
            for path in &paths {
                let answer = scene.browser.get(&world, path).send().await;
                let needs_nothing = [
                    "/",
                    "/console/register",
                    "/console/forgot-password",
                    "/console/sign-in/second-factor",
                    "/console/sign-in/confirm",
                    "/console/account/connections/confirm",
                ];
                if is_trusted && (needs_nothing.contains(&path.as_str()) || path == "/console/sign-in") {
                    assert!([200, 303].contains(&answer.status), "{path}: {}", answer.text);
                    continue;
                }
                check_away(&answer, path, answer.header("retry-after"));
                assert!(!answer.header("retry-after").is_empty(), "{path}");
                let page = &answer.text;
                assert!(page.contains("<h1>Try again in a moment</h1>") && !page.contains("<nav"), "{page}");
                let again = format!("<a class=\"button\" href=\"{path}\">Try again</a>");
                assert!(page.contains(&again) && !page.contains("Sign in"), "{path}: {page}");
            }
            if is_trusted {
                let before = world.app.db.statement_count();
                scene.browser.get(&world, "/console/organizations").send().await;
                let asked = world.app.db.statement_count() - before;
                assert_eq!(asked, 1, "a page that has waited for the database doesn't query it again");
            }
            world.clock.advance_ms(10_000);
        }
        // Visitors without a cookie can still read how to sign in.
        let page = Browser::signed_out().page(&world, "/console/sign-in").await;
        assert!(page.contains("name=\"password\""), "{page}");

        database.come_back(&world).await;
        let page = scene.browser.page(&world, "/console/organizations").await;
        assert!(page.contains(">ada<") && page.contains(">acme<"), "the same cookie: {page}");
    });
}
