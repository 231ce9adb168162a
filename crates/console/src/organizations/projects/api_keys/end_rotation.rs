//! POST /console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation

use api::gate::Visit;
use kernel::error::Error;
use keys::access::KeyScope;
use web::input::NoInput;

use super::list_link;
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// End the previous secret of a key.
pub async fn create(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    keys::api_keys::end_rotation(&console.keys, &visit.scope).await?.commit().await?;
    let key = visit.scope.api_key_id();
    Page::done(&format!("{}/{key}", list_link(&console, &visit.scope)), Done::RotationEnded)
}
