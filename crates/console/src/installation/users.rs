//! `/console/installation/users` and `…/{user_id}`

pub mod disable;
pub mod enable;
pub mod end_sessions;
pub mod reset_second_factor;

use accounts::profiles::User;
use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use input::fields::{Fields, Record};
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::naming;
use kernel::page::Page as PageOfList;
use operators::users::{self, Filter, UserDetail};
use web::forms::{Filters, ObjectForm};
use web::input::NoInput;

use super::{TypedName, check_typed, found};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

/// The filters of the list.
#[derive(Debug)]
pub struct UserQuery {
    page: PageOfList,
    filter: Filter,
}

impl Record<Api> for UserQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = api::paging::PageQuery::read(fields);
        let search = fields.optional::<Text<200>>("search");
        let state = fields.optional::<Text<20>>("state");
        let state = state?.map(|text| text.0).unwrap_or_default();
        let search_folded = search?.map(|text| naming::fold(text.0.trim())).unwrap_or_default();
        let filter =
            Filter { search_folded, is_disabled: state == "disabled", is_operator: state == "operator" };
        Some(Self { page: page?.0, filter })
    }
}

#[derive(Template)]
#[template(path = "installation/users/list.html")]
struct ListPage {
    shell: Shell,
    users: Vec<User>,
    listing: Listing,
    search: String,
    state: String,
}

/// List accounts.
pub async fn list(
    console: Console,
    visit: Visit<OperatorScope>,
    query: Filters<UserQuery>,
) -> Result<Page, Error> {
    let [search, state] = ["search", "state"].map(|name| query.sent(name).to_owned());
    let UserQuery { page, filter } = query.fields;
    let listed = users::list(&console.operators, &filter, page).await?;
    Page::new(&ListPage {
        shell: Shell::read(&console, &visit.person).await?,
        users: listed.rows,
        listing: Listing::new(page, listed.total, &query.sent),
        search,
        state,
    })
}

#[derive(Template)]
#[template(path = "installation/users/user.html")]
struct UserPage {
    shell: Shell,
    detail: UserDetail,
    /// `true` if the account is the operator's own.
    is_me: bool,
}

/// Show an account.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let detail = one(&console, &visit).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&UserPage { is_me: detail.user.id == visit.scope.user_id(), shell, detail })
}

/// Returns the account in the path.
async fn one(console: &Console, visit: &Visit<OperatorScope>) -> Result<UserDetail, Error> {
    let user_id = found(UserId::parse(visit.person.target().parameter("user_id")))?;
    found(users::read(&console.operators, user_id).await?)
}

const LABELS: Labels = &[("name", "Username")];

/// A change of an account that the operator must confirm.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The last part of the path.
    path: &'static str,
    title: &'static str,
    /// The effect of the change.
    words: &'static str,
    button: &'static str,
    /// `true` if operators can't make the change to their own account.
    is_for_others: bool,
}

#[derive(Template)]
#[template(path = "installation/users/question.html")]
struct QuestionPage {
    shell: Shell,
    form: FormView,
    question: Question,
    user: User,
}

/// Shows the page that asks for a confirmation.
async fn ask(console: &Console, visit: &Visit<OperatorScope>, question: Question) -> Result<Page, Error> {
    show(console, visit, question, FormView::new(LABELS)).await
}

async fn show(
    console: &Console,
    visit: &Visit<OperatorScope>,
    question: Question,
    form: FormView,
) -> Result<Page, Error> {
    let user = one(console, visit).await?.user;
    let shell = Shell::read(console, &visit.person).await?;
    let page = QuestionPage { shell, form, question, user };
    Page::with_form(&page.form, &page)
}

/// Returns the account to change, if the operator has typed its name.
async fn confirmed(
    console: &Console,
    visit: &Visit<OperatorScope>,
    question: Question,
    form: &mut ObjectForm<TypedName>,
) -> Result<User, Error> {
    let user = one(console, visit).await?.user;
    let TypedName { name } = form.take()?;
    check_typed(&name.0, &user.username)?;
    if question.is_for_others && user.id == visit.scope.user_id() {
        return Err(Error::new(Code::InvalidRequest).message("You can't do this to your own account."));
    }
    Ok(user)
}
