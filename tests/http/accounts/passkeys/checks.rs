//! Each check of an authenticator's answer: answers with one wrong value are refused.

use serde_json::{Value, json};

use super::{
    INVALID, add, add_with, create, entries, flip, list, logged_in, login, login_options, options, origin,
    text,
};
use support::http::Call;
use support::on_each_database;
use support::security_key::{BE, BS, Draft, SecurityKey, UP, UV, decode, encode};
use support::world::World;

/// A change of the draft of an authenticator's answer.
type Change = fn(&mut Draft);

/// Like [`Change`], but may capture variables.
type ChangeWith<'a> = &'a dyn Fn(&mut Draft);

/// Changes that are refused both when a passkey is added and when it signs.
const WRONG: &[(&str, Change)] = &[
    ("the type of the other ceremony", |draft| {
        draft.kind = if draft.kind == "webauthn.get" { "webauthn.create" } else { "webauthn.get" };
    }),
    ("no type", |draft| draft.kind = ""),
    ("another challenge", |draft| draft.challenge = encode(&[7; 32])),
    ("no challenge", |draft| draft.challenge = String::new()),
    ("a part of the challenge", |draft| draft.challenge.truncate(40)),
    ("another origin", |draft| draft.origin = "https://evil.example".into()),
    ("another port", |draft| draft.origin = "http://localhost:1".into()),
    ("another scheme", |draft| draft.origin = draft.origin.replace("http", "https")),
    ("a subdomain of our host", |draft| draft.origin = draft.origin.replace("localhost", "a.localhost")),
    ("an origin with a path", |draft| draft.origin.push_str("/path")),
    ("an origin with a login", |draft| draft.origin = draft.origin.replace("//", "//me@")),
    ("an origin in capitals", |draft| draft.origin = draft.origin.replace("local", "LOCAL")),
    ("a page in a frame of another origin", |draft| draft.cross_origin = json!(true)),
    ("crossOrigin that isn't a boolean", |draft| draft.cross_origin = json!("false")),
    ("a top origin", |draft| draft.top_origin = json!("https://evil.example")),
    ("our own top origin", |draft| draft.top_origin = draft.origin.clone().into()),
    ("another relying party", |draft| draft.rp_id = "evil.example".into()),
    ("no relying party", |draft| draft.rp_id = String::new()),
    ("no user was present", |draft| draft.flags &= !UP),
    ("no user was verified", |draft| draft.flags &= !UV),
    ("backed up, but not eligible for backup", |draft| draft.flags |= BS),
    ("another id", |draft| draft.id = encode(&[7; 32])),
    ("no id", |draft| draft.id = String::new()),
    ("not a public key credential", |draft| draft.kind_of_credential = "password"),
];

async fn assert_invalid(call: Call, what: &str) {
    let answer = call.send().await;
    assert_eq!((answer.status, answer.code().as_str()), INVALID, "{what}: {}", answer.text);
}

#[on_each_database]
async fn each_check_of_a_new_passkey_refuses(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let waiting = options(&world, token).await;
    let make = |change: Change| SecurityKey::new().make_with(&waiting["public_key"], &origin(&world), change);
    for (what, change) in WRONG {
        assert_invalid(create(&world, token, &waiting, &make(*change), "x"), what).await;
    }
    let own: [(&str, Change); 4] = [
        ("an unknown format", |draft| draft.attestation = "unknown"),
        ("a missing statement", |draft| draft.attestation = "packed"),
        ("an algorithm that wasn't requested", |draft| draft.algorithm = -8),
        ("an algorithm of another key", |draft| draft.algorithm = -257),
    ];
    for (what, change) in own {
        assert_invalid(create(&world, token, &waiting, &make(change), "x"), what).await;
    }
    let good = make(|_| {});
    for (what, path, value) in [
        ("no answer", "/response", json!(null)),
        ("no attestation", "/response/attestationObject", json!("")),
        ("an attestation that isn't CBOR", "/response/attestationObject", json!("AAAA")),
        ("no client data", "/response/clientDataJSON", json!("")),
        ("client data that isn't JSON", "/response/clientDataJSON", json!("AAAA")),
        ("base64 with padding", "/id", json!(format!("{}=", text(&good, "id")))),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).unwrap() = value;
        assert_invalid(create(&world, token, &waiting, &bad, "x"), what).await;
    }
    assert_invalid(create(&world, token, &waiting, &json!({}), "x"), "an empty object").await;
    // The answers above were refused for their own mistakes: the correct one still works.
    create(&world, token, &waiting, &good, "Laptop").data().await;
    assert_eq!(list(&world, token).await.as_array().map(Vec::len), Some(1));
}

