//! A complete server in this process, with a new database, a clock that stands still, and users.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::{Claims, TokenKind};
use tollkeeper::accounts::store::sessions::{Client, NewSession, SessionKind};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::clock::{Clock, DAY_MS, Time};
use tollkeeper::config::Config;
use tollkeeper::db::{Tx, sql};
use tollkeeper::error::Code;
use tollkeeper::ids::{InvitationId, SessionId, UserId};
use tollkeeper::kernel::networks::Network;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};
use tollkeeper::web::route::Listener;

use super::database::copy_template;
use super::http::Call;

/// The time at which every test starts.
pub const START: &str = "2026-03-10T12:00:00.000Z";

/// The password of every user.
pub const PASSWORD: &str = "Correct-Horse-7-Staple";

/// The setting that allows a database without fsync, such as the PostgreSQL of the tests.
pub const ALLOW_FSYNC_OFF: &str = "TOLLKEEPER_DATABASE_ALLOW_FSYNC_OFF";

/// The setting for the credit limit of new organizations. Tests set it so that organizations can pay.
pub const CREDIT_LIMIT: &str = "TOLLKEEPER_BILLING__CREDIT_LIMIT";
/// The credit limit of new organizations in tests.
pub const FIRST_CREDIT: &str = "100";
/// Removes the setting, so that no credit limit is configured for new organizations.
pub const NO_CREDIT_SETTING: (&str, &str) = (CREDIT_LIMIT, "");

/// A server, its clock and its folder.
pub struct World {
    pub app: App,
    pub clock: Clock,
    pub public: Dispatcher,
    pub service: Dispatcher,
    pub data_dir: PathBuf,
    pub backend: &'static str,
    _folder: Folder,
}

/// A user with an account and a session.
#[derive(Clone, Debug)]
pub struct TestUser {
    pub id: UserId,
    pub access_token: String,
    pub refresh_token: String,
    pub session_id: SessionId,
}

/// An organization with a project.
#[derive(Clone, Debug)]
pub struct Place {
    pub organization: String,
    pub project: String,
}

impl Place {
    pub fn organization_path(&self) -> String {
        format!("/v1/organizations/{}", self.organization)
    }
    pub fn project_path(&self) -> String {
        format!("/v1/organizations/{}/projects/{}", self.organization, self.project)
    }
}

