//! GET and POST /console/installation/users/{user_id}/end-sessions

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
    path: "end-sessions",
    title: "End the sessions",
    words: "The user is signed out of all browsers and programs within a second. API keys keep working.",
    button: "End the sessions",
    is_for_others: false,
};

/// Ask whether to end the sessions of a user.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    ask(&console, &visit, QUESTION).await
}

/// End the sessions of a user.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TypedName>,
) -> Result<Page, Error> {
    match confirmed(&console, &visit, QUESTION, &mut form).await {
        Ok(user) => {
            users::end_sessions(&console.operators, user.id, visit.scope.trail()).await?;
            let path = format!("/installation/users/{}", user.id);
            Page::done(&console.link(&path), Done::UserSessionsEnded)
        }
        Err(error) => show(&console, &visit, QUESTION, FormView::refused(LABELS, &form, error)?).await,
    }
}
