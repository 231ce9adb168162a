//! POST /console/sign-in/{provider_id}/logout

use accounts::sign_in::provider;
use api::Api;
use api::gate::FromProviderVisit;
use input::record;
use input::types::Text;
use kernel::error::Error;
use web::forms::ObjectForm;

use crate::console::Console;
use crate::page::Page;

record! {
    /// The token of a logout.
    #[derive(Debug)]
    pub struct LogoutToken in Api {
        logout_token: Text<20000> = required,
    }
}

/// End the sessions of a user who was signed out by a provider.
pub async fn create(
    console: Console,
    visit: FromProviderVisit,
    mut form: ObjectForm<LogoutToken>,
) -> Result<Page, Error> {
    let LogoutToken { logout_token } = form.take()?;
    let (trail, provider_id) = (visit.visitor.trail(), visit.provider_id.as_str());
    provider::log_out(&console.accounts, trail, provider_id, &logout_token.0).await?;
    Page::document(String::new(), "default-src 'none'")
}
