//! The objects of the calls: an organization that is only read, one that is written to, and objects that the
//! calls use up.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollkeeper::clock::Time;
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::random::Random;

use super::call::Pool;
use crate::money;
use crate::servers::Tollkeeper;
use crate::tenant::{self, PASSWORD, post, text};

/// The number of rows in the lists that are read: a full page.
const ROWS: u32 = 20;
/// The number of invoices.
const INVOICES: u32 = 12;
/// The number of accounts that change or reset their passwords in each round.
const HASHED_ACCOUNTS: usize = 16;
/// The number of sessions that end in each round.
const SESSIONS: usize = 48;
/// The number of rows per transaction. Each row increments the organization's counter. On PostgreSQL, each
/// increment leaves a dead row until the commit.
const AT_ONCE: usize = 1_000;
/// The two passwords that password changes alternate between.
pub const PASSWORDS: [&str; 2] = [PASSWORD, "Wrong-Kettle-8-Paperclip"];

/// Texts that requests use up, either prepared for one round or returned by other requests.
#[derive(Default)]
pub struct Pools {
    pub unverified: Pool,
    pub forgotten: Pool,
    pub changing: Pool,
    pub sessions: Pool,
    pub organizations: Pool,
    pub invited: Pool,
    pub resent: Pool,
    pub projects: Pool,
    pub joining: Pool,
    pub joined: Pool,
    pub promoted_in_project: Pool,
    pub promoted: Pool,
    pub leaving: Pool,
    pub keys: Pool,
    pub rotated: Pool,
    pub settled: Pool,
    pub reserved: Pool,
}

/// The address, credentials and paths of calls.
pub struct World {
    pub public: SocketAddr,
    pub service: SocketAddr,
    pub floors: SocketAddr,
    pub service_token: String,
    pub email: String,
    pub token: String,
    pub refresh_token: String,
    /// The token of a user who creates and deletes organizations, so that the owner's list stays short.
    pub other_token: String,
    /// The paths of objects that are only read.
    pub organization: String,
    pub project: String,
    pub key_id: String,
    pub key: String,
    pub invoice: String,
    /// The paths of objects that are written to.
    pub busy_organization: String,
    pub busy_project: String,
    pub busy_key_id: String,
    pub busy_key: String,
    pub reservation: String,
    pub pools: Pools,
    pub round: u32,
    db: Db,
    size: usize,
    users: usize,
    /// The hash of [`PASSWORD`], which is also inserted for other users.
    password_hash: String,
    changing: Vec<String>,
}

impl World {
    /// Prepares the objects for all rounds. `size` is the number of objects that one round may use up.
    pub async fn prepare(
        service: &Tollkeeper,
        settings: &Settings,
        floors: SocketAddr,
        size: usize,
    ) -> Result<Self, String> {
        let db = Db::open(settings).map_err(|error| error.to_string())?;
        let (public, name) = (service.public, tenant::new_name()?);
        let (token, refresh_token) = join(public, &name).await?;
        let (other_token, _) = join(public, &format!("{name}-other")).await?;
        let quiet = Place::make(public, &token, "Quiet").await?;
        let busy = Place::make(public, &token, "Busy").await?;
        let mut world = Self {
            public,
            service: service.service,
            floors,
            service_token: service.token.clone(),
            email: format!("{name}@example.com"),
            token,
            refresh_token,
            other_token,
            organization: quiet.organization,
            project: quiet.project,
            key_id: quiet.key_id,
            key: quiet.key,
            invoice: String::new(),
            busy_organization: busy.organization,
            busy_project: busy.project,
            busy_key_id: busy.key_id,
            busy_key: busy.key,
            reservation: String::new(),
            pools: Pools::default(),
            round: 0,
            db,
            size,
            // A random start, to avoid the numbers of earlier runs on the same database.
            users: usize::from(u16::from_be_bytes(Random::system().bytes())) * 1_000_000_000,
            changing: Vec::new(),
            password_hash: String::new(),
        };
        world.password_hash = world.read_password_hash().await?;
        world.fill_lists().await?;
        world.use_some().await?;
        for number in 0..HASHED_ACCOUNTS {
            world.changing.push(join(public, &format!("{name}-{number}")).await?.0);
        }
        if world.db.is_postgres() {
            // Autovacuum would do this within a minute.
            world.write(&["ANALYZE".to_owned()]).await?;
        }
        Ok(world)
    }

