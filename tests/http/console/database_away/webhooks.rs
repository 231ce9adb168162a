//! The forms of webhooks, and of the billing of an organization.

use super::{TYPED, budgets};
use support::console::{Browser, hidden};
use support::world::World;

/// The URL of the webhook that is created.
pub const URL: &str = "https://example.com/new?a=1&b='c'";

/// Returns the fields of a form of webhooks or billing; `None` for other forms. `path` is the path of its
/// page.
pub async fn fields(
    browser: &Browser,
    world: &World,
    route: &str,
    path: &str,
) -> Option<Vec<(&'static str, String)>> {
    let form = route.strip_prefix("/organizations/{organization_id}")?;
    let hidden_of =
        async |name: &'static str, path: &str| (name, hidden(&browser.page(world, path).await, name));
    let text = |name, value: &str| (name, value.to_owned());
    let url = if form == "/webhooks/new" { URL } else { "https://example.com/changed" };
    let described = [text("url", url), text("description", TYPED), text("shown", "events")];
    let events = [text("events", "invoice.paid"), text("events", "member.added")];
    Some(match form {
        "/webhooks/new" => [&[hidden_of("new_id", path).await][..], &described, &events].concat(),
        "/webhooks/{webhook_id}" => {
            // The page that sends the form again keeps the values of a field together.
            let (shown, enabled) = ([text("shown", "enabled")], [text("enabled", "true")]);
            [&[hidden_of("version", path).await][..], &described, &shown, &events, &enabled].concat()
        }
        "/webhooks/{webhook_id}/rotate" => vec![hidden_of("version", path).await],
        "/webhooks/{webhook_id}/test" => {
            vec![hidden_of("new_id", path.strip_suffix("/test").unwrap()).await]
        }
        "/webhooks/{webhook_id}/redeliver" => vec![text("since", "2026-03-01")],
        "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver" | "/webhooks/{webhook_id}/delete" => {
            Vec::new()
        }
        "/billing/balance-alert" => vec![hidden_of("version", path).await, text("below", "-12.50")],
        "/billing/payments/new" => {
            vec![hidden_of("new_id", path).await, text("amount", "12.50"), text("shown", "save_card")]
        }
        "/billing/auto-top-up" => vec![text("version", ""), text("enabled", "false")],
        "/billing/invoices/{invoice_id}/pay" | "/billing/card" | "/billing/card/remove" => Vec::new(),
        "/billing/budgets/new" => budgets::made(),
        "/billing/budgets/{budget_id}" => budgets::changed(hidden_of("version", path).await),
        "/billing/budgets/{budget_id}/delete" => Vec::new(),
        _ => return None,
    })
}
