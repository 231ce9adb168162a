//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/api-keys/new

use api::Api;
use api::gate::Visit;
use api::organizations::projects::api_keys::bodies::CreateApiKey;
use askama::Template;
use input::fields::{Field, Fields, Location, Problems, Record};
use input::json::Json;
use input::types::one_of;
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use keys::api_keys::New;
use keys::new_ids;
use serde_json::{Value, json};
use tenants::access::ProjectScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::secret::{self, NewSecret};
use super::{LABELS, PERMISSIONS};
use crate::console::Console;
use crate::days::DayField;
use crate::form_view::FormView;
use crate::options::{self, Choice};
use crate::page::Page;
use crate::shell::Shell;

/// The name of the hidden field with the sealed id of the key that the form creates.
const NEW_ID: &str = "new_id";

/// The lifetime of a new key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasts {
    Month,
    Quarter,
    Year,
    Always,
    UntilDay,
}

impl Lasts {
    const ALL: &[Self] = &[Self::Month, Self::Quarter, Self::Year, Self::Always, Self::UntilDay];

    /// The values of the field with their labels.
    const CHOICES: [(&str, &str); 5] = [
        ("30", "In 30 days"),
        ("90", "In 90 days"),
        ("365", "In a year"),
        ("always", "Never"),
        ("day", "Custom date"),
    ];

    /// Returns the number of days for which the key is valid, if the choice alone determines it.
    fn days(self) -> Option<i64> {
        match self {
            Self::Month => Some(30),
            Self::Quarter => Some(90),
            Self::Year => Some(365),
            Self::Always | Self::UntilDay => None,
        }
    }
}

impl From<Lasts> for &'static str {
    fn from(lasts: Lasts) -> Self {
        match lasts {
            Lasts::Month => "30",
            Lasts::Quarter => "90",
            Lasts::Year => "365",
            Lasts::Always => "always",
            Lasts::UntilDay => "day",
        }
    }
}

impl Field for Lasts {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::ALL)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": Self::CHOICES.map(|(word, _)| word)})
    }
}

/// The form of a new key: the body of the API, with a choice of lifetimes for the expiry.
#[derive(Debug)]
pub struct NewKey {
    body: CreateApiKey,
    expires_at: Option<Time>,
}

impl Record<Api> for NewKey {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let lasts = fields.or("lasts", Lasts::Always);
        let last_day = fields.optional::<DayField>("last_day");
        let expires_at = match (fields.state(), lasts, last_day) {
            (Some(api), Some(Lasts::UntilDay), Some(day)) => end_of(fields, day, api.clock.now()),
            (Some(api), Some(lasts), Some(_)) => {
                Some(lasts.days().map(|days| api.clock.now().plus_ms(days * DAY_MS)))
            }
            _ => None,
        };
        let body = CreateApiKey::read(fields);
        Some(Self { expires_at: expires_at?, body: body? })
    }
}

/// Returns the end of the last day of a key.
fn end_of(fields: &mut Fields<'_, Api>, day: Option<DayField>, now: Time) -> Option<Option<Time>> {
    let Some(DayField(day)) = day else {
        return fields.problem("last_day", "required", "`last_day` is required for a custom date.");
    };
    let end = day.plus(1).start();
    if end <= now {
        return fields.problem("last_day", "in_the_past", "`last_day` can't be in the past.");
    }
    Some(Some(end))
}

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    models: Vec<Choice>,
    new_id: String,
}

/// Show the form for a new key.
pub async fn read(console: Console, visit: Visit<ProjectScope>, _: NoInput) -> Result<Page, Error> {
    let form =
        FormView::new(LABELS).with_all("permissions", ["chat", "embeddings", "models"]).with("lasts", "90");
    let new_id = new_ids::seal(&console.keys, &visit.scope)?;
    let shell = Shell::read(&console, &visit.person).await?;
    show(&console, shell, form, new_id)
}

/// Create a key, and show its secret.
///
/// The form contains the sealed id of the key, so that submitting the form several times creates only one
/// key.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<NewKey>,
) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let Some(id) = new_ids::open(&console.keys, &visit.scope, form.sent(NEW_ID)) else {
        let sentence = "The form expired or belongs to another user. Check your input and submit it again.";
        let error = Error::new(Code::InvalidRequest).message(sentence);
        let new_id = new_ids::seal(&console.keys, &visit.scope)?;
        return show(&console, shell, FormView::refused(LABELS, &form, error)?, new_id);
    };
    let created = async {
        let NewKey { body, expires_at } = form.take()?;
        let new = New { id: Some(id), expires_at, ..body.into() };
        Ok::<_, Error>(keys::api_keys::create(&console.keys, &visit.scope, new).await?.commit().await?)
    };
    match created.await {
        Ok(created) => {
            let new = NewSecret { secret: &created.secret, previous_ends_at: None, is_rotation: false };
            secret::show(&console, shell, &created.api_key, &new)
        }
        Err(error) if error.code == Code::PreconditionFailed => {
            let title = "This key already exists";
            let words = "This form was already submitted. The key's secret was shown only once, after the first \
                         submission. To get a new secret, rotate the key.";
            secret::show_made_before(shell, id, (title, words))
        }
        Err(error) => {
            let new_id = form.sent(NEW_ID).to_owned();
            show(&console, shell, FormView::refused(LABELS, &form, error)?, new_id)
        }
    }
}

fn show(console: &Console, shell: Shell, form: FormView, new_id: String) -> Result<Page, Error> {
    let page = NewPage { shell, form, models: options::models(console, []), new_id };
    Page::with_form(&page.form, &page)
}
