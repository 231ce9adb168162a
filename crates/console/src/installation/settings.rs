//! GET /console/installation/settings

use api::gate::{OperatorScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "installation/settings.html")]
struct SettingsPage {
    shell: Shell,
    settings: String,
}

/// Show the effective configuration of this server, without its secrets.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let settings = console.operators.settings.clone();
    Page::new(&SettingsPage { shell: Shell::read(&console, &visit.person).await?, settings })
}
