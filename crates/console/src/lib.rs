//! The console: server-rendered pages for all features of the API.
//!
//! # How to add a page
//!
//! 1. Add a row to [`routes`], for instance with the path
//!    `/console/organizations/{organization_id}/projects`, the access `Browser(Org(View))` and the handler
//!    `organizations::projects::list`. The access is that of the API's operation, inside of `Browser`. The
//!    handler's Rust path follows the URL, without `/console` and the parameters in braces. The function is
//!    `read` or `list` for GET, `create` for POST, and `update` for POST on a path that ends in a parameter.
//!    `…/new`, `…/delete` and `…/rotate` are modules: their `read` shows the form, and their `create` does
//!    the action.
//! 2. Write the handler, for instance in `src/organizations/projects.rs`:
//!    `pub async fn list(console: Console, visit: Visit<OrgScope>, query: Filters<…>) -> Result<Page, Error>`.
//!    `visit.scope` is the scope for the subject's operation, and `visit.person` is the signed-in user. The
//!    handles of all subjects are fields of [`Console`]:
//!    `tenants::projects::list(&console.tenants, &visit.scope, …)`. A handler contains no SQL, no rules and
//!    no JSON. Its input is `NoInput`; [`Filters`](web::forms::Filters) for a query; or
//!    [`ObjectForm`](web::forms::ObjectForm) for a form, with the record that the API reads from its JSON
//!    body. The names of a form's fields are those of the API, with dots for nested objects.
//! 3. Add a struct with `#[derive(Template)]`, whose field `shell` is
//!    `Shell::read(&console, &visit.person).await?`. Its template in `templates/` has
//!    `{% extends "frame.html" %}`, `{% import "components.html" as c %}`, and the blocks `title` and
//!    `content`. The parts of pages (tables, fields, badges …) are macros in `templates/components.html`.
//!    Make links with `shell.link("/…")`, `shell.organization_link("/…")` and `shell.project_link("/…")`,
//!    because the public URL may have a path. Don't offer actions that the role doesn't allow:
//!    `shell.may(…)`, `shell.may_in_project(…)`. The content security policy refuses inline styles and
//!    scripts.
//! 4. A form is a [`FormView`](form_view::FormView) with labels.
//!    `FormView::new(LABELS).with("name", &row.name)` fills it, and
//!    `FormView::refused(LABELS, &form, error)?` shows it again with its mistakes. Return other errors (403,
//!    404 …) with `?`: they automatically become a page ([`error_pages`]). Respond with `Page::with_form`.
//!    `organizations/new.rs` is a complete example. A form that changes an object is filled with
//!    `.versioned()?` and contains the macro `c::version(form)`, and its handler calls [`conflicts::check`]
//!    before the change.
//! 5. After a successful POST, return `Page::done(&console.link("/…"), Done::…)`: a redirect to a page that
//!    shows a notice from the list in [`notices`].
//! 6. For an entry in the [`navigation`], add a label to the row: `route(…).in_navigation("Projects")`. Entries
//!    have the order of their rows, and users see those that their role may open.
//! 7. Add a test to `tests/http/console/`, update the access matrix
//!    (`TOLLKEEPER_TEST_BLESS=1 cargo test --test http console::access`), and add a line to
//!    `docs/contract/console.md`.

#![allow(
    clippy::let_underscore_must_use,
    reason = "code that askama generates for enums contains such a `let`"
)]

pub mod account;
pub mod assets;
pub mod charts;
pub mod choices;
pub mod conflicts;
pub mod console;
pub mod days;
pub mod error_pages;
pub mod first_account;
pub mod forgot_password;
pub mod form_view;
pub mod home;
pub mod installation;
pub mod labels;
pub mod links;
pub mod listing;
pub mod models;
pub mod navigation;
pub mod notices;
pub mod options;
pub mod organizations;
pub mod page;
pub mod passkey_button;
pub mod qr_code;
pub mod reauthenticate;
pub mod register;
pub mod routes;
pub mod samples;
pub mod shell;
pub mod show;
pub mod sign_in;
pub mod sign_out;
pub mod usage;

pub use crate::console::Console;
