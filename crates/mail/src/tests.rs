//! Tests of e-mails in the folder.

use std::path::{Path, PathBuf};

use super::delivery::compose;
use super::*;
use crate::bounds::Counter;
use crate::store::outbox::{About, ReachedBudget, Template};
use crate::templates::Letter;
use strum::VariantArray;

const NOW: Time = Time::from_unix_ms(1_769_851_800_123);
const TOKEN: &str = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE";
const FROM: &str = "Tollkeeper <no-reply@keys.example.org>";

/// A mail folder that is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("tollkeeper-mail-{:032x}", u128::from_be_bytes(Random::system().bytes()));
        Self(std::env::temp_dir().join(name).join("mail"))
    }

    async fn deliver(&self, message: &Message, now: Time) -> Result<(), String> {
        let mailer = Mailer::Folder { dir: self.0.clone(), from: FROM.to_owned() };
        mailer.deliver(message, now, &Random::system()).await.map_err(|error| error.to_string())
    }

    /// Returns the names and contents of the files, sorted by name.
    fn mails(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let mut mails: Vec<_> = entries
            .map(|e| (e.file_name().into_string().unwrap(), std::fs::read_to_string(e.path()).unwrap()))
            .collect();
        mails.sort();
        mails
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.parent().unwrap()).ok();
    }
}

/// Returns the e-mail of a template to Ada, with these values.
fn letter(template: Template, username: &str, about: &About) -> Message {
    let letter = Letter {
        template,
        to: "ada@example.org",
        username,
        public_url: "https://keys.example.org/",
        token: Some(TOKEN),
        about,
        failures: 10,
        at: NOW,
    };
    letter.write().unwrap()
}

fn verify(username: &str) -> Message {
    letter(Template::VerifyEmail, username, &About::default())
}

async fn mail_of(message: &Message) -> String {
    let folder = Folder::new();
    folder.deliver(message, NOW).await.unwrap();
    folder.mails().remove(0).1
}

fn headers(mail: &str) -> &str {
    mail.split_once("\n\n").unwrap().0
}

