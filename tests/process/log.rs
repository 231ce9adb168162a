//! The log of a server process. It has one line for each request, and no secrets.

use std::collections::HashSet;

use serde_json::{Value, json};

use support::http::Answer;
use support::process::{Account, Place, Server, Start, Wire, until, usage_event};
use support::world::{Folder, PASSWORD, mailed_token};
use support::{Database, on_each_database};

const MASTER_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SERVICE_TOKEN: &str = "service-token-that-nobody-may-see";
const OTHER_PASSWORD: &str = "Wrong-Donkey-8-Paperclip";
const WEAK_PASSWORD: &str = "weakling";
const DATABASE_PASSWORD: &str = "hunter2-of-the-database";

/// The expected log line of one request.
struct ExpectedLine {
    method: &'static str,
    route: &'static str,
    actor: String,
    answer: Answer,
}

#[on_each_database]
fn every_request_is_one_line_without_secrets(database: Database) {
    for format in ["json", "text"] {
        database.run_empty(|url, folder| {
            let url = url.map(|url| url.replace("postgres@", &format!("postgres:{DATABASE_PASSWORD}@")));
            check_log(url.as_deref(), folder, format);
        });
    }
}

fn check_log(url: Option<&str>, folder: &Folder, format: &'static str) {
    let start = Start::new(&folder.0)
        .database(url)
        .set("TOLLKEEPER_LOG__FORMAT", format)
        // This level logs everything.
        .set("TOLLKEEPER_LOG__LEVEL", "trace")
        .set("TOLLKEEPER_MASTER_KEY", MASTER_KEY)
        .set("TOLLKEEPER_SERVICE_TOKEN", SERVICE_TOKEN);
    let server = start.run();
    let ada = sign_up(&server, format);
    let place = server.settle(&ada);
    let mail_token = mailed_token(&server.data_dir, "@example.com");
    let calls = calls(&server, &ada, &place, &mail_token, format);
    let log = server.stop().log;
    // The log also has the requests that register, log in, read the account, and create an organization, a
    // project and a key.
    let lines: Vec<_> = log.lines().filter(|line| is_access(line)).collect();
    assert_eq!(lines.len(), 6 + probes(&log) + calls.len(), "{log}");
    for call in &calls {
        check_line(&lines, call, format);
    }
    let secrets = [
        PASSWORD,
        OTHER_PASSWORD,
        WEAK_PASSWORD,
        DATABASE_PASSWORD,
        MASTER_KEY,
        SERVICE_TOKEN,
        &ada.access_token,
        &ada.refresh_token,
        &place.key,
        &mail_token,
    ];
    check_secrets(&log, &secrets);
}

fn sign_up(server: &Server, name: &str) -> Account {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    server.post("/v1/auth/register", &body).data();
    server.log_in(name)
}

/// Counts the readiness probes of the harness.
fn probes(log: &str) -> usize {
    log.lines().filter(|line| is_access(line) && line.contains("/readyz")).count()
}

fn is_access(line: &str) -> bool {
    line.contains("tollkeeper::access")
}

