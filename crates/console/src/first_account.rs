//! GET and POST /console/first-account

use accounts::registration::NewAccount;
use accounts::rules::password::{self, PersonalData};
use api::Api;
use api::gate::{OpenVisit, Visitor};
use askama::Template;
use input::record;
use input::types::{Email, Text, Username};
use kernel::error::{Code, Error};
use operators::first_account;
use web::forms::{Filters, ObjectForm};

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// The token of the link.
    #[derive(Debug)]
    pub struct Token in Api {
        token: Option<Text<100>> = optional,
    }
}

record! {
    /// The values of the first account.
    #[derive(Debug)]
    pub struct FirstAccount in Api {
        token: Text<100> = required,
        email: Email = required,
        username: Username = required,
        password: Text<1024> = required,
    }
    check(fields) {
        if let Some(password) = &password {
            let personal = PersonalData {
                username: username.as_ref().map_or("", |name| &name.display),
                email: email.as_ref().map_or("", |email| &email.display),
                ..PersonalData::default()
            };
            for problem in password::check(&password.0, &personal) {
                fields.problem::<()>("password", problem.code, format!("`password` {}.", problem.message));
            }
        }
    }
}

const LABELS: Labels = &[("email", "E-mail address"), ("username", "Username"), ("password", "Password")];

#[derive(Template)]
#[template(path = "first_account.html")]
struct FirstAccountPage {
    shell: Shell,
    form: FormView,
    token: String,
    /// `false` if the token is unknown or used.
    is_good: bool,
}

/// Show the page that creates the first account.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, query: Filters<Token>) -> Result<Page, Error> {
    let token = query.sent("token").to_owned();
    let is_good = first_account::is_good(&console.operators, &token).await?;
    show(&console, &visit, FormView::new(LABELS), token, is_good)
}

/// Create the first account. Its user is an operator.
pub async fn create(
    console: Console,
    visit: OpenVisit<Visitor>,
    mut form: ObjectForm<FirstAccount>,
) -> Result<Page, Error> {
    let made = match form.take() {
        Ok(FirstAccount { token, email, username, password }) => {
            let new = NewAccount {
                email: &email.display,
                email_folded: &email.folded,
                username: &username.display,
                username_folded: &username.folded,
                full_name: None,
                phone: None,
                password: &password.0,
            };
            first_account::create(&console.operators, &token.0, &new, visit.scope.trail()).await
        }
        Err(error) => Err(error),
    };
    let token = form.sent("token").to_owned();
    match made {
        Ok(_) => Page::done(&console.link("/sign-in"), Done::FirstAccountCreated),
        Err(error) if error.code == Code::InvalidToken => {
            show(&console, &visit, FormView::new(LABELS), token, false)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?, token, true),
    }
}

fn show(
    console: &Console,
    visit: &OpenVisit<Visitor>,
    form: FormView,
    token: String,
    is_good: bool,
) -> Result<Page, Error> {
    let shell = Shell::without_person(console, &visit.target);
    let page = FirstAccountPage { shell, form, token, is_good };
    if is_good { Page::with_form(&page.form, &page) } else { Page::error(Code::InvalidToken, &page) }
}
