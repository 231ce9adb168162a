//! The examples of the reference are run with real addresses, ids and secrets filled in.

use std::collections::BTreeMap;
use std::process::Command;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};
use tollkeeper::web::server::{Addresses, BoundListeners, RunningListeners};

use super::{operations, pages, sections, unescaped};
use support::authenticator::Authenticator;
use support::billed;
use support::process::{free_addresses, run_to_end};
use support::python;
use support::security_key::SecurityKey;
use support::world::{Folder, PASSWORD, Place, TestUser, World, id, runtime};

const TOKEN: &str = "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc";
const ID: &str = "01kfz3v9xee8tb2m6h0q5w7r4n";

/// Serves a world on two ports of this machine.
async fn listen(world: &World) -> (Addresses, RunningListeners) {
    for _ in 0..10 {
        let (public, service) = free_addresses();
        let addresses = Addresses { public, service };
        // Another program may have taken the port meanwhile.
        if let Ok(listeners) = BoundListeners::bind(addresses, &world.app.config.tls).await {
            return (addresses, listeners.serve(&world.app.api, &routes::table()));
        }
    }
    panic!("no free port");
}

/// The objects that most examples act on.
struct Scene {
    owner: TestUser,
    place: Place,
    key_id: String,
    key: String,
    colleague: TestUser,
    invoice_id: String,
}

impl Scene {
    async fn new(world: &World, label: &str) -> Self {
        let owner = world.user(&format!("owner-{label}")).await;
        let place = world.place(&owner, "Base").await;
        let (key_id, key) = world.old_key(&owner, &place, &json!({"name": "base"})).await;
        let colleague = member(world, &place, &format!("colleague-{label}")).await;
        let invoice_id = billed::invoice(world, &place.organization).await;
        Self { owner, place, key_id, key, colleague, invoice_id }
    }
}

async fn member(world: &World, place: &Place, name: &str) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, OrganizationRole::Member).await;
    world.join_project(place, &user, ProjectRole::Developer).await;
    user
}

/// An example with the values to fill in.
struct Example {
    name: String,
    source: String,
    environment: BTreeMap<&'static str, String>,
}

impl Example {
    fn replace(&mut self, from: &str, to: &str) {
        assert!(self.source.contains(from), "{}: no {from} in {}", self.name, self.source);
        self.source = self.source.replace(from, to);
    }

    fn replace_id(&mut self, prefix: &str, id: &str) {
        self.source = self.source.replace(&format!("{prefix}_{ID}"), id);
    }

    /// Fills in the answer of a browser.
    fn replace_answer(&mut self, body: &Value) {
        let answer = &body["credential"];
        for (from, to) in [
            ("AX0rT2VuZQ", &body["ceremony"]),
            ("3q2-7w", &answer["id"]),
            ("eyJ0eXBlIjoid2ViYXV0aG4", &answer["response"]["clientDataJSON"]),
            ("o2NmbXRkbm9uZQ", &answer["response"]["attestationObject"]),
            ("YXV0aERhdGE", &answer["response"]["authenticatorData"]),
            ("MEUCIQDBvq", &answer["response"]["signature"]),
            ("6vNCcs0IqE", &answer["response"]["userHandle"]),
        ] {
            if let Some(to) = to.as_str().filter(|_| self.source.contains(from)) {
                self.replace(from, to);
            }
        }
    }

    fn log_in(&mut self, user: &TestUser) {
        self.environment.insert("ACCESS_TOKEN", user.access_token.clone());
        self.environment.insert("REFRESH_TOKEN", user.refresh_token.clone());
    }
}

/// Creates a user with a passkey; also returns the passkey's id.
async fn with_passkey(world: &World, name: &str) -> (TestUser, SecurityKey, String) {
    let (user, mut key) = (world.user(name).await, SecurityKey::new());
    let body = world.new_passkey(&user.access_token, &mut key).await;
    let added = world.post("/v1/auth/passkeys", &body).bearer(&user.access_token).data().await;
    let id = id(&added["passkey"]);
    (user, key, id)
}

