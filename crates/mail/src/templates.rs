//! The text of each mail.
//!
//! Texts that users chose, such as names, are escaped for HTML, kept on one line, and written so that nothing
//! in them becomes a link. Lines of the text part stay short, and the token also stands alone on a line, for
//! readers who can't click the link.

use super::unlinked::{truncated, unlinked};
use super::{Message, one_line};
use crate::store::outbox::About;
use kernel::clock::Time;
use kernel::html::escape;

/// The mail that asks the owner of an address to confirm it.
pub fn verify_email(to: &str, public_url: &str, token: &str, username: &str) -> Message {
    Letter {
        subject: "Confirm your e-mail address",
        username,
        opening: "please confirm that this is your e-mail address. The link works for 24\nhours.",
        link: Some(Link {
            url: format!("{}/verify-email?token={token}", public_url.trim_end_matches('/')),
            words: "Confirm my address",
            token: Some(token),
        }),
        closing: "If you did not create an account, you can ignore this mail.",
    }
    .write(to)
}

/// The mail with a link for a new password.
pub fn reset_password(to: &str, public_url: &str, token: &str, username: &str) -> Message {
    Letter {
        subject: "Choose a new password",
        username,
        opening: "somebody, hopefully you, asked for a new password for your account. The\nlink works for one hour, once.",
        link: Some(Link {
            url: format!("{}/reset-password?token={token}", public_url.trim_end_matches('/')),
            words: "Choose a new password",
            token: Some(token),
        }),
        closing: "If it was not you, you can ignore this mail: your password stays as it is.",
    }
    .write(to)
}

/// The mail to the owner of an account about a new password. It lists the organizations that the account
/// belongs to, if another person may have added it.
pub fn password_changed(to: &str, public_url: &str, username: &str, about: &About) -> Message {
    let url = public_url.trim_end_matches('/');
    let subject = "Your password was changed";
    if about.belongs_to.is_empty() {
        return Letter {
            subject,
            username,
            opening: "the password of your account was just changed, and other devices were\nlogged out.",
            link: None,
            closing: &format!(
                "If it was not you, ask for a new password at once and tell whoever runs\n{url}."
            ),
        }
        .write(to);
    }
    Letter {
        subject,
        username,
        opening: "the password of your account was just changed, and your address is\nconfirmed. Whoever used the account \
                  before was logged out, and the API keys\nand invitations that came from it have ended.\n\nIt still \
                  belongs to these organizations:",
        link: None,
        closing: &format!(
            "Leave or delete those that you do not know. If it was not you who set the\npassword, ask for a new one at once \
             and tell whoever runs\n{url}."
        ),
    }
    .write_list(to, &about.belongs_to)
}

/// The contents of an invitation's mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvitationLetter {
    /// The organization's name.
    pub organization: String,
    /// The guest's role.
    pub role: String,
    /// The sender's username.
    pub invited_by: String,
    /// The sender's message.
    pub message: Option<String>,
}

/// The mail that invites a guest into an organization; a guest without an account isn't addressed by name.
pub fn invitation(
    to: &str,
    public_url: &str,
    token: &str,
    username: &str,
    letter: &InvitationLetter,
) -> Message {
    let (organization, by) = (sanitized(&letter.organization), sanitized(&letter.invited_by));
    Letter {
        subject: &format!("Invitation to {}", sanitized_for_subject(&letter.organization)),
        username,
        opening: &format!(
            "{by} invites you to {organization}.\nYour role there: {}. The link works for seven days, once.",
            letter.role
        ),
        link: Some(Link {
            url: format!("{}/invitations/accept?token={token}", public_url.trim_end_matches('/')),
            words: "Accept the invitation",
            token: Some(token),
        }),
        closing: "If you have no account yet, register with this address: the invitation is\naccepted when you \
                  confirm it. If you do not know what this is about, you\ncan ignore this mail.",
    }
    .write_with(to, letter.message.as_deref().filter(|words| !words.trim().is_empty()).map(|words| Quote { by: &by, words }))
}

