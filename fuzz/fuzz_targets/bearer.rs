//! Checks that the gate accepts exactly one `Authorization` header with a valid bearer credential. Other
//! headers get the matching error, and every refusal is a 401.

#![cfg_attr(feature = "engine", no_main)]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use fuzz::fuzz_target;
use fuzz::{TestUser, WORLD};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tollkeeper::api::gate::{Access, Bearer, Models, Session};
use tollkeeper::error::{Code, Error};
use tollkeeper::tenants::access::KeyKind;

static ADA: LazyLock<TestUser> = LazyLock::new(|| WORLD.user());

/// A nonexistent key with a valid checksum.
const UNKNOWN_KEY: &str = "tk_00000000000000000000000000000000000000000001LBmmQ";

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    headers: Vec<Vec<Piece<'a>>>,
    door: Door,
}

/// A part of a generated header.
#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Bytes(&'a [u8]),
    Scheme,
    Access,
    Refresh,
    Key,
    NobodysKey,
    /// The first characters of the key.
    PartOfKey(u8),
}

#[derive(Arbitrary, Debug, Clone, Copy, PartialEq)]
enum Door {
    Anyone,
    Models,
    Access,
    Refresh,
}

fuzz_target!(|input: Input| {
    let mut headers = HeaderMap::new();
    let mut values = Vec::new();
    for pieces in &input.headers {
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend_from_slice(text_of(piece));
        }
        // The HTTP server refuses invalid header values earlier.
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            headers.append(header::AUTHORIZATION, value);
            values.push(bytes);
        }
    }
    let credential = credential(&values);
    let mut call = WORLD.call(Method::GET, headers, Vec::new());
    let api = &WORLD.app.api;
    let outcome = WORLD.runtime.block_on(async {
        match input.door {
            Door::Anyone => {
                let anyone = Bearer { with: KeyKind::Any };
                anyone.admit(api, &mut call).await.map(|scope| scope.user_id().to_string())
            }
            Door::Models => Models.admit(api, &mut call).await.map(drop).map(|()| ADA.user_id.clone()),
            Door::Access => Session::AccessToken.admit(api, &mut call).await.map(|s| s.user_id().to_string()),
            Door::Refresh => {
                Session::RefreshToken.admit(api, &mut call).await.map(|s| s.user_id().to_string())
            }
        }
    });
    let opens = credential.is_some_and(|text| match input.door {
        Door::Anyone | Door::Models => text == ADA.access_token || text == ADA.key,
        Door::Access => text == ADA.access_token,
        Door::Refresh => text == ADA.refresh_token,
    });
    match outcome {
        Ok(user_id) => {
            assert!(opens, "let in: {credential:?}");
            assert_eq!(user_id, ADA.user_id);
            let who = if credential == Some(&*ADA.key) { &ADA.key_id } else { &ADA.user_id };
            assert_eq!(&call.caller, who);
        }
        Err(error) => {
            assert!(!opens, "refused: {credential:?}");
            check(&error, credential, input.door);
            assert!(call.caller.is_empty(), "{}", call.caller);
        }
    }
});

fn check(error: &Error, credential: Option<&str>, door: Door) {
    assert_eq!(error.code.status(), StatusCode::UNAUTHORIZED, "{error}");
    let expected = match (credential, door) {
        (None, _) => Code::MissingCredentials,
        (Some(text), Door::Anyone | Door::Models) if text.starts_with("tk_") => Code::InvalidApiKey,
        (Some(_), Door::Refresh) => Code::InvalidRefreshToken,
        (Some(_), _) => Code::InvalidAccessToken,
    };
    assert_eq!(error.code, expected, "{credential:?}");
    // The answer repeats nothing of the input.
    if credential.is_some() {
        assert_eq!(error.public_message(), Error::new(expected).public_message());
    }
}

fn text_of<'a>(piece: &Piece<'a>) -> &'a [u8] {
    match *piece {
        Piece::Bytes(bytes) => bytes,
        Piece::Scheme => b"Bearer ",
        Piece::Access => ADA.access_token.as_bytes(),
        Piece::Refresh => ADA.refresh_token.as_bytes(),
        Piece::Key => ADA.key.as_bytes(),
        Piece::NobodysKey => UNKNOWN_KEY.as_bytes(),
        Piece::PartOfKey(length) => &ADA.key.as_bytes()[..usize::from(length).min(ADA.key.len())],
    }
}

/// Implements RFC 6750, section 2.1, independently. Accepts one header with `bearer` in any case, a space,
/// and the credential, without surrounding white space.
fn credential(values: &[Vec<u8>]) -> Option<&str> {
    let [value] = values else {
        return None;
    };
    let visible = value.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\t');
    let scheme = value.get(..7)?;
    if !visible || !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    let token = value[7..].trim_ascii();
    (!token.is_empty()).then(|| std::str::from_utf8(token).expect("ASCII"))
}
