//! The audit log of an organization: its entries in the audit trail, with the addresses and usernames of
//! actors.

use std::sync::LazyLock;

use db::{Page, Statement, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{AuditId, OrganizationId};
use trail::Action;

/// An entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The id, which sorts by time.
    pub id: AuditId,
    pub happened_at: Time,
    /// The id of a user or a key, `operator` or `system`.
    pub actor: String,
    /// The actor's address, if the actor is a user.
    pub actor_email: Option<String>,
    /// The actor's username, if the actor is a user.
    pub actor_username: Option<String>,
    pub action: String,
    /// The id of the object.
    pub target: String,
    /// The client's address, if known.
    pub address: Option<String>,
    pub request_id: Option<String>,
}

db::row!(Entry { id, happened_at, actor, actor_email, actor_username, action, target, address, request_id });

/// The filter of an audit log.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Filter {
    /// The actor of an entry; `None` for all.
    pub actor: Option<String>,
    /// The action of an entry; `None` for all.
    pub action: Option<Action>,
    /// The target of an entry; `None` for all.
    pub target: Option<String>,
    /// The earliest time, inclusive.
    pub since: Option<Time>,
    /// The latest time, exclusive.
    pub until: Option<Time>,
}

impl Filter {
    /// Returns the statements that read the fewest entries for this filter.
    fn statements(&self) -> &'static Statements {
        if self.target.is_some() {
            &BY_TARGET
        } else if self.actor.is_some() {
            &BY_ACTOR
        } else if self.action.is_some() {
            &BY_ACTION
        } else {
            &BY_TIME
        }
    }

    fn bind(&self, text: &'static str, organization_id: OrganizationId) -> Statement {
        // Ids sort by time, so an id can represent a time.
        let first_id = |time: Option<Time>, unbounded| AuditId::from_parts(time.unwrap_or(unbounded), 0);
        sql(text)
            .bind(organization_id)
            .bind(first_id(self.since, Time::from_unix_ms(0)))
            .bind(first_id(self.until, Time::from_unix_ms(i64::MAX)))
            .bind(self.actor.as_deref().unwrap_or_default())
            .bind(self.action.map_or("", Action::as_str))
            .bind(self.target.as_deref().unwrap_or_default())
            .heavy()
    }
}

/// The statements that find entries with one index. `Filter::bind` binds their parameters.
pub struct Statements {
    /// A page, newest first.
    pub page: String,
    /// The number of entries.
    pub count: String,
}

/// Entries in a period.
pub static BY_TIME: LazyLock<Statements> = LazyLock::new(|| Statements::new(""));
/// Entries of an actor.
pub static BY_ACTOR: LazyLock<Statements> = LazyLock::new(|| Statements::new("actor"));
/// Entries with an action.
pub static BY_ACTION: LazyLock<Statements> = LazyLock::new(|| Statements::new("action"));
/// Entries about a target.
pub static BY_TARGET: LazyLock<Statements> = LazyLock::new(|| Statements::new("target"));

impl Statements {
    /// Returns the statements that use the index on the organization and this column.
    fn new(indexed: &str) -> Self {
        let index = match indexed {
            "" => "audit_log_organization_id_id".to_owned(),
            column => format!("audit_log_organization_id_{column}_id"),
        };
        let is_equal = [("actor", "$4"), ("action", "$5"), ("target", "$6")].map(|(column, value)| {
            if column == indexed {
                format!("e.{column} = {value}")
            } else {
                format!("({value} = '' OR e.{column} = {value})")
            }
        });
        let matching =
            format!("e.organization_id = $1 AND e.id >= $2 AND e.id < $3 AND {}", is_equal.join(" AND "));
        Self {
            page: format!(
                "SELECT e.id, e.happened_at, e.actor, u.email AS actor_email, u.username AS actor_username,
                        e.action, e.target, e.address, e.request_id
                 FROM audit_log e /*+ INDEXED BY {index} */ LEFT JOIN users u ON u.id = e.actor
                 WHERE {matching} ORDER BY e.id DESC LIMIT $7 OFFSET $8"
            ),
            count: format!("SELECT COUNT(*) FROM audit_log e /*+ INDEXED BY {index} */ WHERE {matching}"),
        }
    }
}

/// Returns the number of matching entries, and one page of them, newest first.
pub async fn list(
    tx: &mut Tx,
    organization_id: OrganizationId,
    filter: &Filter,
    page: Page,
) -> Result<(i64, Vec<Entry>), db::Error> {
    let statement = filter.bind(&filter.statements().count, organization_id);
    let (total,): (i64,) = statement.one(tx).await?;
    if page.offset() >= total {
        return Ok((total, Vec::new()));
    }
    let statement = filter.bind(&filter.statements().page, organization_id);
    let rows = statement.bind(page.page_size).bind(page.offset()).all(tx).await?;
    Ok((total, rows))
}

/// Returns the newest matching entries, at most `limit`, newest first.
pub async fn newest(
    tx: &mut Tx,
    organization_id: OrganizationId,
    filter: &Filter,
    limit: i64,
) -> Result<Vec<Entry>, db::Error> {
    let statement = filter.bind(&filter.statements().page, organization_id);
    statement.bind(limit).bind(0_i64).all(tx).await
}