/// The mail to a member of a deleted organization.
pub fn organization_deleted(to: &str, public_url: &str, username: &str, about: &About) -> Message {
    let organization = sanitized(about.organization.as_deref().unwrap_or_default());
    let by = sanitized(about.by.as_deref().unwrap_or_default());
    Letter {
        subject: &format!(
            "{} was deleted",
            sanitized_for_subject(about.organization.as_deref().unwrap_or_default())
        ),
        username,
        opening: &format!(
            "{by} has deleted the organization {organization}, with all its projects.\n\
             Its API keys no longer work."
        ),
        link: None,
        closing: &format!(
            "Your account stays. If this should not have happened, ask {by} or whoever\nruns {}.",
            public_url.trim_end_matches('/')
        ),
    }
    .write(to)
}

/// The mail to a person who was added to a project.
pub fn added_to_project(to: &str, public_url: &str, username: &str, about: &About) -> Message {
    let [project, organization, by, role] = [&about.project, &about.organization, &about.by, &about.role]
        .map(|text| sanitized(text.as_deref().unwrap_or_default()));
    Letter {
        subject: &format!("You were added to {}", sanitized_for_subject(about.project.as_deref().unwrap_or_default())),
        username,
        opening: &format!(
            "{by} has added you to the project {project}\nof the organization {organization}.\nYour role there: {role}."
        ),
        link: None,
        closing: &format!(
            "If you do not know what this is about, you can leave the project, or ask\n{by} or whoever runs {}.",
            public_url.trim_end_matches('/')
        ),
    }
    .write(to)
}

/// The mail to a member of a deleted project.
pub fn project_deleted(to: &str, public_url: &str, username: &str, about: &About) -> Message {
    let [project, organization, by] = [&about.project, &about.organization, &about.by]
        .map(|text| sanitized(text.as_deref().unwrap_or_default()));
    Letter {
        subject: &format!("{} was deleted", sanitized_for_subject(about.project.as_deref().unwrap_or_default())),
        username,
        opening: &format!(
            "{by} has deleted the project {project}\nof the organization {organization}.\nIts API keys no longer work."
        ),
        link: None,
        closing: &format!(
            "Your account stays. If this should not have happened, ask {by} or whoever\nruns {}.",
            public_url.trim_end_matches('/')
        ),
    }
    .write(to)
}

/// The most characters of a name in a subject line.
const MAX_SUBJECT_NAME: usize = 60;

/// Returns a text that a user chose on one line and without links.
fn sanitized(text: &str) -> String {
    unlinked(&one_line(text))
}

/// As [`sanitized`], for a name in a subject line, which stays short.
fn sanitized_for_subject(name: &str) -> String {
    unlinked(&truncated(&one_line(name), MAX_SUBJECT_NAME))
}

/// The mail to the owner of an account about failed logins within a day, the last one at `at`.
pub fn logins_refused(
    to: &str,
    service: &str,
    username: &str,
    about: &About,
    failures: i64,
    at: Time,
) -> Message {
    Letter {
        subject: "Failed logins to your account",
        username,
        opening: &format!(
            "within a day somebody has tried {failures} times to log in to your account with a\n             wrong password, the last time on {}\nfrom {}. Nobody got in by that.",
            minute(at),
            client(about)
        ),
        link: None,
        closing: &format!(
            "If it was you, there is nothing to do. If it was not, make sure that your\n             password is long and used nowhere else. You are told once a day at most.\nYour account is one of {}.",
            host(service)
        ),
    }
    .write(to)
}

/// The mail to the owner of an account about a login from a new network.
pub fn new_login(to: &str, service: &str, username: &str, about: &About, at: Time) -> Message {
    Letter {
        subject: "New login to your account",
        username,
        opening: &format!(
            "somebody has logged in to your account from a network that is new for it,\non {}\nfrom {}.",
            minute(at),
            client(about)
        ),
        link: None,
        closing: &format!(
            "If it was you, there is nothing to do. If it was not, ask for a new password\n             at once, which ends every session, and tell whoever runs {}.",
            host(service)
        ),
    }
    .write(to)
}

