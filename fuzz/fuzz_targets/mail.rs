//! Checks that an e-mail with any name, link or text has exactly our headers, two parts with our texts, and
//! only our tags in its HTML. An independent parser can read it.

#![cfg_attr(feature = "engine", no_main)]

use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use fuzz::fuzz_target;
use fuzz::{folder, now};
use mail_parser::{MessageParser, MimeHeaders};
use tokio::runtime::Runtime;
use tollkeeper::mail::store::outbox::{About, Template};
use tollkeeper::mail::templates::Letter;
use tollkeeper::mail::{Mailer, Message};
use tollkeeper::random::Random;

const HEADERS: [&str; 8] =
    ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"];
const TAGS: [&str; 11] = [
    "<!doctype html>",
    "<html>",
    "<body>",
    "</body>",
    "</html>",
    "<p>",
    "</p>",
    "</a>",
    "<code>",
    "</code>",
    "<a>",
];

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));
static NOTHING: LazyLock<About> = LazyLock::new(About::default);
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| folder().join("mail"));

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Verify {
        to: &'a str,
        url: &'a str,
        token: &'a str,
        username: &'a str,
    },
    Reset {
        to: &'a str,
        url: &'a str,
        token: &'a str,
        username: &'a str,
    },
    Changed {
        to: &'a str,
        url: &'a str,
        username: &'a str,
        organization: &'a str,
    },
    /// Values that a future template could contain.
    Any {
        to: &'a str,
        subject: &'a str,
        text: &'a str,
        html: &'a str,
    },
}

fuzz_target!(|input: Input| {
    let message = match input {
        Input::Verify { to, url, token, username } => {
            let letter = letter(Template::VerifyEmail, to, url, username);
            checked(Letter { token: Some(token), ..letter })
        }
        Input::Reset { to, url, token, username } => {
            let letter = letter(Template::ResetPassword, to, url, username);
            checked(Letter { token: Some(token), ..letter })
        }
        Input::Changed { to, url, username, organization } => {
            let about = About { belongs_to: vec![organization.to_owned()], ..About::default() };
            checked(Letter { about: &about, ..letter(Template::PasswordChanged, to, url, username) })
        }
        Input::Any { to, subject, text, html } => Message {
            to: to.to_owned(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            html: html.to_owned(),
            link: None,
        },
    };
    deliver(&message);
    // Most texts aren't valid addresses. The rest of the e-mail is checked with a valid address too.
    deliver(&Message { to: "ada@example.com".to_owned(), ..message });
});

fn letter<'a>(template: Template, to: &'a str, public_url: &'a str, username: &'a str) -> Letter<'a> {
    Letter { template, to, username, public_url, token: None, about: &NOTHING, failures: 0, at: now() }
}

/// Creates the e-mail, and asserts that its tags don't depend on the inserted values.
fn checked(letter: Letter<'_>) -> Message {
    let about = About { belongs_to: vec![String::new(); letter.about.belongs_to.len()], ..About::default() };
    let plain = Letter { token: letter.token.map(|_| ""), about: &about, ..letter };
    let plain = Letter { public_url: "", username: "", ..plain }.write().expect("a mail");
    let message = letter.write().expect("a mail");
    assert_eq!(tags(&message.html), tags(&plain.html), "{}", message.html);
    message
}

/// Returns the tags of our templates, without the URLs of links. Fails if anything else looks like a tag.
fn tags(html: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find(['<', '>']) {
        rest = &rest[at..];
        let end = rest.find('>').expect("a tag ends");
        let mut tag = rest[..=end].to_owned();
        if let Some(address) = tag.strip_prefix("<a href=\"").and_then(|tag| tag.strip_suffix("\">")) {
            assert!(!address.contains(['"', '\'', '<', '>']), "{html}");
            tag = "<a>".to_owned();
        }
        assert!(TAGS.contains(&tag.as_str()), "{tag} in {html}");
        tags.push(tag);
        rest = &rest[end + 1..];
    }
    tags
}

fn deliver(message: &Message) {
    let mailer = Mailer::Folder { dir: FOLDER.clone(), from: "Tollkeeper <no-reply@example.org>".to_owned() };
    let outcome = RUNTIME.block_on(mailer.deliver(message, now(), &Random::system()));
    let Err(error) = outcome else {
        return check(message);
    };
    assert!(error.is_permanent(), "{error}");
    assert_ne!(message.to, "ada@example.com", "{error}");
}

fn check(message: &Message) {
    let mut files: Vec<_> =
        std::fs::read_dir(&*FOLDER).expect("the folder").map(|entry| entry.expect("a file").path()).collect();
    let file = files.pop().expect("the mail");
    assert!(files.is_empty(), "more than one file");
    let mail = std::fs::read(&file).expect("the mail");
    std::fs::remove_file(&file).expect("the mail goes");
    let raw = String::from_utf8(mail.clone()).expect("UTF-8");
    lines(&raw);
    let parsed = MessageParser::default().parse(&mail).expect("a mail");
    let to = parsed.to().and_then(|to| to.first()).and_then(|to| to.address());
    assert_eq!(to, Some(message.to.as_str()), "{raw}");
    assert_eq!(parsed.to().map(|to| to.iter().count()), Some(1), "{raw}");
    assert!(parsed.cc().is_none() && parsed.bcc().is_none(), "{raw}");
    assert_eq!(parsed.parts.len(), 3, "{raw}");
    for (part, (kind, text)) in
        parsed.parts[1..].iter().zip([("plain", &message.text), ("html", &message.html)])
    {
        let content_type = part.content_type().expect("a content type");
        assert_eq!((content_type.ctype(), content_type.subtype()), ("text", Some(kind)), "{raw}");
        let found = part.text_contents().expect("a text");
        assert_eq!(normal(found), normal(text), "{raw}");
    }
}

/// Checks the lines of the e-mail without a parser.
fn lines(raw: &str) {
    assert!(!raw.contains('\0') && !raw.contains('\r'), "{raw:?}");
    assert!(raw.lines().all(|line| line.len() <= 998), "{raw}");
    let (head, _) = raw.split_once("\n\n").expect("an empty line");
    let mut due = HEADERS.to_vec();
    for line in head.lines().filter(|line| !line.starts_with([' ', '\t'])) {
        let name = line.split(':').next().unwrap_or_default();
        let at = due.iter().position(|due| *due == name);
        due.remove(at.unwrap_or_else(|| panic!("a header too many: {line:?} in {head}")));
    }
    assert!(due.is_empty(), "{due:?} are not in {head}");
}

/// Normalizes line breaks and removes empty lines at the end.
fn normal(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").trim_end_matches('\n').to_owned()
}
