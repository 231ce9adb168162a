//! GET /console/installation/audit

use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use input::record;
use input::types::Text;
use kernel::error::Error;
use operators::trails::{self, Action, AuditEntry, Filter};
use web::forms::Filters;

use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

/// The maximum number of entries on the page.
const MAX_ENTRIES: i64 = 100;

record! {
    /// The filters of the page.
    #[derive(Debug)]
    pub struct EntryQuery in Api {
        action: Option<Text<64>> = optional,
        actor: Option<Text<128>> = optional,
        target: Option<Text<128>> = optional,
        organization: Option<Text<128>> = optional,
    }
}

#[derive(Template)]
#[template(path = "installation/audit.html")]
struct AuditPage {
    shell: Shell,
    entries: Vec<AuditEntry>,
    /// The actions: word and label.
    actions: Vec<(&'static str, String)>,
    /// The filters as they were sent: name, label, value.
    filters: Vec<(&'static str, &'static str, String)>,
    action: String,
}

/// List the newest entries of the audit trail of the whole installation.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<EntryQuery>,
) -> Result<Page, Error> {
    let sent = |name: &str| query.sent(name).trim().to_owned();
    let filter = Filter {
        actor: sent("actor"),
        action: sent("action"),
        target: sent("target"),
        organization_id: sent("organization"),
        limit: MAX_ENTRIES,
        ..Filter::default()
    };
    let mut actions: Vec<_> =
        Action::ALL.iter().map(|action| (action.as_str(), crate::labels::action(action.as_str()))).collect();
    actions.sort_by(|one, other| one.1.cmp(&other.1));
    let entries = trails::list(&console.operators, &filter).await?;
    let labels = [("actor", "Actor"), ("target", "Target"), ("organization", "Organization")];
    Page::new(&AuditPage {
        shell: Shell::read(&console, &visit.person).await?,
        entries,
        actions,
        filters: labels.into_iter().map(|(name, label)| (name, label, sent(name))).collect(),
        action: sent("action"),
    })
}
