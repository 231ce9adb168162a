//! Tests of tokens that must be accepted and of tokens that must be refused.

use ring::hmac;

use super::*;

const NOW: Time = Time::from_unix_ms(1_770_000_000_500);
const ISS: &str = "https://keys.example.org";
const AUD: &str = "tollkeeper";

fn claims() -> Claims {
    let iat = NOW.unix_seconds();
    Claims {
        iss: ISS.to_owned(),
        aud: AUD.to_owned(),
        sub: UserId::from_parts(NOW, 1),
        sid: SessionId::from_parts(NOW, 2),
        jti: "0a1b2c3d".to_owned(),
        iat,
        exp: iat + 900,
    }
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn keyset(seed: u8) -> Keyset {
    Keyset::new(Arc::new(key(seed)), &[])
}

fn check(token: &str) -> Result<Claims, JwtError> {
    keyset(1).verify(token, TokenKind::Access, ISS, AUD, NOW)
}

/// Returns a token with exactly this header and payload, signed with the right key.
fn forge(header: &str, payload: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = URL_SAFE_NO_PAD.encode(key(1).pair.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn good_header() -> String {
    header_json(TokenKind::Access, key(1).kid())
}

fn good_token() -> String {
    keyset(1).sign(TokenKind::Access, &claims())
}

#[test]
fn signed_token_verifies() {
    assert_eq!(check(&good_token()), Ok(claims()));
    assert_eq!(check(&forge(&good_header(), &claims_json(&claims()))), Ok(claims()));
    let awkward = Claims { jti: "\"\\\u{1}é\u{2028}".to_owned(), ..claims() };
    assert_eq!(check(&keyset(1).sign(TokenKind::Access, &awkward)), Ok(awkward));
    let refresh = keyset(1).sign(TokenKind::Refresh, &claims());
    assert_eq!(keyset(1).verify(&refresh, TokenKind::Refresh, ISS, AUD, NOW), Ok(claims()));
}

#[test]
fn rfc_8032_test_1_gives_its_public_key() {
    // RFC 8032, section 7.1, TEST 1, as JWK in RFC 8037, appendix A.1.
    let seed = URL_SAFE_NO_PAD.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
    let key = SigningKey::from_seed(&seed).unwrap();
    let set = Keyset::new(Arc::new(key), &[[9; 32]]).jwks();
    let first = &set["keys"][0];
    assert_eq!(first["x"], "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
    // The kid is the beginning of the raw key's SHA-256 hash, not the thumbprint of RFC 7638.
    assert_eq!(first["kid"].as_str().unwrap().len(), KID_CHARS);
    assert_eq!((&first["kty"], &first["crv"]), (&json!("OKP"), &json!("Ed25519")));
    assert_eq!((&first["alg"], &first["use"]), (&json!("EdDSA"), &json!("sig")));
    assert_eq!(set["keys"].as_array().unwrap().len(), 2);
    assert!(first.get("d").is_none());
}

#[test]
fn every_flipped_bit_is_refused() {
    let good = good_token().into_bytes();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // A token is always valid UTF-8, so other bytes aren't tested.
        if let Ok(bad) = std::str::from_utf8(&bad) {
            assert!(check(bad).is_err(), "bit {bit}");
        }
    }
    for length in 0..good.len() {
        assert!(check(std::str::from_utf8(&good[..length]).unwrap()).is_err(), "{length} bytes");
    }
}

#[test]
fn other_shapes_are_refused() {
    let good = good_token();
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let standard = |text: &str| text.replace('-', "+").replace('_', "/");
    let mut last = signature.to_owned();
    // The last character of 64 encoded bytes has four unused bits.
    let unused = if last.pop() == Some('A') { 'B' } else { 'C' };
    for bad in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "....".to_owned(),
        signed.to_owned(),
        format!("{signed}."),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.{signature}"),
        format!("{header}.{payload}.{payload}.{signature}"),
        format!("{good}="),
        format!("{signed}.{signature}=="),
        format!("{header}=.{payload}.{signature}"),
        format!("{header}.{payload}=.{signature}"),
        format!(" {good}"),
        format!("{good}\n"),
        format!("{good}\0"),
        format!("Bearer {good}"),
        format!("{signed}.{last}{unused}"),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0xff; 64])),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 63])),
        format!("{signed}.{}", "A".repeat(2_000)),
        format!("{header}.{}.{signature}", "A".repeat(1 << 20)),
        "A".repeat(1 << 20),
        ".".repeat(1 << 20),
        format!("{header}.é.{signature}"),
        format!("{signed}.{}+/", &standard(signature)[..signature.len() - 2]),
        good.to_lowercase(),
    ] {
        assert_eq!(check(&bad), Err(JwtError::Invalid), "{bad:.80}");
    }
}

