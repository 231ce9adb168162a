//! GET and POST /console/installation/users/{user_id}/enable

use api::gate::{OperatorScope, Visit};
use kernel::error::Error;
use operators::users;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{LABELS, Question, ask, confirmed, show};
use crate::console::Console;
use crate::form_view::FormView;
use crate::installation::TypedName;
use crate::notices::Done;
use crate::page::Page;

const QUESTION: Question = Question {
    path: "enable",
    title: "Enable the account",
    words: "The user can sign in again, and API keys that they created act with the user's roles again. The user is notified by e-mail.",
    button: "Enable the account",
    is_for_others: false,
};

/// Ask whether to enable an account.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    ask(&console, &visit, QUESTION).await
}

/// Enable an account.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TypedName>,
) -> Result<Page, Error> {
    match confirmed(&console, &visit, QUESTION, &mut form).await {
        Ok(user) => {
            users::enable(&console.operators, user.id, visit.scope.trail()).await?;
            let path = format!("/installation/users/{}", user.id);
            Page::done(&console.link(&path), Done::UserEnabled)
        }
        Err(error) => show(&console, &visit, QUESTION, FormView::refused(LABELS, &form, error)?).await,
    }
}
