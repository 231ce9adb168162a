//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/playground: a model call with
//! the user's own role. It is reserved and charged like any other call.

mod answer;
mod call;
pub mod stream;

use std::sync::Arc;

use api::gate::Visit;
use askama::Template;
use catalog::{Kind, Model};
use kernel::error::{Code, Error};
use tenants::access::ProjectScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::page::Page;
use crate::samples::{self, ChatCall, Samples};
use crate::shell::Shell;
use answer::{Answer, Figures};
use call::Prompt;

const LABELS: Labels = &[
    ("model", "Model"),
    ("instructions", "System prompt"),
    ("message", "Message"),
    ("max_tokens", "Max output tokens"),
    ("temperature", "Temperature"),
];

#[derive(Template)]
#[template(path = "organizations/projects/playground.html")]
struct PlaygroundPage {
    shell: Shell,
    form: FormView,
    /// The ids of the models that can be chosen, with their labels.
    models: Vec<(String, String)>,
    answer: Option<Answer>,
}

impl PlaygroundPage {
    /// Returns the answer's text, or an empty string.
    fn text(&self) -> &str {
        self.answer.as_ref().map_or("", |answer| &answer.text)
    }

    /// Returns a remark about the answer.
    fn remark(&self) -> Option<&str> {
        self.answer.as_ref()?.remark.as_deref()
    }

    /// Returns the figures of the call; dashes before it is answered.
    fn figures(&self) -> Figures {
        self.answer.as_ref().map_or_else(Figures::unknown, |answer| answer.figures.clone())
    }

    /// Returns the code samples of the call.
    fn samples(&self) -> Samples {
        let empty = || Samples { curl: String::new(), python: String::new() };
        self.answer.as_ref().map_or_else(empty, |answer| answer.samples.clone())
    }
}

/// Show the playground.
pub async fn read(console: Console, visit: Visit<ProjectScope>, _: NoInput) -> Result<Page, Error> {
    let project = tenants::projects::read(&console.tenants, &visit.scope).await?.project;
    let text = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
    let form = FormView::new(LABELS)
        .with("model", project.model.unwrap_or_default())
        .with("max_tokens", text(project.max_tokens))
        .with("temperature", project.temperature.map(|number| number.to_string()).unwrap_or_default());
    let shell = Shell::read(&console, &visit.person).await?;
    show(&console, shell, form, None)
}

/// Call a model, and show the whole answer.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<Prompt>,
) -> Result<Page, Error> {
    // Read this first, because an error after the call would lose an answer that was charged.
    let shell = Shell::read(&console, &visit.person).await?;
    let mut view = filled(&form);
    let answered = match form.take() {
        Ok(prompt) => call::whole(&console, &visit, &prompt.into_call()).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(answer) => show(&console, shell, view, Some(answer)),
        Err(error) => {
            if !is_shown_with_form(&error) {
                return Err(error);
            }
            view = FormView::with_mistakes(LABELS, &form, &error);
            show(&console, shell, view, None)
        }
    }
}

/// Returns the form as it was sent.
fn filled(form: &ObjectForm<Prompt>) -> FormView {
    let sent = form.pairs().iter();
    sent.fold(FormView::new(LABELS), |view, (name, value)| view.with(name, value))
}

/// Returns `true` if the user can try again with the same form.
fn is_shown_with_form(error: &Error) -> bool {
    !matches!(
        error.code,
        Code::InvalidAccessToken
            | Code::InsufficientRole
            | Code::ProjectNotFound
            | Code::OrganizationNotFound
    )
}

fn show(console: &Console, shell: Shell, form: FormView, answer: Option<Answer>) -> Result<Page, Error> {
    let page = PlaygroundPage { shell, form, models: usable_models(console), answer };
    Page::with_form(&page.form, &page)
}

/// Returns the chat models that can be called now.
fn usable_models(console: &Console) -> Vec<(String, String)> {
    let catalog = Arc::clone(&console.catalog.now());
    let now = console.clock.now();
    let is_usable = |model: &&Arc<Model>| {
        model.kind == Kind::Chat && model.price_at(now).is_some() && !model.routes.is_empty()
    };
    catalog.models().filter(is_usable).map(|model| (model.id.clone(), model.id.clone())).collect()
}

/// Returns the code samples of a call, for a program with an API key.
fn as_code(console: &Console, call: &ChatCall) -> Result<Samples, Error> {
    samples::of_chat(&console.public_url, call)
}