/// Decodes quoted-printable, if the e-mail uses it.
fn decoded(mail: &str) -> String {
    if !mail.contains("quoted-printable") {
        return mail.to_owned();
    }
    let joined = mail.replace("=\n", "");
    let mut pieces = joined.split('=');
    let mut bytes = pieces.next().unwrap().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => bytes.extend_from_slice(format!("={piece}").as_bytes()),
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_file_reads_as_plain_text() {
    let mail = mail_of(&verify("countess")).await;
    for line in [
        "To: ada@example.org",
        "Subject: Confirm your e-mail address",
        "Date: Sat, 31 Jan 2026 09:30:00 +0000",
        "MIME-Version: 1.0",
        "Auto-Submitted: auto-generated",
        "Hi countess,",
        "https://keys.example.org/verify-email?token=AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE",
        TOKEN,
    ] {
        assert_eq!(mail.lines().filter(|l| *l == line).count(), 1, "{line}\n{mail}");
    }
    assert!(headers(&mail).contains("multipart/alternative"), "{mail}");
    assert!(headers(&mail).contains("<no-reply@keys.example.org>"), "{mail}");
    let message_id = headers(&mail).lines().find(|l| l.starts_with("Message-ID: ")).unwrap();
    assert!(message_id.ends_with("@keys.example.org>"), "{message_id}");
    assert!(
        mail.contains("text/plain; charset=utf-8") && mail.contains("text/html; charset=utf-8"),
        "{mail}"
    );
    assert!(
        mail.contains(&format!("<a href=\"https://keys.example.org/verify-email?token={TOKEN}\">")),
        "{mail}"
    );
    assert!(!mail.contains('\r'));
}

#[tokio::test]
async fn names_of_any_script_leave_the_token_line_whole() {
    for name in ["Žofie", "王小明", "प्रिया", "😀😀😀"] {
        let mail = mail_of(&verify(name)).await;
        assert!(mail.is_ascii(), "{mail}");
        assert_eq!(mail.lines().filter(|line| *line == TOKEN).count(), 1, "{mail}");
        assert!(mail.lines().all(|line| line.len() <= 78), "{mail}");
        let mail = decoded(&mail);
        assert!(mail.contains(&format!("Hi {name},\n")), "{mail}");
        assert!(mail.contains(&format!("https://keys.example.org/verify-email?token={TOKEN}\n")), "{mail}");
    }
}

#[tokio::test]
async fn names_cannot_write_html() {
    let mail = decoded(&mail_of(&verify("<img src=x onerror='a()'>&\"")).await);
    let html = mail.split_once("text/html").unwrap().1;
    assert!(html.contains("&#60;img src=x onerror=&#39;a()&#39;&#62;&#38;&#34;"), "{html}");
    assert!(!html.contains("<img"), "{html}");
}

#[tokio::test]
async fn names_cannot_write_headers_or_lines() {
    for name in [
        "x\r\nBcc: eve@example.org",
        "x\nBcc: eve@example.org\n\n",
        "x\rBcc: eve",
        "x\u{2028}Bcc: eve",
        "x\0",
    ] {
        let message = Message { subject: format!("About {name}"), ..verify(name) };
        let mail = mail_of(&message).await;
        assert!(!headers(&mail).lines().any(|line| line.starts_with("Bcc")), "{mail}");
        assert!(!decoded(&mail).lines().any(|line| line.starts_with("Bcc")), "{mail}");
        assert!(!mail.contains('\0'));
        assert!(headers(&mail).lines().any(|line| line.starts_with("MIME-Version")), "{mail}");
    }
}

#[tokio::test]
async fn subjects_of_any_script_are_encoded() {
    let message = Message { subject: "Ünïcode 件名 ".repeat(10), ..verify("ada") };
    let mail = mail_of(&message).await;
    assert!(headers(&mail).is_ascii() && headers(&mail).contains("Subject: =?utf-8?b?"), "{mail}");
}

#[tokio::test]
async fn addresses_must_be_addresses() {
    let folder = Folder::new();
    for to in [
        "",
        "nobody",
        "a@example.org\r\nBcc: eve@example.org",
        "a@example.org, eve@example.org",
        "A <a@example.org>",
    ] {
        let message = Message { to: to.to_owned(), ..verify("ada") };
        assert!(folder.deliver(&message, NOW).await.is_err(), "{to}");
    }
    assert!(!folder.0.exists());
    let foreign = Message { to: "用户@例子.广告".to_owned(), ..verify("ada") };
    folder.deliver(&foreign, NOW).await.unwrap();
    assert!(headers(&folder.mails()[0].1).contains("To: 用户@例子.广告"));
}

#[tokio::test]
async fn files_are_private_whole_and_sorted_by_time() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    for (n, ms) in [3_i64, 1, 2, 0].into_iter().enumerate() {
        folder.deliver(&verify(&format!("user{n}")), NOW.plus_ms(ms)).await.unwrap();
    }
    let mails = folder.mails();
    let names: Vec<_> = mails.iter().map(|(name, _)| name.split_once('-').unwrap().0).collect();
    assert_eq!(
        names,
        ["20260131T093000123Z", "20260131T093000124Z", "20260131T093000125Z", "20260131T093000126Z"]
    );
    assert!(mails.iter().all(|(name, _)| name.ends_with(".eml")));
    assert!(mails[0].1.contains("user3") && mails[3].1.contains("user0"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&folder.0.join(&mails[0].0))), (0o700, 0o600));
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_an_error_with_its_name() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.0.parent().unwrap()).unwrap();
    std::fs::write(&folder.0, "a file").unwrap();
    let error = folder.deliver(&verify("ada"), NOW).await.unwrap_err();
    assert!(error.contains("mail"), "{error}");
}

#[test]
fn a_message_does_not_print_its_token() {
    assert!(!format!("{:?}", verify("ada")).contains(TOKEN));
}

#[test]
fn no_carriage_return_stands_alone() {
    for text in ["one\rtwo\r\nthree\n", "ein\rzwei\n\rdreißig"] {
        let message = Message { text: text.to_owned(), html: text.to_owned(), ..verify("ada") };
        let mail = String::from_utf8(compose(&message, FROM, NOW, "0").unwrap().formatted()).unwrap();
        assert!(!mail.replace("\r\n", "").contains(['\r', '\n']), "{mail:?}");
        assert!(mail.lines().any(|line| line.starts_with("two") || line.starts_with("zwei")), "{mail:?}");
    }
}

/// Names of users, organizations and projects that try to insert a link into e-mails.
const BAITS: [&str; 9] = [
    "evil.example",
    "https://evil.example/login?a=b",
    "Your account is suspended. Go to evil.example/now",
    "www.evil.example",
    "evil.\u{200b}example",
    "evil\u{2060}.example",
    "help@evil.example",
    "evil\u{3002}example",
    "xn--e1awd7f.com",
];

