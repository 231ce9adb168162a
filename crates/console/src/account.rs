//! `/console/account`: the user's own account.

pub mod connections;
pub mod data;
pub mod email;
pub mod password;
pub mod second_factor;
pub mod sessions;
pub mod theme;
pub mod verification;

use accounts::email_changes::{self, PendingAddress};
use accounts::profiles::{self, User};
use api::auth::me::UpdateMe;
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::{Code, Error};
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("username", "Username"), ("full_name", "Full name"), ("phone", "Phone number")];

#[derive(Template)]
#[template(path = "account/profile.html")]
struct ProfilePage {
    tabs: Vec<Tab>,
    shell: Shell,
    form: FormView,
    user: User,
    /// The new e-mail address that isn't confirmed yet.
    pending: Option<PendingAddress>,
}

/// A link to a section of the account: its URL, its label, and `true` for the current page.
type Tab = (String, &'static str, bool);

/// Returns the links to the sections of the account.
fn tabs(shell: &Shell) -> Vec<Tab> {
    let parts = [
        ("/account", "Profile"),
        ("/account/password", "Password"),
        ("/account/second-factor", "Second factor"),
        ("/account/connections", "Connections"),
        ("/account/sessions", "Sessions"),
    ];
    parts.into_iter().map(|(path, words)| (shell.link(path), words, shell.is_at(path))).collect()
}

/// Show the user's account.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let user = own(&console, &visit).await?;
    let form = FormView::new(LABELS)
        .with("username", &user.username)
        .with("full_name", user.full_name.as_deref().unwrap_or_default())
        .with("phone", user.phone.as_deref().unwrap_or_default());
    show(&console, &visit, user, form).await
}

/// Change the user's profile.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<UpdateMe>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let changed = match form.take() {
        Ok(body) => {
            profiles::update(&console.accounts, scope.trail(), scope.session(), body.into_update()).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&console.link("/account"), Done::ProfileSaved),
        Err(error) => {
            let view = FormView::refused(LABELS, &form, error)?;
            let user = own(&console, &visit).await?;
            show(&console, &visit, user, view).await
        }
    }
}

/// Returns the user's account.
async fn own(console: &Console, visit: &Visit<SessionScope>) -> Result<User, Error> {
    let user = profiles::read(&console.accounts, visit.scope.user_id()).await?;
    Ok(user.ok_or(Code::InvalidAccessToken)?)
}

async fn show(
    console: &Console,
    visit: &Visit<SessionScope>,
    user: User,
    form: FormView,
) -> Result<Page, Error> {
    let pending = email_changes::pending(&console.accounts, user.id).await?;
    let shell = Shell::read(console, &visit.person).await?;
    let page = ProfilePage { tabs: tabs(&shell), shell, form, user, pending };
    Page::with_form(&page.form, &page)
}
