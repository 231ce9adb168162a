//! GET and POST /console/installation/users/{user_id}/reset-second-factor

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
    path: "reset-second-factor",
    title: "Remove the second factor",
    words: "For a user who has lost both their second factor and their recovery codes. First verify their identity in another way. The authenticator app, passkeys and recovery codes are removed, and the user's sessions end. The user can then sign in with their password alone, or request a link to set a password. The user is notified by e-mail.",
    button: "Remove the second factor",
    is_for_others: true,
};

/// Ask whether to remove the second factor of a user.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    ask(&console, &visit, QUESTION).await
}

/// Remove the second factor of a user.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TypedName>,
) -> Result<Page, Error> {
    match confirmed(&console, &visit, QUESTION, &mut form).await {
        Ok(user) => {
            users::reset_second_factor(&console.operators, user.id, visit.scope.trail()).await?;
            let path = format!("/installation/users/{}", user.id);
            Page::done(&console.link(&path), Done::UserSecondFactorReset)
        }
        Err(error) => show(&console, &visit, QUESTION, FormView::refused(LABELS, &form, error)?).await,
    }
}
