//! Ids of what a form will make: a webhook, or the event of a test. A form that is sent twice, as browsers do after Back,
//! makes one: the id is sealed for the person and the place, and what has it is made once.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::error::Error;
use kernel::ids::{EventId, WebhookId};
use tenants::access::OrgScope;

use crate::Webhooks;
use crate::access::WebhookScope;

/// Returns the sealed id of a webhook that this person may create in this organization.
///
/// # Errors
/// There is no master key.
pub fn seal_webhook(webhooks: &Webhooks, scope: &OrgScope) -> Result<String, Error> {
    let id = WebhookId::new(webhooks.clock.now(), &webhooks.random);
    seal(webhooks, &id.to_string(), &webhook_owner(scope))
}

/// Returns the id in a sealed one; `None` if it wasn't sealed for this person and organization, or under a master key
/// that is gone.
pub fn open_webhook(webhooks: &Webhooks, scope: &OrgScope, sealed: &str) -> Option<WebhookId> {
    WebhookId::parse(&open(webhooks, sealed, &webhook_owner(scope))?)
}

/// Returns the sealed id of the event of a test that this person may send to this webhook.
///
/// # Errors
/// There is no master key.
pub fn seal_test(webhooks: &Webhooks, scope: &WebhookScope) -> Result<String, Error> {
    let id = EventId::new(webhooks.clock.now(), &webhooks.random);
    seal(webhooks, &id.to_string(), &test_owner(scope))
}

/// Returns the id in a sealed one; `None` if it wasn't sealed for this person and webhook, or under a master key that is
/// gone.
pub fn open_test(webhooks: &Webhooks, scope: &WebhookScope, sealed: &str) -> Option<EventId> {
    EventId::parse(&open(webhooks, sealed, &test_owner(scope))?)
}

fn seal(webhooks: &Webhooks, id: &str, owner: &str) -> Result<String, Error> {
    Ok(URL_SAFE_NO_PAD.encode(webhooks.sealer.seal(id.as_bytes(), owner, &webhooks.random)?))
}

fn open(webhooks: &Webhooks, sealed: &str, owner: &str) -> Option<String> {
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let id = webhooks.sealer.open(&sealed, owner).ok()?;
    Some(std::str::from_utf8(&id).ok()?.to_owned())
}

fn webhook_owner(scope: &OrgScope) -> String {
    format!("a new webhook of {} by {}", scope.organization_id(), scope.user_id())
}

fn test_owner(scope: &WebhookScope) -> String {
    format!("a test of {} by {}", scope.webhook_id(), scope.organization().user_id())
}
