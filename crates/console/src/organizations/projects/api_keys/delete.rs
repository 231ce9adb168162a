//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/delete

use api::gate::Visit;
use askama::Template;
use kernel::error::Error;
use kernel::version::Expected;
use keys::access::KeyScope;
use keys::api_keys::ApiKey;
use web::input::NoInput;

use super::list_link;
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/delete.html")]
struct DeletePage {
    shell: Shell,
    key: ApiKey,
}

/// Ask whether to delete the key.
pub async fn read(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&DeletePage { shell, key: visit.scope.into_api_key() })
}

/// Delete the key.
pub async fn create(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    keys::api_keys::delete(&console.keys, &visit.scope, &Expected::Any).await?;
    Page::done(&list_link(&console, &visit.scope), Done::KeyDeleted)
}
