//! GET /v1/auth/providers

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use kernel::error::Error;
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

/// The providers with which users can sign in.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProviderList {
    /// The providers, in the order in which they are shown.
    providers: Vec<Provider>,
}

/// A sign-in provider.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Provider {
    /// The provider's id.
    id: String,
    /// The name, of 1 to 100 characters.
    name: String,
    /// The URL of the console's page that starts the sign-on, for browsers.
    sign_in_url: String,
}

pub const LIST: Operation = Operation::new("list_providers");

/// List the providers with which users can sign in.
///
/// The list is empty if the console is off, because sign-on requires a browser.
pub async fn list(api: Api, _: Visitor, _: NoInput) -> Result<Enveloped<ProviderList>, Error> {
    let all = api.accounts.providers.all();
    let shown = all.iter().filter(|_| api.console.enabled);
    let providers = shown.map(|provider| {
        let settings = &provider.settings;
        let url = api.public_url.trim_end_matches('/');
        Provider {
            id: settings.id.clone(),
            name: settings.name.clone(),
            sign_in_url: format!("{url}/console/sign-in/{}", settings.id),
        }
    });
    Ok(ok(ProviderList { providers: providers.collect() }))
}
