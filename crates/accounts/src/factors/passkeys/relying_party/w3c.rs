//! The test vectors of WebAuthn Level 3. Each has a new credential and a signature by it.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

/// A test vector, with bytes in hexadecimal.
#[derive(Deserialize)]
struct Vector {
    name: String,
    credential_id: String,
    creation: Creation,
    signature: Signature,
}

#[derive(Deserialize)]
struct Creation {
    challenge: String,
    client_data: String,
    attestation_object: String,
}

#[derive(Deserialize)]
struct Signature {
    challenge: String,
    client_data: String,
    authenticator_data: String,
    signature: String,
}

/// The user verification that is requested from the authenticator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verification {
    /// The setting that the server uses.
    Required,
    Preferred,
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn base64(hex: &str) -> String {
    URL_SAFE_NO_PAD.encode(bytes(hex))
}

/// Returns `true` if the authenticator reports that it has verified the user.
fn is_verified(flags: u8) -> bool {
    flags & 0x04 != 0
}

impl Creation {
    /// Returns the last entry of the CBOR attestation object: its key, its length and the authenticator data.
    fn last_entry(&self) -> Vec<u8> {
        let object = bytes(&self.attestation_object);
        let key = b"\x68authData";
        let at = object.windows(key.len()).position(|window| window == key).unwrap();
        object[at..].to_vec()
    }

    fn authenticator_data(&self) -> Vec<u8> {
        let entry = self.last_entry();
        let length_bytes = match entry[9] {
            0x58 => 1,
            0x59 => 2,
            other => panic!("unexpected length byte {other}"),
        };
        entry[10 + length_bytes..].to_vec()
    }

    /// Returns the attestation object without the attestation statement. Browsers remove the statement
    /// because this server doesn't request one.
    fn without_statement(&self) -> Vec<u8> {
        [b"\xa3\x63fmt\x64none\x67attStmt\xa0", self.last_entry().as_slice()].concat()
    }
}

/// Sets the challenge in the state of a ceremony to that of a vector.
fn with_challenge<S: serde::Serialize + DeserializeOwned>(
    state: &S,
    path: &str,
    challenge: &str,
    verification: Verification,
) -> S {
    let mut state = serde_json::to_value(state).unwrap();
    let inner = state.pointer_mut(path).unwrap();
    assert_eq!(inner["policy"], "required");
    inner["challenge"] = json!(base64(challenge));
    if verification == Verification::Preferred {
        inner["policy"] = json!("preferred");
    }
    serde_json::from_value(state).unwrap()
}

impl Vector {
    fn create(&self, party: &RelyingParty, verification: Verification) -> Result<NewCredential, Refused> {
        let (_, state) = party.start(&[7; 32], "ada@example.com", "ada", &[]).unwrap();
        let state = with_challenge(&state, "/rs", &self.creation.challenge, verification);
        let id = base64(&self.credential_id);
        let answer = json!({"id": id, "rawId": id, "type": PUBLIC_KEY, "response": {
            "clientDataJSON": base64(&self.creation.client_data),
            "attestationObject": URL_SAFE_NO_PAD.encode(self.creation.without_statement()),
        }});
        party.finish(&answer.to_string(), &state)
    }

    fn sign(
        &self,
        party: &RelyingParty,
        verification: Verification,
        credential: &NewCredential,
        signature: &[u8],
    ) -> Result<Assertion, Refused> {
        let (_, state) = party.ask(&[]).unwrap();
        let state = with_challenge(&state, "/ast", &self.signature.challenge, verification);
        let id = base64(&self.credential_id);
        let answer = json!({"id": id, "rawId": id, "type": PUBLIC_KEY, "response": {
            "clientDataJSON": base64(&self.signature.client_data),
            "authenticatorData": base64(&self.signature.authenticator_data),
            "signature": URL_SAFE_NO_PAD.encode(signature),
            "userHandle": null,
        }});
        let mut stored: Value = serde_json::from_str(&credential.stored).unwrap();
        if verification == Verification::Preferred {
            // Otherwise the library would require user verification if the credential was created with it.
            assert!(stored["user_verified"].is_boolean());
            stored["user_verified"] = json!(false);
        }
        party.check(&Answer::parse(&answer.to_string()).unwrap(), state, &stored.to_string())
    }
}

/// The vectors that are accepted. The others are from pages in frames, or use algorithms that this server
/// doesn't offer. `packed-rs256` is refused because the library accepts only RSA keys of 2,048 bits, which
/// authenticators create, and its key has 3,488 bits.
const TAKEN: [&str; 9] = [
    "none-es256",
    "packed-self-es256",
    "none-es256-long-credential-id",
    "packed-es256",
    "packed-es384",
    "tpm-es256",
    "android-key-es256",
    "apple-es256",
    "fido-u2f-es256",
];

#[test]
fn vectors_are_taken_if_the_person_was_verified() {
    let Vectors { vectors } = serde_json::from_str(include_str!("w3c_vectors.json")).unwrap();
    assert_eq!(vectors.len(), 15);
    let party = RelyingParty::of("https://example.org").unwrap();
    let (mut created, mut signed) = (Vec::new(), Vec::new());
    for vector in &vectors {
        let name = vector.name.as_str();
        let credential = match vector.create(&party, Verification::Preferred) {
            Ok(credential) => credential,
            Err(error) => {
                assert!(!TAKEN.contains(&name), "{name}: {error}");
                continue;
            }
        };
        assert!(TAKEN.contains(&name), "{name} is taken");
        assert_eq!(credential.id, bytes(&vector.credential_id), "{name}");
        let signature = bytes(&vector.signature.signature);
        let outcome = vector.sign(&party, Verification::Preferred, &credential, &signature);
        let authenticator_data = bytes(&vector.signature.authenticator_data);
        assert_eq!(outcome.unwrap().is_synced, authenticator_data[32] & 0x10 != 0, "{name}");
        for at in 0..signature.len() {
            let mut flipped = signature.clone();
            flipped[at] ^= 1 << (at % 8);
            let outcome = vector.sign(&party, Verification::Preferred, &credential, &flipped);
            assert!(outcome.is_err(), "{name}: a signature with byte {at} changed");
        }
        // The setting that the server uses.
        let is_taken = vector.create(&party, Verification::Required).is_ok();
        assert_eq!(is_taken, is_verified(vector.creation.authenticator_data()[32]), "{name}");
        if is_taken {
            created.push(name);
        }
        let is_taken = vector.sign(&party, Verification::Required, &credential, &signature).is_ok();
        assert_eq!(is_taken, is_verified(authenticator_data[32]), "{name}");
        if is_taken {
            signed.push(name);
        }
    }
    assert_eq!(created, ["packed-self-es256", "packed-es256", "tpm-es256", "android-key-es256"]);
    assert_eq!(signed, ["none-es256-long-credential-id", "packed-es256", "packed-es384", "tpm-es256"]);
}
