//! GET and POST /console/reauthenticate

pub mod passkey;
pub mod provider;

use accounts::sign_in::BrowserLogin;
use accounts::sign_in::passkey::start_proof;
use accounts::sign_in::reauthentication::{By, Proof, prove_in_browser};
use accounts::{connections, second_factor};
use api::Api;
use api::gate::{SessionScope, Visit};
use askama::Template;
use http::header;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::forms::{Filters, ObjectForm};

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::page::Page;
use crate::passkey_button::PasskeyButton;
use crate::shell::Shell;
use crate::sign_in::{self, Next};

record! {
    /// The credentials that confirm the user's identity.
    #[derive(Debug)]
    pub struct Reauthenticate in Api {
        password: Text<1024> = required,
        one_time_code: Option<Text<64>> = optional,
        next: Option<Text<4000>> = optional,
    }
}

const LABELS: Labels = &[("password", "Your password"), ("one_time_code", "Code")];

#[derive(Template)]
#[template(path = "reauthenticate.html")]
struct ReauthenticatePage {
    shell: Shell,
    form: FormView,
    /// `true` if a code is also required.
    asks_for_code: bool,
    /// The hint about the codes that can be entered.
    code_hint: &'static str,
    /// The button to confirm with a passkey, if the user has passkeys.
    passkey: Option<PasskeyButton>,
    /// `true` if the user can confirm with a password.
    is_password_taken: bool,
    /// `true` if users can sign in to this server with a password.
    are_passwords_taken: bool,
    /// The providers to which the user is connected: the link to confirm there, and the name.
    providers: Vec<(String, String)>,
}

/// Show the page that asks a signed-in user to confirm their identity.
pub async fn read(console: Console, visit: Visit<SessionScope>, query: Filters<Next>) -> Result<Page, Error> {
    let form = FormView::new(LABELS).with("next", links::next(query.sent("next")).unwrap_or_default());
    show(&console, &visit, form).await
}

/// Check the credentials, and continue with a new session.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<Reauthenticate>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let proved = match form.take() {
        Ok(Reauthenticate { password, one_time_code, .. }) => {
            let one_time_code = one_time_code.as_ref().map(|code| code.0.as_str());
            let by = By::Password { password: &password.0, one_time_code };
            let proof = Proof { by, user_agent: scope.user_agent() };
            prove_in_browser(&console.accounts, scope.trail(), scope.session(), &proof).await
        }
        Err(error) => Err(error),
    };
    match proved {
        Ok(login) => go_on(&console, &login, form.sent("next")),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Sets the cookie of the new session, and redirects the browser.
fn go_on(console: &Console, login: &BrowserLogin, next: &str) -> Result<Page, Error> {
    let page = Page::see_other(&sign_in::way_on(console, next))?;
    Ok(page.with_header(header::SET_COOKIE, sign_in::cookie(console, login)?))
}

async fn show(console: &Console, visit: &Visit<SessionScope>, form: FormView) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let shell = Shell::read(console, &visit.person).await?;
    let passkey = match start_proof(&console.accounts, visit.scope.session()).await {
        Ok(options) => Some(PasskeyButton::new(console, &options)?),
        Err(error) if matches!(error.code, Code::PasskeysDisabled | Code::PasskeyNotFound) => None,
        Err(error) => return Err(error),
    };
    let ways_in = connections::list(&console.accounts, visit.scope.user_id()).await?;
    let is_connected = |id: &str| ways_in.connections.iter().any(|connection| connection.provider_id == id);
    let mut providers = sign_in::provider_links(console, "/reauthenticate", form.value("next"));
    let all = console.accounts.providers.all();
    let names: Vec<_> = all.iter().filter(|provider| is_connected(&provider.settings.id)).collect();
    providers.retain(|(_, name)| names.iter().any(|provider| provider.settings.name == *name));
    let code_hint = match factor.totp_since {
        Some(_) => "Six digits from your authenticator app, or a recovery code.",
        None => "One of your recovery codes.",
    };
    let page = ReauthenticatePage {
        shell,
        form,
        asks_for_code: factor.is_asked_for(),
        code_hint,
        passkey,
        is_password_taken: ways_in.is_password_taken,
        are_passwords_taken: console.accounts.settings.sign_in.passwords,
        providers,
    };
    Page::with_form(&page.form, &page)
}
