//! Real proxies with the configurations of packaging/forward-auth, in front of a server that reports the
//! requests that reach it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use serde_json::{Value, json};

use support::http::Answer;
use support::process::{Account, Place, Server, Start, Wire, free_addresses, run_to_end};
use support::proxy::{Proxy, ReceivedRequest, Upstream, is_installed};
use support::world::Folder;

/// Forged identity headers of a client.
const FORGED_HEADERS: [(&str, &str); 13] = [
    ("x-tollkeeper-organization-id", "org_evil"),
    ("X-TOLLKEEPER-ORGANIZATION-ID", "org_evil"),
    ("x-tollkeeper-project-id", "proj_evil"),
    ("x-tollkeeper-api-key-id", "key_evil"),
    ("x-tollkeeper-user-id", "user_evil"),
    ("x-tollkeeper-model", "evil"),
    ("x-tollkeeper-max-tokens", "evil"),
    ("x-tollkeeper-reservation-id", "res_evil"),
    ("x-tollkeeper-service-token", "evil"),
    ("x_tollkeeper_organization_id", "org_evil"),
    ("X_Tollkeeper_User_Id", "user_evil"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x-real-ip", "192.0.2.1"),
];

/// The service, a model server, and the proxy between them.
struct Scene {
    server: Server,
    upstream: Upstream,
    front: SocketAddr,
    ada: Account,
    place: Place,
    _proxy: Proxy,
    _folder: Folder,
}

/// Returns a file of packaging/forward-auth, with the addresses of this test.
fn configuration(file: &str, front: SocketAddr, server: &Server, upstream: &Upstream) -> String {
    let text = std::fs::read_to_string(format!("packaging/forward-auth/{file}")).unwrap();
    let places =
        [("127.0.0.1:8000", front), ("127.0.0.1:8081", server.service), ("127.0.0.1:9000", upstream.address)];
    places.iter().fold(text, |text, (documented, here)| {
        assert!(text.contains(documented), "{documented} is not in {file}");
        text.replace(documented, &here.to_string())
    })
}

impl Scene {
    fn new(
        proxy: impl Fn(&Folder, &str, &str, SocketAddr) -> Proxy,
        file: &str,
        token: Option<&str>,
    ) -> Self {
        let folder = Folder::new();
        let server = Start::new(&folder.0).run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let (upstream, (front, _)) = (Upstream::start(), free_addresses());
        let text = configuration(file, front, &server, &upstream);
        let token = token.map_or_else(|| server.service_token(), str::to_owned);
        let proxy = proxy(&folder, &text, &token, front);
        Self { server, upstream, front, ada, place, _proxy: proxy, _folder: folder }
    }

    fn key(&self, body: Value) -> String {
        let path = format!("{}/api-keys", self.place.project_path);
        let key = self.server.post(&path, &body).bearer(&self.ada.access_token).data();
        key["key"].as_str().unwrap().to_owned()
    }

    fn call(&self) -> Wire {
        Wire::new(self.front, "POST", "/svc-1/v1/chat/completions?stream=true")
    }

    /// Asserts that the call passes; returns the request that reached the model server.
    fn assert_passes(&self, call: Wire) -> ReceivedRequest {
        let answer = call.json(&json!({"messages": ["hello"]})).send();
        assert_eq!((answer.status, answer.text.as_str()), (200, "hello"));
        let [reached] = self.upstream.take().try_into().expect("one request");
        reached
    }

    /// Asserts that the call is refused; returns the client's answer.
    fn assert_refused(&self, call: Wire, status: u16, code: &str) -> Answer {
        let answer = call.json(&json!({})).send();
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
        assert!(answer.json()["error"]["type"].is_string() && !answer.header("x-request-id").is_empty());
        assert!(answer.header("content-type").starts_with("application/json"));
        assert!(self.upstream.take().is_empty(), "{code}: the server behind was asked");
        answer
    }
}

/// Starts nginx, which reads the service token from a file.
fn nginx(folder: &Folder, text: &str, token: &str, front: SocketAddr) -> Proxy {
    let secret = format!("proxy_set_header X-Tollkeeper-Service-Token \"{token}\";\n");
    std::fs::write(folder.0.join("tollkeeper-token.conf"), secret).unwrap();
    Proxy::nginx(&folder.0, text, front)
}

/// Starts Caddy without its admin interface.
fn caddy(folder: &Folder, text: &str, token: &str, front: SocketAddr) -> Proxy {
    let file = folder.0.join("Caddyfile");
    std::fs::write(&file, format!("{{\n\tadmin off\n\tauto_https off\n}}\n{text}\n")).unwrap();
    // The environment is cleared, so env(1) sets the token.
    let mut command = Command::new("env");
    command.arg(format!("TOLLKEEPER_SERVICE_TOKEN={token}"));
    command.args(["caddy", "run", "--adapter", "caddyfile", "--config"]).arg(&file);
    Proxy::start(command, &folder.0, front)
}

#[test]
fn nginx_follows_the_decisions() {
    if is_installed("nginx", "nginx-light", "forward-auth through nginx") {
        let scene = Scene::new(nginx, "nginx.conf", None);
        calls_pass_with_our_identity_only(&scene);
        refusals_reach_the_client_whole(&scene);
        // Another location requests another operation.
        let embed = |key: &str| Wire::new(scene.front, "GET", "/svc-embedding-1/x").bearer(key);
        let chat = scene.key(json!({"name": "chat", "permissions": ["chat"]}));
        scene.assert_refused(embed(&chat), 403, "missing_permission");
        assert_eq!(
            scene.assert_passes(embed(&scene.place.key)).all("x-tollkeeper-model"),
            ["svc-embedding-1"]
        );
        // Clients can't call the decision endpoint.
        assert_eq!(Wire::new(scene.front, "GET", "/_tollkeeper").send().status, 404);
    }
}

/// nginx answers 502 to a refusal if its configuration doesn't contain the status.
#[test]
fn nginx_has_each_status_of_a_refusal() {
    let text = std::fs::read_to_string("packaging/forward-auth/nginx.conf").unwrap();
    for status in [400, 401, 402, 403, 404, 409, 429] {
        assert!(
            text.contains(&format!("if ($tk_status = {status}) {{ return {status} $tk_error; }}")),
            "{status}"
        );
    }
}

#[test]
fn nginx_with_a_wrong_service_token_does_not_blame_the_key() {
    if is_installed("nginx", "nginx-light", "nginx with a wrong service token") {
        let scene = Scene::new(nginx, "nginx.conf", Some("svc_wrong"));
        assert_eq!(scene.call().bearer(&scene.place.key).raw(b"").send().status, 502);
        assert!(scene.upstream.take().is_empty());
    }
}

/// The most common configuration of nginx keeps the client's header and appends the client's address.
#[test]
fn client_cannot_pass_as_an_appending_nginx() {
    if !is_installed("nginx", "nginx-light", "an nginx that appends to X-Forwarded-For") {
        return;
    }
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.1").run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let (front, _) = free_addresses();
    let text = format!(
        "server {{ listen {front}; location / {{ proxy_pass http://{};\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }}",
        server.public
    );
    let _proxy = Proxy::nginx(&folder.0, &text, front);
    let key = json!({"name": "near", "restrictions": {"allowed_ips": ["127.0.0.1", "192.0.2.1"]}});
    let path = format!("{}/api-keys", place.project_path);
    let key = server.post(&path, &key).bearer(&ada.access_token).data();
    let key = key["key"].as_str().unwrap();
    for sent in [b"\xff".as_slice(), b"", b"192.0.2.1", b"127.0.0.1", b"127.0.0.1,", b"unknown"] {
        // The call comes from another address of this machine, which nginx appends on the right.
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "--interface", "127.0.0.5", "-H"]);
        curl.arg(OsStr::from_bytes(&[b"x-forwarded-for: ", sent].concat()));
        curl.args(["-H", &format!("authorization: Bearer {key}"), &format!("http://{front}/v1/models")]);
        let ended = run_to_end(curl);
        assert!(ended.stdout.contains("ip_not_allowed"), "{sent:?}: {} {}", ended.stdout, ended.log);
    }
    server.wait_for_log("address=127.0.0.5");
    // The log doesn't contain the proxy's own address.
    let lines = server.log();
    assert!(
        !lines.lines().any(|line| line.contains("\"/v1/models\"") && line.contains("address=127.0.0.1 "))
    );
}