/// Formats a time to the minute: `2026-01-31 09:30 UTC`.
fn minute(at: Time) -> String {
    let text = at.to_string();
    let date_and_time = text.get(..16).unwrap_or(&text).replacen('T', " ", 1);
    format!("{date_and_time} UTC")
}

/// Returns the client's address, as text.
fn client(about: &About) -> String {
    about.address.as_deref().map_or_else(|| "an unknown address".to_owned(), one_line)
}

/// Returns a URL without its scheme, so that mail programs don't make a link of it.
fn host(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/')
}

/// The parts of every mail. Our own lines are short, so that plain text stays plain.
struct Letter<'a> {
    subject: &'a str,
    username: &'a str,
    opening: &'a str,
    link: Option<Link<'a>>,
    closing: &'a str,
}

struct Link<'a> {
    url: String,
    words: &'a str,
    token: Option<&'a str>,
}

/// A text by another user. Each line is marked, so that none can be taken for ours, or for the token.
struct Quote<'a> {
    by: &'a str,
    words: &'a str,
}

impl Quote<'_> {
    fn lines(&self) -> Vec<String> {
        self.words.lines().map(sanitized).collect()
    }
}

impl Letter<'_> {
    fn write(self, to: &str) -> Message {
        self.write_with(to, None)
    }

    fn write_with(self, to: &str, quote: Option<Quote<'_>>) -> Message {
        self.write_whole(to, &[], quote)
    }

    /// Writes the mail with a list of texts by other users, each marked and kept on one line.
    fn write_list(self, to: &str, lines: &[String]) -> Message {
        self.write_whole(to, lines, None)
    }

    fn write_whole(self, to: &str, list: &[String], quote: Option<Quote<'_>>) -> Message {
        let hello = format!("Hello {}", sanitized(self.username));
        let hello = hello.trim_end();
        let mut text = format!("{hello},\n\n{}\n", self.opening);
        let mut html = format!("<p>{},</p>\n<p>{}</p>\n", escape(hello), escape(self.opening));
        if !list.is_empty() {
            let lines: Vec<_> = list.iter().map(|line| sanitized(line)).collect();
            text.push_str(&format!("\n- {}\n", lines.join("\n- ")));
            let lines: Vec<_> = lines.iter().map(|line| escape(line)).collect();
            html.push_str(&format!("<ul>\n<li>{}</li>\n</ul>\n", lines.join("</li>\n<li>")));
        }
        if let Some(quote) = quote {
            let lines = quote.lines();
            text.push_str(&format!("\n{} writes:\n\n> {}\n", quote.by, lines.join("\n> ")));
            let lines: Vec<_> = lines.iter().map(|line| escape(line)).collect();
            html.push_str(&format!(
                "<p>{} writes:</p>\n<blockquote>{}</blockquote>\n",
                escape(quote.by),
                lines.join("<br>\n")
            ));
        }
        if let Some(link) = &self.link {
            text.push_str(&format!("\n{}\n", link.url));
            html.push_str(&format!("<p><a href=\"{}\">{}</a></p>\n", escape(&link.url), escape(link.words)));
            if let Some(token) = link.token {
                text.push_str(&format!("\nOr enter this token:\n\n{token}\n"));
                html.push_str(&format!("<p>Or enter this token: <code>{}</code></p>\n", escape(token)));
            }
        }
        text.push_str(&format!("\n{}\n", self.closing));
        html.push_str(&format!("<p>{}</p>\n", escape(self.closing)));
        Message {
            to: to.to_owned(),
            subject: self.subject.to_owned(),
            text,
            html: format!("<!doctype html>\n<html><body>\n{html}</body></html>\n"),
            link: self.link.map(|link| link.url),
        }
    }
}
