//! GET and POST /console/organizations/{organization_id}/webhooks/new

use api::gate::Visit;
use api::organizations::webhooks::CreateWebhook;
use askama::Template;
use kernel::error::{Code, Error};
use tenants::access::OrgScope;
use web::forms::ObjectForm;
use web::input::NoInput;
use webhooks::endpoints::{self, New};
use webhooks::new_ids;

use super::meanings::event_choices;
use super::secret::{self, NewSecret};
use super::{LABELS, NEW_ID};
use crate::console::Console;
use crate::form_view::FormView;
use crate::options::Choice;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/webhooks/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    events: Vec<Choice>,
    new_id: String,
}

/// Show the form for a new webhook.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let new_id = new_ids::seal_webhook(&console.webhooks, &visit.scope)?;
    let shell = Shell::read(&console, &visit.person).await?;
    show(shell, FormView::new(LABELS), new_id)
}

/// Create a webhook, and show its secret.
///
/// The form contains the sealed id of the webhook, so that submitting the form several times creates only one
/// webhook.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<CreateWebhook>,
) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let Some(id) = new_ids::open_webhook(&console.webhooks, &visit.scope, form.sent(NEW_ID)) else {
        let sentence = "The form expired or belongs to another user. Check your input and submit it again.";
        let error = Error::new(Code::InvalidRequest).message(sentence);
        let new_id = new_ids::seal_webhook(&console.webhooks, &visit.scope)?;
        return show(shell, FormView::refused(LABELS, &form, error)?, new_id);
    };
    let created = async {
        let new = New { id: Some(id), ..form.take()?.into() };
        Ok::<_, Error>(endpoints::create(&console.webhooks, &visit.scope, new).await?.commit().await?)
    };
    match created.await {
        Ok(created) => {
            let new = NewSecret { secret: &created.secret, previous_ends_at: None };
            secret::show(shell, created.webhook.id, &new)
        }
        Err(error) if error.code == Code::PreconditionFailed => {
            let title = "This webhook already exists";
            let words = "This form was already submitted. The webhook’s secret was shown only once, after the first \
                         submission. To get a new secret, rotate the webhook.";
            secret::show_made_before(shell, id, (title, words))
        }
        Err(error) => {
            let new_id = form.sent(NEW_ID).to_owned();
            show(shell, FormView::refused(LABELS, &form, error)?, new_id)
        }
    }
}

fn show(shell: Shell, form: FormView, new_id: String) -> Result<Page, Error> {
    let page = NewPage { shell, form, events: event_choices(), new_id };
    Page::with_form(&page.form, &page)
}
