//! An authenticator for passkeys, written for the tests from WebAuthn level 3: it makes everything that the
//! server checks, and can make one thing at a time wrong.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::rsa::PublicKeyComponents;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};
use tollkeeper::kernel::secrets::sha256;

use super::world::World;

/// The person was there.
pub const UP: u8 = 1;
/// The person was verified.
pub const UV: u8 = 1 << 2;
/// The key may be backed up.
pub const BE: u8 = 1 << 3;
/// The key is backed up.
pub const BS: u8 = 1 << 4;
/// A new key follows.
const AT: u8 = 1 << 6;

enum Key {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

/// An authenticator with one passkey.
pub struct SecurityKey {
    key: Key,
    pub credential_id: Vec<u8>,
    /// By which it knows the person.
    pub handle: Vec<u8>,
    /// The number of its signatures so far.
    pub count: u32,
    /// The flags about itself and the person that it sends with each signature.
    pub flags: u8,
}

/// The answer that an authenticator and its browser are about to give.
#[derive(Clone, Debug)]
pub struct Draft {
    pub kind: &'static str,
    pub challenge: String,
    pub origin: String,
    pub cross_origin: Value,
    pub top_origin: Value,
    pub rp_id: String,
    pub flags: u8,
    pub count: u32,
    pub credential_id: Vec<u8>,
    pub handle: Option<Vec<u8>>,
    /// The credential's id according to the browser.
    pub id: String,
    pub kind_of_credential: &'static str,
    pub attestation: &'static str,
    pub algorithm: i64,
}

impl Draft {
    fn client_data(&self) -> Vec<u8> {
        let mut data = json!({"type": self.kind, "challenge": self.challenge, "origin": self.origin});
        for (name, value) in [("crossOrigin", &self.cross_origin), ("topOrigin", &self.top_origin)] {
            if !value.is_null() {
                data[name] = value.clone();
            }
        }
        data.to_string().into_bytes()
    }

    fn data(&self) -> Vec<u8> {
        let mut data = sha256(self.rp_id.as_bytes()).to_vec();
        data.push(self.flags);
        data.extend(self.count.to_be_bytes());
        data
    }
}

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn decode(text: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).unwrap();
    bytes
}

