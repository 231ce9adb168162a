//! Ids assigned to forms in advance, for a new webhook or a test event. An id is sealed for one user and one
//! organization or webhook, and can be used only once. A form that is submitted twice, for example after
//! going back in the browser, therefore takes effect once.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::error::Error;
use kernel::ids::{EventId, WebhookId};
use tenants::access::OrgScope;

use crate::Webhooks;
use crate::access::WebhookScope;

/// Returns a sealed id for a webhook that this user may create in this organization.
///
/// # Errors
/// No master key is configured.
pub fn seal_webhook(webhooks: &Webhooks, scope: &OrgScope) -> Result<String, Error> {
    let id = WebhookId::new(webhooks.clock.now(), &webhooks.random);
    seal(webhooks, &id.to_string(), &webhook_owner(scope))
}

/// Opens a sealed id; `None` if it was sealed for another user or organization, or with a master key that is
/// no longer configured.
pub fn open_webhook(webhooks: &Webhooks, scope: &OrgScope, sealed: &str) -> Option<WebhookId> {
    WebhookId::parse(&open(webhooks, sealed, &webhook_owner(scope))?)
}

/// Returns a sealed id for a test event that this user may send to this webhook.
///
/// # Errors
/// No master key is configured.
pub fn seal_test(webhooks: &Webhooks, scope: &WebhookScope) -> Result<String, Error> {
    let id = EventId::new(webhooks.clock.now(), &webhooks.random);
    seal(webhooks, &id.to_string(), &test_owner(scope))
}

/// Opens a sealed id; `None` if it was sealed for another user or webhook, or with a master key that is no
/// longer configured.
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