/// Creates the objects that an example needs to succeed, and fills them in. `number` differs for each
/// example.
async fn prepare(world: &World, scene: &Scene, operation: &str, number: usize, example: &mut Example) {
    let name = format!("person{number}");
    let email = format!("{name}@example.com");
    let path = scene.place.organization_path();
    let owner = &scene.owner.access_token;
    match operation {
        "register" => {
            example.replace("ada@example.com", &email);
            example.replace("\"ada\"", &format!("\"{name}\""));
        }
        "verify_email" | "send_verify_email_page" => {
            let user = world.unverified_user(&name).await;
            let resent = world.post("/v1/auth/resend-verification", &json!({}));
            resent.bearer(&user.access_token).data().await;
            example.replace(TOKEN, &world.mailed_token(&email).await);
        }
        "resend_verification" => example.log_in(&world.unverified_user(&name).await),
        "login" | "forgot_password" => {
            world.user(&name).await;
            example.replace("ada@example.com", &email);
        }
        "reset_password" | "send_reset_password_page" => {
            world.user(&name).await;
            world.post("/v1/auth/forgot-password", &json!({ "email": email })).data().await;
            example.replace(TOKEN, &world.mailed_token(&email).await);
        }
        "change_email" => {
            example.log_in(&world.user(&name).await);
            example.replace("ada.lovelace@example.com", &format!("new-{email}"));
        }
        "send_change_email_page" => {
            let user = world.user(&name).await;
            let body = json!({"new_email": format!("new-{email}"), "password": PASSWORD});
            world.post("/v1/auth/change-email", &body).bearer(&user.access_token).data().await;
            example.replace(TOKEN, &world.mailed_token(&format!("new-{email}")).await);
        }
        "change_password" | "update_me" | "logout" | "delete_sessions" | "create_totp" | "reauthenticate" => {
            example.log_in(&world.user(&name).await);
        }
        "confirm_totp" => {
            let user = world.user(&name).await;
            let started = world.post("/v1/auth/totp", &json!({})).bearer(&user.access_token).data().await;
            let app = Authenticator::new(started["secret"].as_str().unwrap());
            example.log_in(&user);
            example.replace("123456", &app.code(world.clock.now()));
        }
        "delete_totp" | "create_recovery_codes" => {
            let user = world.user(&name).await;
            world.add_authenticator_now(&user.access_token).await;
            example.log_in(&user);
        }
        "create_passkey_options" => example.log_in(&world.user(&name).await),
        "create_passkey" => {
            let user = world.user(&name).await;
            let body = world.new_passkey(&user.access_token, &mut SecurityKey::new()).await;
            example.log_in(&user);
            example.replace_answer(&body);
        }
        "passkey_login" => {
            let (_, mut key, _) = with_passkey(world, &name).await;
            let body = world.passkey_login(&mut key).await;
            example.replace_answer(&body);
        }
        "update_passkey" | "delete_passkey" => {
            let (user, _, id) = with_passkey(world, &name).await;
            example.log_in(&user);
            example.replace_id("passkey", &id);
        }
        "create_reauthentication_options" => {
            let (user, _, _) = with_passkey(world, &name).await;
            example.log_in(&user);
        }
        "delete_session" => {
            let user = world.user(&name).await;
            let other = world.session(user.id).await;
            example.log_in(&user);
            example.replace_id("sess", &other.session_id.to_string());
        }
        "delete_connection" => {
            let user = world.user(&name).await;
            let id = world.connection(user.id, "https://id.example.com", &name).await;
            example.log_in(&user);
            example.replace_id("con", &id.to_string());
        }
        "delete_organization" => {
            example.replace_id("org", &world.organization(&scene.owner, &name).await);
        }
        "create_invitation" => {
            example.replace("grace@example.com", &email);
        }
        "delete_invitation" | "resend_invitation" => {
            let guest = (email.as_str(), email.as_str());
            let role = OrganizationRole::Member;
            let id = world.insert_invitation(&scene.place, guest, role, scene.owner.id).await;
            example.replace_id("inv", &id.to_string());
        }
        "send_accept_invitation_page" => {
            world.user(&name).await;
            let invitation = world.post(&format!("{path}/invitations"), &json!({ "email": email }));
            invitation.bearer(owner).data().await;
            example.replace(TOKEN, &world.mailed_token(&email).await);
        }
        "update_organization_member"
        | "delete_organization_member"
        | "update_project_member"
        | "delete_project_member" => {
            example.replace_id("user", &member(world, &scene.place, &name).await.id.to_string());
        }
        "create_project_member" => {
            example.replace_id("user", &world.user(&name).await.id.to_string());
        }
        "delete_project" => {
            example.replace_id("proj", &world.project(&scene.owner, &scene.place.organization, &name).await);
        }
        "update_api_key" | "delete_api_key" | "rotate_api_key" | "end_api_key_rotation" => {
            let (key_id, _) = world.key(&scene.owner, &scene.place, &json!({ "name": name })).await;
            if operation == "end_api_key_rotation" {
                let path = format!("{}/api-keys/{key_id}/rotate", scene.place.project_path());
                world.call(Method::POST, &path).bearer(owner).data().await;
            }
            example.replace_id("key", &key_id);
        }
        "get_webhook"
        | "update_webhook"
        | "delete_webhook"
        | "rotate_webhook"
        | "test_webhook"
        | "redeliver_failed_events"
        | "list_webhook_deliveries"
        | "redeliver_event" => {
            let path = format!("{}/webhooks", scene.place.organization_path());
            let body = json!({"url": "https://example.com/events", "events": ["invoice.paid"]});
            let webhook_id = id(&world.post(&path, &body).bearer(owner).data().await);
            if operation == "redeliver_event" {
                let path = format!("{path}/{webhook_id}/test");
                let test = world.call(Method::POST, &path).bearer(owner).data().await;
                example.replace_id("delivery", test["delivery_id"].as_str().unwrap());
            }
            example.replace_id("webhook", &webhook_id);
        }
        "extend_reservation" | "delete_reservation" => {
            let call = json!({"credential": scene.key, "operation": "chat", "model": "svc-1"});
            let decision = world.ask("/service/v1/authorize", &call).bare().await;
            example.replace_id("res", &id(&decision["reservation"]));
        }
        "get_budget" | "update_budget" | "delete_budget" => {
            let body = json!({"name": number.to_string(), "scope": "project", "project_id": scene.place.project,
                "period": "day", "limit": 1_000});
            let path = billed::budgets_path(&scene.place.organization);
            let budget = world.post(&path, &body).bearer(owner).data().await;
            example.replace_id("budget", &id(&budget));
        }
        "get_call" | "get_project_call" => {
            let call = json!({"credential": scene.key, "operation": "chat", "model": "svc-1"});
            let decision = world.ask("/service/v1/authorize", &call).bare().await;
            let event = json!({"id": name, "source": "examples", "time": world.clock.now().to_string(),
                "api_key_id": decision["api_key_id"], "model": "svc-1", "kind": "chat", "prompt_tokens": 0,
                "reservation_id": decision["reservation"]["id"]});
            let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
            assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
            let path = format!("{}/calls?limit=1", scene.place.project_path());
            let calls = world.get(&path).bearer(owner).data().await;
            example.replace_id("call", &id(&calls["calls"][0]));
        }
        "get_payment" => {
            example.replace_id("payment", &support::billed::payment(world, &scene.place).await);
        }
        "report_usage" => example.replace("2026-01-31T09:30:00Z", "2026-03-10T11:30:00Z"),
        _ => {}
    }
}

