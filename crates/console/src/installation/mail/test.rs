//! POST /console/installation/mail/test

use api::Api;
use api::gate::{OperatorScope, Visit};
use api::paging::PageQuery;
use input::record;
use input::types::Email;
use kernel::error::{Detail, Error};
use kernel::page::Page as PageOfList;
use operators::mails;
use web::forms::ObjectForm;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;

record! {
    /// The recipient of a test e-mail.
    #[derive(Debug)]
    pub struct TestMail in Api {
        email: Email = required,
    }
}

/// The label of the field.
pub const LABELS: Labels = &[("email", "E-mail address")];

/// Send a test e-mail immediately.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<TestMail>,
) -> Result<Page, Error> {
    let sent = async {
        let TestMail { email } = form.take()?;
        let tested = mails::test(&console.operators, &email.display, visit.scope.trail()).await?;
        tested.map_err(|error| {
            let message = format!("The test e-mail wasn't sent: {error}.");
            Error::invalid(vec![Detail { param: "email".to_owned(), code: "not_sent", message }])
        })
    };
    match sent.await {
        Ok(()) => Page::done(&console.link("/installation/mail"), Done::TestMailSent),
        Err(error) => {
            let page = PageQuery(PageOfList { page: 1, page_size: 20 });
            super::show(&console, &visit, page, &[], FormView::refused(LABELS, &form, error)?).await
        }
    }
}
