//! A user with an organization, a project and a key, created through the service's API, and calls with the
//! key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::bare::Authorize;
use crate::client::{self, Target};
use crate::servers::mailed_token;

/// The password of every user.
pub const PASSWORD: &str = "Correct-Horse-7-Staple";

/// The number of keys of a tenant that loads a server. Lists of models are limited per key, and the load
/// would reach the limit of a single key.
const KEYS: usize = 16;

/// The keys that make the calls.
pub struct Tenant {
    key: String,
    keys: Arc<Vec<String>>,
}

impl Tenant {
    /// Returns the secret of the first key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the body of `POST /service/v1/authorize` about the first key.
    pub fn question(&self) -> Value {
        question(self.key.clone())
    }

    /// Returns the request `GET /v1/models`, with another of the keys each time.
    pub fn models(&self, address: SocketAddr) -> Result<Target, String> {
        let target = Target::get(address, "/v1/models", Some(&self.key), "\"svc-1\"");
        target.with_texts(Arc::clone(&self.keys))
    }

    /// Returns the request `POST /service/v1/authorize` about the first key.
    pub fn authorize(&self, address: SocketAddr, token: &str) -> Target {
        Target::post(address, "/service/v1/authorize", Some(token), &self.question(), "\"allowed\":true")
    }
}

/// A user who has logged in once.
pub struct Account {
    email: String,
    refresh_token: String,
}

impl Account {
    /// Returns the request `POST /v1/auth/login`.
    pub fn login(&self, address: SocketAddr) -> Target {
        let body = json!({"email": self.email, "password": PASSWORD});
        Target::post(address, "/v1/auth/login", None, &body, "\"access_token\"")
    }

    /// Returns a new access token.
    pub async fn fresh_token(&self, address: SocketAddr) -> Result<String, String> {
        let token = Some(self.refresh_token.as_str());
        text(&post(address, "/v1/auth/refresh-token", token, &json!({})).await?, "access_token")
    }
}

/// Registers a user and logs them in.
pub async fn register(address: SocketAddr, number: u16) -> Result<Account, String> {
    let name = format!("{}-{number}", new_name()?);
    let email = format!("{name}@example.com");
    let account = json!({"email": email, "password": PASSWORD, "username": name});
    post(address, "/v1/auth/register", None, &account).await?;
    let session =
        post(address, "/v1/auth/login", None, &json!({"email": email, "password": PASSWORD})).await?;
    Ok(Account { email, refresh_token: text(&session, "refresh_token")? })
}

/// Returns a request that sends the body of authorize to the bare echo.
pub fn echo(address: SocketAddr) -> Target {
    let body = question(format!("tk_{}", "0".repeat(49)));
    Target::post(address, "/echo", None, &body, "\"credential\":\"tk_")
}

/// Registers a user, logs in, and creates an organization, a project and keys without restrictions.
pub async fn prepare(address: SocketAddr) -> Result<Tenant, String> {
    let keeper = keeper(address).await?;
    let mut keys = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        keys.push(keeper.key(&format!("key {number}")).await?.1);
    }
    let key = keys.first().cloned().ok_or("no key")?;
    Ok(Tenant { key, keys: Arc::new(keys) })
}

/// Creates a key with every restriction, and returns its secret. The calls of this program satisfy all
/// restrictions.
pub async fn restricted_key(address: SocketAddr) -> Result<String, String> {
    let keeper = keeper(address).await?;
    let restrictions = json!({"allowed_ips": ["198.51.100.0/24", "203.0.113.0/24"], "rate_limit": 1_000_000,
        "max_tokens": 1_024, "models": ["svc-1-pro", "svc-1"]});
    let body = json!({"name": "restricted", "permissions": ["chat"], "restrictions": restrictions});
    text(&post(address, &keeper.keys, Some(&keeper.token), &body).await?, "key")
}

