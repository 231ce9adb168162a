//! Identity providers: a fake one, which signs any claims that a test needs, and a real one.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollkeeper::accounts::store::connections::NewConnection;
use tollkeeper::ids::{ConnectionId, UserId};

use super::http::{Answer, Call};
use super::node;
use super::world::{Folder, World};

/// The id of tollkeeper as a client of the provider.
pub const CLIENT_ID: &str = "tollkeeper";
/// The secret of tollkeeper as a client of the provider.
pub const CLIENT_SECRET: &str = "a-secret-of-the-client";

/// A key that signs tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    pub kid: String,
}

impl SigningKey {
    pub fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self { pair: pair.unwrap(), kid: kid.to_owned() }
    }

    pub fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid, "x": x, "y": y})
    }

    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

/// The response to requests for a path.
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub delay: Duration,
}

impl Reply {
    pub fn json(body: &Value) -> Self {
        let head = "content-type: application/json\r\n".to_owned();
        Self { status: 200, head, body: body.to_string().into_bytes(), delay: Duration::ZERO }
    }
}

/// A fake identity provider.
pub struct IdentityProvider {
    pub issuer: String,
    pub key: SigningKey,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl IdentityProvider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let replies: Arc<Mutex<HashMap<String, Reply>>> = Arc::default();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = (Arc::clone(&replies), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, shared.0.clone(), shared.1.clone()));
            }
        });
        let provider = Self { issuer, key: SigningKey::new("first"), replies, requests, task };
        provider.set("/.well-known/openid-configuration", Reply::json(&provider.metadata()));
        provider.set_keys(&[provider.key.jwk()]);
        provider
    }

    /// Returns the metadata of a correct provider.
    pub fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    pub fn set(&self, path: &str, reply: Reply) {
        self.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    pub fn set_keys(&self, keys: &[Value]) {
        self.set("/keys", Reply::json(&json!({ "keys": keys })));
    }

    /// Sets the ID token that is returned for every code.
    pub fn set_token(&self, token: &str) {
        let body = json!({"access_token": "x", "token_type": "Bearer", "id_token": token});
        self.set("/token", Reply::json(&body));
    }

    /// Sets the ID token that is returned for one code.
    pub fn set_token_of(&self, code: &str, token: &str) {
        let body = json!({"access_token": "x", "token_type": "Bearer", "id_token": token});
        self.set(&format!("/token code={code}"), Reply::json(&body));
    }

    /// Returns the requests for a path, with their bodies.
    pub fn requests(&self, path: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|text| text.split(' ').nth(1) == Some(path)).cloned().collect()
    }

    /// Returns the claims of a valid token, changed as given. Null removes a claim.
    pub fn claims(&self, world: &World, nonce: &str, changes: &Value) -> Value {
        let now = world.clock.now().unix_seconds();
        let mut claims = json!({"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, "sub": "1"});
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.key.sign(&json!({"alg": "ES256", "kid": self.key.kid}), claims)
    }

    /// Signs in a user for whom the provider returns these claims, and returns the response to the callback.
    pub async fn sign_on(&self, world: &World, jar: &mut Jar, path: &str, claims: &Value) -> Answer {
        let asked = jar.begin(world, path).await;
        self.set_token(&self.sign(&self.claims(world, &asked["nonce"], claims)));
        jar.get(world, &self.callback(&asked)).await
    }

    /// Returns the path of the callback, to which the provider redirects the browser.
    pub fn callback(&self, asked: &BTreeMap<String, String>) -> String {
        let path = asked["redirect_uri"].split_once("/console").unwrap().1;
        format!("/console{path}?code=c0de&state={}&iss={}", asked["state"], encode(&self.issuer))
    }
}

impl Drop for IdentityProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    mut stream: TcpStream,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let text = loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                break text;
            }
        }
    };
    let path = text.split(' ').nth(1).unwrap().split('?').next().unwrap().to_owned();
    let code = text.split(['&', '\n']).find(|pair| pair.starts_with("code=")).unwrap_or_default().to_owned();
    requests.lock().unwrap().push(text);
    let missing = Reply { status: 404, head: String::new(), body: Vec::new(), delay: Duration::ZERO };
    let reply = {
        let replies = replies.lock().unwrap();
        replies.get(&format!("{path} {code}")).or_else(|| replies.get(&path)).cloned().unwrap_or(missing)
    };
    tokio::time::sleep(reply.delay).await;
    let head = format!(
        "HTTP/1.1 {} x\r\n{}content-length: {}\r\nconnection: close\r\n\r\n",
        reply.status,
        reply.head,
        reply.body.len()
    );
    let sent = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&reply.body).await
    };
    // The caller may have disconnected already.
    drop(sent.await);
}

/// A browser that keeps all cookies.
#[derive(Clone, Default, Debug)]
pub struct Jar(pub BTreeMap<String, String>);

impl Jar {
    /// Returns the `Cookie` header that the browser sends.
    pub fn cookies(&self) -> String {
        let cookies: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cookies.join("; ")
    }

