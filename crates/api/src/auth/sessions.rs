//! `/v1/auth/sessions` and `…/{session_id}` (docs/contract/accounts.md#list-sessions).

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::{OwnSessionScope, SessionScope};
use crate::paging::{PageInfo, PageQuery};
use accounts::{Accounts, sessions as operations};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::SessionId;
use web::input::{NoInput, Query};
use web::reply::{Enveloped, ok, private};
use web::route::Operation;

use super::Message;

/// A page of sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionPage {
    /// The sessions of this page.
    sessions: Vec<ListedSession>,
    #[serde(flatten)]
    page: PageInfo,
}

/// A session in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedSession {
    /// The session's id.
    id: SessionId,
    /// `true` for the calling session.
    current: bool,
    /// The time when the session was created.
    created_at: Time,
    /// The time of the session's login or last refresh.
    last_seen_at: Time,
    /// The client's address at that time.
    address: Option<String>,
    /// The client's header `User-Agent` at that time.
    user_agent: Option<String>,
}

impl ListedSession {
    /// Returns a session for the list. `current` is the calling session.
    pub fn of(row: operations::ListedSession, current: SessionId) -> Self {
        Self {
            id: row.id,
            current: row.id == current,
            created_at: row.created_at,
            last_seen_at: row.last_seen_at,
            address: row.address,
            user_agent: row.user_agent,
        }
    }
}

pub const LIST: Operation = Operation::new("list_sessions");

/// List the caller's sessions.
pub async fn list(
    accounts: Accounts,
    scope: SessionScope,
    Query(PageQuery(page)): Query<PageQuery>,
) -> Result<Enveloped<SessionPage>, Error> {
    let listed = operations::list(&accounts, scope.session(), page).await?;
    let sessions = listed.rows.into_iter().map(|row| ListedSession::of(row, scope.session_id()));
    Ok(private(SessionPage { sessions: sessions.collect(), page: PageInfo::new(listed.total, page) }))
}

pub const DELETE_ALL: Operation = Operation::new("delete_sessions");

/// End all other sessions of the caller.
///
/// Their refresh tokens and access tokens stop working; those of the calling session keep working.
pub async fn delete_all(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    operations::end_others(&accounts, scope.trail(), scope.session()).await?;
    Ok(ok(Message { message: "Your other sessions have ended.".to_owned() }))
}

pub const DELETE: Operation = Operation::new("delete_session");

/// End a session of the caller.
///
/// Its refresh token and its access tokens stop working. The calling session can also end itself.
pub async fn delete(
    accounts: Accounts,
    scope: OwnSessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    let caller = scope.caller();
    operations::end_one(&accounts, caller.trail(), caller.session(), scope.named()).await?;
    Ok(ok(Message { message: "The session has ended.".to_owned() }))
}
