//! An authenticator app, written for the tests from RFC 6238. Its codes are compared with those of the
//! server.

use ring::hmac;
use serde_json::{Value, json};
use tollkeeper::clock::Time;

use super::world::World;

/// An authenticator app with the secret of one account.
#[derive(Clone, Debug)]
pub struct Authenticator {
    secret: Vec<u8>,
}

impl Authenticator {
    /// Creates an app from a secret as the user enters it.
    pub fn new(base32: &str) -> Self {
        let mut bits = String::new();
        for c in base32.chars().filter(|c| *c != ' ') {
            let value = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".find(c).unwrap();
            bits.push_str(&format!("{value:05b}"));
        }
        let bytes = bits.as_bytes().chunks_exact(8);
        let byte = |bits: &[u8]| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        Self { secret: bytes.map(byte).collect() }
    }

    /// Returns the code that the app shows at this time.
    pub fn code(&self, now: Time) -> String {
        self.code_of(now.unix_seconds() / 30)
    }

    /// Returns the code of a time step.
    pub fn code_of(&self, step: i64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.secret);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag[19] & 15);
        let number = u32::from_be_bytes(tag[offset..offset + 4].try_into().unwrap()) & 0x7fff_ffff;
        format!("{:06}", number % 1_000_000)
    }
}

/// The time for which a code is shown, in milliseconds.
pub const STEP_MS: i64 = 30_000;

impl World {
    /// Adds an authenticator app to the account of this session, and returns the app and the recovery codes.
    /// Advances the clock by one step, because the code that confirmed the app can't be used again.
    pub async fn add_authenticator(&self, access_token: &str) -> (Authenticator, Vec<String>) {
        let added = self.add_authenticator_now(access_token).await;
        self.clock.advance_ms(STEP_MS);
        added
    }

    /// Like [`Self::add_authenticator`], without advancing the clock.
    pub async fn add_authenticator_now(&self, access_token: &str) -> (Authenticator, Vec<String>) {
        let started = self.post("/v1/auth/totp", &json!({})).bearer(access_token).data().await;
        let app = Authenticator::new(started["secret"].as_str().unwrap());
        let body = json!({"code": app.code(self.clock.now())});
        let confirmed = self.post("/v1/auth/totp/confirm", &body).bearer(access_token).data().await;
        (app, texts(&confirmed["recovery_codes"]))
    }
}

/// Returns the strings of an array.
pub fn texts(array: &Value) -> Vec<String> {
    array.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}
