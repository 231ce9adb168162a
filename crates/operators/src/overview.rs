//! An overview of the state of the installation.

use accounts::store::users::administration::{self, Filter};
use billing::store::audit_state::{self, AuditState};
use kernel::clock::Time;
use kernel::error::Error;
use mail::store::outbox;

use crate::Operators;

/// Counts and times of the whole installation.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The number of accounts.
    pub users: i64,
    /// The number of organizations.
    pub organizations: i64,
    /// The number of open invoices.
    pub open_invoices: i64,
    /// The number of queued e-mails.
    pub mails: i64,
    /// The time at which the oldest queued e-mail was queued.
    pub oldest_mail_at: Option<Time>,
    /// The last scheduled audit of the books; `None` if no audit has been scheduled yet.
    pub audit: Option<AuditState>,
}

/// Returns the state of the installation.
///
/// # Errors
/// The database fails.
pub async fn read(operators: &Operators) -> Result<Overview, Error> {
    let mut tx = operators.db.read().await?;
    let (mails, oldest_mail_at) = outbox::waiting(&mut tx).await?;
    Ok(Overview {
        users: administration::count(&mut tx, &Filter::default()).await?,
        organizations: billing::store::wallets::count(&mut tx, "").await?,
        open_invoices: billing::store::invoices::count_open(&mut tx).await?,
        mails,
        oldest_mail_at,
        audit: audit_state::get(&mut tx).await?,
    })
}
