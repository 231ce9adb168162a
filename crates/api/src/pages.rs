//! The pages behind links in e-mails: server-rendered HTML without scripts.
//!
//! The templates in `templates/` escape every value. Mail scanners open the links in e-mails, so a GET only
//! shows a form, and a POST uses up the token.

#![allow(
    clippy::let_underscore_must_use,
    reason = "code that askama generates for enums contains such a `let`"
)]

pub mod change_email;
pub mod docs;
pub mod invitations;
pub mod reset_password;
pub mod verify_email;

use std::sync::LazyLock;

use askama::Template;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use schemars::SchemaGenerator;

use crate::Api;
use input::record;
use input::types::Text;
use kernel::error::{Code, Detail, Error};
use kernel::ids::RequestId;
use kernel::secrets::sha256;
use kernel::secrets::token::MailToken;
use web::reply::{self, Body, Reply};

const STYLE: &str = include_str!("pages/style.css");

/// The content security policy: nothing may be loaded, run or framed. The hash of the inline style allows it
/// (CSP level 3, section 2.3.1).
static CONTENT_SECURITY_POLICY: LazyLock<Option<HeaderValue>> =
    LazyLock::new(|| content_security_policy(STYLE));

/// Returns the content security policy of pages with this style.
fn content_security_policy(style: &str) -> Option<HeaderValue> {
    let hash = STANDARD.encode(sha256(style.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::from_str(&policy).ok()
}

record! {
    /// The query parameters of a link in an e-mail.
    #[derive(Debug)]
    pub struct Link in Api {
        /// The token from the link in the e-mail.
        token: Option<Text<512>> = optional,
    }
}

impl Link {
    /// Returns the token, if it is well-formed. Whether it exists isn't checked.
    fn token(&self) -> Option<&str> {
        let token = self.token.as_ref()?.0.trim();
        MailToken::parse(token).map(|_| token)
    }
}

/// An HTML page, with an error code if it reports an error.
#[derive(Debug)]
pub struct Page {
    code: Option<Code>,
    html: String,
}

/// The mistakes in a form.
#[derive(Default)]
struct FormProblems(Vec<FormProblem>);

/// A mistake in a form: the field and a sentence.
struct FormProblem {
    field: String,
    sentence: String,
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    title: &'a str,
    words: &'a str,
    request_id: RequestId,
}

impl FormProblems {
    /// Rephrases the API's messages about fields with the labels of the form.
    fn new(details: &[Detail], labels: &[(&str, &str)]) -> Self {
        let problem = |detail: &Detail| {
            let sentence = match detail.code {
                "does_not_match" => "The passwords don’t match.".to_owned(),
                "password_unchanged" => "The new password must be different from the current one.".to_owned(),
                _ => labels.iter().fold(detail.message.clone(), |words, (field, label)| {
                    words.replace(&format!("`{field}`"), label)
                }),
            };
            FormProblem { field: detail.param.clone(), sentence }
        };
        Self(details.iter().map(problem).collect())
    }

    /// Returns the problem of a wrong password.
    fn wrong_password() -> Self {
        let sentence = "The password is incorrect.".to_owned();
        Self(vec![FormProblem { field: "password".to_owned(), sentence }])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn iter(&self) -> std::slice::Iter<'_, FormProblem> {
        self.0.iter()
    }

    /// Returns `true` if one of the problems concerns this field.
    fn concern(&self, field: &str) -> bool {
        self.0.iter().any(|problem| problem.field == field)
    }
}

impl Page {
    /// Renders a page.
    fn new(template: &impl Template) -> Result<Self, Error> {
        Ok(Self { code: None, html: template.render().map_err(Error::internal)? })
    }

    /// Renders a page that reports this error, with its status.
    fn error(code: Code, template: &impl Template) -> Result<Self, Error> {
        Ok(Self { code: Some(code), ..Self::new(template)? })
    }

    fn response(self) -> Response<Body> {
        let mut response = Response::new(reply::whole(self.html));
        if let Some(code) = self.code {
            *response.status_mut() = code.status();
            response.extensions_mut().insert(code);
        }
        page_headers(response.headers_mut(), CONTENT_SECURITY_POLICY.as_ref());
        response
    }
}

impl Reply for Page {
    fn into_response(self) -> Result<Response<Body>, Error> {
        Ok(self.response())
    }

    fn content_type() -> &'static str {
        "text/html"
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}

fn page_headers(headers: &mut HeaderMap, policy: Option<&HeaderValue>) {
    // Without a policy for the style, browsers refuse the style. An unstyled page is still safe.
    let policy =
        policy.cloned().unwrap_or_else(|| HeaderValue::from_static("default-src 'none'; form-action 'self'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        // The page's URL contains the token.
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns an error as a page: a title, an instruction, and the id of the request in the log.
pub fn error_response(error: &Error, request_id: RequestId) -> Response<Body> {
    let again = "If you followed a link in an e-mail, open it again. If the link spans several lines, copy all of it.";
    let status = error.code.status();
    let (title, words) = match status {
        StatusCode::NOT_FOUND => ("Page not found", again.to_owned()),
        StatusCode::METHOD_NOT_ALLOWED => (
            "This action isn’t supported",
            "If you followed a link in an e-mail, open it again, and use the button on the page.".to_owned(),
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (
            "The input is too long",
            "The form was sent with too much data. Open the link in your e-mail again, and enter less."
                .to_owned(),
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Please wait a moment", format!("You made too many attempts. {}", wait(error)))
        }
        status if status.is_client_error() => ("Invalid request", again.to_owned()),
        _ => (
            "Something went wrong",
            "The error is on our side. Wait a moment, then go back and try again.".to_owned(),
        ),
    };
    let page = ErrorPage { title, words: &words, request_id };
    // An error that can't be rendered still has its status.
    let html = page.render().unwrap_or_default();
    let mut response = Page { code: Some(error.code), html }.response();
    reply::error_headers(error, response.headers_mut());
    response
}

/// Returns a sentence with the time to wait, in seconds or minutes.
fn wait(error: &Error) -> String {
    let seconds =
        error.rate_limit.map_or(1, |limit| limit.retry_after_ms.saturating_add(999).div_euclid(1000));
    let time = match seconds {
        ..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.saturating_add(59).div_euclid(60)),
    };
    format!("Wait {time}, then go back and try again.")
}

/// Returns `true` if the link is incomplete, unknown, used or expired.
fn is_dead_link(error: &Error) -> bool {
    error.code == Code::InvalidToken || error.details.iter().any(|detail| detail.param == "token")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::error::RateLimit;
    use tenants::invitations::LinkOutcome;

    #[test]
    fn waits_are_written_in_words() {
        let words = |ms| {
            let limit = RateLimit { limit: 1, retry_after_ms: ms, reset_ms: ms };
            wait(&Error { rate_limit: Some(limit), ..Error::new(Code::TooManyAttempts) })
        };
        assert_eq!(words(1), "Wait a second, then go back and try again.");
        assert_eq!(words(41_001), "Wait 42 seconds, then go back and try again.");
        assert_eq!(words(840_001), "Wait 15 minutes, then go back and try again.");
        assert!(wait(&Error::new(Code::PasswordQueueFull)).contains("a second"));
    }

    #[test]
    fn all_text_is_escaped() {
        let evil = "<script>'\"&</script>";
        let detail = Detail { param: evil.to_owned(), code: "invalid_characters", message: evil.to_owned() };
        let problems = || FormProblems::new(std::slice::from_ref(&detail), &[]);
        let lines = [evil.to_owned()];
        let form = reset_password::ResetPage::Form { token: Some(evil), problems: problems() };
        let forms = verify_email::VerifyPage::Forms { token: evil, problems: problems() };
        let confirmed = verify_email::VerifyPage::Confirmed {
            email: evil,
            new_password: Some(&lines),
            has_console: true,
        };
        let change = change_email::ChangePage::Form { token: Some(evil), problems: problems() };
        let changed = change_email::ChangePage::Changed { email: evil, has_console: true };
        let joined = invitations::accept::AcceptPage::Followed {
            outcome: LinkOutcome::Joined(evil.to_owned()),
            has_console: true,
        };
        for (page, times) in [
            (Page::new(&form), 3),
            (Page::new(&forms), 4),
            (Page::new(&change), 3),
            (Page::new(&changed), 1),
            (Page::new(&confirmed), 2),
            (Page::new(&joined), 1),
        ] {
            let html = page.unwrap().html;
            assert!(!html.contains("<script"), "{html}");
            let escaped = "&#60;script&#62;&#39;&#34;&#38;&#60;/script&#62;";
            assert_eq!(html.matches(escaped).count(), times, "{html}");
        }
    }
}
