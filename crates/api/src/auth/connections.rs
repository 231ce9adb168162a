//! `/v1/auth/connections` and `…/{connection_id}` (docs/contract/accounts.md#connections).

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::{OwnConnectionScope, SessionScope};
use accounts::{Accounts, connections as operations};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::ConnectionId;
use web::input::NoInput;
use web::reply::{Enveloped, ok, private};
use web::route::Operation;

use super::Message;

/// The connections of an account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConnectionList {
    /// The connections, oldest first.
    connections: Vec<Connection>,
}

/// A connection of an account to an identity at a provider.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Connection {
    /// The connection's id.
    id: ConnectionId,
    /// The provider's name.
    provider: String,
    /// The e-mail address that the provider last reported; null if it reported none.
    email: Option<String>,
    /// The time when the account was connected.
    connected_at: Time,
    /// The time when the connection was last used to sign in; null if never.
    last_used_at: Option<Time>,
}

pub const LIST: Operation = Operation::new("list_connections");

/// List the caller's connections to providers.
pub async fn list(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<ConnectionList>, Error> {
    let found = operations::list(&accounts, scope.user_id()).await?;
    Ok(private(ConnectionList {
        connections: found.connections.into_iter().map(|row| Connection::of(&accounts, row)).collect(),
    }))
}

impl Connection {
    /// Returns a connection with its provider's name.
    pub fn of(accounts: &Accounts, row: operations::Connection) -> Self {
        Self {
            id: row.id,
            provider: operations::provider_name(accounts, &row.provider_id),
            email: row.email,
            connected_at: row.connected_at,
            last_used_at: row.last_used_at,
        }
    }
}

pub const DELETE: Operation =
    Operation { errors: &[Code::LastCredential], ..Operation::new("delete_connection") };

/// Remove a connection of the caller.
///
/// Sessions that were started with the connection end, except the calling session. Requires a session in
/// which the user recently confirmed their identity, and another sign-in method for the account.
pub async fn delete(
    accounts: Accounts,
    scope: OwnConnectionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    let caller = scope.caller();
    operations::remove(&accounts, caller.trail(), caller.session(), scope.named()).await?;
    Ok(ok(Message { message: "The connection is removed.".to_owned() }))
}
