//! The pages behind mail links: server-rendered HTML without scripts.
//!
//! Only this file writes HTML. Handlers pass plain text, and every text is escaped here. Mail scanners open
//! the links in mails, so a GET only shows a form, and the token is used up by a POST.

pub mod invitations;
pub mod reset_password;
pub mod verify_email;

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use schemars::SchemaGenerator;

use crate::Api;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::html::escape;
use kernel::ids::RequestId;
use kernel::secrets::sha256;
use kernel::secrets::token::MailToken;
use web::reply::{self, Body, Reply};

const STYLE: &str = include_str!("pages/style.css");

/// The content security policy: nothing may be loaded, run or framed; the inline style is allowed by its hash
/// (CSP level 3, section 2.3.1).
static CONTENT_SECURITY_POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let hash = STANDARD.encode(sha256(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::from_str(&policy).ok()
});

record! {
    /// The query parameters of a mail link.
    #[derive(Debug)]
    pub struct Link in Api {
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

/// A page, built from plain text.
#[derive(Debug)]
pub struct Page {
    title: &'static str,
    class: &'static str,
    code: Option<Code>,
    body: String,
}

/// A field of a form.
#[derive(Clone, Copy)]
enum Input<'a> {
    /// The token of the link, in a hidden field.
    HiddenToken(&'a str),
    /// A field for the token, to be copied from the mail.
    Token,
    /// A new password or its repetition; always rendered empty.
    Password { name: &'static str, label: &'static str, hint: Option<&'static str>, wrong: bool },
    /// The account's password, which the browser may fill in.
    CurrentPassword { wrong: bool },
}

/// A mistake in a form: the field and a sentence.
struct FormProblem {
    field: String,
    sentence: String,
}

impl Page {
    /// Returns a page with a question.
    fn new(title: &'static str) -> Self {
        Self { title, class: "", code: None, body: String::new() }
    }

    /// Returns a page that reports success.
    fn success(title: &'static str) -> Self {
        Self { class: "good", ..Self::new(title) }
    }

    /// Returns a page that reports this error, with its status.
    fn error(title: &'static str, code: Code) -> Self {
        Self { class: "bad", code: Some(code), ..Self::new(title) }
    }

    /// Adds a paragraph.
    fn text(mut self, words: &str) -> Self {
        self.body.push_str(&format!("<p>{}</p>\n", escape(words)));
        self
    }

    /// Adds a heading.
    fn heading(mut self, words: &str) -> Self {
        self.body.push_str(&format!("<h2>{}</h2>\n", escape(words)));
        self
    }

    /// Adds a list, unless it would be empty.
    fn list(mut self, lines: &[String]) -> Self {
        if !lines.is_empty() {
            let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
            self.body.push_str(&format!("<ul>\n{items}</ul>\n"));
        }
        self
    }

    /// Adds the organizations of an account whose owner may not have joined them; nothing if there are none.
    fn organizations(self, lines: &[String]) -> Self {
        if lines.is_empty() {
            return self;
        }
        self.text(
            "Whoever used the account before was logged out, and the API keys and invitations that came from it have \
             ended. It still belongs to these organizations:",
        )
        .list(lines)
        .text("Leave or delete those that you do not know.")
    }

    /// Adds the list of mistakes, each with a link to its field. It takes the focus, so that it is read
    /// first.
    fn problems(mut self, problems: &[FormProblem]) -> Self {
        self.body.push_str(
            "<div role=\"alert\" tabindex=\"-1\" autofocus aria-labelledby=\"problems-title\">\n\
             <h2 id=\"problems-title\">Please correct this</h2>\n<ul id=\"problems\">\n",
        );
        for problem in problems {
            let (field, sentence) = (escape(&problem.field), escape(&problem.sentence));
            self.body.push_str(&format!("<li><a href=\"#{field}\">{sentence}</a></li>\n"));
        }
        self.body.push_str("</ul>\n</div>\n");
        self
    }

    /// Adds a form. Its action is a relative path: behind a proxy the pages may have a prefix unknown to us.
    fn form(mut self, action: &'static str, inputs: &[Input<'_>], button: &'static str) -> Self {
        self.body.push_str(&format!("<form method=\"post\" action=\"{}\">\n", escape(action)));
        for input in inputs {
            self.body.push_str(&input.html());
        }
        self.body.push_str(&format!("<button type=\"submit\">{}</button>\n</form>\n", escape(button)));
        self
    }

    fn status(&self) -> StatusCode {
        self.code.map_or(StatusCode::OK, Code::status)
    }

    fn html(&self) -> String {
        let title = escape(self.title);
        let prefix = if self.code.is_some() { "Error: " } else { "" };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>{prefix}{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<main class=\"{}\">\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            self.class, self.body
        )
    }

    fn response(&self) -> Response<Body> {
        let mut response = Response::new(reply::whole(self.html()));
        *response.status_mut() = self.status();
        if let Some(code) = self.code {
            response.extensions_mut().insert(code);
        }
        page_headers(response.headers_mut());
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

impl Input<'_> {
    fn html(self) -> String {
        match self {
            Self::HiddenToken(token) => {
                format!("<input type=\"hidden\" name=\"token\" value=\"{}\">\n", escape(token))
            }
            Self::Token => "<label for=\"token\">Token from the mail</label>\n\
                 <input id=\"token\" name=\"token\" required autocomplete=\"off\" autocapitalize=\"none\" spellcheck=\"false\">\n"
                .to_owned(),
            Self::CurrentPassword { wrong } => password(("password", "Password of the account"), None, wrong, "current-password"),
            Self::Password { name, label, hint, wrong } => password((name, label), hint, wrong, "new-password"),
        }
    }
}

/// Returns a password field.
fn password((name, label): (&str, &str), hint: Option<&str>, wrong: bool, autocomplete: &str) -> String {
    let (name, label) = (escape(name), escape(label));
    let hint_id = hint.map(|_| format!("{name}-hint")).unwrap_or_default();
    let hint = hint
        .map_or(String::new(), |hint| format!("<p class=\"soft\" id=\"{hint_id}\">{}</p>\n", escape(hint)));
    let invalid = if wrong { " aria-invalid=\"true\"" } else { "" };
    let described = format!("{hint_id}{}", if wrong { " problems" } else { "" });
    let described = match described.trim() {
        "" => String::new(),
        ids => format!(" aria-describedby=\"{ids}\""),
    };
    format!(
        "<label for=\"{name}\">{label}</label>\n{hint}<input id=\"{name}\" name=\"{name}\" type=\"password\" \
                     required autocomplete=\"{autocomplete}\"{described}{invalid}>\n"
    )
}

fn page_headers(headers: &mut HeaderMap) {
    // If its hash can't be written the style is refused; an unstyled page is still safe.
    let policy = CONTENT_SECURITY_POLICY
        .clone()
        .unwrap_or_else(|| HeaderValue::from_static("default-src 'none'; form-action 'self'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        // The token is in the page's address.
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns an error as a page: what happened, what to do, and the request's id for the log.
pub fn error_response(error: &Error, request_id: RequestId) -> Response<Body> {
    let again = "Open the link in your mail again. If it is split over two lines, copy all of it.";
    let status = error.code.status();
    let (title, words) = match status {
        StatusCode::NOT_FOUND => ("There is no such page", again.to_owned()),
        StatusCode::METHOD_NOT_ALLOWED => (
            "That does not work here",
            "Open the link in your mail again, and use the button on the page.".to_owned(),
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (
            "That was too long",
            "More was sent than fits the form. Open the link in your mail again, and fill in less."
                .to_owned(),
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Please wait a moment", format!("There were too many attempts. {}", wait(error)))
        }
        status if status.is_client_error() => ("That could not be read", again.to_owned()),
        _ => (
            "Something went wrong",
            "It was not your fault. Wait a moment, then go back and try again.".to_owned(),
        ),
    };
    let mut page = Page::error(title, error.code).text(&words);
    page.body.push_str(&format!(
        "<p class=\"soft\">If this keeps happening, tell whoever runs the service this id: {request_id}</p>\n"
    ));
    let mut response = page.response();
    reply::error_headers(error, response.headers_mut());
    response
}

/// Returns how long to wait, in seconds or minutes.
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
        let problem = FormProblem { field: evil.into(), sentence: evil.into() };
        let page = Page::new("x").text(evil).problems(&[problem]).form(
            "verify-email",
            &[Input::HiddenToken(evil)],
            "go",
        );
        let html = page.html();
        assert!(!html.contains("<script"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;&#x27;&quot;&amp;&lt;/script&gt;").count(), 4);
    }
}
