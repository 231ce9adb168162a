//! The check of billing for `/readyz`.

use std::time::Duration;

use crate::Billing;

/// Maximum time for the database to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Checks that every organization has this server's currency. Returns a sentence about the result, as `Ok` or
/// as `Err`; `None` if the database doesn't answer in time.
pub async fn check_currency(billing: &Billing) -> Option<Result<String, String>> {
    let own = &billing.settings.currency;
    let found = tokio::time::timeout(TIMEOUT, async {
        catalog::store::prices::other_currencies(&mut billing.db().read().await?, own).await
    });
    let others = found.await.ok()?.ok()?;
    if others.is_empty() && !billing.catalog.has_wrong_currency() {
        return Some(Ok(format!("Every organization has {own}.")));
    }
    let others: Vec<_> = others.iter().map(|(currency, count)| format!("{count} in {currency}")).collect();
    Some(Err(if others.is_empty() {
        format!(
            "Some organizations had a currency other than {own} when the catalog was last read: restart the \
             server."
        )
    } else {
        format!(
            "Some organizations have a currency other than {own} ({}): set `billing.currency` back to it.",
            others.join(", ")
        )
    }))
}
