//! GET /console/organizations/{organization_id}/audit-log

pub mod csv;

use api::Api;
use api::gate::Visit;
use api::organizations::audit_log::EntryQuery;
use askama::Template;
use input::fields::{Fields, Record};
use kernel::clock::Day;
use kernel::error::Error;
use kernel::page::Page as PageOfList;
use tenants::ListPage as Listed;
use tenants::access::OrgScope;
use tenants::audit_log::{Action, Entry, Filter};
use web::forms::QueryForm;

use crate::console::Console;
use crate::days::Days;
use crate::form_view::{FormView, Labels};
use crate::labels;
use crate::links;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

/// The labels of the filters.
const LABELS: Labels = &[
    ("actor", "Actor (id)"),
    ("action", "Action"),
    ("target", "Target (id)"),
    ("start_date", "First day"),
    ("end_date", "Last day"),
];

/// The filters of the page.
#[derive(Debug)]
pub struct AuditLogFilters {
    page: PageOfList,
    /// The filter for the entries that are shown.
    pub filter: Filter,
}

impl Record<Api> for AuditLogFilters {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let entries = EntryQuery::read(fields);
        let days = Days::read(fields)?;
        let EntryQuery { page, filter } = entries?;
        let (since, until) = (days.first.map(Day::start), days.end_exclusive().map(Day::start));
        Some(Self { page, filter: Filter { since, until, ..filter } })
    }
}

/// The subjects of an organization's entries, which are the first parts of their actions.
const SUBJECTS: [&str; 9] = [
    "organization",
    "organization_member",
    "invitation",
    "project",
    "project_member",
    "api_key",
    "credit",
    "invoice",
    "credit_note",
];

#[derive(Template)]
#[template(path = "organizations/audit_log.html")]
struct ListPage {
    shell: Shell,
    entries: Vec<Entry>,
    listing: Listing,
    /// The actions: word and label.
    actions: Vec<(&'static str, String)>,
    form: FormView,
    /// The filters as they were sent.
    sent: Vec<(String, String)>,
    /// The link to the same entries as a file.
    csv: String,
}

impl ListPage {
    /// Returns the link to the entries with this actor or target, in addition to the other filters.
    fn link_with(&self, name: &str, value: &str) -> String {
        let others = self.sent.iter().filter(|(other, _)| other != name);
        let pairs = others.map(|(name, value)| (name.as_str(), value.as_str())).chain([(name, value)]);
        format!("?{}", query(pairs))
    }
}

/// List the actions in an organization.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    QueryForm(mut query): QueryForm<AuditLogFilters>,
) -> Result<Page, Error> {
    let is_filter = |name: &str| LABELS.iter().any(|(label, _)| *label == name);
    let sent: Vec<_> = query.pairs().iter().filter(|(name, _)| is_filter(name)).cloned().collect();
    let (form, page, listed) = match query.take() {
        Ok(AuditLogFilters { page, filter }) => {
            let listed = tenants::audit_log::list(&console.tenants, &visit.scope, &filter, page).await?;
            let form = sent.iter().fold(FormView::new(LABELS), |form, (name, value)| form.with(name, value));
            (form, page, listed)
        }
        Err(error) => {
            let page = PageOfList { page: 1, page_size: 1 };
            (FormView::refused(LABELS, &query, error)?, page, Listed { rows: Vec::new(), total: 0 })
        }
    };
    let shell = Shell::read(&console, &visit.person).await?;
    let pairs = sent.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let page = ListPage {
        listing: Listing::new(page, listed.total, query.pairs()),
        csv: shell.organization_link(&format!("/audit-log/csv?{}", self::query(pairs))),
        shell,
        entries: listed.rows,
        actions: actions(),
        form,
        sent,
    };
    Page::with_form(&page.form, &page)
}

fn query<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{name}={}", links::query_value(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the actions on organizations and their contents, sorted by label.
fn actions() -> Vec<(&'static str, String)> {
    let words = Action::ALL.iter().map(|action| action.as_str());
    let is_here = |word: &&str| word.split('.').next().is_some_and(|subject| SUBJECTS.contains(&subject));
    let mut actions: Vec<_> = words.filter(is_here).map(|word| (word, labels::action(word))).collect();
    actions.sort_by(|one, other| one.1.cmp(&other.1));
    actions
}