/// Returns the source of an example in the section of its operation.
fn source(section: &str, label: &str) -> String {
    let rest = section.split_once(&format!("<h3>Example with {label}</h3>\n<pre tabindex=\"0\"><code>"));
    unescaped(rest.unwrap().1.split_once("</code></pre>").unwrap().0)
}

/// Operations whose examples aren't run, because no payment processor is set up.
const PAYMENTS: [&str; 5] = [
    "create_payment",
    "update_payment_method",
    "delete_payment_method",
    "update_auto_top_up",
    "take_stripe_event",
];

/// Returns all examples in a language, each with its values.
async fn examples(world: &World, addresses: Addresses, label: &str) -> Vec<Example> {
    let (mut examples, scene) = (Vec::new(), Scene::new(world, label).await);
    let document = super::document(world);
    let sections = sections(&pages(world).await);
    for (number, (operation, documented)) in operations(&document).into_iter().enumerate() {
        if PAYMENTS.contains(&operation.as_str()) {
            continue;
        }
        let (number, source) = (number + 1_000 * label.len(), source(&sections[&operation], label));
        let mut samples = documented["x-codeSamples"].as_array().unwrap().iter();
        assert_eq!(samples.find(|sample| sample["label"] == label).unwrap()["source"], source);
        let secrets = [
            ("API_KEY", scene.key.clone()),
            ("SERVICE_TOKEN", world.app.api.service_token.expose().to_owned()),
        ];
        let mut example =
            Example { name: operation.clone(), source, environment: secrets.into_iter().collect() };
        example.log_in(&scene.owner);
        prepare(world, &scene, &operation, number, &mut example).await;
        for (prefix, id) in [
            ("org", scene.place.organization.as_str()),
            ("proj", &scene.place.project),
            ("key", &scene.key_id),
            ("user", &scene.colleague.id.to_string()),
            ("invoice", &scene.invoice_id),
        ] {
            example.replace_id(prefix, id);
        }
        for (from, to) in [
            (world.app.api.public_url.as_str(), format!("http://{}", addresses.public)),
            (&world.app.api.service_url, format!("http://{}", addresses.service)),
            ("tk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG0aBcDe", scene.key.clone()),
            ("\"Acme", format!("\"Acme {number}")),
            ("\"call-1\"", format!("\"call-{number}\"")),
        ] {
            example.source = example.source.replace(from, &to);
        }
        assert!(!example.source.contains(ID), "{operation}: an id is left: {}", example.source);
        examples.push(example);
    }
    examples
}