    /// Prepares the objects that the next round uses up.
    pub async fn refill(&mut self, round: u32) -> Result<(), String> {
        self.round = round;
        let users = self.add_members(&self.busy_organization.clone(), self.size).await?;
        let pools = &self.pools;
        for pool in [&pools.joining, &pools.promoted, &pools.leaving] {
            pool.fill(users.clone());
        }
        self.pools.unverified.fill(self.tokens(&users, "verify_email").await?);
        let forgetful: Vec<_> = users.iter().take(HASHED_ACCOUNTS).cloned().collect();
        self.pools.forgotten.fill(self.tokens(&forgetful, "reset_password").await?);
        // Accounts that weren't used in the previous round still have the previous password.
        let left = self.pools.changing.empty();
        self.changing.retain(|token| !left.contains(token));
        self.pools.changing.fill(self.changing.clone());
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(log_in(self.public, &self.email).await?.0);
        }
        self.pools.sessions.fill(sessions);
        let pools = &self.pools;
        for made in [
            &pools.organizations,
            &pools.invited,
            &pools.resent,
            &pools.projects,
            &pools.joined,
            &pools.promoted_in_project,
            &pools.keys,
            &pools.rotated,
            &pools.settled,
            &pools.reserved,
        ] {
            made.fill([]);
        }
        Ok(())
    }

    /// Waits until all e-mail has been sent. Otherwise, the server would send it during the next measurement.
    pub async fn settle(&self) -> Result<(), String> {
        let begin = std::time::Instant::now();
        while begin.elapsed().as_secs() < 60 {
            let mut tx = self.db.read().await.map_err(|error| error.to_string())?;
            let (left,): (i64,) = sql("SELECT COUNT(*) AS n FROM outbox")
                .one(&mut tx)
                .await
                .map_err(|error| error.to_string())?;
            if left == 0 {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Err("the mail isn't sent".to_owned())
    }

    /// Returns the current time in the format of events.
    pub fn now(&self) -> Result<String, String> {
        money::now()
    }

    /// Inserts the other rows of the lists.
    async fn fill_lists(&mut self) -> Result<(), String> {
        let (public, token) = (self.public, Some(self.token.clone()));
        for number in 1..ROWS {
            let name = json!({"name": format!("Another {number}")});
            post(public, &format!("{}/projects", self.organization), token.as_deref(), &name).await?;
            post(public, &format!("{}/api-keys", self.project), token.as_deref(), &name).await?;
            post(public, "/v1/organizations", token.as_deref(), &name).await?;
            let guest = json!({"email": format!("guest{number}@example.com")});
            post(public, &format!("{}/invitations", self.organization), token.as_deref(), &guest).await?;
        }
        let users =
            self.add_members(&self.organization.clone(), usize::try_from(ROWS - 1).unwrap_or(0)).await?;
        for user in users {
            let body = json!({"user_id": user, "role": "viewer"});
            post(public, &format!("{}/members", self.project), token.as_deref(), &body).await?;
        }
        let organization = last(&self.organization);
        let mut statements = Vec::new();
        for number in 0..INVOICES {
            let (id, month) = (format!("invoice_{:026}", self.users + number as usize), 660 + number);
            let unique = self.users + number as usize;
            statements.push(format!(
                "INSERT INTO invoices (id, number, organization_id, organization_name, month, currency, amount_nano, due_nano,
                                       status, finalized_at)
                 VALUES ('{id}', {unique}, '{organization}', 'Quiet', {month}, 'USD', 4200000000, 4200000000, 'open', 1764000000000)"
            ));
            for position in 0..2 {
                statements.push(format!(
                    "INSERT INTO invoice_items (invoice_id, position, kind, description, quantity, unit_price, amount)
                     VALUES ('{id}', {position}, 'usage', 'svc-1, prompt tokens', 1000, '0.0021', '2.1')"
                ));
            }
            self.invoice = format!("{}/billing/invoices/{id}", self.organization);
        }
        // Usage of ten keys on 30 days.
        statements.push(format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299)
             INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                      requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
             SELECT '{organization}', '{}', 'key_' || CAST(i % 10 AS TEXT), 'svc-1', 1704067200000, 'chat',
                    20240 + i / 10, 665, 1000, 120000, 240000, 1680000000000, 1680000000 FROM n",
            last(&self.project)
        ));
        self.write(&statements).await
    }

    /// Creates a permanent reservation, and usage of the key whose usage is read.
    async fn use_some(&mut self) -> Result<(), String> {
        let question = json!({"credential": self.busy_key, "operation": "chat", "model": "svc-1", "max_tokens": 256,
                              "estimated_prompt_tokens": 120});
        let answer = self.ask_service("/service/v1/authorize", &question).await?;
        let id = answer.pointer("/reservation/id").and_then(Value::as_str);
        self.reservation = id.ok_or_else(|| format!("no reservation: {answer}"))?.to_owned();
        let number = tenant::new_name()?;
        let event = money::event(&self.key_id, &number, &self.now()?);
        self.ask_service("/service/v1/usage", &json!({"events": [event]})).await.map(drop)
    }

    async fn ask_service(&self, path: &str, body: &Value) -> Result<Value, String> {
        let request = crate::wire::request("POST", path, self.service, Some(&self.service_token), Some(body));
        crate::wire::Wire::open(self.service).await?.ask(&request).await?.json()
    }

    /// Returns the hash of the user's password.
    async fn read_password_hash(&self) -> Result<String, String> {
        let mut tx = self.db.read().await.map_err(|error| error.to_string())?;
        let found = sql("SELECT password_hash FROM users WHERE email = $1").bind(self.email.as_str());
        let (hash,): (String,) = found.one(&mut tx).await.map_err(|error| error.to_string())?;
        Ok(hash)
    }

    /// Inserts users and memberships directly; returns the users' ids.
    async fn add_members(&mut self, organization: &str, count: usize) -> Result<Vec<String>, String> {
        let (first, organization) = (self.users, last(organization));
        let hash = &self.password_hash;
        self.users += count;
        let users: Vec<_> = (first..self.users).map(|number| format!("user_{number:026}")).collect();
        for some in users.chunks(AT_ONCE) {
            let people: Vec<_> = some
                .iter()
                .map(|id| {
                    format!("('{id}', '{id}@example.com', '{id}@example.com', '{id}', '{id}', '{hash}', 0)")
                })
                .collect();
            let members: Vec<_> =
                some.iter().map(|id| format!("('{organization}', '{id}', 'member', 0, 0)")).collect();
            self.write(&[
                format!(
                    "INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at)
                     VALUES {}",
                    people.join(", ")
                ),
                format!(
                    "INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at) VALUES {}",
                    members.join(", ")
                ),
            ])
            .await?;
        }
        Ok(users)
    }

    /// Inserts a token for each user, like those in e-mails.
    async fn tokens(&self, users: &[String], purpose: &str) -> Result<Vec<String>, String> {
        let (mut tokens, random) = (Vec::new(), Random::system());
        let mut tx = self.db.write().await.map_err(|error| error.to_string())?;
        for user in users {
            let token = MailToken::generate(&random);
            sql("INSERT INTO email_tokens (token_hash, user_id, purpose, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)")
                .bind(token.hash())
                .bind(user.as_str())
                .bind(purpose)
                .bind(Time::from_unix_ms(0))
                .bind(Time::from_unix_ms(4_000_000_000_000))
                .execute(&mut tx)
                .await
                .map_err(|error| error.to_string())?;
            tokens.push(token.expose().to_owned());
        }
        tx.commit().await.map_err(|error| error.to_string())?;
        Ok(tokens)
    }

    async fn write(&self, statements: &[String]) -> Result<(), String> {
        let mut tx = self.db.write().await.map_err(|error| error.to_string())?;
        for text in statements {
            let done = sql(text.clone()).heavy().execute(&mut tx).await;
            done.map_err(|error| format!("{error}: {text:.300}"))?;
        }
        tx.commit().await.map_err(|error| error.to_string())
    }
}

