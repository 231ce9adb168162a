//! Bodies with a content coding, or with a byte order mark (docs/contract/README.md#requests).

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::json;

use support::http::{Answer, Call};
use support::on_each_database;
use support::world::World;

/// The names of the accepted codings.
pub const CODINGS: [&str; 3] = ["gzip", "zstd", "br"];

/// Encodes a body as clients do.
pub fn encode(coding: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut body = body.as_ref();
    match coding.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::encode_all(body, 3).unwrap(),
        "br" => {
            let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
            let mut encoded = Vec::new();
            brotli::BrotliCompress(&mut body, &mut encoded, &params).unwrap();
            encoded
        }
        "identity" => body.to_vec(),
        other => panic!("unknown coding {other}"),
    }
}

fn create(world: &World, token: &str, coding: &str, body: impl Into<Vec<u8>>) -> Call {
    let call = world.call(Method::POST, "/v1/organizations").bearer(token);
    call.header("content-type", "application/json").header("content-encoding", coding).raw(body)
}

/// Checks status and code of an error about the body.
fn check(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
    assert_eq!(answer.json()["error"]["param"], "body", "{}", answer.text);
}

/// Checks the refusal of a coding.
fn check_unsupported(answer: &Answer, accepted: &str, named: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (415, "unsupported_encoding"), "{}", answer.text);
    assert_eq!(answer.header("accept-encoding"), accepted, "{named}");
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["type"], &error["param"]),
        (&json!("invalid_request_error"), &json!("content-encoding"))
    );
    assert!(error["message"].as_str().unwrap().contains(&format!("`{named}`")), "{}", answer.text);
}

#[on_each_database]
async fn compressed_bodies_are_decoded(world: World) {
    let ada = world.user("ada").await;
    let codings = ["gzip", "x-gzip", "GZIP", "zstd", "Zstd", "br", "BR", "identity"];
    for (number, coding) in codings.into_iter().enumerate() {
        let name = format!("Organization {number}");
        let body = encode(coding, json!({"name": name}).to_string());
        let made = create(&world, &ada.access_token, coding, body).data().await;
        assert_eq!(made["name"], name, "{made}");
    }
    // Another method, and the service listener.
    let organization = world.organization(&ada, "Acme").await;
    let body = encode("zstd", json!({"name": "Renamed"}).to_string());
    let change = world.call(Method::PUT, &format!("/v1/organizations/{organization}"));
    let change = change.bearer(&ada.access_token).header("content-type", "application/json");
    let changed = change.header("content-encoding", "zstd").raw(body).data().await;
    assert_eq!(changed["name"], "Renamed");
    let usage = world.ask("/service/v1/usage", &json!({})).header("content-encoding", "gzip");
    let refused = usage.raw(encode("gzip", "{\"events\": []}")).send().await;
    assert_eq!(
        (refused.status, refused.details()),
        (400, vec!["events empty".to_owned()]),
        "{}",
        refused.text
    );
    // A decoded empty body is treated like any empty body.
    for coding in CODINGS {
        for body in [Vec::new(), encode(coding, "")] {
            let answer = create(&world, &ada.access_token, coding, body).send().await;
            assert_eq!(answer.details(), ["name required"], "{coding}: {}", answer.text);
        }
    }
}

#[on_each_database]
async fn broken_compressed_bodies_are_refused(world: World) {
    let ada = world.user("ada").await;
    let plain = json!({"name": "x"}).to_string();
    for (coding, named) in CODINGS.into_iter().zip(["gzip", "zstd", "brotli"]) {
        let whole = encode(coding, &plain);
        let bodies = [
            whole[..whole.len() - 1].to_vec(),
            whole[..3].to_vec(),
            [&whole, b"\n".as_slice()].concat(),
            [&whole, b"\0".as_slice()].concat(),
            [&whole, whole.as_slice()].concat(),
            plain.clone().into_bytes(),
        ];
        for body in bodies {
            let answer = create(&world, &ada.access_token, coding, body.clone()).send().await;
            check(&answer, 400, "invalid_json");
            assert!(
                answer.text.contains(&format!("valid {named}"))
                    || answer.text.contains(&format!("of {named}"))
            );
        }
        // The decoded body isn't JSON: it isn't decoded a second time.
        let answer = create(&world, &ada.access_token, coding, encode(coding, &whole)).send().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "invalid_json"),
            "{coding}: {}",
            answer.text
        );
    }
}

#[on_each_database]
async fn other_codings_are_unsupported(world: World) {
    let ada = world.user("ada").await;
    let plain = json!({"name": "x"}).to_string();
    for coding in ["deflate", "compress", "zstandard", "aws-chunked", "*"] {
        let answer = create(&world, &ada.access_token, coding, plain.clone()).send().await;
        check_unsupported(&answer, "gzip, zstd, br", coding);
        assert!(answer.text.contains("`gzip`, `zstd` and `br`"), "{}", answer.text);
    }
    let twice = encode("zstd", encode("gzip", &plain));
    let answer = create(&world, &ada.access_token, "gzip, zstd", twice.clone()).send().await;
    check_unsupported(&answer, "gzip, zstd, br", "gzip, zstd");
    let answer =
        create(&world, &ada.access_token, "gzip", twice).header("content-encoding", "zstd").send().await;
    check_unsupported(&answer, "gzip, zstd, br", "gzip, zstd");
    // The gate refuses the call first.
    let stranger = create(&world, "", "deflate", plain).send().await;
    assert_eq!((stranger.status, stranger.code().as_str()), (401, "missing_credentials"));
}