/// Makes successful and failing calls that contain secrets in all parts of a request.
fn calls(server: &Server, ada: &Account, place: &Place, mail_token: &str, name: &str) -> Vec<ExpectedLine> {
    let mut calls = Vec::new();
    let mut call = |method, route, actor: &str, status: u16, wire: Wire| {
        let answer = wire.send();
        assert_eq!(answer.status, status, "{method} {route}: {}", answer.text);
        calls.push(ExpectedLine { method, route, actor: actor.to_owned(), answer });
    };
    let Account { access_token: access, refresh_token: refresh } = ada;
    let key = place.key.as_str();
    let me = server.get("/v1/auth/me").bearer(access).data();
    let ada_id = me["user"]["id"].as_str().unwrap().to_owned();
    let ada_id = ada_id.as_str();

    let register = |password: &str| {
        let email = format!("{name}@example.com");
        server.post("/v1/auth/register", &json!({"email": email, "password": password, "username": "x"}))
    };
    call("POST", "/v1/auth/register", "", 400, register(WEAK_PASSWORD));
    call("POST", "/v1/auth/register", "", 400, register(PASSWORD));
    let broken =
        Wire::new(server.public, "POST", "/v1/auth/login").header("content-type", "application/json");
    call(
        "POST",
        "/v1/auth/login",
        "",
        400,
        broken.clone().raw(format!("{{\"password\": \"{PASSWORD}").as_bytes()),
    );
    let misspelt = json!({"email": "x", "pasword": PASSWORD, PASSWORD: 1});
    call("POST", "/v1/auth/login", "", 400, server.post("/v1/auth/login", &misspelt));
    let log_in = |password: &str| {
        let email = format!("{name}@example.com");
        server.post("/v1/auth/login", &json!({"email": email, "password": password}))
    };
    call("POST", "/v1/auth/login", "", 401, log_in(OTHER_PASSWORD));
    call("POST", "/v1/auth/login", "", 200, log_in(PASSWORD));
    call(
        "POST",
        "/v1/auth/refresh-token",
        ada_id,
        200,
        Wire::new(server.public, "POST", "/v1/auth/refresh-token").bearer(refresh),
    );
    call(
        "POST",
        "/v1/auth/refresh-token",
        "",
        401,
        Wire::new(server.public, "POST", "/v1/auth/refresh-token").bearer(access),
    );
    call("GET", "/v1/auth/me", "", 401, server.get("/v1/auth/me").bearer(refresh));
    call("GET", "/v1/auth/me", "", 401, server.get("/v1/auth/me").bearer(key));
    call(
        "GET",
        "/v1/auth/me",
        "",
        401,
        server.get("/v1/auth/me").header("authorization", &format!("Basic {access}")),
    );
    let query = format!("/v1/auth/me?access_token={access}&password={PASSWORD}");
    call("GET", "/v1/auth/me", "", 401, server.get(&query));
    call("GET", "/v1/auth/me", ada_id, 200, server.get(&query).bearer(access).header("cookie", refresh));
    // Secrets in the path: as a parameter, in an unknown path, and with a wrong method.
    let path = |secret: &str| format!("/v1/models/{secret}");
    call("GET", "/v1/models/{*model_id}", ada_id, 404, server.get(&path(access)).bearer(access));
    call("GET", "/v1/models/{*model_id}", &place.key_id, 404, server.get(&path(key)).bearer(key));
    let path = format!("/v1/organizations/{key}/projects/{access}");
    call(
        "GET",
        "/v1/organizations/{organization_id}/projects/{project_id}",
        ada_id,
        404,
        server.get(&path).bearer(access),
    );
    call("GET", "-", "", 404, server.get(&format!("/{SERVICE_TOKEN}/{PASSWORD}?{key}")).bearer(key));
    call("GET", "/verify-email", "", 200, server.get(&format!("/verify-email?token={mail_token}")));
    call(
        "DELETE",
        "/v1/models/{*model_id}",
        "",
        405,
        Wire::new(server.public, "DELETE", &format!("/v1/models/{key}")).bearer(key),
    );
    call(
        "HEAD",
        "/v1/models",
        &place.key_id,
        200,
        Wire::new(server.public, "HEAD", "/v1/models").bearer(key),
    );
    call(
        "GET",
        "/v1/models",
        &place.key_id,
        200,
        server.get("/v1/models").bearer(key).header("x-api-key", key),
    );
    let typo = format!("{}{}", &key[..key.len() - 1], if key.ends_with('x') { 'y' } else { 'x' });
    call("GET", "/v1/models", "", 401, server.get("/v1/models").bearer(&typo));
    let named =
        server.post("/v1/organizations", &json!({"name": key, "description": access, "note": refresh}));
    call("POST", "/v1/organizations", ada_id, 400, named.bearer(access));
    let large = Wire::new(server.public, "POST", "/v1/organizations").header("content-length", "2000000");
    call("POST", "/v1/organizations", ada_id, 413, large.bearer(access));
    let verify = |token: &str| server.post("/v1/auth/verify-email", &json!({ "token": token }));
    call("POST", "/v1/auth/verify-email", "", 400, verify(key));
    call("POST", "/v1/auth/verify-email", "", 200, verify(mail_token));
    call("POST", "/v1/auth/verify-email", "", 400, verify(mail_token));
    // Calls on the service listener.
    let asked = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1"});
    call("POST", "/service/v1/authorize", "service", 200, server.ask("/service/v1/authorize", &asked));
    let asked = json!({"credential": access, "operation": "chat", "reserve": false, "model": key});
    call("POST", "/service/v1/authorize", "service", 200, server.ask("/service/v1/authorize", &asked));
    call(
        "POST",
        "/service/v1/usage",
        "service",
        200,
        server.ask("/service/v1/usage", &usage_event(place, "e1")),
    );
    let event = json!({"events": [{"id": key, "source": access, "secret": refresh}]});
    call("POST", "/service/v1/usage", "service", 200, server.ask("/service/v1/usage", &event));
    let stranger = Wire::new(server.service, "POST", "/service/v1/usage").bearer(key).json(&event);
    call("POST", "/service/v1/usage", "", 401, stranger);
    let public = Wire::new(server.public, "POST", "/service/v1/usage").bearer(SERVICE_TOKEN).json(&event);
    call("POST", "-", "", 404, public);
    calls
}

