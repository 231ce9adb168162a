//! Requests to the console, as a browser sends them.

use http::Method;
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::accounts::store::sessions::{Client, NewSession, SessionKind};
use tollkeeper::clock::DAY_MS;
use tollkeeper::ids::{SessionId, UserId};

use super::http::{Answer, Call};
use super::world::World;

/// The name of the session cookie. It has no prefix, because the public URL of tests is an `http` URL.
pub const COOKIE: &str = "tollkeeper";

/// A browser with its cookie.
#[derive(Clone, Debug)]
pub struct Browser {
    /// The value of the cookie, or an empty string if the browser has none.
    pub cookie: String,
}

impl Browser {
    /// Returns a browser without a cookie.
    pub fn signed_out() -> Self {
        Self { cookie: String::new() }
    }

    /// Opens a page, as a click on a link does.
    pub fn get(&self, world: &World, path: &str) -> Call {
        self.sends(world.call(Method::GET, path))
            .header("sec-fetch-site", "same-origin")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document")
    }

    /// Submits a form of a page.
    pub fn post(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> Call {
        self.sends(world.call(Method::POST, path)).header("sec-fetch-site", "same-origin").form(fields)
    }

    /// Opens a page, which must exist, and returns its HTML.
    pub async fn page(&self, world: &World, path: &str) -> String {
        let answer = self.get(world, path).send().await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text
    }

    /// Submits a form, which must succeed, and returns the target of the redirect.
    pub async fn done(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(world, path, fields).send().await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        answer.header("location").to_owned()
    }

    /// Stores the cookie of a response, as a browser does.
    pub fn take(&mut self, answer: &Answer) {
        let set = answer.header("set-cookie");
        let value =
            set.strip_prefix(&format!("{COOKIE}=")).unwrap_or_else(|| panic!("no cookie: {answer:?}"));
        self.cookie = value.split(';').next().unwrap().to_owned();
    }

    /// Adds the cookie to a request.
    pub fn sends(&self, call: Call) -> Call {
        if self.cookie.is_empty() {
            call
        } else {
            call.header("cookie", &format!("{COOKIE}={}", self.cookie))
        }
    }
}

/// Returns the value of the first hidden field with this name.
pub fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Returns the hidden fields of a page, in order.
pub fn hidden_fields(page: &str) -> Vec<(String, String)> {
    let text = |html: &str| {
        let entities = [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")];
        entities.iter().fold(html.to_owned(), |text, (entity, c)| text.replace(entity, c))
    };
    let inputs = page.split("<input type=\"hidden\" name=\"").skip(1);
    inputs
        .map(|input| {
            let (name, rest) = input.split_once("\" value=\"").unwrap();
            (text(name), text(rest.split_once('"').unwrap().0))
        })
        .collect()
}

/// Asserts that a page shows this text literally, with all markup escaped.
pub fn assert_escaped(page: &str, text: &str) {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '<' | '>' | '&' | '"' | '\'' => format!("&#{};", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    assert!(page.contains(&escaped) && !page.contains(text), "{escaped}: {page}");
}

impl World {
    /// Returns a browser in which this user is signed in.
    pub async fn browser(&self, id: UserId) -> Browser {
        self.browser_session(id, false).await.0
    }

    /// Returns a browser in which this user is signed in, and the session. With `remember_me` the session
    /// outlives the browser.
    pub async fn browser_session(&self, id: UserId, remember_me: bool) -> (Browser, SessionId) {
        let now = self.clock.now();
        let session_id = SessionId::new(now, &self.app.random);
        let mut tx = self.app.db.write().await.unwrap();
        let session = NewSession {
            id: session_id,
            user_id: id,
            kind: SessionKind::Browser,
            remember_me,
            client: Client::default(),
            created_at: now,
            expires_at: now.plus_ms(30 * DAY_MS),
        };
        tollkeeper::accounts::store::sessions::insert(&mut tx, &session).await.unwrap();
        tx.commit().await.unwrap();
        let cookie = self.token(TokenKind::Browser, id, session_id, 30 * 86_400).await;
        (Browser { cookie }, session_id)
    }
}
