//! The relying party: creates options for browsers and authenticators, and checks their responses. The
//! `webauthn-rs` library does most checks; this module does the checks that the library leaves to its caller.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use webauthn_rs::prelude::{
    Credential, DiscoverableAuthentication, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, Url, Uuid, WebauthnError,
};
use webauthn_rs::{Webauthn, WebauthnBuilder};

use kernel::error::Error;
use kernel::hosts;

/// The name of the service in browser dialogs.
const NAME: &str = "tollkeeper";
/// The type of every credential.
const PUBLIC_KEY: &str = "public-key";

/// The server's identity for browsers and authenticators.
#[derive(Clone, Debug)]
pub struct RelyingParty {
    /// The origin of the pages that may use passkeys.
    origin: String,
    webauthn: Webauthn,
}

/// The reason why a response isn't valid, for the log.
pub(super) type Refused = WebauthnError;

/// A newly created credential.
#[derive(Clone, Debug)]
pub(super) struct NewCredential {
    pub id: Vec<u8>,
    /// The credential as JSON, for [`RelyingParty::check`].
    pub stored: String,
    pub sign_count: u32,
    pub is_synced: bool,
}

/// The data that an authenticator has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Assertion {
    pub sign_count: u32,
    pub is_synced: bool,
}

/// The response to a request for a signature.
#[derive(Clone, Debug)]
pub(super) struct Answer(PublicKeyCredential);

impl Answer {
    /// Parses the JSON of a `PublicKeyCredential`.
    pub fn parse(json: &str) -> Option<Self> {
        let answer: PublicKeyCredential = serde_json::from_str(json).ok()?;
        let is_whole = is_id(&answer.id, &answer.raw_id) && answer.type_ == PUBLIC_KEY;
        is_whole.then_some(Self(answer))
    }

    /// Returns the id of the credential that made the signature.
    pub fn credential_id(&self) -> &[u8] {
        &self.0.raw_id
    }

    /// Returns the handle that identifies the user to the authenticator.
    pub fn handle(&self) -> &[u8] {
        self.0.response.user_handle.as_deref().unwrap_or_default()
    }
}

/// The client data fields that are checked in addition to the library's checks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    origin: String,
    cross_origin: Option<bool>,
    top_origin: Option<IgnoredAny>,
}

impl RelyingParty {
    /// Returns the relying party for the host of a public URL. Browsers don't support passkeys for IP
    /// addresses. So a loopback address is replaced with `localhost`, and any other address has no relying
    /// party.
    pub fn of(public_url: &str) -> Option<Self> {
        let mut url = Url::parse(public_url).ok()?;
        if let Some(address) = address(&url) {
            if !address.is_loopback() {
                return None;
            }
            url.set_host(Some("localhost")).ok()?;
        }
        let builder = WebauthnBuilder::new(url.domain()?, &url).ok()?;
        let webauthn = builder.rp_name(NAME).build().ok()?;
        Some(Self { origin: url.origin().ascii_serialization(), webauthn })
    }

    /// Returns the origin of the pages that may use passkeys, such as `https://keeper.example.com`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the options with which a browser creates a passkey, and the state for [`Self::finish`].
    /// `known` are the ids of the user's existing credentials.
    pub(super) fn start(
        &self,
        handle: &[u8],
        email: &str,
        username: &str,
        known: &[Vec<u8>],
    ) -> Result<(Value, PasskeyRegistration), Error> {
        // The library accepts only handles of 16 bytes, so the handle and the known credentials are added to
        // the options below. This also keeps them out of the state, which stays short.
        let started = self.webauthn.start_passkey_registration(Uuid::nil(), email, username, None);
        let (options, state) = started.map_err(Error::internal)?;
        let mut options = public_key(&options)?;
        set(&mut options, "/user/id", json!(URL_SAFE_NO_PAD.encode(handle)))?;
        set(&mut options, "/authenticatorSelection/residentKey", json!("required"))?;
        set(&mut options, "/authenticatorSelection/requireResidentKey", json!(true))?;
        if let Some(options) = options.as_object_mut() {
            options.insert("excludeCredentials".to_owned(), descriptors(known));
        }
        Ok((options, state))
    }

    /// Checks the response of a browser that created a passkey.
    pub(super) fn finish(&self, json: &str, state: &PasskeyRegistration) -> Result<NewCredential, Refused> {
        let answer: RegisterPublicKeyCredential =
            serde_json::from_str(json).map_err(WebauthnError::ParseJSONFailure)?;
        if !is_id(&answer.id, &answer.raw_id) || answer.type_ != PUBLIC_KEY {
            return Err(WebauthnError::CredentialNotFound);
        }
        self.check_client_data(&answer.response.client_data_json)?;
        let passkey = self.webauthn.finish_passkey_registration(&answer, state)?;
        let mut credential = Credential::from(passkey);
        if credential.cred_id != answer.raw_id {
            return Err(WebauthnError::CredentialNotFound);
        }
        let sign_count = credential.counter;
        // The count has its own column, and a decreasing count isn't a reason to refuse a signature.
        credential.counter = 0;
        Ok(NewCredential {
            id: credential.cred_id.clone(),
            stored: serde_json::to_string(&credential).map_err(WebauthnError::ParseJSONFailure)?,
            sign_count,
            is_synced: credential.backup_state,
        })
    }

