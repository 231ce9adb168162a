//! An API key in the keyring, and its last use.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::rules::permissions::Permissions;
use db::sized::{Sizes, values};
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use tenants::rules::allowed_ips::AllowedIps;

use super::{allowed_ips, permissions, string_list};

/// An API key in the keyring, with all data that a call depends on.
#[derive(Debug)]
pub struct LiveKey {
    pub id: ApiKeyId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    /// The creator, with whose roles the key acts.
    pub created_by: UserId,
    /// The user who created this secret by a rotation, if not the key's creator. The lower of both users'
    /// roles applies.
    pub rotated_by: Option<UserId>,
    pub permissions: Permissions,
    pub allowed_ips: Option<AllowedIps>,
    /// Maximum number of requests per minute; `None` for no limit.
    pub rate_limit: Option<u32>,
    /// Maximum number of tokens per request.
    pub max_tokens: Option<i64>,
    /// The models that the key may use; `None` for all.
    pub models: Option<Vec<String>>,
    pub expires_at: Option<Time>,
    /// The end of this secret, if a rotation has replaced it.
    pub secret_ends_at: Option<Time>,
    /// The last use, which may not be written yet.
    pub last_use: LastUse,
}

impl LiveKey {
    /// Returns `true` if the key hasn't expired and this secret hasn't ended.
    pub fn is_alive(&self, now: Time) -> bool {
        [self.expires_at, self.secret_ends_at].into_iter().flatten().all(|at| at > now)
    }

    /// Returns the approximate memory of the key, in bytes.
    pub fn memory_bytes(&self) -> usize {
        // An `Arc` adds two counters; an entry of the list of models is a `String`.
        let lists = self.allowed_ips.as_ref().map_or(0, AllowedIps::heap_bytes)
            + self.models.iter().flatten().map(|id| size_of::<String>() + id.capacity()).sum::<usize>();
        2 * size_of::<usize>() + size_of::<Self>() + lists
    }
}

impl FromRow for LiveKey {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            organization_id: row.get("organization_id")?,
            project_id: row.get("project_id")?,
            created_by: row.get("created_by")?,
            rotated_by: row.get("rotated_by")?,
            permissions: permissions(row)?,
            allowed_ips: allowed_ips(row)?,
            rate_limit: row.get("rate_limit")?,
            max_tokens: row.get("max_tokens")?,
            models: string_list(row, "models")?,
            expires_at: row.get("expires_at")?,
            secret_ends_at: row.get("secret_ends_at")?,
            last_use: LastUse::default(),
        })
    }
}

/// Returns the key with this secret.
pub async fn by_secret_hash(tx: &mut Tx, secret_hash: [u8; 32]) -> Result<Option<LiveKey>, db::Error> {
    sql("SELECT k.id, k.organization_id, k.project_id, k.created_by, k.permissions, k.allowed_ips, k.rate_limit,
                k.max_tokens, k.models, k.expires_at, s.ends_at AS secret_ends_at,
                s.rotated_by
         FROM api_key_secrets s JOIN api_keys k ON k.id = s.api_key_id
         WHERE s.secret_hash = $1")
    .bind(secret_hash)
    .optional(tx)
    .await
}

/// The last use of a key, until it is written. Storing a use never blocks.
#[derive(Debug)]
pub struct LastUse {
    at_ms: AtomicI64,
    address: Mutex<Option<IpAddr>>,
    is_queued: AtomicBool,
}

impl Default for LastUse {
    fn default() -> Self {
        Self { at_ms: AtomicI64::new(i64::MIN), address: Mutex::new(None), is_queued: AtomicBool::new(false) }
    }
}

impl LastUse {
    /// Stores the address of a call. If two calls do so at the same time, one address is kept.
    pub fn set_address(&self, address: Option<IpAddr>) {
        if let Ok(mut stored) = self.address.try_lock() {
            *stored = address;
        }
    }

    /// Stores the time of a use. Returns `true` if this is the first use since [`LastUse::take`], so that the
    /// key must be queued.
    pub fn mark_used(&self, now: Time) -> bool {
        self.at_ms.fetch_max(now.unix_ms(), Ordering::SeqCst);
        !self.is_queued.load(Ordering::SeqCst) && !self.is_queued.swap(true, Ordering::SeqCst)
    }

    /// Returns the stored use. The next use must be queued again.
    pub fn take(&self, api_key_id: ApiKeyId) -> KeyUse {
        self.is_queued.store(false, Ordering::SeqCst);
        KeyUse {
            api_key_id,
            at: Time::from_unix_ms(self.at_ms.load(Ordering::SeqCst)),
            address: *self.address.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// A use of a key, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyUse {
    pub api_key_id: ApiKeyId,
    pub at: Time,
    /// The client's address, if it is known.
    pub address: Option<IpAddr>,
}

/// The statements of [`write_key_uses`].
static WRITE_KEY_USES: LazyLock<Sizes> = LazyLock::new(|| key_uses_texts(""));
/// The same statements for PostgreSQL, with a lock on the key. Without it, a deletion of the key between the
/// check and the insertion would fail the whole transaction.
static WRITE_KEY_USES_LOCKED: LazyLock<Sizes> = LazyLock::new(|| key_uses_texts("FOR KEY SHARE"));

fn key_uses_texts(lock: &str) -> Sizes {
    Sizes::new(|rows| {
        // PostgreSQL can't infer the types of a bare list of values. The types of the first row apply to all
        // rows.
        let rows = values(rows, 3).replacen(
            "($1, $2, $3)",
            "(CAST($1 AS TEXT), CAST($2 AS BIGINT), CAST($3 AS TEXT))",
            1,
        );
        format!(
            "INSERT INTO api_key_last_uses (api_key_id, last_used_at, last_used_ip)
             SELECT column1, column2, column3 FROM (VALUES {rows}) AS used
             WHERE EXISTS (SELECT 1 FROM api_keys WHERE id = column1 {lock})
             ON CONFLICT (api_key_id) DO UPDATE
                SET last_used_at = excluded.last_used_at, last_used_ip = excluded.last_used_ip
                WHERE api_key_last_uses.last_used_at < excluded.last_used_at"
        )
    })
}

/// Writes uses of different keys. Deleted keys and keys with a later stored use are skipped. The uses must be
/// ordered by key id, so that two transactions can't deadlock.
pub async fn write_key_uses(tx: &mut Tx, uses: &[KeyUse], is_postgres: bool) -> Result<(), db::Error> {
    let texts = if is_postgres { &WRITE_KEY_USES_LOCKED } else { &WRITE_KEY_USES };
    for (text, chunk) in texts.chunks(uses) {
        let statement = chunk.iter().fold(sql(text).expecting(chunk.len() * 3), |statement, used| {
            statement
                .bind(used.api_key_id)
                .bind(used.at)
                .bind(used.address.map(|address| address.to_string()))
        });
        statement.execute(tx).await?;
    }
    Ok(())
}
