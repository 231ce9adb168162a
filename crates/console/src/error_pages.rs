//! Errors as pages, and the headers of every page.

use std::pin::Pin;
use std::sync::Arc;

use askama::Template;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use api::Api;
use api::gate::{Call, SignedIn, Target};
use kernel::error::{Code, Error};
use tenants::access::SignedInBy;
use web::forms::read_pairs;
use web::reply::{self, Body, Reply};
use web::route::Pages;

use crate::console::Console;
use crate::form_view::is_secret;
use crate::links;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

/// The error pages and headers of the console's routes.
pub const PAGES: Pages<Api> = Pages { error, headers };

type Answer<'a> = Pin<Box<dyn Future<Output = Response<Body>> + Send + 'a>>;

fn error<'a>(api: &'a Api, call: &'a mut Call, error: &'a Error) -> Answer<'a> {
    Box::pin(async move {
        let page = respond(api, call, error).await;
        let mut response = page.and_then(Reply::into_response).unwrap_or_else(|_| {
            // A page that can't be rendered still has its status.
            let mut response = Response::new(reply::whole(error.public_message().to_owned()));
            *response.status_mut() = error.code.status();
            response
        });
        add_error_headers(error, response.headers_mut());
        response
    })
}

/// Adds those headers of an error that also apply to browsers.
fn add_error_headers(error: &Error, headers: &mut HeaderMap) {
    let mut all = HeaderMap::new();
    reply::error_headers(error, &mut all);
    for name in [header::RETRY_AFTER, header::CONNECTION, header::ACCEPT_ENCODING] {
        if let Some(value) = all.remove(&name) {
            headers.insert(name, value);
        }
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    title: &'static str,
    /// The explanation of the error, and the next step.
    words: String,
    /// The form as it was filled in, so that it can be sent again.
    again: Option<Again>,
    /// The action to do first, in another tab: a link and its label.
    first: Option<(String, &'static str)>,
    /// The link to the parent page, and its label.
    up: (String, &'static str),
}

/// A form that can be sent again.
struct Again {
    action: String,
    fields: Vec<(String, String)>,
    /// `true` if the form had secrets, which aren't sent again.
    has_secrets: bool,
}

impl Again {
    /// Returns a sentence about the values that are kept.
    fn words(&self) -> &'static str {
        match (self.has_secrets, self.fields.is_empty()) {
            (true, _) => {
                " Your input is kept here, except passwords and codes. Enter those again and resend in a moment."
            }
            (false, true) => " Send it again in a moment. Nothing is created twice.",
            (false, false) => {
                " Your input is kept here. Send it again in a moment. Nothing is created twice."
            }
        }
    }
}

async fn respond(api: &Api, call: &mut Call, error: &Error) -> Result<Page, Error> {
    let console = Console::from(api.clone());
    let target = Target::of(call);
    let is_signed_out = error.code.status() == StatusCode::UNAUTHORIZED;
    // Without a first step, the second step of a sign-in has no input to keep.
    if is_signed_out && (call.is_read() || target.path == links::SECOND_STEP) {
        return Page::see_other(&console.link(&format!("/sign-in{}", next_of(&target))));
    }
    if error.code == Code::ReauthenticationRequired {
        return ask_again(api, &console, call, error).await;
    }
    if error.code == Code::SignOnRequired {
        return sign_on_page(&console, SignedIn::of(call), call.is_read()).await;
    }
    if error.code == Code::SecondFactorEnrolmentRequired {
        return enrolment_page(&console, SignedIn::of(call), &target).await;
    }
    let shell = match SignedIn::of(call) {
        // If the database is unavailable, the page has no navigation, because reading it would make users
        // wait again.
        Some(person) if error.code != Code::DatabaseUnavailable => Shell::read(&console, &person).await.ok(),
        _ => None,
    };
    let shell = shell.unwrap_or_else(|| Shell::without_person(&console, &target));
    let again = again(api, &console, call, error).await;
    let (title, mut words) = words(&console, &shell, error);
    if let (StatusCode::SERVICE_UNAVAILABLE, Some(again)) = (error.code.status(), &again) {
        words.push_str(again.words());
    }
    if error.code == Code::InsufficientRole {
        words.push_str(&who_can_help(&console, SignedIn::of(call), &shell).await);
    }
    let up = match error.code.status() {
        // Users stay signed in even if their session couldn't be checked.
        StatusCode::SERVICE_UNAVAILABLE if call.is_read() => (here(&console, &target), "Try again"),
        StatusCode::SERVICE_UNAVAILABLE => (shell.link("/organizations"), "Go to your organizations"),
        _ => way_up(&shell, error),
    };
    let first = is_signed_out.then(|| (shell.link("/sign-in"), "Sign in"));
    Page::error(error.code, &ErrorPage { shell, title, words, again, first, up })
}

/// Asks a user to confirm their identity. The input of a form is kept for pages of the installation. Other
/// forms that need a confirmation have only a button.
async fn ask_again(api: &Api, console: &Console, call: &mut Call, error: &Error) -> Result<Page, Error> {
    let target = Target::of(call);
    let link = console.link(&format!("/reauthenticate{}", next_once_fresh(call, &target)));
    let is_form = target.path.starts_with("/console/installation/");
    let again = if is_form { again(api, console, call, error).await } else { None };
    let (Some(again), Some(person)) = (again.filter(|again| !again.fields.is_empty()), SignedIn::of(call))
    else {
        return Page::see_other(&link);
    };
    let shell = Shell::read(console, &person).await?;
    let page = ErrorPage {
        up: way_up(&shell, error),
        shell,
        title: "Confirm that it’s you",
        words: "You last confirmed your identity too long ago. Confirm it in a new tab, then come back and send this \
                again. Your input is kept here."
            .to_owned(),
        again: Some(again),
        first: Some((link, "Confirm that it’s you")),
    };
    Page::error(error.code, &page)
}

#[derive(Template)]
#[template(path = "enrolment_required.html")]
struct EnrolmentPage {
    shell: Shell,
    /// The name of the organization that requires the second factor, if an organization does.
    organization: Option<String>,
}

/// Returns the page for a user who has to add a second factor first. It shows only the organization's name.
async fn enrolment_page(console: &Console, person: Option<SignedIn>, target: &Target) -> Result<Page, Error> {
    let person = person.ok_or(Code::MissingCredentials)?;
    let mut shell = Shell::read(console, &person).await?;
    let organization = shell.organization.take().map(|organization| organization.name);
    shell.project = None;
    if let Some(person) = &mut shell.person {
        person.is_operator = false;
    }
    let is_of_organization = target.path.starts_with("/console/organizations/");
    let page = EnrolmentPage { shell, organization: organization.filter(|_| is_of_organization) };
    Page::error(Code::SecondFactorEnrolmentRequired, &page)
}

#[derive(Template)]
#[template(path = "sign_on_required.html")]
struct SignOnPage {
    shell: Shell,
    organization: String,
    /// The provider's name.
    provider: String,
    /// The link that starts the sign-on.
    link: String,
}

/// Returns the page for a user who has to sign in with the organization's provider first. It shows only the
/// organization's name. After the sign-on, the browser returns to the requested page, or after a form to the
/// organization.
async fn sign_on_page(console: &Console, person: Option<SignedIn>, is_read: bool) -> Result<Page, Error> {
    let person = person.ok_or(Code::MissingCredentials)?;
    let mut shell = Shell::read(console, &person).await?;
    let organization = shell.organization.take().ok_or(Code::SignOnRequired)?;
    shell.project = None;
    let session = person.session();
    let signed_in_by = SignedInBy {
        connection_id: console.accounts.connection_of(session).await?,
        providers: Arc::clone(&console.accounts.providers),
    };
    let found = tenants::sign_ons::missing(&console.tenants, organization.id, session.user_id, &signed_in_by);
    let Some(provider) = found.await? else {
        // The sign-on is no longer required.
        return Page::see_other(&shell.link_to(&organization.id, ""));
    };
    let next = match is_read {
        true => next_of(person.target()),
        false => format!("?next=/console/organizations/{}", organization.id),
    };
    let link = shell.link(&format!("/sign-in/{}{next}", provider.settings.id));
    let (organization, provider) = (organization.name, provider.settings.name.clone());
    Page::error(Code::SignOnRequired, &SignOnPage { shell, organization, provider, link })
}

/// Returns the query with the page that sign-in returns to.
fn next_of(target: &Target) -> String {
    let place = links::same_page(&target.path, &target.query);
    match links::next(&place) {
        Some(place) if place.trim_end_matches('/') != "/console" => {
            format!("?next={}", links::query_value(place))
        }
        _ => String::new(),
    }
}

/// Returns the query with the page that the confirmation returns to. If a button made the change, this is the
/// page with the button: a page of the account or the installation, or the page that asks about the change,
/// which has the same path.
fn next_once_fresh(call: &Call, target: &Target) -> String {
    let is_no_page = !call.is_read() || links::begins(&target.path);
    let has_page = |parent: &str| is_no_page && target.path.starts_with(parent);
    for page in [
        "/console/account/connections",
        "/console/account/second-factor",
        "/console/installation/catalog",
        "/console/installation/mail",
    ] {
        if has_page(page) {
            return format!("?next={page}");
        }
    }
    next_of(target)
}

/// Returns the input, if sending it again may help.
async fn again(api: &Api, console: &Console, call: &mut Call, error: &Error) -> Option<Again> {
    let may_help = matches!(error.code, Code::ReauthenticationRequired | Code::ProcessorUnavailable)
        || matches!(
            error.code.status(),
            StatusCode::UNAUTHORIZED
                | StatusCode::CONFLICT
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
        );
    if call.method != Method::POST || !may_help {
        return None;
    }
    let sent = match call.form.take() {
        Some(sent) => sent,
        None => read_pairs(api, call).await.ok()?,
    };
    let (secrets, fields): (Vec<_>, _) = sent.into_iter().partition(|(name, _)| is_secret(name));
    Some(Again { action: here(console, &Target::of(call)), fields, has_secrets: !secrets.is_empty() })
}

/// Returns the link to the current page.
fn here(console: &Console, target: &Target) -> String {
    format!("{}{}", console.base(), links::same_page(&target.path, &target.query))
}

/// Returns the title and the text for an error.
fn words(console: &Console, shell: &Shell, error: &Error) -> (&'static str, String) {
    match error.code.status() {
        StatusCode::UNAUTHORIZED => (
            "You’re signed out",
            "Sign in in a new tab, then come back and send this again. Your input is kept here, except \
             passwords."
                .to_owned(),
        ),
        StatusCode::FORBIDDEN if error.code == Code::CrossOriginRequest => (
            "This came from another page",
            format!(
                "According to the browser, this request wasn't sent from a page of this console. Open {} and try \
                 again there.",
                console.public_url
            ),
        ),
        StatusCode::FORBIDDEN if error.code == Code::NoAccount => (
            "You don’t have an account",
            "If you have one, use another sign-in method, and connect this one on your account page. Otherwise, ask \
             someone in your organization for an invitation, or sign up with your e-mail address."
                .to_owned(),
        ),
        StatusCode::FORBIDDEN => ("Access denied", forbidden(shell, error)),
        StatusCode::NOT_FOUND => {
            ("Page not found", "It may have been deleted, or the address is incomplete.".to_owned())
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            ("This action isn’t supported", "Go back and use the buttons on the page.".to_owned())
        }
        StatusCode::CONFLICT => ("This conflicts with the current state", error.public_message().to_owned()),
        StatusCode::PRECONDITION_FAILED => (
            "This was changed by someone else",
            "It was changed after you opened the page. Review the current version, then try again.".to_owned(),
        ),
        StatusCode::PAYLOAD_TOO_LARGE => ("The input is too long", error.public_message().to_owned()),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Please wait a moment", format!("You sent too many requests. {}", show::wait(error)))
        }
        StatusCode::SERVICE_UNAVAILABLE
            if matches!(error.code, Code::StorageFull | Code::StorageReadOnly) =>
        {
            ("Can’t save right now", error.public_message().to_owned())
        }
        _ if matches!(error.code, Code::SignOnExpired | Code::SignOnFailed | Code::ProviderUnavailable) => {
            ("Sign-in failed", error.public_message().to_owned())
        }
        _ if error.code == Code::ProcessorUnavailable => {
            ("Payment failed", error.public_message().to_owned())
        }
        StatusCode::SERVICE_UNAVAILABLE => (
            "Try again in a moment",
            "The server can't reach its database or is overloaded.".to_owned(),
        ),
        status if status.is_client_error() => ("Invalid request", error.public_message().to_owned()),
        _ => ("Something went wrong", "The error is on our side. Go back and try again.".to_owned()),
    }
}

fn forbidden(shell: &Shell, error: &Error) -> String {
    match &shell.organization {
        Some(organization) if error.code == Code::InsufficientRole => format!(
            "Your role in {} is {}, which doesn't allow this.",
            organization.name,
            organization.role.as_str()
        ),
        _ => error.public_message().to_owned(),
    }
}

/// Returns a sentence about the owners who can give the user access, with their names if the user may see
/// them.
async fn who_can_help(console: &Console, person: Option<SignedIn>, shell: &Shell) -> String {
    let (Some(person), Some(organization)) = (person, &shell.organization) else {
        return String::new();
    };
    let owners = match person.caller() {
        Ok(caller) => tenants::navigation::owners(&console.tenants, &caller, organization.id).await,
        Err(error) => Err(error),
    };
    // If the database is unavailable, no owner is named.
    match owners.unwrap_or_default().as_slice() {
        [] => " An owner of the organization can change this.".to_owned(),
        [owner] => format!(" An owner of the organization can change this: {owner}."),
        owners => {
            format!(" Owners of the organization can change this, for example {}.", owners.join(", "))
        }
    }
}

/// Returns the link to the parent page of a page with an error, and its label.
fn way_up(shell: &Shell, error: &Error) -> (String, &'static str) {
    let is_missing = error.code.status() == StatusCode::NOT_FOUND;
    match (&shell.person, &shell.project, &shell.organization) {
        (None, ..) => (shell.link("/sign-in"), "Sign in"),
        (Some(_), Some(_), _) if !is_missing => (shell.project_link(""), "Go to the project"),
        (Some(_), _, Some(_)) => (shell.organization_link(""), "Go to the organization"),
        _ => (shell.link("/organizations"), "Go to your organizations"),
    }
}

/// The content security policy: no external content, no scripts but ours, and no embedding.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
const PERMISSIONS: &str = "camera=(), microphone=(), geolocation=(), publickey-credentials-get=(self), \
                           publickey-credentials-create=(self)";

const FIXED_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    // Not `no-referrer`: browsers would send `Origin: null` with forms.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// Adds the headers of every response of the console (docs/contract/console.md#headers).
fn headers(api: &Api, headers: &mut HeaderMap) {
    for (name, value) in FIXED_HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if api.console.hsts && api.public_url.starts_with("https://") {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
}
