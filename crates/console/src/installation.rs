//! GET /console/installation, and all pages below it, for operators

pub mod audit;
pub mod catalog;
pub mod invoices;
pub mod mail;
pub mod margins;
pub mod organizations;
pub mod settings;
pub mod users;

use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use input::record;
use input::types::Text;
use kernel::error::{Code, Detail, Error};
use monitor::Check;
use operators::OperatorError;
use operators::overview::{self, Overview};
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "installation/overview.html")]
struct OverviewPage {
    shell: Shell,
    checks: Vec<Check>,
    overview: Overview,
    /// The position of this server in the feed of changes, and the time since it was read, in milliseconds.
    feed: (i64, Option<i64>),
    schema: i64,
}

/// Show the state of the installation.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let feed = (console.feed.position(), console.feed.age_ms(console.clock.now()));
    Page::new(&OverviewPage {
        shell: Shell::read(&console, &visit.person).await?,
        checks: console.monitor.checks().await,
        overview: overview::read(&console.operators).await?,
        feed,
        schema: console.monitor.newest_schema(),
    })
}

record! {
    /// A name, typed to confirm a change.
    #[derive(Debug)]
    pub struct TypedName in Api {
        name: Text<400> = required,
    }
}

/// Returns an error if the typed name isn't that of the user or organization that the change affects.
fn check_typed(typed: &str, name: &str) -> Result<(), Error> {
    if typed.trim() == name {
        return Ok(());
    }
    let message = "The name doesn't match. Type it exactly as shown above.".to_owned();
    Err(Error::invalid(vec![Detail { param: "name".to_owned(), code: "other_name", message }]))
}

/// Converts an operator's error into the error of a form. Options of the command line that the message
/// mentions become the form's fields.
fn refusal(error: OperatorError) -> Error {
    match error {
        OperatorError::Failed(error) => error,
        OperatorError::Invalid(sentence) => {
            let fields =
                [("--amount", "amount"), ("--reference", "reference"), ("--expires-at", "expires_at")];
            let found = fields.iter().find(|(option, _)| sentence.contains(option));
            let param = found.map_or("", |(_, field)| field);
            let words = fields.iter().fold(sentence.clone(), |words, (option, field)| {
                words.replace(option, &format!("`{field}`"))
            });
            let mut characters = words.chars();
            let first = characters.next().map(|first| first.to_ascii_uppercase());
            let message = format!("{}.", first.into_iter().chain(characters).collect::<String>());
            Error::invalid(vec![Detail { param: param.to_owned(), code: "refused", message }])
        }
    }
}

/// Returns the row, or an error with 404 if it doesn't exist.
fn found<T>(found: Option<T>) -> Result<T, Error> {
    found.ok_or_else(|| Code::UnknownPath.into())
}