/// Returns the folder for databases that needn't survive a restart of the machine. It is in memory if that
/// has room for the databases of many tests. On PostgreSQL, a run creates and drops more than a thousand
/// databases of 700 files each. On ext4 creating a file is slow for some minutes after many others were
/// deleted. Creating a database took 0.4 s there, and 0.07 s in memory.
pub(crate) fn temporary_folder() -> &'static Path {
    const MEMORY: &str = "/dev/shm";
    const NEEDED_KIB: u64 = 3 << 20;
    static FOLDER: OnceLock<&Path> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let output =
            Command::new("df").args(["--output=fstype,avail", MEMORY]).stderr(Stdio::null()).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let words: Vec<&str> = text.lines().last().unwrap_or_default().split_whitespace().collect();
        match *words {
            ["tmpfs", free] if free.parse().is_ok_and(|free: u64| free >= NEEDED_KIB) => Path::new(MEMORY),
            _ => Path::new("/tmp"),
        }
    })
}

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder on disk.
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a folder in memory if that has room. For the data of a server that runs in this process.
    fn in_memory() -> Self {
        Self::within(temporary_folder())
    }

    fn within(parent: &Path) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("tollkeeper-test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.0).is_err() {
            // The test may have removed the folder already.
        }
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Reads the feed. Retries, because on a busy machine this can take longer than the server's timeout.
pub async fn catch_up(app: &App) {
    for _ in 0..60 {
        match app.feed.catch_up().await {
            Ok(()) => return,
            Err(error) if error.code == Code::DatabaseUnavailable => eprintln!("the feed: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the feed can't be read");
}

impl World {
    pub async fn new(backend: &'static str, database_url: Option<String>, settings: &[(&str, &str)]) -> Self {
        let clock = Clock::fixed(Time::parse(START).unwrap());
        Self::with_clock(backend, database_url, settings, clock).await
    }

    /// Like [`Self::new`], with a clock that is shared.
    pub async fn with_clock(
        backend: &'static str,
        database_url: Option<String>,
        settings: &[(&str, &str)],
        clock: Clock,
    ) -> Self {
        let folder = Folder::in_memory();
        if database_url.is_none() {
            copy_template(&folder.0);
        }
        let app = App::new(config(&folder.0, database_url, settings), clock.clone()).unwrap();
        app.boot().await.unwrap();
        Self {
            public: app.dispatcher(Listener::Public),
            service: app.dispatcher(Listener::Service),
            data_dir: folder.0.clone(),
            app,
            clock,
            backend,
            _folder: folder,
        }
    }

    /// Reads the feed, as a job of a running server does.
    pub async fn catch_up(&self) {
        catch_up(&self.app).await;
    }

    pub fn get(&self, path: &str) -> Call {
        Call::new(&self.public, Method::GET, path)
    }

    pub fn post(&self, path: &str, body: &Value) -> Call {
        Call::new(&self.public, Method::POST, path).json(body)
    }

    pub fn call(&self, method: Method, path: &str) -> Call {
        Call::new(&self.public, method, path)
    }

    /// Builds a POST request to the service listener, with its token.
    pub fn ask(&self, path: &str, body: &Value) -> Call {
        Call::new(&self.service, Method::POST, path).bearer(self.app.api.service_token.expose()).json(body)
    }

    /// Creates a user with a verified account and a session, directly in the database, because hashing a
    /// password takes time. Other tests cover the registration.
    pub async fn user(&self, name: &str) -> TestUser {
        let user = self.unverified_user(name).await;
        let mut tx = self.app.db.write().await.unwrap();
        let now = self.clock.now();
        let _verified =
            tollkeeper::accounts::store::users::set_email_verified(&mut tx, user.id, now).await.unwrap();
        tx.commit().await.unwrap();
        user
    }

    /// Like [`Self::user`], with an unverified address.
    pub async fn unverified_user(&self, name: &str) -> TestUser {
        let (now, random) = (self.clock.now(), &self.app.random);
        let id = UserId::new(now, random);
        let email = format!("{name}@example.com");
        let new = tollkeeper::accounts::store::users::NewUser {
            id,
            email: &email,
            email_folded: &email,
            username: name,
            username_folded: name,
            full_name: None,
            phone: None,
            password_hash: Some(password_hash(&self.app).await),
        };
        let mut tx = self.app.db.write().await.unwrap();
        tollkeeper::accounts::store::users::insert(&mut tx, &new, now).await.unwrap();
        tx.commit().await.unwrap();
        self.session(id).await
    }

    /// Creates a new session of an existing user.
    pub async fn session(&self, id: UserId) -> TestUser {
        let now = self.clock.now();
        let session_id = SessionId::new(now, &self.app.random);
        let ends = now.plus_ms(30 * tollkeeper::clock::DAY_MS);
        let mut tx = self.app.db.write().await.unwrap();
        insert_session(&mut tx, session_id, id, now, ends).await;
        tx.commit().await.unwrap();
        let access_token = self.token(TokenKind::Access, id, session_id, 3600).await;
        let refresh_token = self.token(TokenKind::Refresh, id, session_id, 30 * 86_400).await;
        TestUser { id, access_token, refresh_token, session_id }
    }

    /// Signs a token as the server does.
    pub async fn token(&self, kind: TokenKind, user: UserId, session: SessionId, lives_s: i64) -> String {
        let iat = self.clock.now().unix_seconds();
        let claims = Claims {
            iss: self.app.api.public_url.clone(),
            aud: self.app.api.public_url.clone(),
            sub: user,
            sid: session,
            jti: "jti_test".into(),
            iat,
            exp: iat + lives_s,
        };
        self.app.accounts.keyset().await.unwrap().sign(kind, &claims)
    }

    pub async fn organization(&self, owner: &TestUser, name: &str) -> String {
        let body = json!({"name": name, "settings": {"allow_public_projects": true}});
        id(&self.post("/v1/organizations", &body).bearer(&owner.access_token).data().await)
    }

    pub async fn project(&self, owner: &TestUser, organization: &str, name: &str) -> String {
        let path = format!("/v1/organizations/{organization}/projects");
        id(&self.post(&path, &json!({ "name": name })).bearer(&owner.access_token).data().await)
    }

    /// Creates an organization with one project.
    pub async fn place(&self, owner: &TestUser, name: &str) -> Place {
        let organization = self.organization(owner, name).await;
        let project = self.project(owner, &organization, &format!("{name} project")).await;
        Place { organization, project }
    }

    /// Creates a key, and returns its id and its secret.
    pub async fn key(&self, maker: &TestUser, place: &Place, body: &Value) -> (String, String) {
        let path = format!("{}/api-keys", place.project_path());
        let data = self.post(&path, body).bearer(&maker.access_token).data().await;
        (id(&data), data["key"].as_str().unwrap().to_owned())
    }

    /// Creates a key that is older than all usage reported for it.
    pub async fn old_key(&self, maker: &TestUser, place: &Place, body: &Value) -> (String, String) {
        const AGE_MS: i64 = 500 * DAY_MS;
        self.clock.advance_ms(-AGE_MS);
        let then = self.session(maker.id).await;
        let key = self.key(&then, place, body).await;
        self.clock.advance_ms(AGE_MS);
        key
    }

    pub async fn join_organization(&self, place: &Place, user: &TestUser, role: OrganizationRole) {
        let text = "INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
                    VALUES ($1, $2, $3, $4, $4)";
        self.join(text, &place.organization, user, role.as_str()).await;
    }

    pub async fn join_project(&self, place: &Place, user: &TestUser, role: ProjectRole) {
        let text = "INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
                    VALUES ($1, $2, $3, $4, $4)";
        self.join(text, &place.project, user, role.as_str()).await;
    }

    /// Writes directly to the tables, because the API adds memberships only through the gate.
    async fn join(&self, text: &'static str, place: &str, user: &TestUser, role: &str) {
        let mut tx = self.app.db.write().await.unwrap();
        let statement = sql(text).bind(place).bind(user.id).bind(role).bind(self.clock.now());
        statement.execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Inserts an open invitation directly into the database.
    pub async fn insert_invitation(
        &self,
        place: &Place,
        (email, email_folded): (&str, &str),
        role: OrganizationRole,
        invited_by: UserId,
    ) -> InvitationId {
        let now = self.clock.now();
        let id = InvitationId::new(now, &self.app.random);
        let mut tx = self.app.db.write().await.unwrap();
        sql("INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(id)
            .bind(place.organization.as_str())
            .bind(email)
            .bind(email_folded)
            .bind(role.as_str())
            .bind(invited_by)
            .bind(now)
            .bind(now.plus_ms(DAY_MS))
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        id
    }

    /// Sends due e-mails, and returns the token in the newest e-mail to this address.
    pub async fn mailed_token(&self, address: &str) -> String {
        tollkeeper::mail::sending::send_due(&self.app.mail).await.unwrap();
        mailed_token(&self.data_dir, address)
    }
}

/// Inserts a session of an unknown client.
pub async fn insert_session(tx: &mut Tx, id: SessionId, user_id: UserId, created_at: Time, expires_at: Time) {
    let client = Client::default();
    let kind = SessionKind::Api;
    let session = NewSession { id, user_id, kind, remember_me: false, client, created_at, expires_at };
    tollkeeper::accounts::store::sessions::insert(tx, &session).await.unwrap();
}

/// Returns the token in the newest e-mail to this address. Waits, because a running server may take a moment
/// to send it.
pub fn mailed_token(data_dir: &std::path::Path, address: &str) -> String {
    mailed_token_in(&[data_dir.to_owned()], address)
}

/// Like [`mailed_token`], for several servers, any of which may have sent the e-mail.
pub fn mailed_token_in(data_dirs: &[PathBuf], address: &str) -> String {
    for _ in 0..400 {
        if let Some(mail) = newest_mail(data_dirs, address) {
            return token_in(&mail).expect("it has one").to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    panic!("no mail to {address} came");
}

/// Returns the line of an e-mail that consists of a token.
fn token_in(mail: &str) -> Option<&str> {
    mail.lines().map(str::trim_end).find(|line| {
        line.len() == 43 && line.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    })
}

/// Returns the newest e-mail to this address that contains a token, if any.
fn newest_mail(data_dirs: &[PathBuf], address: &str) -> Option<String> {
    let folders = data_dirs.iter().filter_map(|data_dir| std::fs::read_dir(data_dir.join("mail")).ok());
    let mut mails: Vec<_> = folders
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "eml"))
        .filter(|path| {
            let mail = std::fs::read_to_string(path).unwrap();
            mail.contains(address) && token_in(&mail).is_some()
        })
        .collect();
    mails.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    mails.last().map(|path| std::fs::read_to_string(path).unwrap())
}

/// Returns the `id` of an answer.
pub fn id(data: &Value) -> String {
    data["id"].as_str().unwrap().to_owned()
}

pub fn config(folder: &std::path::Path, database_url: Option<String>, settings: &[(&str, &str)]) -> Config {
    let mut environment = vec![
        ("TOLLKEEPER_DATA_DIR".to_owned(), folder.to_str().unwrap().to_owned()),
        ("TOLLKEEPER_LOG__ACCESS".to_owned(), "false".to_owned()),
    ];
    if let Some(url) = database_url {
        environment.push(("TOLLKEEPER_DATABASE_URL".to_owned(), url));
        environment.push((ALLOW_FSYNC_OFF.to_owned(), "true".to_owned()));
    }
    if !settings.iter().any(|(name, _)| *name == CREDIT_LIMIT) {
        environment.push((CREDIT_LIMIT.to_owned(), FIRST_CREDIT.to_owned()));
    }
    let settings = settings.iter().filter(|setting| **setting != NO_CREDIT_SETTING);
    environment.extend(settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Config::load(None, environment).unwrap()
}

/// Returns the same hash for all users, because argon2 is slow.
async fn password_hash(app: &App) -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return hash;
    }
    let hash = app.accounts.hasher.acquire_place(Network::Unknown).unwrap().hash(PASSWORD).await.unwrap();
    HASH.get_or_init(|| hash)
}
