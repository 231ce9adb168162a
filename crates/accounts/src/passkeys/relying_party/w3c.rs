//! The test vectors of WebAuthn Level 3, each with a new credential and a signature by it.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

/// Bytes are hexadecimal.
#[derive(Deserialize)]
struct Vector {
    name: String,
    credential_id: String,
    made: Made,
    signed: Signed,
}

#[derive(Deserialize)]
struct Made {
    challenge: String,
    client_data: String,
    attestation_object: String,
}

#[derive(Deserialize)]
struct Signed {
    challenge: String,
    client_data: String,
    authenticator_data: String,
    signature: String,
}

/// Whether the authenticator has to have verified the person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verification {
    /// As this server asks for.
    Required,
    Preferred,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn base64(hex: &str) -> String {
    URL_SAFE_NO_PAD.encode(bytes(hex))
}

/// Returns the state of a ceremony with the challenge of a vector.
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
    fn make(&self, party: &RelyingParty, verification: Verification) -> Result<NewCredential, Refused> {
        let (_, state) = party.start(&[7; 32], "ada@example.com", "ada", &[]).unwrap();
        let state = with_challenge(&state, "/rs", &self.made.challenge, verification);
        let id = base64(&self.credential_id);
        let answer = json!({"id": id, "rawId": id, "type": PUBLIC_KEY, "response": {
            "clientDataJSON": base64(&self.made.client_data),
            "attestationObject": base64(&self.made.attestation_object),
        }});
        party.finish(&answer.to_string(), &state)
    }

    fn sign(
        &self,
        party: &RelyingParty,
        verification: Verification,
        made: &NewCredential,
        signature: &[u8],
    ) -> Result<Assertion, Refused> {
        let (_, state) = party.ask(&[]).unwrap();
        let state = with_challenge(&state, "/ast", &self.signed.challenge, verification);
        let id = base64(&self.credential_id);
        let answer = json!({"id": id, "rawId": id, "type": PUBLIC_KEY, "response": {
            "clientDataJSON": base64(&self.signed.client_data),
            "authenticatorData": base64(&self.signed.authenticator_data),
            "signature": URL_SAFE_NO_PAD.encode(signature),
            "userHandle": null,
        }});
        let mut stored: Value = serde_json::from_str(&made.stored).unwrap();
        if verification == Verification::Preferred {
            // The library would ask for as much as the new credential had.
            assert!(stored["user_verified"].is_boolean());
            stored["user_verified"] = json!(false);
        }
        party.check(&Answer::parse(&answer.to_string()).unwrap(), state, &stored.to_string())
    }
}

/// The vectors with a key of an algorithm that this server asks for, from a page of its own. Those of pages in frames and of
/// other algorithms are refused whatever is asked of the authenticator, and so is `packed-rs256`: of RSA keys the library
/// takes those of 2,048 bits, as authenticators make them, and this one has 3,488.
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
    let (mut made, mut signed) = (Vec::new(), Vec::new());
    for vector in &vectors {
        let name = vector.name.as_str();
        let credential = match vector.make(&party, Verification::Preferred) {
            Ok(credential) => credential,
            Err(error) => {
                assert!(!TAKEN.contains(&name), "{name}: {error}");
                continue;
            }
        };
        assert!(TAKEN.contains(&name), "{name} is taken");
        assert_eq!(credential.id, bytes(&vector.credential_id), "{name}");
        let signature = bytes(&vector.signed.signature);
        let outcome = vector.sign(&party, Verification::Preferred, &credential, &signature);
        let authenticator_data = bytes(&vector.signed.authenticator_data);
        assert_eq!(outcome.unwrap().is_synced, authenticator_data[32] & 0x10 != 0, "{name}");
        for bit in 0..8 * signature.len() {
            let mut flipped = signature.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let outcome = vector.sign(&party, Verification::Preferred, &credential, &flipped);
            assert!(outcome.is_err(), "{name}: a signature with bit {bit} flipped");
        }
        // As this server asks: the flag 0x04 says that the person was verified.
        if vector.make(&party, Verification::Required).is_ok() {
            made.push(name);
        }
        let is_taken = vector.sign(&party, Verification::Required, &credential, &signature).is_ok();
        assert_eq!(is_taken, authenticator_data[32] & 0x04 != 0, "{name}");
        if is_taken {
            signed.push(name);
        }
    }
    assert_eq!(made, ["packed-self-es256"]);
    assert_eq!(signed, ["none-es256-long-credential-id"]);
}