/// A user who manages the keys of a project.
pub struct KeyManager {
    address: SocketAddr,
    token: String,
    keys: String,
}

impl KeyManager {
    /// Creates a key without restrictions; returns its id and its secret.
    pub async fn key(&self, name: &str) -> Result<(String, String), String> {
        let key = post(self.address, &self.keys, Some(&self.token), &json!({"name": name})).await?;
        Ok((text(&key, "id")?, text(&key, "key")?))
    }

    /// Returns the path of a key.
    pub fn path_of(&self, id: &str) -> String {
        format!("{}/{id}", self.keys)
    }

    /// Returns the user's access token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the id of the project.
    pub fn project_id(&self) -> &str {
        self.keys.split('/').nth(5).unwrap_or_default()
    }

    /// Creates a hard budget of a million, with the scope given by `body`.
    pub async fn budget(&self, body: &Value) -> Result<(), String> {
        let mut body = body.clone();
        if let Some(body) = body.as_object_mut() {
            body.insert("limit".to_owned(), json!(1_000_000));
            body.insert("hard".to_owned(), json!(true));
        }
        let organization = self.keys.split("/projects/").next().unwrap_or_default();
        let path = format!("{organization}/billing/budgets");
        post(self.address, &path, Some(&self.token), &body).await?;
        Ok(())
    }
}

/// Registers a user, logs in, and creates an organization and a project.
pub async fn keeper(address: SocketAddr) -> Result<KeyManager, String> {
    let name = new_name()?;
    let token = person(address, &name).await?;
    let organization = post(address, "/v1/organizations", Some(&token), &json!({"name": name})).await?;
    let projects = format!("/v1/organizations/{}/projects", text(&organization, "id")?);
    let project = post(address, &projects, Some(&token), &json!({"name": name})).await?;
    let keys = format!("{projects}/{}/api-keys", text(&project, "id")?);
    Ok(KeyManager { address, token, keys })
}

/// Returns a name that no earlier run on the same database has used.
pub fn new_name() -> Result<String, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(format!("bench{}", since.as_millis()))
}

/// Registers a user, confirms the address and logs in. Returns the access token.
pub async fn person(address: SocketAddr, name: &str) -> Result<String, String> {
    let email = format!("{name}@example.com");
    let account = json!({"email": email, "password": PASSWORD, "username": name});
    post(address, "/v1/auth/register", None, &account).await?;
    verify(address, &email).await?;
    let session =
        post(address, "/v1/auth/login", None, &json!({"email": email, "password": PASSWORD})).await?;
    text(&session, "access_token")
}

/// Confirms the address of a new account. Without this, its organizations have no credit and it can't invite
/// users.
pub async fn verify(address: SocketAddr, email: &str) -> Result<(), String> {
    for _ in 0..1_000 {
        if let Some(token) = mailed_token(email) {
            let body = json!({ "token": token });
            return post(address, "/v1/auth/verify-email", None, &body).await.map(drop);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("no mail to {email} came"))
}

fn question(credential: String) -> Value {
    json!(Authorize {
        credential,
        client_address: Some(std::net::Ipv4Addr::new(203, 0, 113, 7).into()),
        operation: "chat".to_owned(),
        model: Some("svc-1".to_owned()),
        max_tokens: Some(256),
        estimated_prompt_tokens: Some(120),
        reserve: Some(false),
    })
}

/// Sends a POST request, and returns the `data` of a successful answer.
pub async fn post(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> Result<Value, String> {
    let reply = client::once(&Target::post(address, path, token, body, "\"SUCCESS\"")).await?;
    let mut reply: Value = serde_json::from_slice(&reply).map_err(|error| format!("{path}: {error}"))?;
    Ok(reply.get_mut("data").map(Value::take).unwrap_or_default())
}

/// Returns a string in `data`.
pub fn text(data: &Value, name: &str) -> Result<String, String> {
    data.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("no `{name}` in {data}"))
}
