//! A credential that is revoked while a request's body is still arriving. The request fails: immediately at
//! the replica that revokes, and at the others after they have read the feed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::{REPLICAS, run_on};
use support::process::{Account, Server, Wire};
use support::replicas::{Fleet, text};
use support::world::PASSWORD;
use support::{Database, on_each_database};

/// A request whose head and first byte have been sent.
struct SlowRequest {
    connection: TcpStream,
    rest: String,
}

impl SlowRequest {
    fn begin(server: SocketAddr, method: &str, path: &str, bearer: &str, body: &Value) -> Self {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {bearer}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let (first, rest) = body.split_at(1);
        let mut connection = TcpStream::connect(server).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        connection.write_all(format!("{head}{first}").as_bytes()).unwrap();
        Self { connection, rest: rest.to_owned() }
    }

    /// Sends the rest of the request. Returns the status and the error code of the answer.
    fn finish(mut self) -> (u16, String) {
        self.connection.write_all(self.rest.as_bytes()).unwrap();
        let mut answer = String::new();
        self.connection.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// Begins a request at every replica, revokes at the first one, and finishes the requests. Returns the
/// answers.
fn revoke_during_requests(
    fleet: &Fleet,
    method: &str,
    path: &str,
    bearer: &str,
    body: impl Fn(usize) -> Value,
    revoke: impl FnOnce(),
) -> Vec<(u16, String)> {
    let begin = |(number, server): (usize, &Server)| {
        SlowRequest::begin(server.public, method, path, bearer, &body(number))
    };
    let slow: Vec<_> = fleet.servers.iter().enumerate().map(begin).collect();
    // Waits until the requests have passed the gate.
    std::thread::sleep(Duration::from_millis(300));
    revoke();
    let mut answers = Vec::new();
    for (number, request) in slow.into_iter().enumerate() {
        if number == 1 {
            std::thread::sleep(Duration::from_secs(2));
        }
        answers.push(request.finish());
    }
    answers
}

fn send(fleet: &Fleet, method: &str, path: &str, user: &Account, body: &Value) -> Value {
    Wire::new(fleet.servers[0].public, method, path).bearer(&user.access_token).json(body).data()
}

fn refused(code: &str, status: u16) -> Vec<(u16, String)> {
    vec![(status, code.to_owned()); REPLICAS]
}

#[on_each_database]
fn request_of_a_deleted_key_fails(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        let keys = format!("{}/api-keys", place.project_path);
        let invitations = format!("/v1/organizations/{}/invitations", place.organization());
        for (path, body) in [(&keys, "name"), (&invitations, "email")] {
            let new = text(&send(&fleet, "POST", &keys, &ada, &json!({"name": body})), "id");
            let secret = send(&fleet, "POST", &format!("{keys}/{new}/rotate"), &ada, &json!({}));
            let body = |number| json!({ body: format!("late{number}@example.com") });
            let revoke = || drop(send(&fleet, "DELETE", &format!("{keys}/{new}"), &ada, &json!({})));
            let answers = revoke_during_requests(&fleet, "POST", path, &text(&secret, "key"), body, revoke);
            assert_eq!(answers, refused("invalid_api_key", 401), "{path}");
        }
        let left = fleet.get(&keys).bearer(&ada.access_token).data();
        assert_eq!(left["total"], 1, "{left}");
        fleet.stop();
    });
}

#[on_each_database]
fn request_of_an_ended_session_fails(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        fleet.settle(&ada, "Acme");
        let body = |number| json!({"name": format!("late {number}")});
        let organizations = "/v1/organizations";
        let logout = fleet.next().log_in("ada");
        let answers =
            revoke_during_requests(&fleet, "POST", organizations, &logout.access_token, body, || {
                send(&fleet, "POST", "/v1/auth/logout", &logout, &json!({}));
            });
        assert_eq!(answers, refused("invalid_access_token", 401));
        let other = fleet.next().log_in("ada");
        let change = json!({
            "current_password": PASSWORD,
            "new_password": "Another-Horse-8-Staple",
            "new_password_confirmation": "Another-Horse-8-Staple",
        });
        let answers =
            revoke_during_requests(&fleet, "POST", organizations, &other.access_token, body, || {
                send(&fleet, "POST", "/v1/auth/change-password", &ada, &change);
            });
        assert_eq!(answers, refused("invalid_access_token", 401));
        let left = fleet.get(organizations).bearer(&ada.access_token).data();
        assert_eq!(left["total"], 1, "{left}");
        fleet.stop();
    });
}

#[on_each_database]
fn removed_admin_creates_no_key(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        let (ada, bob) = (fleet.sign_up("ada"), fleet.sign_up("bob"));
        let place = fleet.settle(&ada, "Acme");
        let members = format!("/v1/organizations/{}/members", place.organization());
        let bob_id = text(&fleet.get("/v1/auth/me").bearer(&bob.access_token).data()["user"], "id");
        let add = json!({"user_id": bob_id, "role": "admin"});
        send(&fleet, "POST", &format!("{}/members", place.project_path), &ada, &add);
        send(&fleet, "PUT", &format!("{members}/{bob_id}"), &ada, &json!({"role": "admin"}));
        let keys = format!("{}/api-keys", place.project_path);
        let body = |number| json!({"name": format!("late {number}")});
        let answers = revoke_during_requests(&fleet, "POST", &keys, &bob.access_token, body, || {
            send(&fleet, "DELETE", &format!("{members}/{bob_id}"), &ada, &json!({}));
        });
        assert_eq!(answers, refused("insufficient_role", 403));
        let left = fleet.get(&keys).bearer(&ada.access_token).data();
        assert_eq!(left["total"], 1, "{left}");
        fleet.stop();
    });
}