    pub async fn send(&mut self, call: Call) -> Answer {
        let call = if self.0.is_empty() { call } else { call.header("cookie", &self.cookies()) };
        let answer = call.send().await;
        for set in answer.headers.get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if value.is_empty() {
                self.0.remove(name);
            } else {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    /// Opens a page from a link on another site.
    pub async fn get(&mut self, world: &World, path: &str) -> Answer {
        let call = world.call(Method::GET, path).header("sec-fetch-site", "cross-site");
        self.send(call.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document")).await
    }

    /// Opens a page from a link on a page of this site.
    pub async fn click(&mut self, world: &World, path: &str) -> Answer {
        let call = world.call(Method::GET, path).header("sec-fetch-site", "same-origin");
        self.send(call.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document")).await
    }

    /// Submits a form of a page.
    pub async fn post(&mut self, world: &World, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(world.call(Method::POST, path).header("sec-fetch-site", "same-origin").form(fields)).await
    }

    /// Starts a sign-on, and returns the parameters of the request to the provider.
    pub async fn begin(&mut self, world: &World, path: &str) -> BTreeMap<String, String> {
        let answer = self.click(world, path).await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        query(answer.header("location"))
    }

    /// Signs in with a password.
    pub async fn sign_in(&mut self, world: &World, email: &str, password: &str) -> Answer {
        self.post(world, "/console/sign-in", &[("email", email), ("password", password)]).await
    }

    /// Returns the data that the signed-in user can download, or `None` if no user is signed in.
    pub async fn who(&mut self, world: &World) -> Option<Value> {
        let answer = self.get(world, "/console/account/data").await;
        (answer.status == 200).then(|| answer.json())
    }
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Returns the query parameters of a URL.
pub fn query(url: &str) -> BTreeMap<String, String> {
    let pairs = url.split_once('?').map_or("", |(_, query)| query).split('&');
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8().unwrap().into_owned()
    };
    pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (decode(name), decode(value))).collect()
}

impl World {
    /// Connects an account with a subject at the provider `acme`, directly in the database.
    pub async fn connection(&self, user_id: UserId, issuer: &str, subject: &str) -> ConnectionId {
        let now = self.clock.now();
        let id = ConnectionId::new(now, &self.app.random);
        let new = NewConnection { id, user_id, provider_id: "acme", issuer, subject, email: None };
        let mut tx = self.app.db.write().await.unwrap();
        assert!(tollkeeper::accounts::store::connections::insert(&mut tx, &new, now).await.unwrap());
        tx.commit().await.unwrap();
        id
    }
}

/// A providers file that a test can change.
pub struct ProvidersFile(Folder);

impl ProvidersFile {
    pub fn new() -> Self {
        let file = Self(Folder::new());
        std::fs::write(file.0.0.join("secret"), CLIENT_SECRET).unwrap();
        std::fs::write(file.path(), "").unwrap();
        file
    }

    pub fn path(&self) -> String {
        self.0.0.join("providers.toml").to_str().unwrap().to_owned()
    }

    /// Writes the file, and makes the server reload it. Each provider is given by its id, its issuer, and
    /// further lines.
    pub fn write(&self, world: &World, providers: &[(&str, &str, &str)]) {
        let text: String = providers
            .iter()
            .map(|(id, issuer, more)| {
                format!(
                    "[[providers]]\nid = \"{id}\"\nname = \"{id}\"\nissuer = \"{issuer}\"\nclient_id = \"{CLIENT_ID}\"\n\
                     client_secret_file = \"secret\"\n{more}\n"
                )
            })
            .collect();
        std::fs::write(self.path(), text).unwrap();
        world.app.accounts.providers.reload().unwrap();
    }
}

/// A process with the provider of the npm package `oidc-provider`.
pub struct RealProvider {
    pub issuer: String,
    address: String,
    process: Child,
    stdin: Option<ChildStdin>,
}

impl RealProvider {
    /// Starts the provider. If the package is missing, prints the reason and returns `None`.
    pub fn start(callback: &str) -> Option<Self> {
        let mut command = node::node("oidc-provider", "sign-on with a real provider")?;
        command.arg("tests/sign_on/provider.js").args([callback, CLIENT_ID, CLIENT_SECRET]);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = process.stdin.take();
        let mut issuer = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut issuer).unwrap();
        let issuer = issuer.trim().to_owned();
        let address =
            issuer.strip_prefix("http://").unwrap_or_else(|| panic!("it says {issuer:?}")).to_owned();
        Some(Self { issuer, address, process, stdin })
    }

    /// Signs in at the provider as a user with these claims, and returns the URL to which the browser is
    /// redirected.
    pub async fn visit(&self, url: &str, claims: &Value) -> String {
        let hint = URL_SAFE_NO_PAD.encode(claims.to_string());
        let mut url = format!("{url}&login_hint={hint}");
        let mut cookies: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..5 {
            let path = url.strip_prefix(&self.issuer).unwrap_or(&url).to_owned();
            let (location, set) = self.get(&path, &cookies).await;
            cookies.extend(set);
            url = location;
            if url.contains("/console/") {
                return url;
            }
        }
        panic!("the provider doesn't redirect back: {url}");
    }

    async fn get(&self, path: &str, cookies: &BTreeMap<String, String>) -> (String, Vec<(String, String)>) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let cookies: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\nconnection: close\r\n\r\n",
            self.address,
            cookies.join("; ")
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let header = |name: &str| -> Vec<String> {
            let lines =
                text.split("\r\n\r\n").next().unwrap().lines().filter_map(|line| line.split_once(": "));
            lines
                .filter(|(other, _)| other.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
                .collect()
        };
        let pair = |set: &String| {
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let location = header("location").pop().unwrap_or_else(|| panic!("{path}: {text}"));
        (location, header("set-cookie").iter().map(pair).collect())
    }
}

impl Drop for RealProvider {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.process.wait().unwrap();
    }
}