#[on_each_database]
async fn each_check_of_a_signature_refuses(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let (of_bob, _) = add(&world, &bob.access_token, "Bob's").await;
    let asked = login_options(&world).await;
    let public_key = &asked["public_key"];
    for (what, change) in WRONG {
        let bad = key.sign_with(public_key, &origin(&world), *change);
        assert_invalid(login(&world, &asked, &bad), what).await;
    }
    let own: [(&str, ChangeWith<'_>); 5] = [
        ("another person's handle", &|draft| draft.handle = Some(of_bob.handle.clone())),
        ("no handle", &|draft| draft.handle = None),
        ("an empty handle", &|draft| draft.handle = Some(Vec::new())),
        ("another passkey's id", &|draft| draft.id = encode(&of_bob.credential_id)),
        ("now eligible for backup, but not before", &|draft| draft.flags |= BE),
    ];
    for (what, change) in own {
        let bad = key.sign_with(public_key, &origin(&world), change);
        assert_invalid(login(&world, &asked, &bad), what).await;
    }
    let mut unknown = SecurityKey::new();
    unknown.handle.clone_from(&key.handle);
    assert_invalid(login(&world, &asked, &unknown.sign(public_key, &origin(&world))), "unknown").await;
    // A signature by another key, with the id of this passkey.
    unknown.credential_id.clone_from(&key.credential_id);
    assert_invalid(login(&world, &asked, &unknown.sign(public_key, &origin(&world))), "a forgery").await;
    assert_invalid(login(&world, &asked, &json!({})), "an empty object").await;
    let good = key.sign(public_key, &origin(&world));
    for name in ["signature", "authenticatorData", "clientDataJSON", "userHandle"] {
        for value in [json!(""), json!(null), json!(5), json!("====")] {
            let mut bad = good.clone();
            bad["response"][name] = value.clone();
            assert_invalid(login(&world, &asked, &bad), &format!("{name}: {value}")).await;
        }
    }
    login(&world, &asked, &good).data().await;
    // Refusals that concern an account are recorded, at most once per minute; malformed answers aren't.
    let mut refused: Vec<_> =
        entries(&world, "session.refused").await.into_iter().map(|[_, target]| target).collect();
    refused.sort();
    let mut people = [ada.id.to_string(), bob.id.to_string()];
    people.sort();
    assert_eq!(refused, people);
}

/// The test makes more calls than the limits allow.
const NO_LIMITS: &[(&str, &str)] = &[("TOLLKEEPER_LIMITS__ENABLED", "false")];

/// Every byte of an answer to a login is either signed, or identifies the passkey or its user.
#[on_each_database(NO_LIMITS)]
async fn each_bit_of_a_signature_matters(world: World) {
    let ada = world.user("ada").await;
    for mut key in [Some(SecurityKey::new()), SecurityKey::rs256()].into_iter().flatten() {
        add_with(&world, &ada.access_token, "Laptop", &mut key).await;
        let asked = login_options(&world).await;
        let good = key.sign(&asked["public_key"], &origin(&world));
        let mut flipped = 0;
        for name in ["clientDataJSON", "authenticatorData", "signature", "userHandle"] {
            flipped += flip_each(&world, &asked, &good, name).await;
        }
        let id = decode(&good["rawId"]);
        for bit in 0..id.len() * 8 {
            let mut bad = good.clone();
            bad["rawId"] = encode(&flip(&id, bit)).into();
            bad["id"] = bad["rawId"].clone();
            assert_invalid(login(&world, &asked, &bad), &format!("bit {bit} of the id")).await;
            flipped += 1;
        }
        assert!(flipped > 2_000, "{flipped}");
        login(&world, &asked, &good).data().await;
    }
}

async fn flip_each(world: &World, asked: &Value, good: &Value, name: &str) -> usize {
    let bytes = decode(&good["response"][name]);
    for bit in 0..bytes.len() * 8 {
        let mut bad = good.clone();
        bad["response"][name] = encode(&flip(&bytes, bit)).into();
        assert_invalid(login(world, asked, &bad), &format!("bit {bit} of {name}")).await;
    }
    bytes.len() * 8
}

#[on_each_database]
async fn two_algorithms_are_good(world: World) {
    let ada = world.user("ada").await;
    for mut key in [Some(SecurityKey::new()), SecurityKey::rs256()].into_iter().flatten() {
        add_with(&world, &ada.access_token, "Laptop", &mut key).await;
        logged_in(&world, &mut key).await;
    }
}

#[on_each_database]
async fn count_that_goes_back_is_told_and_not_refused(world: World) {
    let ada = world.user("ada").await;
    let (mut key, added) = add(&world, &ada.access_token, "Laptop").await;
    logged_in(&world, &mut key).await;
    key.count = 7;
    logged_in(&world, &mut key).await;
    assert_eq!(entries(&world, "passkey.count_went_back").await, Vec::<[String; 2]>::new());
    let entry = [ada.id.to_string(), text(&added["passkey"], "id")];
    // The same count, a lower one and zero are recorded. The highest count remains the reference.
    for (count, so_far) in [(7, 1), (2, 2), (u32::MAX, 3), (8, 3)] {
        key.count = count;
        let asked = login_options(&world).await;
        let signed = key.sign_with(&asked["public_key"], &origin(&world), |draft| {
            draft.count = if count == u32::MAX { 0 } else { count + 1 };
        });
        login(&world, &asked, &signed).data().await;
        assert_eq!(entries(&world, "passkey.count_went_back").await, vec![entry.clone(); so_far], "{count}");
    }
}

#[on_each_database]
async fn synced_passkeys_count_nothing(world: World) {
    let ada = world.user("ada").await;
    let mut key = SecurityKey::new();
    key.flags |= BE | BS;
    add_with(&world, &ada.access_token, "Phone", &mut key).await;
    for _ in 0..2 {
        let asked = login_options(&world).await;
        let signed = key.sign_with(&asked["public_key"], &origin(&world), |draft| draft.count = 0);
        login(&world, &asked, &signed).data().await;
    }
    assert_eq!(entries(&world, "passkey.count_went_back").await, Vec::<[String; 2]>::new());
    // A passkey that can be backed up can't become one that can't.
    let asked = login_options(&world).await;
    let bad = key.sign_with(&asked["public_key"], &origin(&world), |draft| draft.flags = UP | UV);
    assert_invalid(login(&world, &asked, &bad), "another kind of key").await;
}
