//! GET /console/account/connections

pub mod confirm;
pub mod delete;
pub mod new;

use accounts::connections::{self, Connection};
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use crate::account::{Tab, tabs};
use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;
use crate::sign_in::provider_links;

#[derive(Template)]
#[template(path = "account/connections.html")]
struct ConnectionsPage {
    tabs: Vec<Tab>,
    shell: Shell,
    /// The connections, with the names of their providers.
    connections: Vec<(String, Connection)>,
    /// `true` if the user can also sign in with a password.
    is_password_taken: bool,
    /// The providers to which the account can be connected: the link, and the name.
    offered: Vec<(String, String)>,
}

/// Show the user's connections to providers.
pub async fn list(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let ways_in = connections::list(&console.accounts, visit.scope.user_id()).await?;
    let name = |row: &Connection| connections::provider_name(&console.accounts, &row.provider_id);
    let connections: Vec<_> = ways_in.connections.into_iter().map(|row| (name(&row), row)).collect();
    let mut offered = provider_links(&console, "/account/connections/new", "");
    offered.retain(|(_, name)| connections.iter().all(|(other, _)| other != name));
    let shell = Shell::read(&console, &visit.person).await?;
    let is_password_taken = ways_in.is_password_taken;
    Page::new(&ConnectionsPage { tabs: tabs(&shell), shell, connections, is_password_taken, offered })
}
