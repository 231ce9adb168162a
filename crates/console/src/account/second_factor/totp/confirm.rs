//! POST /console/account/second-factor/totp/confirm

use accounts::rules::one_time_codes::RecoveryCode;
use accounts::second_factor;
use api::auth::totp::ConfirmTotp;
use api::gate::{SessionScope, Visit};
use kernel::error::{Code, Error};
use web::forms::ObjectForm;

use super::{LABELS, show};
use crate::account::second_factor::show_codes;
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::page::Page;

/// Activate the new app. For the first second factor, show the recovery codes.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<ConfirmTotp>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let confirmed = match form.take() {
        Ok(body) => {
            second_factor::confirm_totp(&console.accounts, scope.trail(), scope.session(), &body.code.0).await
        }
        Err(error) => Err(error),
    };
    match confirmed {
        Ok(Some(codes)) => {
            let codes = codes.iter().map(RecoveryCode::expose).collect();
            show_codes(&console, &visit, "Your second factor is on", codes).await
        }
        Ok(None) => Page::done(&console.link("/account/second-factor"), Done::TotpReplaced),
        Err(error) => {
            // Show the secret again, because it isn't confirmed yet.
            let pending = second_factor::pending_totp(&console.accounts, scope.user_id()).await?;
            match pending {
                Some(enrolment) => {
                    show(&console, &visit, enrolment, FormView::refused(LABELS, &form, error)?).await
                }
                None if error.code == Code::InvalidRequest => Err(Code::NoTotpPending.into()),
                None => Err(error),
            }
        }
    }
}