#[test]
fn caddy_follows_the_decisions() {
    if is_installed("caddy", "caddy", "forward-auth through Caddy") {
        let scene = Scene::new(caddy, "Caddyfile", None);
        calls_pass_with_our_identity_only(&scene);
        refusals_reach_the_client_whole(&scene);
    }
}

fn calls_pass_with_our_identity_only(scene: &Scene) {
    let reached = scene.assert_passes(scene.call().bearer(&scene.place.key));
    assert!(reached.line.starts_with("POST /v1/chat/completions?stream=true HTTP/1."), "{reached:?}");
    assert_eq!(reached.body, r#"{"messages":["hello"]}"#);
    let words: Vec<_> = scene.place.project_path.split('/').collect();
    let (organization, project) = (words[3], words[5]);
    let evil = FORGED_HEADERS
        .iter()
        .fold(scene.call().bearer(&scene.place.key), |call, (name, value)| call.header(name, value));
    for reached in [reached, scene.assert_passes(evil)] {
        assert_eq!(reached.all("x-tollkeeper-organization-id"), [organization]);
        assert_eq!(reached.all("x-tollkeeper-project-id"), [project]);
        assert_eq!(reached.all("x-tollkeeper-api-key-id"), [scene.place.key_id.as_str()]);
        assert_eq!(reached.all("x-tollkeeper-user-id").len(), 1);
        assert_eq!(reached.all("x-tollkeeper-model"), ["svc-1"]);
        assert_eq!(reached.all("x-tollkeeper-max-tokens"), ["4096"]);
        for secret in ["authorization", "x-tollkeeper-service-token"] {
            assert!(reached.all(secret).is_empty(), "{secret} came through");
        }
        let ours =
            reached.headers.iter().filter(|(name, _)| name.replace('_', "-").starts_with("x-tollkeeper-"));
        assert!(reached.all("x-tollkeeper-reservation-id").concat().starts_with("res_"), "{reached:?}");
        assert_eq!(ours.count(), 7, "{reached:?}");
        assert!(!format!("{reached:?}").contains("evil"), "{reached:?}");
    }
    // A user has no key, and can't impersonate one.
    let person = scene.call().bearer(&scene.ada.access_token).header("x-tollkeeper-api-key-id", "key_evil");
    let person = person.header("openai-organization", organization).header("openai-project", project);
    let reached = scene.assert_passes(person);
    assert_eq!(reached.all("x-tollkeeper-project-id"), [project]);
    assert!(reached.all("x-tollkeeper-api-key-id").concat().is_empty(), "{reached:?}");
}

fn refusals_reach_the_client_whole(scene: &Scene) {
    let answer = scene.assert_refused(scene.call(), 401, "missing_credentials");
    assert_eq!(answer.headers.get_all("www-authenticate").iter().collect::<Vec<_>>(), ["Bearer"]);
    let answer = scene.assert_refused(scene.call().bearer("tk_x"), 401, "invalid_api_key");
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"");

    let models = scene.key(json!({"name": "models", "permissions": ["models"]}));
    let answer = scene.assert_refused(scene.call().bearer(&models), 403, "missing_permission");
    assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), ("false", ""));
    // The client's own query doesn't affect the decision.
    let sly = Wire::new(scene.front, "POST", "/svc-1/x?operation=models&mode=plain&model=svc-1-pro");
    scene.assert_refused(sly.bearer(&models), 403, "missing_permission");
    let pro = scene.key(json!({"name": "pro", "restrictions": {"models": ["svc-1-pro"]}}));
    scene.assert_refused(scene.call().bearer(&pro), 403, "model_not_allowed");
    scene.assert_refused(scene.call().bearer(&scene.ada.access_token), 400, "project_required");

    // The client's address is the one that the proxy sees, regardless of the client's headers.
    let near = scene.key(json!({"name": "near", "restrictions": {"allowed_ips": ["127.0.0.1"]}}));
    scene.assert_passes(scene.call().bearer(&near).header("x-forwarded-for", "192.0.2.1"));
    let far = scene.key(json!({"name": "far", "restrictions": {"allowed_ips": ["192.0.2.1"]}}));
    scene.assert_refused(
        scene.call().bearer(&far).header("x-forwarded-for", "192.0.2.1"),
        403,
        "ip_not_allowed",
    );

    // An organization without credit.
    let post = |path: &str, name: &str| {
        scene.server.post(path, &json!({"name": name})).bearer(&scene.ada.access_token).data()
    };
    let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
    let projects = format!("/v1/organizations/{}/projects", id(&post("/v1/organizations", "Poor")));
    let keys = format!("{projects}/{}/api-keys", id(&post(&projects, "Bot")));
    let poor = post(&keys, "key")["key"].as_str().unwrap().to_owned();
    let answer = scene.assert_refused(scene.call().bearer(&poor), 402, "insufficient_quota");
    assert_eq!(answer.header("x-should-retry"), "false");

    let slow = scene.key(json!({"name": "slow", "restrictions": {"rate_limit": 1}}));
    scene.assert_passes(scene.call().bearer(&slow));
    let answer = scene.assert_refused(scene.call().bearer(&slow), 429, "rate_limited");
    let number = |name: &str| answer.header(name).parse::<i64>().unwrap();
    assert!((1..=60).contains(&number("retry-after")), "{}", answer.header("retry-after"));
    assert!((1..=60_000).contains(&number("retry-after-ms")));
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
}
