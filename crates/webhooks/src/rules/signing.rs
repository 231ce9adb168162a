//! Signatures according to Standard Webhooks 1.0.0 (docs/contract/webhooks.md#signatures).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use kernel::random::Random;

/// Prefix of a secret's text.
const PREFIX: &str = "whsec_";
/// Length of a new secret, in bytes.
const SECRET_BYTES: usize = 32;

/// A webhook's secret. Its debug output is redacted.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// Generates a secret of 256 random bits.
    pub fn generate(random: &Random) -> Self {
        Self(random.bytes::<SECRET_BYTES>().to_vec())
    }

    /// Parses a secret.
    pub fn parse(text: &str) -> Option<Self> {
        STANDARD.decode(text.strip_prefix(PREFIX)?).ok().filter(|bytes| !bytes.is_empty()).map(Self)
    }

    /// Returns the secret's text, `whsec_` and base64, for sealing and for showing it once to its owner.
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// Returns the signature of a body's bytes: `v1,` and base64 of the HMAC-SHA256 of id, time, and body.
    fn sign(&self, event_id: &str, unix_seconds: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(format!("{event_id}.{unix_seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Returns the `webhook-signature` header: one signature per secret.
pub fn signatures(secrets: &[WebhookSecret], event_id: &str, unix_seconds: i64, body: &[u8]) -> String {
    let signed: Vec<_> = secrets.iter().map(|secret| secret.sign(event_id, unix_seconds, body)).collect();
    signed.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_the_reference_libraries() {
        // From the tests of the Standard Webhooks libraries (`test_sign_function` in Python).
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs() {
        let random = Random::system();
        let secrets = [WebhookSecret::generate(&random), WebhookSecret::generate(&random)];
        let both = signatures(&secrets, "event_1", 1, b"{}");
        let each: Vec<_> =
            secrets.iter().map(|one| signatures(std::slice::from_ref(one), "event_1", 1, b"{}")).collect();
        assert_eq!(both.split(' ').collect::<Vec<_>>(), each);
        assert_ne!(each[0], each[1]);
        for other in [
            signatures(&secrets[..1], "event_2", 1, b"{}"),
            signatures(&secrets[..1], "event_1", 2, b"{}"),
            signatures(&secrets[..1], "event_1", 1, b"{ }"),
        ] {
            assert_ne!(other, each[0]);
        }
    }

    #[test]
    fn secret_is_text_of_256_bits_that_does_not_print() {
        let secret = WebhookSecret::generate(&Random::system());
        let text = secret.expose();
        assert_eq!(text.len(), 6 + 44);
        let encoded = text.strip_prefix("whsec_").unwrap();
        assert_eq!(WebhookSecret::parse(&text).unwrap().0, secret.0);
        assert_eq!(format!("{secret:?}"), "***");
        for bad in ["", "whsec_", "whsec_!", encoded] {
            assert!(WebhookSecret::parse(bad).is_none(), "{bad}");
        }
    }
}