    /// Returns the options with which a browser requests a signature by one of these credentials, or by any
    /// credential if the list is empty.
    pub(crate) fn ask(&self, allowed: &[Vec<u8>]) -> Result<(Value, DiscoverableAuthentication), Error> {
        let (options, state) = self.webauthn.start_discoverable_authentication().map_err(Error::internal)?;
        let mut options = public_key(&options)?;
        set(&mut options, "/allowCredentials", descriptors(allowed))?;
        Ok((options, state))
    }

    /// Checks a signature. `stored` is [`NewCredential::stored`].
    pub(super) fn check(
        &self,
        answer: &Answer,
        state: DiscoverableAuthentication,
        stored: &str,
    ) -> Result<Assertion, Refused> {
        let credential: Credential = serde_json::from_str(stored).map_err(WebauthnError::ParseJSONFailure)?;
        self.check_client_data(&answer.0.response.client_data_json)?;
        let result = self.webauthn.finish_discoverable_authentication_v2(&answer.0, state, credential)?;
        Ok(Assertion { sign_count: result.counter(), is_synced: result.backup_state() })
    }

    /// Checks that the origin is exactly ours, and that our page wasn't in a frame of another site.
    fn check_client_data(&self, json: &[u8]) -> Result<(), Refused> {
        let data: ClientData = serde_json::from_slice(json).map_err(WebauthnError::ParseJSONFailure)?;
        if data.origin != self.origin {
            return Err(WebauthnError::InvalidRPOrigin);
        }
        // The library checks this only for new passkeys.
        if data.cross_origin == Some(true) || data.top_origin.is_some() {
            return Err(WebauthnError::CredentialCrossOrigin);
        }
        Ok(())
    }
}

/// Returns `true` if the host of a URL is an IP address.
pub fn has_address(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| address(&url).is_some())
}

fn address(url: &Url) -> Option<IpAddr> {
    hosts::address(url.host_str()?)
}

/// Returns `true` if the text is the base64url encoding of the bytes.
fn is_id(text: &str, bytes: &[u8]) -> bool {
    URL_SAFE_NO_PAD.encode(bytes) == text
}

fn descriptors(ids: &[Vec<u8>]) -> Value {
    ids.iter().map(|id| json!({"type": PUBLIC_KEY, "id": URL_SAFE_NO_PAD.encode(id)})).collect()
}

/// Returns the `publicKey` field of the options.
fn public_key(options: &impl serde::Serialize) -> Result<Value, Error> {
    let mut options = serde_json::to_value(options).map_err(Error::internal)?;
    options
        .get_mut("publicKey")
        .map(Value::take)
        .ok_or_else(|| Error::internal("options without `publicKey`"))
}

fn set(options: &mut Value, path: &str, value: Value) -> Result<(), Error> {
    let place = options.pointer_mut(path);
    *place.ok_or_else(|| Error::internal(format_args!("options without `{path}`")))? = value;
    Ok(())
}

#[cfg(test)]
mod w3c;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relying_party_is_the_host_of_the_public_url() {
        for (url, origin) in [
            ("https://keeper.example.com", Some("https://keeper.example.com")),
            ("https://Keeper.Example.com:443/path", Some("https://keeper.example.com")),
            ("https://keeper.example.com:8443/path", Some("https://keeper.example.com:8443")),
            ("http://localhost:8080", Some("http://localhost:8080")),
            ("http://127.0.0.1:8080", Some("http://localhost:8080")),
            ("http://[::1]:8080", Some("http://localhost:8080")),
            ("https://192.0.2.1", None),
            ("https://[2001:db8::1]:8443", None),
            ("http://0.0.0.0:8080", None),
        ] {
            let found = RelyingParty::of(url);
            assert_eq!(found.as_ref().map(RelyingParty::origin), origin, "{url}");
        }
        assert!(has_address("http://127.0.0.1:8080") && has_address("https://[2001:db8::1]"));
        assert!(!has_address("http://localhost:8080") && !has_address("https://1.example.com"));
    }

    #[test]
    fn options_ask_for_what_is_checked() {
        let party = RelyingParty::of("https://keeper.example.com").unwrap();
        let (options, _) = party.start(&[7; 32], "ada@example.com", "ada", &[vec![1, 2, 3]]).unwrap();
        assert_eq!(options["rp"], json!({"id": "keeper.example.com", "name": "tollkeeper"}));
        let user =
            json!({"id": URL_SAFE_NO_PAD.encode([7; 32]), "name": "ada@example.com", "displayName": "ada"});
        assert_eq!(options["user"], user);
        let selection =
            json!({"residentKey": "required", "requireResidentKey": true, "userVerification": "required"});
        assert_eq!(options["authenticatorSelection"], selection);
        assert_eq!((&options["attestation"], &options["timeout"]), (&json!("none"), &json!(300_000)));
        assert_eq!(options["excludeCredentials"], json!([{"type": "public-key", "id": "AQID"}]));
        let algorithms: Vec<_> =
            options["pubKeyCredParams"].as_array().unwrap().iter().map(|p| &p["alg"]).collect();
        // ES256, ES384, RS256.
        assert_eq!(algorithms, [&json!(-7), &json!(-35), &json!(-257)]);

        let (options, _) = party.ask(&[]).unwrap();
        assert_eq!(
            (&options["rpId"], &options["userVerification"]),
            (&json!("keeper.example.com"), &json!("required"))
        );
        assert_eq!(options["allowCredentials"], json!([]));
    }
}
