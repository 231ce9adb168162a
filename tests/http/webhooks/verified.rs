//! Checks of our requests with the libraries of Standard Webhooks, and a server that is killed.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use support::node;
use support::process::{Account, Server, Start};
use support::python;
use support::receiver::{OK, Received, Receiver};
use support::smtp::make_certificates;
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

/// Verifies the request on standard input, and checks that changed requests are refused.
const PYTHON: &str = "
import json, sys
from standardwebhooks import Webhook
request = json.load(sys.stdin)
verified = Webhook(request['secret']).verify(request['body'], request['headers'])
assert verified['type'] == 'webhook.test', verified
for change in [{'body': request['body'] + ' '}, {'headers': request['headers'] | {'webhook-id': 'event_2'}},
               {'secret': 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY='}]:
    wrong = request | change
    try:
        Webhook(wrong['secret']).verify(wrong['body'], wrong['headers'])
    except Exception:
        continue
    raise SystemExit(f'verified: {change}')
print('verified')
";

/// The same checks for Node.
const NODE: &str = "
const { Webhook } = require('standardwebhooks');
const request = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const verified = new Webhook(request.secret).verify(request.body, request.headers);
if (verified.type !== 'webhook.test') throw new Error(JSON.stringify(verified));
for (const change of [{ body: request.body + ' ' }, { headers: { ...request.headers, 'webhook-id': 'event_2' } },
                      { secret: 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=' }]) {
  const wrong = { ...request, ...change };
  let good = true;
  try { new Webhook(wrong.secret).verify(wrong.body, wrong.headers); } catch { good = false; }
  if (good) throw new Error(JSON.stringify(change));
}
console.log('verified');
";

/// Runs the contract's receiver, from standard input, with an event whose amount no float can represent.
const DOCUMENTED: &str = r#"
import datetime, sys, types
from standardwebhooks import Webhook
secret = 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY='
body = '{"type":"credit.added","data":{"amount":123456789.123456789}}'
now = datetime.datetime.now(tz=datetime.timezone.utc)
headers = {'webhook-id': 'event_1', 'webhook-timestamp': str(int(now.timestamp())),
           'webhook-signature': Webhook(secret).sign('event_1', now, body)}
names = {'secret': secret, 'request': types.SimpleNamespace(body=body, headers=headers)}
exec(sys.stdin.read(), names)
print(names['event']['data']['amount'])
"#;

#[test]
fn documented_receiver_reads_exact_amounts() {
    let page = std::fs::read_to_string("docs/contract/webhooks.md").unwrap();
    let (_, rest) = page.split_once("```python\n").unwrap();
    let (code, _) = rest.split_once("```").unwrap();
    let Some(mut python) = python::python("standardwebhooks", "standardwebhooks", "webhooks") else { return };
    let python = python.args(["-c", DOCUMENTED]);
    let mut child =
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), "123456789.123456789", "{}", String::from_utf8_lossy(&output.stderr));
}

fn webhooks_path(server: &Server, owner: &Account) -> String {
    let body = json!({"name": "Acme"});
    let organization = server.post("/v1/organizations", &body).bearer(&owner.access_token).data();
    format!("/v1/organizations/{}/webhooks", organization["id"].as_str().unwrap())
}

fn create(server: &Server, owner: &Account, path: &str, url: &str) -> Value {
    let body = json!({"url": url, "events": ["invoice.paid"]});
    server.post(path, &body).bearer(&owner.access_token).data()
}

fn test(server: &Server, owner: &Account, path: &str, webhook: &Value) -> Value {
    let path = format!("{path}/{}/test", webhook["id"].as_str().unwrap());
    server.post(&path, &json!({})).bearer(&owner.access_token).data()
}

/// Verifies a request with a library.
fn verify(mut command: std::process::Command, secret: &str, request: &Received) {
    let input = json!({"secret": secret, "body": request.body, "headers": request.headers});
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), "verified", "{}", String::from_utf8_lossy(&output.stderr));
}

/// The real binary sends the requests over TLS.
#[test]
fn libraries_of_standard_webhooks_verify_our_requests() {
    let what = "webhooks";
    if !std::process::Command::new("openssl").arg("version").output().is_ok_and(|made| made.status.success())
    {
        return python::skip(what, "`openssl` is not installed");
    }
    let folder = Folder::new();
    make_certificates(&folder.0);
    runtime().block_on(async {
        let receiver = Receiver::start_with_tls(OK, &folder.0).await;
        let data = folder.0.join("data");
        std::fs::create_dir(&data).unwrap();
        let server = Start::new(&data)
            .set("TOLLKEEPER_WEBHOOKS__ALLOW_PRIVATE", "true")
            .set("SSL_CERT_FILE", folder.0.join("ca.pem").to_str().unwrap())
            // This proxy isn't used.
            .set("HTTPS_PROXY", "http://127.0.0.1:1")
            .run();
        let owner = server.sign_up("ada");
        let path = webhooks_path(&server, &owner);
        let url = format!("https://localhost:{}/events", receiver.port);
        let webhook = create(&server, &owner, &path, &url);
        let queued = test(&server, &owner, &path, &webhook);
        let [request] = receiver.wait_for(1).await.try_into().unwrap();
        assert_eq!(request.id(), queued["event_id"]);
        assert_eq!(request.headers["host"], format!("localhost:{}", receiver.port));
        let secret = webhook["secret"].as_str().unwrap();
        if let Some(mut python) = python::python("standardwebhooks", "standardwebhooks", what) {
            python.args(["-c", PYTHON]);
            verify(python, secret, &request);
        }
        if let Some(mut node) = node::node("standardwebhooks", what) {
            node.args(["-e", NODE]);
            verify(node, secret, &request);
        }
        // A certificate of another authority.
        let other = Folder::new();
        make_certificates(&other.0);
        let stranger = Receiver::start_with_tls(OK, &other.0).await;
        let wrong = create(&server, &owner, &path, &format!("https://localhost:{}/events", stranger.port));
        test(&server, &owner, &path, &wrong);
        let deliveries = format!("{path}/{}/deliveries", wrong["id"].as_str().unwrap());
        let has_failed = || {
            let data = server.get(&deliveries).bearer(&owner.access_token).data();
            data["deliveries"][0]["outcome"] == "tls_failed"
        };
        assert!(support::process::until(has_failed));
        assert_eq!((receiver.received().len(), stranger.received().len()), (1, 0));
        assert_eq!(server.metric("tollkeeper_webhook_attempts_total{outcome=\"succeeded\"}"), Some(1.0));
        server.stop();
    });
}

/// Events committed before the kill are sent after the restart.
#[on_each_database]
fn killed_server_sends_when_it_is_back(database: Database) {
    database.run_processes(|url, folder| {
        runtime().block_on(async {
            let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_WEBHOOKS__ALLOW_PRIVATE", "true");
            // A port that has no listener yet.
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = start.run();
            let owner = server.sign_up("ada");
            let path = webhooks_path(&server, &owner);
            let webhook = create(&server, &owner, &path, &format!("http://127.0.0.1:{port}/events"));
            let queued = test(&server, &owner, &path, &webhook);
            server.kill();
            let receiver = Receiver::start_on(port, OK).await;
            let server = start.run();
            let [request] = receiver.wait_for(1).await.try_into().unwrap();
            assert_eq!(request.id(), queued["event_id"]);
            server.stop();
        });
    });
}
