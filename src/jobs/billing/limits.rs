//! Credit limits by hand: how far an organization's balance may go below zero.

use serde_json::json;

use crate::app::App;
use crate::db;
use crate::ids::OrganizationId;
use crate::money::Nano;
use crate::rules::currencies;
use crate::store;
use crate::store::audit_log::{Action, Event, Trail};
use crate::store::wallets::Overview;

use super::Refusal;

/// How many organizations are read at a time.
const AT_ONCE: i64 = 500;

/// Returns the organizations after this one with their balances, the oldest first, deleted ones too while their books are
/// kept: as many as are read at a time, none at the end.
///
/// # Errors
/// The database can't say.
pub async fn overviews(app: &App, after: Option<OrganizationId>) -> Result<Vec<Overview>, db::Error> {
    store::wallets::overviews(&mut app.db.read().await?, after, AT_ONCE).await
}

/// Returns an organization with its balance.
///
/// # Errors
/// It was never there.
pub async fn overview(app: &App, id: OrganizationId) -> Result<Overview, Refusal> {
    let overview = store::wallets::overview(&mut app.db.read().await?, id).await?;
    overview.ok_or_else(|| unknown(id))
}

fn unknown(id: OrganizationId) -> Refusal {
    Refusal::Wrong(format!("there is no organization {id}"))
}

/// A credit limit that was set.
#[derive(Clone, Debug)]
pub struct LimitSet {
    /// The organization as it was before.
    pub organization: Overview,
    /// The limit before.
    pub before: Nano,
}

/// Sets how far an organization's balance may go below zero.
///
/// # Errors
/// There is no such organization, or the amount is no limit in its currency.
pub async fn set(app: &App, id: OrganizationId, amount: Nano, trail: &Trail) -> Result<LimitSet, Refusal> {
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let wallet = store::wallets::lock(&mut tx, id, now).await?.ok_or_else(|| unknown(id))?;
    let overview = store::wallets::overview(&mut tx, id).await?;
    let organization =
        overview.filter(|overview| overview.created_at.is_some()).ok_or_else(|| unknown(id))?;
    check(amount, &wallet.currency).map_err(Refusal::Wrong)?;
    let before = wallet.credit_limit;
    if before != amount {
        store::wallets::set_credit_limit(&mut tx, id, amount).await?;
        let event =
            Event { action: Action::CreditLimitSet, target: id.to_string(), organization_id: Some(id) };
        let detail = json!({"before": before.to_string(), "after": amount.to_string()});
        store::audit_log::record_with(&mut tx, trail, &event, &detail, now, &app.random).await?;
        tx.commit().await?;
    }
    Ok(LimitSet { organization, before })
}

/// Refuses what is no limit in this currency.
fn check(amount: Nano, currency: &str) -> Result<(), String> {
    let smallest = currencies::smallest_payment(currency);
    if amount < Nano::ZERO {
        return Err(format!("--amount {amount} is less than 0: 0 means that calls are paid in advance"));
    }
    if !currencies::is_payable(amount, currency) {
        return Err(format!(
            "--amount {amount} is finer than {currency} can be paid in: its smallest unit is {smallest}"
        ));
    }
    if amount.to_i64().is_none() {
        let most = Nano::from_units(i64::MAX.into());
        return Err(format!("--amount {amount} is too much: a limit is at most {most}"));
    }
    Ok(())
}
