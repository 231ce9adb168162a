//! GET and POST /console/sign-in

use accounts::login::{Login, log_in_browser};
use accounts::sessions;
use accounts::tokens::SESSION_MS;
use api::Api;
use api::gate::{OpenVisit, SessionCookie, Visitor};
use askama::Template;
use http::header;
use input::record;
use input::types::Text;
use kernel::clock::SECOND_MS;
use kernel::error::Error;
use web::forms::{Filters, ObjectForm};

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// Where sign-in leads.
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
    /// `true` if the connection is open to others.
    is_exposed: bool,
}

/// Show the page that signs in.
///
/// Who is signed in already is sent on.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, query: Filters<Next>) -> Result<Page, Error> {
    if visit.session.is_some() {
        return Page::see_other(&way_on(&console, query.sent("next")));
    }
    let form = FormView::new(LABELS).with("next", links::next(query.sent("next")).unwrap_or_default());
    show(&console, &visit, form)
}

/// Sign in.
///
/// A session that the browser has already ends.
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
                remember_me,
                user_agent: visit.scope.user_agent(),
            };
            log_in_browser(&console.accounts, trail, &login).await.map(|login| (login, remember_me))
        }
        Err(error) => Err(error),
    };
    let (login, remember_me) = match signed_in {
        Ok(signed_in) => signed_in,
        Err(error) => return show(&console, &visit, FormView::refused(LABELS, &form, error)?),
    };
    if let Some(before) = visit.session {
        sessions::end(&console.accounts, &trail.by(before.user_id), before).await?;
    }
    let max_age_s = remember_me.then_some(SESSION_MS / SECOND_MS);
    let cookie = SessionCookie::new(&console.public_url).set(&login.token, max_age_s)?;
    Ok(Page::see_other(&way_on(&console, form.sent("next")))?.with_header(header::SET_COOKIE, cookie))
}

fn show(console: &Console, visit: &OpenVisit<Visitor>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::without_person(console, &visit.target);
    let is_exposed = !console.is_secure() && !is_on_loopback(&console.public_url);
    let page = SignInPage { shell, form, is_exposed };
    Page::with_form(&page.form, &page)
}

/// Returns `true` if a URL names this machine.
fn is_on_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|name| host.starts_with(name))
}

/// Returns the link to where the person wanted to go.
fn way_on(console: &Console, next: &str) -> String {
    match links::next(next) {
        Some(place) => format!("{}{place}", console.base()),
        None => console.link("/"),
    }
}