/// Asserts that exactly one line has the request's id, and that it shows the result.
fn check_line(lines: &[&str], call: &ExpectedLine, format: &str) {
    let id = call.answer.header("x-request-id");
    let found: Vec<_> = lines.iter().filter(|line| line.contains(id)).collect();
    assert_eq!(found.len(), 1, "{} {} {id}: {found:?}", call.method, call.route);
    let is_json = call.answer.header("content-type") == "application/json" && !call.answer.text.is_empty();
    let code = if is_json { call.answer.code() } else { String::new() };
    if format == "json" {
        let line: Value = serde_json::from_str(found[0]).unwrap();
        assert!(line["duration_us"].is_u64() && line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        let expected = json!({
            "timestamp": line["timestamp"], "level": "INFO", "message": "request", "target": "tollkeeper::access",
            "method": call.method, "route": call.route, "status": call.answer.status, "code": code, "who": call.actor,
            "address": "127.0.0.1", "duration_us": line["duration_us"], "request_id": id,
        });
        assert_eq!(line, expected);
    } else {
        let (method, route, status, actor) = (call.method, call.route, call.answer.status, &call.actor);
        let words = format!(
            "request method=\"{method}\" route=\"{route}\" status={status} code=\"{code}\" who=\"{actor}\" \
             address=127.0.0.1 duration_us="
        );
        assert!(found[0].contains(&words) && found[0].contains(" INFO "), "{}\n{words}", found[0]);
    }
}

/// Asserts that no line contains a secret, except for links that the mail folder logs by design.
fn check_secrets(log: &str, secrets: &[&str]) {
    for line in log.lines().filter(|line| !line.contains("mail::delivery") || !line.contains("mail written"))
    {
        for secret in secrets {
            // A part of a token reveals nothing, but shows that the whole token might leak elsewhere.
            let parts = secret.split('.').filter(|part| part.len() >= 8).collect::<HashSet<_>>();
            for part in parts.into_iter().chain([*secret]) {
                assert!(!line.contains(part), "{part} is in the log: {line}");
            }
        }
    }
}

/// A client that disconnects before the answer still leaves a line.
#[test]
fn canceled_request_is_one_line() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_LOG__FORMAT", "json").run();
    for _ in 0..20 {
        let body = json!({"email": "nobody@example.com", "password": PASSWORD});
        server.post("/v1/auth/login", &body).begin().hang_up();
    }
    let count = || server.log().lines().filter(|line| line.contains("/v1/auth/login")).count();
    assert!(until(|| count() >= 20), "{} lines:\n{}", count(), server.log());
    assert_eq!(server.get("/healthz").send().status, 200);
    let log = server.stop().log;
    assert_eq!(log.lines().filter(|line| line.contains("/v1/auth/login")).count(), 20, "{log}");
}
