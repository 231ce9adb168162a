//! GET and POST /console/account/second-factor/recovery-codes

use accounts::rules::one_time_codes::RecoveryCode;
use accounts::second_factor;
use api::Api;
use api::gate::{SessionScope, Visit};
use askama::Template;
use input::record;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use web::forms::ObjectForm;
use web::input::NoInput;

use super::show_codes;
use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// The set of codes to replace.
    #[derive(Debug)]
    pub struct Renew in Api {
        replaced: Time = required,
    }
}

#[derive(Template)]
#[template(path = "account/second_factor/renew.html")]
struct RenewPage {
    shell: Shell,
    /// The number of remaining codes.
    left: i64,
    /// The time at which the codes were generated. It ensures that a form that is sent twice generates only
    /// one set.
    replaced: Time,
}

/// Ask whether to generate new recovery codes.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let replaced = factor.recovery_codes_made_at.ok_or(Code::SecondFactorNotFound)?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&RenewPage { shell, left: factor.recovery_codes_left, replaced })
}

/// Generate new recovery codes, and show them.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<Renew>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let replaced = Some(form.take()?.replaced);
    let codes =
        second_factor::renew_recovery_codes(&console.accounts, scope.trail(), scope.session(), replaced);
    let codes = codes.await?.iter().map(RecoveryCode::expose).collect();
    show_codes(&console, &visit, "Your new recovery codes", codes).await
}
