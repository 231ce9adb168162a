//! Valid and invalid signatures.

use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_764_000_000;
const SECRET: &str = "whsec_test_secret";
const BODY: &[u8] = br#"{"id": "evt_1"}"#;

fn sign(secret: &str, at: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    context.update(format!("{at}.").as_bytes());
    context.update(body);
    context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn verify_now(header: &str, body: &[u8]) -> Result<(), SignatureError> {
    verify(header, body, &Secret::new(SECRET), Time::from_unix_ms(NOW * 1_000 + 999))
}

#[test]
fn known_signature() {
    // HMAC-SHA256 by another program:
    // printf '1764000000.{"id": "evt_1"}' | openssl dgst -sha256 -hmac whsec_test_secret
    let known = "3d67fa3b73ec4c0eb97d731d770fcac918e66bf90c8409e04a2317add73cee05";
    assert_eq!(sign(SECRET, "1764000000", BODY), known);
    assert_eq!(verify_now(&format!("t=1764000000,v1={known}"), BODY), Ok(()));
}

#[test]
fn headers_good_and_bad() {
    let now = NOW.to_string();
    let good = sign(SECRET, &now, BODY);
    let other = sign("whsec_other", &now, BODY);
    let at = |seconds: i64| format!("t={seconds},v1={}", sign(SECRET, &seconds.to_string(), BODY));
    let flipped = format!("{}{}", if good.starts_with('0') { '1' } else { '0' }, good.get(1..).unwrap());
    let upper = good.to_uppercase();
    let cases = [
        (format!("t={now},v1={good}"), Ok(())),
        (format!("t={now}, v1={good}"), Ok(())),
        (format!("v1={good},t={now}"), Ok(())),
        (format!("t={now},v1={good},v0={other}"), Ok(())),
        (format!("t={now},v1={upper}"), Ok(())),
        // During a secret rotation.
        (format!("t={now},v1={other},v1={good}"), Ok(())),
        (format!("t={now},v1={good},v1={other}"), Ok(())),
        (format!("t={now},v1={other},v1={other},v1={other},v1={good}"), Ok(())),
        (
            format!("t={now},v1={good},v1={other},v1={other},v1={other},v1={other}"),
            Err(SignatureError::Malformed),
        ),
        (format!("t={now},v1=short,v1={good}"), Ok(())),
        (at(NOW - 300), Ok(())),
        (at(NOW - 301), Err(SignatureError::TooOld)),
        (at(NOW + 300), Ok(())),
        (at(NOW + 301), Err(SignatureError::InFuture)),
        (at(0), Err(SignatureError::TooOld)),
        (format!("t={now},v1={other}"), Err(SignatureError::Wrong)),
        (format!("t={now},v1={flipped}"), Err(SignatureError::Wrong)),
        // The timestamp is signed too.
        (format!("t={},v1={good}", NOW - 1), Err(SignatureError::Wrong)),
        (format!("t=0{now},v1={good}"), Err(SignatureError::Wrong)),
        // An old and wrong signature reveals nothing about the timestamp.
        (format!("t=1,v1={other}"), Err(SignatureError::Wrong)),
        (format!("t={now},v0={good}"), Err(SignatureError::Malformed)),
        (format!("t={now},v1="), Err(SignatureError::Malformed)),
        (format!("t={now},v1={}", good.get(..63).unwrap()), Err(SignatureError::Malformed)),
        (format!("t={now},v1={good}0"), Err(SignatureError::Malformed)),
        (format!("t={now},v1=g{}", good.get(1..).unwrap()), Err(SignatureError::Malformed)),
        (format!("t={now}"), Err(SignatureError::Malformed)),
        (format!("v1={good}"), Err(SignatureError::Malformed)),
        (format!("t={now},t={now},v1={good}"), Err(SignatureError::Malformed)),
        (format!("t={now},t={},v1={good}", NOW - 1), Err(SignatureError::Malformed)),
        (format!("t=,v1={good}"), Err(SignatureError::Malformed)),
        (format!("t=-{now},v1={good}"), Err(SignatureError::Malformed)),
        (format!("t=+{now},v1={good}"), Err(SignatureError::Malformed)),
        (format!("t=1e9,v1={good}"), Err(SignatureError::Malformed)),
        (format!("t=9999999999999,v1={good}"), Err(SignatureError::Malformed)),
        (format!("t={now},v1={good},"), Err(SignatureError::Malformed)),
        (good.clone(), Err(SignatureError::Malformed)),
        (String::new(), Err(SignatureError::Malformed)),
        (",".to_owned(), Err(SignatureError::Malformed)),
        ("é=1".to_owned(), Err(SignatureError::Malformed)),
        (format!("t={now},v1={good},v0={}", "0".repeat(MAX_HEADER_BYTES)), Err(SignatureError::Malformed)),
    ];
    for (header, expected) in cases {
        assert_eq!(verify_now(&header, BODY), expected, "{header}");
    }
}

#[test]
fn bytes_of_the_body_are_signed() {
    let header = format!("t={NOW},v1={}", sign(SECRET, &NOW.to_string(), BODY));
    for body in [&b""[..], br#"{"id":"evt_1"}"#, br#"{"id": "evt_2"}"#, b"{\"id\": \"evt_1\"}\n"] {
        assert_eq!(verify_now(&header, body), Err(SignatureError::Wrong));
    }
    let binary = [0xff, 0x00, 0xfe];
    let header = format!("t={NOW},v1={}", sign(SECRET, &NOW.to_string(), &binary));
    assert_eq!(verify_now(&header, &binary), Ok(()));
    let header = format!("t={NOW},v1={}", sign(SECRET, &NOW.to_string(), b""));
    assert_eq!(verify_now(&header, b""), Ok(()));
}

#[test]
fn empty_secret_lets_nothing_in() {
    let header = format!("t={NOW},v1={}", sign("", &NOW.to_string(), BODY));
    let now = Time::from_unix_ms(NOW * 1_000);
    assert_eq!(verify(&header, BODY, &Secret::new(""), now), Err(SignatureError::Wrong));
}

proptest! {
    #[test]
    fn what_is_signed_is_good_and_nothing_else(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        age in -400_i64..400,
        at in any::<prop::sample::Index>(),
    ) {
        let signed_at = (NOW - age).to_string();
        let header = format!("t={signed_at},v1={}", sign(SECRET, &signed_at, &body));
        let expected = match age {
            301.. => Err(SignatureError::TooOld),
            ..=-301 => Err(SignatureError::InFuture),
            _ => Ok(()),
        };
        prop_assert_eq!(verify_now(&header, &body), expected);
        let mut other = body.clone();
        match other.len() {
            0 => other.push(0),
            length => other[at.index(length)] ^= 1,
        }
        prop_assert_eq!(verify_now(&header, &other), Err(SignatureError::Wrong));
    }

    #[test]
    fn no_other_header_is_good(header in "(t=[0-9]{1,12}|v[01]=[0-9a-f]{60,66}|[a-z=,0-9é ]{0,9})(,(t=[0-9]{1,12}|v1=[0-9a-f]{64})){0,4}") {
        prop_assert!(matches!(verify_now(&header, BODY), Err(SignatureError::Malformed | SignatureError::Wrong)));
    }
}
