//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate

use api::gate::Visit;
use api::organizations::projects::api_keys::rotate::RotateApiKey;
use askama::Template;
use kernel::clock::{HOUR_MS, SECOND_MS};
use kernel::error::{Code, Error};
use kernel::version::{Expected, Version};
use keys::access::KeyScope;
use keys::api_keys::{ApiKey, Secrets};
use web::forms::ObjectForm;
use web::input::NoInput;

use super::secret::{self, NewSecret};
use crate::console::Console;
use crate::form_view::{FormView, Labels, VERSION};
use crate::options::Choice;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

const LABELS: Labels = &[("grace_seconds", "Previous secret")];

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/rotate.html")]
struct RotatePage<'a> {
    shell: Shell,
    form: FormView,
    graces: Vec<Choice>,
    key: &'a ApiKey,
    secrets: Secrets,
    /// The version of the secret to replace, so that sending the form again doesn't rotate the key again.
    version: String,
}

/// Ask how to rotate a key.
pub async fn read(console: Console, visit: Visit<KeyScope>, _: NoInput) -> Result<Page, Error> {
    let secrets = keys::api_keys::secrets(&console.keys, &visit.scope).await?;
    let version = secrets.version.to_string();
    let form = FormView::new(LABELS);
    let shell = Shell::read(&console, &visit.person).await?;
    show_form(&console, &visit, shell, form, secrets, version)
}

/// Rotate a key, and show its new secret.
///
/// The form contains the version of the secret to replace, so that submitting the form several times creates
/// only one secret.
pub async fn create(
    console: Console,
    visit: Visit<KeyScope>,
    mut form: ObjectForm<RotateApiKey>,
) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let expected = Expected::OneOf(Version::parse(form.sent(VERSION)).into_iter().collect());
    let rotated = async {
        let grace_seconds = form.take()?.grace_seconds.map(|grace| grace.0);
        let rotated = keys::api_keys::rotate(&console.keys, &visit.scope, &expected, grace_seconds).await?;
        Ok::<_, Error>(rotated.commit().await?)
    };
    match rotated.await {
        Ok(rotated) => {
            let previous_ends_at = Some(rotated.previous_ends_at).filter(|at| *at > rotated.rotated_at);
            let new = NewSecret { secret: &rotated.secret, previous_ends_at, is_rotation: true };
            secret::show(&console, shell, visit.scope.api_key(), &new)
        }
        Err(error) if error.code == Code::PreconditionFailed => {
            let title = "This key was already rotated";
            let words = "The key got a new secret after you opened the page, either because this form was already \
                         submitted or because another user rotated it. That secret was shown only once. To get a new \
                         one, rotate the key again.";
            let id = visit.scope.api_key_id();
            secret::show_made_before(shell, id, (title, words))
        }
        Err(error) => {
            let secrets = keys::api_keys::secrets(&console.keys, &visit.scope).await?;
            let version = form.sent(VERSION).to_owned();
            let form = FormView::refused(LABELS, &form, error)?;
            show_form(&console, &visit, shell, form, secrets, version)
        }
    }
}

fn show_form(
    console: &Console,
    visit: &Visit<KeyScope>,
    shell: Shell,
    form: FormView,
    secrets: Secrets,
    version: String,
) -> Result<Page, Error> {
    let graces = graces(console.keys.settings.rotation_grace_hours);
    let page = RotatePage { shell, form, graces, key: visit.scope.api_key(), secrets, version };
    Page::with_form(&page.form, &page)
}

/// Returns the times for which the previous secret can stay valid, longest first.
fn graces(configured_hours: u32) -> Vec<Choice> {
    let seconds = |hours: u32| (i64::from(hours) * HOUR_MS).div_euclid(SECOND_MS).to_string();
    let offered =
        [configured_hours, 24, 1].into_iter().filter(|hours| *hours <= configured_hours && *hours > 0);
    let mut hours: Vec<u32> = offered.collect();
    hours.dedup();
    let mut graces: Vec<_> = hours
        .into_iter()
        .map(|hours| (seconds(hours), format!("Works for {} more", show::count(i64::from(hours), "hour"))))
        .collect();
    graces.push(("0".to_owned(), "Revoke immediately".to_owned()));
    graces
}