/// An organization with a project and a key: paths, the key's id and its secret.
struct Place {
    organization: String,
    project: String,
    key_id: String,
    key: String,
}

impl Place {
    async fn make(public: SocketAddr, token: &str, name: &str) -> Result<Self, String> {
        let token = Some(token);
        // A later run on the same database uses another user.
        let organization = post(public, "/v1/organizations", token, &json!({"name": name})).await?;
        let organization = format!("/v1/organizations/{}", text(&organization, "id")?);
        let projects = format!("{organization}/projects");
        let project = post(public, &projects, token, &json!({"name": name})).await?;
        let project = format!("{projects}/{}", text(&project, "id")?);
        let key = post(public, &format!("{project}/api-keys"), token, &json!({"name": name})).await?;
        Ok(Self { organization, project, key_id: text(&key, "id")?, key: text(&key, "key")? })
    }
}

/// Registers a user, confirms the address and logs in. Returns the access token and the refresh token.
async fn join(public: SocketAddr, name: &str) -> Result<(String, String), String> {
    let email = format!("{name}@example.com");
    let account = json!({"email": email, "password": PASSWORD, "username": name});
    post(public, "/v1/auth/register", None, &account).await?;
    tenant::verify(public, &email).await?;
    log_in(public, &email).await
}

async fn log_in(public: SocketAddr, email: &str) -> Result<(String, String), String> {
    let session =
        post(public, "/v1/auth/login", None, &json!({"email": email, "password": PASSWORD})).await?;
    Ok((text(&session, "access_token")?, text(&session, "refresh_token")?))
}

/// Returns the id at the end of a path.
fn last(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, id)| id)
}
