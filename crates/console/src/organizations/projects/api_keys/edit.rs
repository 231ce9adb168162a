//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/edit

use api::gate::Visit;
use api::organizations::projects::api_keys::bodies::UpdateApiKey;
use askama::Template;
use kernel::error::Error;
use kernel::version::Expected;
use keys::access::KeyScope;
use keys::api_keys::ApiKey;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{LABELS, PERMISSIONS, filled, list_link};
use crate::conflicts;
use crate::console::Console;
use crate::form_view::FormView;
use crate::notices::Done;
use crate::options::{self, Choice};
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/edit.html")]
struct EditPage<'a> {
    shell: Shell,
    form: FormView,
    models: Vec<Choice>,
    key: &'a ApiKey,
}

/// Show the form that changes a key.
pub async fn read(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    let form = filled(visit.scope.api_key())?;
    show(&console, &visit, form).await
}

/// Change a key.
pub async fn create(
    console: Console,
    visit: Visit<KeyScope>,
    mut form: ObjectForm<UpdateApiKey>,
) -> Result<Page, Error> {
    let key = visit.scope.api_key();
    let link = format!("{}/{}", list_link(&console, &visit.scope), key.id);
    let edit = format!("{link}/edit");
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &filled(key)?, &edit).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![key.version(console.clock.now())?]);
    let changed = match form.take() {
        Ok(body) => keys::api_keys::update(&console.keys, &visit.scope, &expected, body.into()).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&link, Done::KeyChanged),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<KeyScope>, form: FormView) -> Result<Page, Error> {
    let key = visit.scope.api_key();
    let models = options::models(console, key.restrictions.models.iter().flatten().map(String::as_str));
    let page = EditPage { shell: Shell::read(console, &visit.person).await?, form, models, key };
    Page::with_form(&page.form, &page)
}
