//! The console: all features of the API for people, as pages that the server renders.
//!
//! # How to add a page
//!
//! 1. A row in [`routes`], with the access that the API's operation for the same has, inside of `Browser`:
//!    `route(GET, "/console/organizations/{organization_id}/projects", Browser(Org(View)), organizations::projects::list)`.
//!    The path of the handler has the words of the URL: without `/console` and every `{…}`, with `read` or `list`
//!    for GET and `create` for POST. POST on a path that ends in a parameter is `update`. `…/new`, `…/delete` and
//!    `…/rotate` are nouns: `read` shows the form, `create` does it.
//! 2. The handler, for instance in `src/organizations/projects.rs`:
//!    `pub async fn list(console: Console, visit: Visit<OrgScope>, query: Filters<ListQuery<…>>) -> Result<Page, Error>`.
//!    `visit.scope` is the scope for the subject's operation, `visit.person` who asks. The handles of all subjects
//!    are fields of [`Console`]: `tenants::projects::list(&console.tenants, &visit.scope, …)`. No
//!    SQL, no rule, no JSON. Inputs: `NoInput`, [`Filters`](web::forms::Filters) for a query, and
//!    [`ObjectForm`](web::forms::ObjectForm) for a form, with the record that the API reads as its JSON body: fields
//!    are named like the API's, with dots for objects.
//! 3. A struct with `#[derive(Template)]`, whose field `shell` is `Shell::read(&console, &visit.person).await?`, and
//!    its file below `templates/`: `{% extends "frame.html" %}`, `{% import "components.html" as c %}`, blocks `title`
//!    and `content`. The parts of pages (tables, fields, badges …) are macros in `templates/components.html`. Links
//!    are made by `shell.link("/…")`, `shell.organization_link("/…")`, `shell.project_link("/…")`, because the public
//!    URL may have a path. Actions that a role may not do aren't offered: `shell.may(…)`, `shell.may_in_project(…)`. No
//!    inline style or script: the policy refuses both.
//! 4. A form is a [`FormView`](form_view::FormView) with its labels: `FormView::new(LABELS).with("name", &row.name)` to
//!    fill it, `FormView::refused(LABELS, &form, error)?` to show it again with its mistakes; errors that aren't about
//!    the form (403, 404 …) go through `?` and automatically become a page ([`error_pages`]). Answer with
//!    `Page::with_form`. `organizations/new.rs` shows all of it.
//!    A form that changes something is filled with `.versioned()?`, has the macro `c::version(form)`, and its
//!    handler asks [`conflicts::check`] before it changes anything.
//! 5. A success of a POST ends in `Page::done(&console.link("/…"), Done::…)`: a redirect to the page that shows it, with
//!    a word of the closed list in [`notices`].
//! 6. A link in the [`navigation`] is a label on the row: `route(…).in_navigation("Projects")`. Links have the order
//!    of their rows, and people see those whose access admits their role.
//! 7. A test in `tests/http/console/`, the access matrix blessed (`TOLLKEEPER_TEST_BLESS=1 cargo test --test http
//!    console::access`), its line in `docs/contract/console.md`.

#![allow(clippy::let_underscore_must_use, reason = "the code that askama writes for an enum has one")]

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
