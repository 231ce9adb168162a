//! Scheduled bookkeeping (closing months, ending credits) and the commands of operators.

pub mod closing;
pub mod credits;
pub mod expiring;
pub mod invoice_changes;
pub mod payments;

use std::fmt;

use crate::Billing;
use cluster::leases::Lease;
use kernel::currencies;
use kernel::error::{Code, Error};
use kernel::money::Nano;
use trail::Trail;

/// Closes every month that can be closed, ends every expired credit, and notifies webhooks of credits that
/// expire soon, unless another replica is doing so. Nothing is done while the clock isn't trusted, and months
/// are closed only after the service has been up for a while.
pub async fn run_due(billing: &Billing, lease: &Lease) -> Result<(), Error> {
    lease.run_with_lease(Box::pin(run(billing, lease))).await?.unwrap_or(Ok(()))
}

async fn run(billing: &Billing, lease: &Lease) -> Result<(), Error> {
    let trail = Trail::system();
    credits::expire_due(billing, &trail).await?;
    expiring::announce_due(billing).await?;
    let Ok(now) = billing.clock_guard.now() else { return Ok(()) };
    if billing.clock_guard.check_up().is_err() {
        return Ok(());
    }
    let outcome = closing::close_due(billing, now, &trail, Some(lease)).await?;
    let invoices = outcome.closed.iter().filter(|closed| closed.invoice.is_some()).count();
    if !outcome.closed.is_empty() {
        tracing::info!(months = outcome.closed.len(), invoices, "billing months were closed");
    }
    for failed in &outcome.failed {
        let (organization, month) = (failed.organization_id, failed.month);
        tracing::error!(%organization, %month, "a billing month can't be closed: {}", failed.reason);
    }
    Ok(())
}

/// The error of an operator's command.
#[derive(Debug)]
pub enum OperatorError {
    /// The operation is impossible; the text contains the reason. Nothing has changed.
    Invalid(String),
    /// The service or its database failed.
    Failed(Error),
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) => f.write_str(message),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl From<db::Error> for OperatorError {
    fn from(error: db::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for OperatorError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Returns `true` if the database itself is unusable, so that the next organization would fail too.
fn is_database_unusable(error: &Error) -> bool {
    matches!(error.code, Code::DatabaseUnavailable | Code::StorageFull | Code::StorageReadOnly)
}

/// Refuses an amount that isn't a multiple of its currency's smallest unit.
pub(crate) fn check_payable(amount: Nano, currency: &str) -> Result<(), String> {
    if currencies::is_payable(amount, currency) {
        return Ok(());
    }
    let smallest = currencies::smallest_payment(currency);
    Err(format!("--amount {amount} is too precise: the smallest unit of {currency} is {smallest}"))
}
