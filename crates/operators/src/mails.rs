//! E-mails in the queue, and a test of the mail server.

use db::Page;
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::MailId;
use mail::DeliveryError;
use mail::store::outbox;
use trail::{Action, Trail};

use crate::Operators;

pub use mail::store::outbox::WaitingMail;

/// A page of queued e-mails.
#[derive(Clone, Debug)]
pub struct WaitingMails {
    /// The e-mails, oldest first.
    pub rows: Vec<WaitingMail>,
    /// The number of e-mails on all pages.
    pub total: i64,
}

/// Returns one page of the queued e-mails, oldest first.
///
/// # Errors
/// The database fails.
pub fn list(operators: &Operators, page: Page) -> BoxFuture<'_, Result<WaitingMails, Error>> {
    Box::pin(async move {
        let mut tx = operators.db.read().await?;
        let total = outbox::count(&mut tx).await?;
        let rows = outbox::list(&mut tx, page).await?;
        Ok(WaitingMails { rows, total })
    })
}

/// Schedules a queued e-mail, or all of them if `id` is `None`, to be sent now. Returns their number.
///
/// # Errors
/// The database fails.
pub fn retry<'a>(
    operators: &'a Operators,
    id: Option<MailId>,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<u64, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = operators.db.write().await?;
        let mails = outbox::make_due(&mut tx, id, now).await?;
        if mails > 0 {
            let target = id.map_or_else(|| "all".to_owned(), |id| id.to_string());
            operators.record(&mut tx, trail, (Action::MailRetried, &target), None, now).await?;
        }
        tx.commit().await?;
        operators.mail.outbox.notify_one();
        Ok(mails)
    })
}

/// Sends a test e-mail immediately, bypassing the queue.
///
/// # Errors
/// The database fails. The inner error is the reason why the e-mail wasn't delivered.
pub fn test<'a>(
    operators: &'a Operators,
    to: &'a str,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<Result<(), DeliveryError>, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let delivered = mail::sending::send_test(&operators.mail, to, &operators.public_url).await;
        let mut tx = operators.db.write().await?;
        operators.record(&mut tx, trail, (Action::MailTested, "mail"), None, now).await?;
        tx.commit().await?;
        Ok(delivered)
    })
}
