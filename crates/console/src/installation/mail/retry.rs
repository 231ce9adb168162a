//! POST /console/installation/mail/retry

use api::gate::{OperatorScope, Visit};
use kernel::error::Error;
use operators::mails;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Retry all queued e-mails now.
pub async fn create(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    mails::retry(&console.operators, None, visit.scope.trail()).await?;
    Page::done(&console.link("/installation/mail"), Done::MailsRetried)
}