/// Returns every e-mail, with this text in all values that come from users.
fn mails_about(bait: &str) -> Vec<Message> {
    let text = || Some(bait.to_owned());
    let about = About {
        organization: text(),
        project: text(),
        role: text(),
        by: text(),
        message: text(),
        new_email: text(),
        belongs_to: vec![bait.to_owned()],
        budget: Some(ReachedBudget {
            name: bait.to_owned(),
            period: "2026-03".to_owned(),
            threshold: 1_000,
            spent: "80.25".to_owned(),
            limit: "100".to_owned(),
            left: "19.75".to_owned(),
            currency: "USD".to_owned(),
            is_hard: true,
        }),
        ..About::default()
    };
    let mut mails: Vec<_> =
        Template::VARIANTS.iter().map(|template| letter(*template, bait, &about)).collect();
    mails.push(email_taken(bait, &about));
    let of_installation = About { organization: None, webhook: text(), ..about };
    mails.push(letter(Template::WebhookDisabled, bait, &of_installation));
    mails
}

/// Returns the e-mail to a new address that already has an account.
fn email_taken(username: &str, about: &About) -> Message {
    let letter = Letter {
        template: Template::ChangeEmail,
        to: "ada@example.org",
        username,
        public_url: "https://keys.example.org/",
        token: None,
        about,
        failures: 0,
        at: NOW,
    };
    letter.write().unwrap()
}

#[test]
fn mail_to_a_new_address_has_a_link_unless_the_address_has_an_account() {
    let about = About { by: Some("ada".to_owned()), ..About::default() };
    let free = letter(Template::ChangeEmail, "ada", &about);
    assert_eq!(free.subject, "Confirm your new e-mail address");
    let url = format!("https://keys.example.org/change-email?token={TOKEN}");
    assert_eq!(free.link.as_deref(), Some(url.as_str()));
    assert!(free.text.lines().any(|line| line == TOKEN), "{}", free.text);
    let taken = email_taken("bob", &about);
    assert_eq!(taken.subject, "Someone tried to use your e-mail address");
    assert_eq!(taken.link, None);
    assert!(taken.text.starts_with("Hi bob,\n") && taken.text.contains("the account ada"), "{}", taken.text);
}

#[test]
fn stored_words_never_change() {
    let words: Vec<_> = Template::VARIANTS.iter().map(|template| template.as_str()).collect();
    let expected = [
        "verify_email",
        "reset_password",
        "password_changed",
        "invitation",
        "added_to_project",
        "organization_deleted",
        "project_deleted",
        "logins_refused",
        "new_login",
        "change_email",
        "email_change_requested",
        "email_changed",
        "second_factor_added",
        "second_factor_removed",
        "recovery_code_used",
        "passkey_added",
        "passkey_removed",
        "changed_by_operator",
        "provider_connected",
        "provider_disconnected",
        "budget_threshold",
        "balance_low",
        "webhook_disabled",
        "auto_top_up",
    ];
    assert_eq!(words, expected);
    for word in ["account", "address", "recipient", "password_reset", "verification"] {
        assert!(word.parse::<Counter>().is_ok(), "{word}");
    }
}

/// Finds links like a mail program does: text that looks like a URL or an e-mail address.
fn links(text: &str) -> Vec<String> {
    let mut finder = linkify::LinkFinder::new();
    finder.url_must_have_scheme(false);
    finder.links(text).map(|link| link.as_str().to_owned()).collect()
}

#[test]
fn user_texts_never_become_links() {
    assert_eq!(links("see evil.example or https://evil.example"), ["evil.example", "https://evil.example"]);
    for bait in BAITS {
        for message in mails_about(bait) {
            assert_eq!(links(&message.subject), [""; 0], "{}", message.subject);
            for text in [&message.text, &message.html] {
                let others: Vec<_> = links(text)
                    .into_iter()
                    .filter(|link| {
                        !link.starts_with("https://keys.example.org") && link != "keys.example.org"
                    })
                    .collect();
                assert_eq!(others, [""; 0], "{text}");
            }
        }
    }
}

#[test]
fn subjects_stay_short() {
    for message in mails_about(&"Your account is suspended ".repeat(20)) {
        assert!(message.subject.chars().count() <= 80, "{}", message.subject);
    }
}

#[test]
fn user_texts_are_escaped_in_html_and_nowhere_else() {
    let evil = "<script>'\"&</script>";
    for message in mails_about(evil) {
        assert!(!message.html.contains("<script") && !message.html.contains("</script"), "{}", message.html);
        let escaped = "&#60;script&#62;&#39;&#34;&#38;&#60;/script&#62;";
        assert!(message.html.contains(escaped), "{}", message.html);
        assert!(message.text.contains(evil), "{}", message.text);
        for text in [&message.text, &message.subject] {
            assert!(!text.contains("&#") && !text.contains("&lt;"), "{text}");
        }
    }
}