#[test]
fn signature_has_one_form() {
    // Adding the group order to S results in a second signature, which lenient implementations accept (RFC
    // 8032, section 8.4).
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let good = good_token();
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut carry = 0;
    for (byte, order) in bytes[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    assert_eq!(check(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes))), Err(JwtError::Invalid));
}

#[test]
fn other_headers_are_refused_even_if_well_signed() {
    let kid = key(1).kid().to_owned();
    let other = key(2).kid().to_owned();
    let payload = claims_json(&claims());
    for (header, expected) in [
        (format!(r#"{{"alg":"none","typ":"at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"None","typ":"at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"HS256","typ":"at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"Ed25519","typ":"at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"rt+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"application/at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"AT+JWT","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#), JwtError::Invalid),
        (r#"{"alg":"EdDSA","typ":"at+jwt"}"#.to_owned(), JwtError::Invalid),
        (format!(r#"{{"typ":"at+jwt","alg":"EdDSA","kid":"{kid}"}}"#), JwtError::Invalid),
        (
            format!(r#"{{"alg":"EdDSA","typ":"at+jwt","kid":"{kid}","crit":["b64"],"b64":false}}"#),
            JwtError::Invalid,
        ),
        (format!(r#"{{"alg":"EdDSA","typ":"at+jwt","kid":"{kid}","jwk":{{}}}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"at+jwt","kid":"{kid}","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg": "EdDSA","typ":"at+jwt","kid":"{kid}"}}"#), JwtError::Invalid),
        (format!(" {}", good_header()), JwtError::Invalid),
        (r#"{"alg":"EdDSA","typ":"at+jwt","kid":"../../etc/passwd"}"#.to_owned(), JwtError::Invalid),
        (r#"{"alg":"EdDSA","typ":"at+jwt","kid":""}"#.to_owned(), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"rt+jwt","kid":"{other}"}}"#), JwtError::Invalid),
        (format!(r#"{{"alg":"EdDSA","typ":"at+jwt","kid":"{other}"}}"#), JwtError::UnknownKey),
        ("{}".to_owned(), JwtError::Invalid),
        ("[]".to_owned(), JwtError::Invalid),
        (String::new(), JwtError::Invalid),
    ] {
        assert_eq!(check(&forge(&header, &payload)), Err(expected), "{header}");
    }
}

#[test]
fn the_public_key_is_no_hmac_secret() {
    let payload = URL_SAFE_NO_PAD.encode(claims_json(&claims()));
    let public = key(1).public_key();
    let secrets = [public.to_vec(), URL_SAFE_NO_PAD.encode(public).into_bytes()];
    let honest = good_header();
    let hs256 = honest.replace("EdDSA", "HS256");
    for (secret, header) in secrets.iter().flat_map(|s| [(s, &honest), (s, &hs256)]) {
        let signed = format!("{}.{payload}", URL_SAFE_NO_PAD.encode(header));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(check(&token), Err(JwtError::Invalid), "{header}");
    }
}

#[test]
fn other_keys_are_refused_until_they_are_in_the_set() {
    let foreign = keyset(2).sign(TokenKind::Access, &claims());
    assert_eq!(check(&foreign), Err(JwtError::UnknownKey));
    let both = Keyset::new(Arc::new(key(1)), &[key(2).public_key(), key(1).public_key()]);
    assert_eq!(both.verify(&foreign, TokenKind::Access, ISS, AUD, NOW), Ok(claims()));
    assert_eq!(both.verifying.len(), 2);
    // The other key's signature with our key's header, and the other way around.
    let (_, rest) = foreign.split_once('.').unwrap();
    let swapped = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(good_header()));
    assert_eq!(both.verify(&swapped, TokenKind::Access, ISS, AUD, NOW), Err(JwtError::Invalid));
    let ours = good_token();
    let (_, rest) = ours.split_once('.').unwrap();
    let swapped = format!("{}.{rest}", key(2).public.header(TokenKind::Access));
    assert_eq!(both.verify(&swapped, TokenKind::Access, ISS, AUD, NOW), Err(JwtError::Invalid));
}

#[test]
fn token_of_one_kind_is_refused_as_the_other() {
    let refresh = keyset(1).sign(TokenKind::Refresh, &claims());
    assert_eq!(check(&refresh), Err(JwtError::Invalid));
    let as_refresh = keyset(1).verify(&good_token(), TokenKind::Refresh, ISS, AUD, NOW);
    assert_eq!(as_refresh, Err(JwtError::Invalid));
}

#[test]
fn issuer_audience_and_times_are_checked() {
    let iat = claims().iat;
    let far = i64::MAX;
    let cases = [
        (Claims { iss: "https://evil.example.org".into(), ..claims() }, JwtError::Invalid),
        (Claims { iss: format!("{ISS}/"), ..claims() }, JwtError::Invalid),
        (Claims { aud: "other".into(), ..claims() }, JwtError::Invalid),
        (Claims { aud: String::new(), ..claims() }, JwtError::Invalid),
        (Claims { iat: iat - 10, exp: iat, ..claims() }, JwtError::Expired),
        (Claims { iat: 0, exp: 1, ..claims() }, JwtError::Expired),
        (Claims { iat: i64::MIN, exp: i64::MIN + 1, ..claims() }, JwtError::Expired),
        (Claims { exp: iat, ..claims() }, JwtError::Invalid),
        (Claims { iat: iat + 61, ..claims() }, JwtError::Invalid),
        (Claims { iat: far - 1, exp: far, ..claims() }, JwtError::Invalid),
        (Claims { exp: iat + 3_601, ..claims() }, JwtError::Invalid),
        (Claims { exp: far, ..claims() }, JwtError::Invalid),
        (Claims { iat: i64::MIN, exp: far, ..claims() }, JwtError::Invalid),
    ];
    for (claims, expected) in cases {
        let token = keyset(1).sign(TokenKind::Access, &claims);
        assert_eq!(check(&token), Err(expected), "{claims:?}");
    }
    for fine in [
        Claims { iat: iat + 60, ..claims() },
        Claims { exp: iat + 1, ..claims() },
        Claims { exp: iat + 3_600, ..claims() },
    ] {
        assert_eq!(check(&keyset(1).sign(TokenKind::Access, &fine)), Ok(fine));
    }
}

#[test]
fn key_signs_within_its_period_and_a_minute() {
    let iat = claims().iat;
    for (since, until, good) in [
        (None, None, true),
        (Some(iat + 60), None, true),
        (Some(iat + 61), None, false),
        (None, Some(iat - 60), true),
        (None, Some(iat - 61), false),
        (Some(i64::MAX), Some(i64::MIN), false),
    ] {
        let set = keyset(1).with_signing_period(key(1).kid(), SigningPeriod { since, until });
        let verdict = set.verify(&good_token(), TokenKind::Access, ISS, AUD, NOW);
        assert_eq!(verdict.is_ok(), good, "{since:?} {until:?}");
        let other = keyset(1).with_signing_period(key(2).kid(), SigningPeriod { since, until });
        assert!(other.verify(&good_token(), TokenKind::Access, ISS, AUD, NOW).is_ok());
    }
}

#[test]
fn token_expires_at_its_exp_to_the_millisecond() {
    let end = Time::from_unix_ms(claims().exp * SECOND_MS);
    let at = |now| keyset(1).verify(&good_token(), TokenKind::Access, ISS, AUD, now);
    assert!(at(end.plus_ms(-1)).is_ok());
    assert_eq!(at(end), Err(JwtError::Expired));
}

#[test]
fn claims_have_one_spelling() {
    let good = claims_json(&claims());
    let (sub, iat) = (claims().sub.to_string(), claims().iat.to_string());
    let array = format!(r#"["{ISS}","{AUD}","{sub}","{}","0a1b2c3d",{iat},{}]"#, claims().sid, claims().exp);
    let cases = [
        (good.clone(), String::new()),
        (good.clone(), array),
        (good.clone(), format!("{good} ")),
        (good.clone(), format!("{good}{good}")),
        (good.clone(), "{}".to_owned()),
        (good.clone(), "null".to_owned()),
        (good.clone(), "[".repeat(1_000)),
        ("}".to_owned(), r#","admin":true}"#.to_owned()),
        ("}".to_owned(), format!(r#","exp":{}}}"#, claims().exp)),
        ("}".to_owned(), ",}".to_owned()),
        (r#""iss""#.to_owned(), r#""iss":"https://evil.example.org","iss""#.to_owned()),
        (r#""iss""#.to_owned(), r#""\u0069ss""#.to_owned()),
        (r#""iss""#.to_owned(), r#" "iss""#.to_owned()),
        (format!(r#""{AUD}""#), format!(r#"["{AUD}"]"#)),
        (format!(r#""{AUD}""#), "null".to_owned()),
        (format!(r#""{AUD}""#), r#""\u0074ollkeeper""#.to_owned()),
        (r#""jti":"0a1b2c3d","#.to_owned(), String::new()),
        (r#""0a1b2c3d""#.to_owned(), "7".to_owned()),
        (iat.clone(), format!("{iat}.0")),
        (iat.clone(), format!("{iat}e0")),
        (iat.clone(), format!("0{iat}")),
        (iat.clone(), format!("\"{iat}\"")),
        (iat.clone(), "9223372036854775808".to_owned()),
        (iat.clone(), "-0".to_owned()),
        (sub.clone(), sub.to_uppercase()),
        (sub.clone(), sub.replace("user_", "org_")),
        (sub, String::new()),
    ];
    for (from, to) in cases {
        let bad = good.replacen(&from, &to, 1);
        assert_ne!(bad, good);
        assert_eq!(check(&forge(&good_header(), &bad)), Err(JwtError::Invalid), "{bad:.200}");
    }
}

#[test]
fn stored_private_key_must_match_its_kid() {
    let (made, private) = SigningKey::generate(&Random::system()).unwrap();
    let read = SigningKey::from_private(made.kid(), private.expose()).unwrap();
    assert_eq!(read.public_key(), made.public_key());
    assert!(SigningKey::from_private(key(1).kid(), private.expose()).is_err());
    for length in [0, 31, 33] {
        assert!(SigningKey::from_private(made.kid(), &vec![1; length]).is_err());
    }
    assert_eq!(format!("{private:?}"), "***");
    let shown = format!("{:?}", Keyset::new(Arc::new(key(1)), &[]));
    assert!(shown.contains("***") && !shown.contains("pair"), "{shown}");
}

proptest::proptest! {
    #[test]
    fn noise_never_panics(noise: String, header in "[A-Za-z0-9_-]{0,80}", payload in "[A-Za-z0-9_-]{0,80}") {
        proptest::prop_assert!(check(&noise).is_err());
        let token = format!("{header}.{payload}.{payload}");
        proptest::prop_assert!(check(&token).is_err());
    }
}
