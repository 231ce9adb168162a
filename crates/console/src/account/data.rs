//! GET /console/account/data

use accounts::{connections, passkeys, profiles, sessions};
use api::auth::connections::Connection;
use api::auth::me::User;
use api::auth::passkeys::Passkey;
use api::auth::sessions::ListedSession;
use api::gate::{SessionScope, Visit};
use http::{HeaderValue, Response, StatusCode, header};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::page::Page;
use schemars::SchemaGenerator;
use serde::Serialize;
use tenants::Search;
use tenants::roles::OrganizationRole;
use web::input::NoInput;
use web::reply::{self, Body, Reply};

use crate::console::Console;

/// The maximum number of entries that are read at a time.
const PAGE_SIZE: i64 = 100;

/// All stored data about a user.
#[derive(Debug, Serialize)]
pub struct PersonalData {
    exported_at: Time,
    user: User,
    /// The live sessions.
    sessions: Vec<ListedSession>,
    passkeys: Vec<Passkey>,
    /// The connections to providers.
    connections: Vec<Connection>,
    organizations: Vec<Membership>,
}

/// An organization that a user belongs to.
#[derive(Debug, Serialize)]
struct Membership {
    id: OrganizationId,
    name: String,
    role: OrganizationRole,
}

/// Download the stored data about the user.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<PersonalData, Error> {
    let user = profiles::read(&console.accounts, visit.scope.user_id()).await?;
    let passkeys = passkeys::list(&console.accounts, visit.scope.user_id()).await?;
    Ok(PersonalData {
        exported_at: console.clock.now(),
        user: user.ok_or(Code::InvalidAccessToken)?.into(),
        sessions: own_sessions(&console, &visit).await?,
        passkeys: passkeys.into_iter().map(Into::into).collect(),
        connections: own_connections(&console, &visit).await?,
        organizations: memberships(&console, &visit).await?,
    })
}

async fn own_sessions(console: &Console, visit: &Visit<SessionScope>) -> Result<Vec<ListedSession>, Error> {
    let current = visit.scope.session();
    let (mut all, mut page) = (Vec::new(), Page { page: 1, page_size: PAGE_SIZE });
    loop {
        let found = sessions::list(&console.accounts, current, page).await?.rows;
        if found.is_empty() {
            return Ok(all);
        }
        all.extend(found.into_iter().map(|row| ListedSession::of(row, current.id)));
        page.page = page.page.saturating_add(1);
    }
}

async fn own_connections(console: &Console, visit: &Visit<SessionScope>) -> Result<Vec<Connection>, Error> {
    let found = connections::list(&console.accounts, visit.scope.user_id()).await?;
    Ok(found.connections.into_iter().map(|row| Connection::of(&console.accounts, row)).collect())
}

async fn memberships(console: &Console, visit: &Visit<SessionScope>) -> Result<Vec<Membership>, Error> {
    let caller = visit.person.caller()?;
    let (mut all, mut page) = (Vec::new(), Page { page: 1, page_size: PAGE_SIZE });
    loop {
        let search = Search { page, folded: String::new(), role: None };
        let found = tenants::organizations::list(&console.tenants, &caller, search).await?.rows;
        if found.is_empty() {
            return Ok(all);
        }
        all.extend(found.into_iter().map(|row| Membership { id: row.id, name: row.name, role: row.role }));
        page.page = page.page.saturating_add(1);
    }
}

impl Reply for PersonalData {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let json = serde_json::to_string_pretty(&self).map_err(Error::internal)?;
        let mut response = reply::json_response(StatusCode::OK, json.into());
        let file = HeaderValue::from_static("attachment; filename=\"tollkeeper-account.json\"");
        response.headers_mut().insert(header::CONTENT_DISPOSITION, file);
        Ok(response)
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "object"})
    }
}
