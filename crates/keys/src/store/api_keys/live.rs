//! An API key as the fast path holds it, and the note of its last use.

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

/// A key as the fast path holds it: what decides over a call.
#[derive(Debug)]
pub struct LiveKey {
    /// The key's id.
    pub id: ApiKeyId,
    /// The tenant.
    pub organization_id: OrganizationId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// The person who made it: it acts with this person's roles.
    pub created_by: UserId,
    /// The person who made this secret by a rotation, where that isn't the maker: the lower roles of both count.
    pub rotated_by: Option<UserId>,
    /// What it may be used for.
    pub permissions: Permissions,
    /// Addresses it may be used from.
    pub allowed_ips: Option<AllowedIps>,
    /// Requests a minute.
    pub rate_limit: Option<u32>,
    /// Most tokens of one request.
    pub max_tokens: Option<i64>,
    /// Models it may be used with.
    pub models: Option<Vec<String>>,
    /// When the key ends.
    pub expires_at: Option<Time>,
    /// When this secret of the key ends (after a rotation).
    pub secret_ends_at: Option<Time>,
    /// When and from where it was used last, as far as that isn't written yet.
    pub last_use: LastUse,
}

impl LiveKey {
    /// Whether neither the key nor this secret of it has ended.
    pub fn is_alive(&self, now: Time) -> bool {
        [self.expires_at, self.secret_ends_at].into_iter().flatten().all(|at| at > now)
    }

    /// What it takes in memory, in bytes, about.
    pub fn memory(&self) -> usize {
        // Two counts stand before what is shared; an entry of a list is a text with its place in the list.
        let lists = self.allowed_ips.as_ref().map_or(0, AllowedIps::memory)
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

/// The key that this secret belongs to, as the fast path holds it.
pub async fn by_secret_hash(tx: &mut Tx, secret_hash: [u8; 32]) -> Result<Option<LiveKey>, db::Error> {
    sql("SELECT k.id, k.organization_id, k.project_id, k.created_by, k.permissions, k.allowed_ips, k.rate_limit,
                k.max_tokens, k.models, k.expires_at, s.ends_at AS secret_ends_at,
                s.rotated_by
         FROM api_key_secrets s JOIN api_keys k ON k.id = s.api_key_id
         WHERE s.secret_hash = $1")
    .bind(secret_hash)
    .batched()
    .optional(tx)
    .await
}

/// The last use of a key until it is written: noted in passing, so nobody waits here.
#[derive(Debug)]
pub struct LastUse {
    at_ms: AtomicI64,
    address: Mutex<Option<IpAddr>>,
    queued: AtomicBool,
}

impl Default for LastUse {
    fn default() -> Self {
        Self { at_ms: AtomicI64::new(i64::MIN), address: Mutex::new(None), queued: AtomicBool::new(false) }
    }
}

impl LastUse {
    /// Notes where a call comes from. Two at the same instant don't wait for each other: one of them is noted.
    pub fn from(&self, address: Option<IpAddr>) {
        if let Ok(mut noted) = self.address.try_lock() {
            *noted = address;
        }
    }

    /// Notes a use; whether it is the first since [`LastUse::take`], so that it has to be queued.
    pub fn at(&self, now: Time) -> bool {
        self.at_ms.fetch_max(now.unix_ms(), Ordering::SeqCst);
        !self.queued.load(Ordering::SeqCst) && !self.queued.swap(true, Ordering::SeqCst)
    }

    /// What has been noted of this key. Whatever is noted from here on is queued anew.
    pub fn take(&self, api_key_id: ApiKeyId) -> Used {
        self.queued.store(false, Ordering::SeqCst);
        Used {
            api_key_id,
            at: Time::from_unix_ms(self.at_ms.load(Ordering::SeqCst)),
            address: *self.address.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// A use to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Of which key.
    pub api_key_id: ApiKeyId,
    /// When.
    pub at: Time,
    /// From where, if that was told.
    pub address: Option<IpAddr>,
}

static NOTE_USES: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // Nothing else tells PostgreSQL the types of a list that stands alone; the first row's hold for all.
        let rows = values(rows, 3).replacen(
            "($1, $2, $3)",
            "(CAST($1 AS TEXT), CAST($2 AS BIGINT), CAST($3 AS TEXT))",
            1,
        );
        format!(
            "INSERT INTO api_key_last_uses (api_key_id, last_used_at, last_used_ip)
             SELECT column1, column2, column3 FROM (VALUES {rows}) AS used
             WHERE EXISTS (SELECT 1 FROM api_keys WHERE id = column1)
             ON CONFLICT (api_key_id) DO UPDATE
                SET last_used_at = excluded.last_used_at, last_used_ip = excluded.last_used_ip
                WHERE api_key_last_uses.last_used_at < excluded.last_used_at"
        )
    })
});

/// Writes uses of different keys, except of keys that are gone and where a later use is written already. The caller brings
/// them in the order of the keys' ids, so that two transactions never wait for each other in a circle.
pub async fn note_uses(tx: &mut Tx, uses: &[Used]) -> Result<(), db::Error> {
    for (text, chunk) in NOTE_USES.chunks(uses) {
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
