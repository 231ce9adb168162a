//! The words of each mail.
//!
//! What users chose, such as names, is escaped for HTML and kept on one line. Lines of the text part stay short, and
//! the token also stands alone on one of them, for whoever can't click the link.

use super::{Message, one_line};

/// Asks the owner of an address to confirm it.
pub fn verify_email(to: &str, public_url: &str, token: &str, username: &str) -> Message {
    let link = format!("{}/verify-email?token={token}", public_url.trim_end_matches('/'));
    let username = one_line(username);
    let text = format!(
        "Hello {username},\n\
         \n\
         please confirm that this is your e-mail address by opening this link\n\
         within 24 hours:\n\
         \n\
         {link}\n\
         \n\
         Or enter this token:\n\
         \n\
         {token}\n\
         \n\
         If you did not create an account, you can ignore this mail.\n"
    );
    let html = format!(
        "<!doctype html>\n\
         <html><body>\n\
         <p>Hello {name},</p>\n\
         <p>please confirm that this is your e-mail address within 24 hours:</p>\n\
         <p><a href=\"{href}\">Confirm my address</a></p>\n\
         <p>Or enter this token: <code>{code}</code></p>\n\
         <p>If you did not create an account, you can ignore this mail.</p>\n\
         </body></html>\n",
        name = escape(&username),
        href = escape(&link),
        code = escape(token),
    );
    Message {
        to: to.to_owned(),
        subject: "Confirm your e-mail address".to_owned(),
        text,
        html,
        link: Some(link),
    }
}

/// Text for HTML content and quoted attributes (OWASP Cross Site Scripting Prevention Cheat Sheet, rule 1 and 2).
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#x27;"),
            other => escaped.push(other),
        }
    }
    escaped
}
