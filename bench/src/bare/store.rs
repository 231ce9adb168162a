//! The statements of the bare servers: tables like the service's, and minimal reads and writes.

use serde::{Deserialize, Serialize};

use super::postgres::Postgres;
use super::sqlite::Sqlite;

/// The tables. BYTES is replaced by each database's type for bytes.
pub const TABLES: [(&str, &str); 3] = [
    (
        "bare_users",
        "id TEXT NOT NULL PRIMARY KEY, email TEXT NOT NULL, username TEXT NOT NULL, full_name TEXT, password_hash TEXT NOT NULL,
         created_at BIGINT NOT NULL",
    ),
    (
        "bare_rows",
        "id TEXT NOT NULL PRIMARY KEY, parent TEXT NOT NULL, name TEXT NOT NULL, description TEXT, created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL",
    ),
    (
        "bare_log",
        "id TEXT NOT NULL PRIMARY KEY, happened_at BIGINT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
         target TEXT NOT NULL, organization_id TEXT, address TEXT, request_id TEXT",
    ),
];
/// The same number of indexes as the service has on such tables.
pub const INDEXES: [&str; 5] = [
    "CREATE UNIQUE INDEX IF NOT EXISTS bare_rows_name ON bare_rows (parent, name)",
    "CREATE INDEX IF NOT EXISTS bare_rows_list ON bare_rows (parent, created_at DESC, id)",
    "CREATE INDEX IF NOT EXISTS bare_log_organization ON bare_log (organization_id, id)",
    "CREATE INDEX IF NOT EXISTS bare_log_actor ON bare_log (actor, id)",
    "CREATE INDEX IF NOT EXISTS bare_log_target ON bare_log (target, id)",
];
pub const USER: &str = "SELECT id, email, username, full_name, created_at FROM bare_users WHERE id = $1";
pub const COUNT: &str = "SELECT COUNT(*) FROM bare_rows WHERE parent = $1";
pub const PAGE: &str = "SELECT id, name, description, created_at, updated_at FROM bare_rows WHERE parent = $1
     ORDER BY created_at DESC, id LIMIT 20";
pub const ADD_USER: &str =
    "INSERT INTO bare_users VALUES ($1, $1 || '@example.com', $1, 'Ann Example', 'x', 1764000000000)
     ON CONFLICT (id) DO NOTHING";
pub const ADD_ROW: &str = "INSERT INTO bare_rows VALUES ($1, $2, $3, $4, 1764000000000, 1764000000000)";
pub const ADD_LOG: &str =
    "INSERT INTO bare_log VALUES ($1, 1764000000000, $2, 'row.created', $3, $4, '203.0.113.7', $3)";

/// The user to read.
pub const ANN: &str = "user_00000000000000000000000001";
/// The organization whose rows are read as a page, and the one to which new rows are added.
pub const QUIET: &str = "org_00000000000000000000000001";
pub const BUSY: &str = "org_00000000000000000000000002";
/// The number of rows per page.
pub const ROWS: u32 = 20;

/// A user in an answer.
#[derive(Serialize)]
pub struct User {
    pub id: String,
    pub email: String,
    pub username: String,
    pub full_name: Option<String>,
    pub created_at: i64,
}

/// A row of a page.
#[derive(Serialize)]
pub struct ListRow {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

/// A page.
#[derive(Serialize)]
pub struct Page {
    pub rows: Vec<ListRow>,
    pub total: i64,
}

/// A new row.
#[derive(Serialize, Deserialize)]
pub struct NewRow {
    pub name: String,
    pub description: Option<String>,
}

/// A batch of usage events.
#[derive(Deserialize)]
pub struct Events {
    pub events: Vec<Event>,
}

/// A usage event.
#[derive(Deserialize)]
#[allow(
    dead_code,
    reason = "the whole request is parsed, as in the service, although the bare rows contain less"
)]
pub struct Event {
    pub id: String,
    pub source: String,
    pub time: String,
    pub api_key_id: String,
    pub model: String,
    pub kind: String,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
}

impl Events {
    /// Returns the number of events of each key, in the same order for all callers.
    pub fn days(&self) -> Vec<(&str, i64)> {
        let mut days = std::collections::BTreeMap::new();
        for event in &self.events {
            *days.entry(event.api_key_id.as_str()).or_insert(0) += 1;
        }
        days.into_iter().collect()
    }
}

/// A database of either kind.
pub enum Store {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens a file, or a PostgreSQL database by its URL.
    pub async fn open(database: &str) -> Result<Self, String> {
        if database.contains("://") {
            Ok(Self::Postgres(Postgres::open(database).await.map_err(|error| error.to_string())?))
        } else {
            Ok(Self::Sqlite(Sqlite::open(database).map_err(|error| error.to_string())?))
        }
    }

    pub async fn user(&self) -> Result<User, String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.user().map_err(|error| error.to_string()),
            Self::Postgres(postgres) => postgres.user().await.map_err(|error| error.to_string()),
        }
    }

    pub async fn page(&self) -> Result<Page, String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.page().map_err(|error| error.to_string()),
            Self::Postgres(postgres) => postgres.page().await.map_err(|error| error.to_string()),
        }
    }

    /// Begins, reads a row, adds two rows, and commits.
    pub async fn write(&self, row: NewRow) -> Result<NewRow, String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write(row).map_err(|error| error.to_string()),
            Self::Postgres(postgres) => postgres.write(row).await.map_err(|error| error.to_string()),
        }
    }

    /// Begins, adds events, updates their daily rows, and commits.
    pub async fn record(&self, events: &Events) -> Result<(), String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.record(events).map_err(|error| error.to_string()),
            Self::Postgres(postgres) => postgres.record(events).await.map_err(|error| error.to_string()),
        }
    }
}

/// Generates ids that differ from those of earlier processes.
pub struct Ids {
    prefix: u128,
    next: std::sync::atomic::AtomicU64,
}

impl Ids {
    pub fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self { prefix: since.unwrap_or_default().as_millis(), next: std::sync::atomic::AtomicU64::new(0) }
    }

    pub fn next(&self) -> String {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        format!("row_{}{number:013}", self.prefix)
    }
}