#[test]
fn examples_run() {
    runtime().block_on(async {
        let world = World::new("sqlite", None, &[("TOLLKEEPER_LIMITS__ENABLED", "false")]).await;
        let (addresses, _listeners) = listen(&world).await;
        let folder = Folder::new();
        if Command::new("curl").arg("--version").output().is_ok() {
            // The file makes curl print the status; the example's line stays unchanged.
            std::fs::write(folder.0.join(".curlrc"), "silent\nshow-error\nwrite-out = \"\\n%{http_code}\"\n")
                .unwrap();
            for example in examples(&world, addresses, "curl").await {
                run_curl(&folder, example);
            }
        } else {
            python::skip("the reference's examples for curl", "`curl` is not installed");
        }
        if let Some(program) = python::python("httpx", "httpx", "the reference's examples for Python") {
            run_python(&folder, program, &examples(&world, addresses, "Python").await);
        }
    });
}

fn run_curl(folder: &Folder, example: Example) {
    let Example { name, source, environment } = example;
    let mut command = Command::new("sh");
    command.args(["-c", &source]).env_clear().envs(environment);
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("CURL_HOME", &folder.0);
    let ended = run_to_end(command);
    let status = ended.stdout.rsplit('\n').next().unwrap();
    assert_eq!((ended.code, status), (Some(0), "200"), "{name}: {source}\n{}\n{}", ended.stdout, ended.log);
    // An answer with status 200 may contain refused events.
    assert!(!ended.stdout.contains("\"status\":\"refused\""), "{name}: {}", ended.stdout);
}

fn run_python(folder: &Folder, mut program: Command, examples: &[Example]) {
    let list = examples.iter().map(
        |example| json!({"name": example.name, "source": example.source, "environment": example.environment}),
    );
    let file = folder.0.join("examples.json");
    std::fs::write(&file, Value::from(list.collect::<Vec<_>>()).to_string()).unwrap();
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/run_examples.py")).arg(&file);
    let ended = run_to_end(program);
    let due = format!("{} examples ran", examples.len());
    assert_eq!((ended.code, ended.stdout.trim()), (Some(0), due.as_str()), "{}", ended.log);
}