#[on_each_database]
async fn forms_and_signed_events_have_no_coding(world: World) {
    for coding in ["gzip", "deflate"] {
        let event = world.post("/v1/billing/stripe/events", &json!({"id": "evt_1"}));
        let event = event.header("stripe-signature", "t=1,v1=00").header("content-encoding", coding);
        check_unsupported(&event.send().await, "identity", coding);
        let form = world.call(Method::POST, "/verify-email").form(&[("token", "x")]);
        let answer = form.header("content-encoding", coding).send().await;
        assert_eq!((answer.status, answer.header("accept-encoding")), (415, "identity"), "{}", answer.text);
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    }
    let form = world.call(Method::POST, "/verify-email").form(&[("token", "x")]);
    let answer = form.header("content-encoding", "identity").send().await;
    assert_ne!(answer.status, 415, "{}", answer.text);
}

#[on_each_database]
async fn decoded_bodies_keep_to_the_limit(world: World) {
    let ada = world.user("ada").await;
    let limit = 256 * 1024;
    let just = format!("{{\"name\":\"{}\"}}", "x".repeat(limit - 11));
    for coding in CODINGS {
        let call = |body: &[u8]| create(&world, &ada.access_token, coding, encode(coding, body));
        let answer = call(just.as_bytes()).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec!["name too_long".to_owned()]), "{coding}");
        check(&call(format!("{just} ").as_bytes()).send().await, 413, "payload_too_large");
        // Zeros aren't valid JSON, but the limit is checked first.
        check(&call(&vec![0_u8; limit]).send().await, 400, "invalid_json");
        check(&call(&vec![0_u8; 8 * limit]).send().await, 413, "payload_too_large");

        let login = world.post("/v1/auth/login", &json!({})).header("content-encoding", coding);
        let zeros = encode(coding, vec![0_u8; 16 * 1024 + 1]);
        assert!(zeros.len() < 1_000, "{coding}: {}", zeros.len());
        check(&login.raw(zeros).send().await, 413, "payload_too_large");
        let usage = world.ask("/service/v1/usage", &json!({})).header("content-encoding", coding);
        let answer = usage.raw(encode(coding, vec![0_u8; 1024 * 1024 + 1])).send().await;
        check(&answer, 413, "payload_too_large");
    }
    assert_eq!(world.app.api.frame.body_budget.load().0, 0);
}

#[on_each_database]
async fn one_byte_order_mark_is_ignored(world: World) {
    let ada = world.user("ada").await;
    let marked = |name: &str| format!("\u{feff}{}", json!({"name": name}));
    let plain = world.call(Method::POST, "/v1/organizations").bearer(&ada.access_token);
    let plain = plain.header("content-type", "application/json; charset=utf-8").raw(marked("Plain"));
    assert_eq!(plain.data().await["name"], "Plain");
    let keyed = create(&world, &ada.access_token, "zstd", encode("zstd", marked("Keyed")));
    assert_eq!(keyed.header("idempotency-key", "k1").data().await["name"], "Keyed");
    let refused = [
        format!("\u{feff}{}", marked("x")),
        format!("{{\u{feff}{}", "\"name\": \"x\"}"),
        format!("{}\u{feff}", json!({"name": "x"})),
    ];
    for body in refused {
        for key in ["", "k2"] {
            let call = create(&world, &ada.access_token, "identity", body.clone());
            let call = if key.is_empty() { call } else { call.header("idempotency-key", key) };
            let answer = call.send().await;
            // The key was used for the first of these bodies.
            let codes =
                if key.is_empty() { ["invalid_json"; 2] } else { ["invalid_json", "idempotency_key_reused"] };
            assert!(codes.contains(&answer.code().as_str()), "{body:?} {key}: {}", answer.text);
        }
    }
}

/// A repeated request may use another coding, because the decoded bodies are compared.
#[on_each_database]
async fn repeated_requests_are_compared_decoded(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"name": "Once"}).to_string();
    let send = async |coding: &str, body: &str| {
        let call = create(&world, &ada.access_token, coding, encode(coding, body));
        call.header("idempotency-key", "once").send().await
    };
    let first = send("gzip", &body).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.text);
    for coding in ["gzip", "zstd", "br", "identity"] {
        let again = send(coding, &body).await;
        assert_eq!((again.status, again.header("idempotency-replayed")), (200, "true"), "{}", again.text);
        assert_eq!(again.json(), first.json(), "{coding}");
    }
    let other = send("gzip", &json!({"name": "Other"}).to_string()).await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_key_reused"), "{}", other.text);
}
