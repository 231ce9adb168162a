//! GET and POST /console/sign-in

pub mod callback;
pub mod confirm;
pub mod logout;
pub mod passkey;
pub mod provider;
pub mod second_factor;

use accounts::sessions;
use accounts::settings::RegistrationMode;
use accounts::sign_in::passkey::start;
use accounts::sign_in::{BrowserLogin, BrowserStep, Login, PENDING_LOGIN_MS, PendingLogin, log_in_browser};
use accounts::tokens::SESSION_MS;
use api::Api;
use api::gate::{OpenVisit, SessionCookie, Visitor};
use askama::Template;
use http::{HeaderValue, header};
use input::record;
use input::types::Text;
use kernel::clock::SECOND_MS;
use kernel::error::{Code, Error};
use web::forms::{Filters, ObjectForm};

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::page::Page;
use crate::passkey_button::PasskeyButton;
use crate::shell::Shell;

record! {
    /// The page to open after sign-in.
    #[derive(Debug)]
    pub struct Next in Api {
        next: Option<Text<4000>> = optional,
    }
}

record! {
    /// Credentials.
    #[derive(Debug)]
    pub struct SignIn in Api {
        email: Text<320> = required,
        password: Text<1024> = required,
        remember_me: bool = or(false),
        next: Option<Text<4000>> = optional,
    }
}

const LABELS: Labels =
    &[("email", "E-mail address"), ("password", "Password"), ("remember_me", "Keep me signed in")];

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    shell: Shell,
    form: FormView,
    /// `true` if the connection isn't encrypted.
    is_exposed: bool,
    /// The button to sign in without a password, if passkeys can be used.
    passkey: Option<PasskeyButton>,
    /// `true` if all users can sign in with a password; `false` if only operators can.
    are_passwords_taken: bool,
    /// `true` if visitors can create an account.
    may_register: bool,
    /// The providers: the link that starts a sign-on, and the name.
    providers: Vec<(String, String)>,
}

/// The page that asks about a pending connection.
pub const CONFIRM: &str = "/account/connections/confirm";

/// Returns the links that start sign-ons, and the providers' names. `path` is the part of the link before the
/// provider's id, and `next` is the page to open after the sign-on.
pub fn provider_links(console: &Console, path: &str, next: &str) -> Vec<(String, String)> {
    let query = links::next_query(next);
    let all = console.accounts.providers.all();
    let link = |id: &str| console.link(&format!("{path}/{id}{query}"));
    all.iter().map(|provider| (link(&provider.settings.id), provider.settings.name.clone())).collect()
}

/// Show the sign-in page.
///
/// Users who are already signed in are redirected.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, query: Filters<Next>) -> Result<Page, Error> {
    if visit.session.is_some() {
        return Page::see_other(&way_on(&console, query.sent("next")));
    }
    let form = FormView::new(LABELS).with("next", links::next(query.sent("next")).unwrap_or_default());
    show(&console, &visit, form)
}

/// Sign in.
///
/// An existing session of the browser ends. If a second factor is required, the next page asks for it.
pub async fn create(
    console: Console,
    visit: OpenVisit<Visitor>,
    mut form: ObjectForm<SignIn>,
) -> Result<Page, Error> {
    let trail = visit.scope.trail();
    let signed_in = match form.take() {
        Ok(SignIn { email, password, remember_me, .. }) => {
            let login = Login {
                email: email.0.trim(),
                password: &password.0,
                one_time_code: None,
                remember_me,
                user_agent: visit.scope.user_agent(),
            };
            log_in_browser(&console.accounts, trail, &login).await
        }
        Err(error) => Err(error),
    };
    match signed_in {
        Ok(BrowserStep::SignedIn(login)) => enter(&console, &visit, &login, form.sent("next")).await,
        Ok(BrowserStep::CodeDue(pending)) => ask_for_code(&console, &pending, form.sent("next")),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?),
    }
}

/// Ends the browser's previous session, sets the cookie of the new session, and redirects the browser.
async fn enter(
    console: &Console,
    visit: &OpenVisit<Visitor>,
    login: &BrowserLogin,
    next: &str,
) -> Result<Page, Error> {
    if let Some(before) = visit.session {
        let trail = visit.scope.trail().by(before.user_id);
        sessions::end(&console.accounts, &trail, before).await?;
    }
    let pending = visit.pending_connection.as_ref();
    // Ask about the user's pending connection next, because the identity at the provider may be someone
    // else's.
    let asks = pending.is_some_and(|pending| pending.is_for(login.session.user_id));
    let place = if asks { console.link(CONFIRM) } else { way_on(console, next) };
    let mut page = Page::see_other(&place)?.with_header(header::SET_COOKIE, cookie(console, login)?);
    if pending.is_some() && !asks {
        let removed = SessionCookie::of_connection(&console.public_url).remove()?;
        page = page.with_header(header::SET_COOKIE, removed);
    }
    Ok(page)
}

/// Returns the cookie of a session.
pub fn cookie(console: &Console, login: &BrowserLogin) -> Result<HeaderValue, Error> {
    let max_age_s = login.remember_me.then_some(SESSION_MS / SECOND_MS);
    SessionCookie::new(&console.public_url).set(&login.token, max_age_s)
}

/// Redirects the browser to the second step, with the cookie that the step needs.
fn ask_for_code(console: &Console, pending: &PendingLogin, next: &str) -> Result<Page, Error> {
    let value = pending.seal(&console.accounts)?;
    let cookie = SessionCookie::of_second_factor(&console.public_url);
    let cookie = cookie.set(&value, Some(PENDING_LOGIN_MS / SECOND_MS))?;
    let query = links::next_query(next);
    let page = Page::see_other(&console.link(&format!("/sign-in/second-factor{query}")))?;
    Ok(page.with_header(header::SET_COOKIE, cookie))
}

fn show(console: &Console, visit: &OpenVisit<Visitor>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::without_person(console, &visit.target);
    let is_exposed = !console.is_secure() && !is_on_loopback(&console.public_url);
    let settings = &console.accounts.settings;
    let are_passwords_taken = settings.sign_in.passwords;
    let may_register = are_passwords_taken && settings.registration != RegistrationMode::Closed;
    let passkey = passkey_button(console)?;
    let providers = provider_links(console, "/sign-in", form.value("next"));
    let page = SignInPage { shell, form, is_exposed, passkey, are_passwords_taken, may_register, providers };
    Page::with_form(&page.form, &page)
}

/// Returns the button that signs in with a passkey, if passkeys can be used.
fn passkey_button(console: &Console) -> Result<Option<PasskeyButton>, Error> {
    match start(&console.accounts) {
        Ok(options) => PasskeyButton::new(console, &options).map(Some),
        Err(error) if error.code == Code::PasskeysDisabled => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `true` if the host of a URL is a loopback address or name.
fn is_on_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|name| host.starts_with(name))
}

/// Returns the link to the page that the user wanted to open.
pub fn way_on(console: &Console, next: &str) -> String {
    match links::next(next) {
        Some(place) => format!("{}{place}", console.base()),
        None => console.link("/"),
    }
}
