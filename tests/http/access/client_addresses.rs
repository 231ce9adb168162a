//! Calls whose client address is unknown, because the trusted proxy sends no readable address.

use serde_json::json;
use tollkeeper::trail::{self, Filter};

use support::process::Start;
use support::world::{Folder, PASSWORD, World};
use support::{Database, on_each_database};

/// Values of `X-Forwarded-For` that contain no readable client address; `None` sends no header.
const UNREADABLE: [Option<&[u8]>; 9] = [
    None,
    Some(b""),
    Some(b"unknown"),
    Some(b"\xff"),
    Some(b"192.0.2.1, \xff"),
    Some(b"192.0.2.1,"),
    Some(b"192.0.2.1, _hidden"),
    Some(b"fe80::1%eth0"),
    Some(b"192.0.2.1, garbage, 127.0.0.9"),
];

#[on_each_database(&[("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.0/8")])]
async fn unknown_client_address_fails_an_address_restriction(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    // Allows both the proxy's address and the address in the header.
    let body = json!({"name": "k", "restrictions": {"allowed_ips": ["127.0.0.0/8", "192.0.2.1"]}});
    let (_, key) = world.key(&ada, &place, &body).await;
    for value in UNREADABLE {
        for path in ["/v1/models", place.project_path().as_str()] {
            let call = world.get(path).bearer(&key);
            let call = value.into_iter().fold(call, |call, value| call.bytes("x-forwarded-for", value));
            assert_eq!(call.refused().await, (403, "ip_not_allowed".into()), "{value:?}");
        }
    }
    // Each value starts with the client's own header; nginx's `$proxy_add_x_forwarded_for` has appended the
    // address.
    for value in [b"\xff, 192.0.2.1".as_slice(), b"127.0.0.1, 192.0.2.1"] {
        world.get("/v1/models").bearer(&key).bytes("x-forwarded-for", value).bare().await;
    }
    let far = world.get("/v1/models").bearer(&key).bytes("x-forwarded-for", b"\xff, 192.0.2.2");
    assert_eq!(far.refused().await, (403, "ip_not_allowed".into()));
    // A client that isn't a trusted proxy can't change its address with the header.
    let peer = world.get("/v1/models").bearer(&key).from("192.0.2.1");
    peer.bytes("x-forwarded-for", b"\xff").bare().await;
    // Everything else still works for such a proxy, for instance a health check.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(world.get(path).send().await.status, 200);
    }
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
}

#[on_each_database]
fn unknown_addresses_share_one_limit_and_are_recorded_as_null(database: Database) {
    let settings =
        [("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.0/8"), ("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "9")];
    database.run(&settings, async |world| {
        world.user("ada").await;
        let body = json!({"email": "ada@example.com", "password": PASSWORD});
        for (index, value) in UNREADABLE.into_iter().enumerate() {
            let call = world.post("/v1/auth/login", &body).from(&format!("127.0.0.{}", index + 1));
            let call = value.into_iter().fold(call, |call, value| call.bytes("x-forwarded-for", value));
            call.data().await;
        }
        let again = world.post("/v1/auth/login", &body).from("127.0.0.77").send().await;
        assert_eq!((again.status, again.code().as_str()), (429, "rate_limited"));
        let known = world.post("/v1/auth/login", &body).header("x-forwarded-for", "198.51.100.7");
        known.data().await;

        let started = Filter { action: "session.started".into(), limit: 100, ..Filter::default() };
        let mut tx = world.app.db.read().await.unwrap();
        let entries = trail::list(&mut tx, &started).await.unwrap();
        let mut addresses: Vec<_> = entries.iter().map(|entry| entry.address.as_deref()).collect();
        addresses.sort_unstable();
        let mut expected = vec![None; UNREADABLE.len()];
        expected.push(Some("198.51.100.7"));
        assert_eq!(addresses, expected);
    });
}

#[test]
fn log_shows_a_dash_for_an_unknown_address() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.1").run();
    server.get("/v1/models").send();
    server.wait_for_log("route=\"/v1/models\" status=401 code=\"missing_credentials\" who=\"\" address=- ");
}
