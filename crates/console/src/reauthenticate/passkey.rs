//! POST /console/reauthenticate/passkey

use accounts::passkeys::Signed;
use accounts::sign_in::reauthentication::{By, Proof, prove_in_browser};
use api::Api;
use api::gate::{SessionScope, Visit};
use input::record;
use input::types::Text;
use kernel::error::Error;
use web::forms::ObjectForm;

use super::{LABELS, go_on, show};
use crate::console::Console;
use crate::form_view::FormView;
use crate::page::Page;

record! {
    /// The passkey that confirms the user's identity.
    #[derive(Debug)]
    pub struct Passkey in Api {
        ceremony: Text<4096> = required,
        credential: Text<16000> = required,
        next: Option<Text<4000>> = optional,
    }
}

/// Check the passkey, and continue with a new session.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<Passkey>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let proved = match form.take() {
        Ok(Passkey { ceremony, credential, .. }) => {
            let by = By::Passkey(Signed { ceremony: &ceremony.0, credential: &credential.0 });
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
