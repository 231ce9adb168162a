//! The total usage of projects and API keys: the table `usage_totals`, always the sums of the daily rows.

use std::sync::LazyLock;

use db::sized::{Sizes, values};
use db::{Tx, Value, sql};
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId};

/// The project or API key whose usage is added up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    Project(ProjectId),
    ApiKey(ApiKeyId),
}

impl From<Subject> for Value {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::Project(id) => id.into(),
            Subject::ApiKey(id) => id.into(),
        }
    }
}

/// Sums of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub requests: i64,
    /// Input and output tokens.
    pub tokens: i64,
}

db::row!(Totals { requests, tokens });

impl Totals {
    /// Returns the sum; `None` if it exceeds 64 bits.
    pub fn plus(self, other: Self) -> Option<Self> {
        let requests = self.requests.checked_add(other.requests)?;
        Some(Self { requests, tokens: self.tokens.checked_add(other.tokens)? })
    }
}

/// The statement of [`get`].
pub const GET: &str =
    "SELECT requests, tokens FROM usage_totals WHERE organization_id = $1 AND subject_id = $2";

/// Returns the total usage of a project or key of this organization.
pub async fn get(
    tx: &mut Tx,
    organization_id: OrganizationId,
    subject: Subject,
) -> Result<Totals, db::Error> {
    let found = sql(GET).bind(organization_id).bind(subject).optional(tx).await?;
    Ok(found.unwrap_or_default())
}

/// Half of the maximum number of tokens of a total, in absolute value. SQL halves both numbers before it adds
/// and compares them, to avoid an overflow. Halves are rounded toward zero, so the sum of two halves is off
/// by at most one. Within this limit, the total therefore fits in 64 bits.
const MAX_HALF_TOKENS: i64 = i64::MAX / 2 - 1;

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // Requests are counted one by one, so they never reach 64 bits.
        format!(
            "INSERT INTO usage_totals (organization_id, subject_id, requests, tokens) VALUES {}
             ON CONFLICT (organization_id, subject_id) DO UPDATE
             SET requests = usage_totals.requests + excluded.requests,
                 tokens = usage_totals.tokens + excluded.tokens
             WHERE usage_totals.tokens / 2 + excluded.tokens / 2
                 BETWEEN -{MAX_HALF_TOKENS} AND {MAX_HALF_TOKENS}",
            values(rows, 4)
        )
    })
});

/// Adds to the totals of organizations whose wallets are locked. Returns `false` if a total would overflow:
/// then the caller must not commit.
pub async fn add(tx: &mut Tx, added: &[((OrganizationId, Subject), Totals)]) -> Result<bool, db::Error> {
    let mut changed = 0;
    for (text, chunk) in ADD.chunks(added) {
        let statement = chunk.iter().fold(sql(text), |statement, ((organization_id, subject), totals)| {
            statement.bind(*organization_id).bind(*subject).bind(totals.requests).bind(totals.tokens)
        });
        changed += statement.execute(tx).await?;
    }
    Ok(u64::try_from(added.len()) == Ok(changed))
}