impl SecurityKey {
    /// A new authenticator that signs with ES256.
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self::with(Key::Es256(pair))
    }

    /// A new authenticator that signs with RS256, as those of Windows do. The key is made by openssl.
    pub fn rs256() -> Option<Self> {
        let arguments =
            ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"];
        let made = Command::new("openssl").args(arguments).output().ok()?;
        let pair = RsaKeyPair::from_der(&made.stdout).unwrap();
        Some(Self::with(Key::Rs256(pair)))
    }

    fn with(key: Key) -> Self {
        Self { key, credential_id: random::<32>().to_vec(), handle: Vec::new(), count: 0, flags: UP | UV }
    }

    /// The public key in COSE (RFC 9053).
    fn cose(&self, algorithm: i64) -> Vec<u8> {
        let mut cose = Vec::new();
        match &self.key {
            Key::Es256(pair) => {
                let point = pair.public_key().as_ref();
                head(&mut cose, 5, 5);
                for (label, value) in [(1, 2), (3, algorithm), (-1, 1)] {
                    integer(&mut cose, label);
                    integer(&mut cose, value);
                }
                for (label, coordinate) in [(-2, &point[1..33]), (-3, &point[33..])] {
                    integer(&mut cose, label);
                    bytes(&mut cose, coordinate);
                }
            }
            Key::Rs256(pair) => {
                let public: PublicKeyComponents<Vec<u8>> = pair.public().into();
                head(&mut cose, 5, 4);
                for (label, value) in [(1, 3), (3, algorithm)] {
                    integer(&mut cose, label);
                    integer(&mut cose, value);
                }
                integer(&mut cose, -1);
                bytes(&mut cose, &public.n);
                integer(&mut cose, -2);
                bytes(&mut cose, &public.e);
            }
        }
        cose
    }

    fn signature(&self, signed: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Es256(pair) => pair.sign(&random, signed).unwrap().as_ref().to_vec(),
            Key::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, signed, &mut signature).unwrap();
                signature
            }
        }
    }

    fn draft(&self, kind: &'static str, options: &Value, rp_id: &Value, origin: &str) -> Draft {
        Draft {
            kind,
            challenge: options["challenge"].as_str().unwrap().to_owned(),
            origin: origin.to_owned(),
            cross_origin: json!(false),
            top_origin: Value::Null,
            rp_id: rp_id.as_str().unwrap().to_owned(),
            flags: self.flags,
            count: self.count,
            credential_id: self.credential_id.clone(),
            handle: Some(self.handle.clone()),
            id: encode(&self.credential_id),
            kind_of_credential: "public-key",
            attestation: "none",
            algorithm: match &self.key {
                Key::Es256(_) => -7,
                Key::Rs256(_) => -257,
            },
        }
    }

    /// Makes a passkey for these options, on a page of this origin; returns the browser's answer.
    pub fn make(&mut self, options: &Value, origin: &str) -> Value {
        self.make_with(options, origin, |_| {})
    }

    /// Like [`Self::make`], with a change to the draft of the answer.
    pub fn make_with(&mut self, options: &Value, origin: &str, change: impl FnOnce(&mut Draft)) -> Value {
        self.handle = decode(&options["user"]["id"]);
        let mut draft = self.draft("webauthn.create", options, &options["rp"]["id"], origin);
        draft.flags |= AT;
        change(&mut draft);
        let mut data = draft.data();
        data.extend([0; 16]);
        data.extend(u16::try_from(draft.credential_id.len()).unwrap().to_be_bytes());
        data.extend(&draft.credential_id);
        data.extend(self.cose(draft.algorithm));
        let mut attestation = Vec::new();
        head(&mut attestation, 5, 3);
        text(&mut attestation, "fmt");
        text(&mut attestation, draft.attestation);
        text(&mut attestation, "attStmt");
        head(&mut attestation, 5, 0);
        text(&mut attestation, "authData");
        bytes(&mut attestation, &data);
        json!({
            "id": draft.id,
            "rawId": draft.id,
            "type": draft.kind_of_credential,
            "authenticatorAttachment": "cross-platform",
            "clientExtensionResults": {"credProps": {"rk": true}},
            "response": {
                "clientDataJSON": encode(&draft.client_data()),
                "attestationObject": encode(&attestation),
                "authenticatorData": encode(&data),
                "transports": ["usb", "smart-card"],
                "publicKeyAlgorithm": draft.algorithm,
            },
        })
    }

    /// Signs for these options, on a page of this origin; returns the browser's answer.
    pub fn sign(&mut self, options: &Value, origin: &str) -> Value {
        self.sign_with(options, origin, |_| {})
    }

    /// Like [`Self::sign`], with a change to the draft of the answer.
    pub fn sign_with(&mut self, options: &Value, origin: &str, change: impl FnOnce(&mut Draft)) -> Value {
        self.count = self.count.wrapping_add(1);
        let mut draft = self.draft("webauthn.get", options, &options["rpId"], origin);
        change(&mut draft);
        let (client_data, data) = (draft.client_data(), draft.data());
        let signature = self.signature(&[data.as_slice(), &sha256(&client_data)].concat());
        let mut response = json!({
            "clientDataJSON": encode(&client_data),
            "authenticatorData": encode(&data),
            "signature": encode(&signature),
        });
        if let Some(handle) = &draft.handle {
            response["userHandle"] = encode(handle).into();
        }
        json!({
            "id": draft.id,
            "rawId": draft.id,
            "type": draft.kind_of_credential,
            "clientExtensionResults": {},
            "response": response,
        })
    }
}

/// The head of a CBOR item (RFC 8949).
fn head(out: &mut Vec<u8>, major: u8, value: u64) {
    let major = major << 5;
    match value {
        0..24 => out.push(major | u8::try_from(value).unwrap()),
        24..256 => out.extend([major | 24, u8::try_from(value).unwrap()]),
        _ => {
            out.push(major | 25);
            out.extend(u16::try_from(value).unwrap().to_be_bytes());
        }
    }
}

fn integer(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => head(out, 0, value),
        Err(_) => head(out, 1, u64::try_from(-1 - value).unwrap()),
    }
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    head(out, 2, value.len() as u64);
    out.extend(value);
}

fn text(out: &mut Vec<u8>, value: &str) {
    head(out, 3, value.len() as u64);
    out.extend(value.bytes());
}

impl World {
    /// Makes a passkey for the account of this session; returns the body that adds it.
    pub async fn new_passkey(&self, access_token: &str, key: &mut SecurityKey) -> Value {
        let options = self.post("/v1/auth/passkeys/options", &json!({})).bearer(access_token).data().await;
        let credential = key.make(&options["public_key"], self.app.accounts.passkeys().unwrap().origin());
        json!({"ceremony": options["ceremony"], "credential": credential, "name": "Laptop"})
    }

    /// Signs a login; returns its body.
    pub async fn passkey_login(&self, key: &mut SecurityKey) -> Value {
        let options = self.post("/v1/auth/passkey-login/options", &json!({})).data().await;
        let credential = key.sign(&options["public_key"], self.app.accounts.passkeys().unwrap().origin());
        json!({"ceremony": options["ceremony"], "credential": credential})
    }
}
