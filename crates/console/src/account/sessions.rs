//! GET /console/account/sessions

pub mod delete;
pub mod others;

use accounts::rules::user_agents;
use accounts::sessions::{self, ListedSession};
use api::gate::{SessionScope, Visit};
use api::paging::PageQuery;
use askama::Template;
use kernel::error::Error;
use kernel::ids::SessionId;
use web::forms::Filters;

use crate::account::{Tab, tabs};
use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "account/sessions.html")]
struct SessionsPage {
    tabs: Vec<Tab>,
    shell: Shell,
    sessions: Vec<ListedSession>,
    listing: Listing,
    /// The current session.
    current: SessionId,
}

impl SessionsPage {
    /// Returns a description of the client of a session.
    fn client(&self, session: &ListedSession) -> String {
        session.user_agent.as_deref().map_or_else(|| "Unknown".to_owned(), user_agents::in_words)
    }
}

/// List the user's sessions.
pub async fn list(
    console: Console,
    visit: Visit<SessionScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let PageQuery(page) = query.fields;
    let listed = sessions::list(&console.accounts, visit.scope.session(), page).await?;
    let listing = Listing::new(page, listed.total, &query.sent);
    let shell = Shell::read(&console, &visit.person).await?;
    let current = visit.scope.session_id();
    Page::new(&SessionsPage { tabs: tabs(&shell), shell, sessions: listed.rows, listing, current })
}
