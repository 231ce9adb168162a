//! GET and POST /console/installation/users/{user_id}/disable

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
    path: "disable",
    title: "Disable the account",
    words: "The user can no longer sign in, and their sessions end within a second. API keys that they created can still call models, but can no longer manage anything. The user is notified by e-mail.",
    button: "Disable the account",
    is_for_others: true,
};

/// Ask whether to disable an account.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    ask(&console, &visit, QUESTION).await
}

/// Disable an account.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TypedName>,
) -> Result<Page, Error> {
    match confirmed(&console, &visit, QUESTION, &mut form).await {
        Ok(user) => {
            users::disable(&console.operators, user.id, visit.scope.trail()).await?;
            let path = format!("/installation/users/{}", user.id);
            Page::done(&console.link(&path), Done::UserDisabled)
        }
        Err(error) => show(&console, &visit, QUESTION, FormView::refused(LABELS, &form, error)?).await,
    }
}
