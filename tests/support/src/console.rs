//! Calls of the console, as a browser makes them.

use http::Method;
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::accounts::store::sessions::{Client, NewSession, SessionKind};
use tollkeeper::clock::DAY_MS;
use tollkeeper::ids::{SessionId, UserId};

use super::http::{Answer, Call};
use super::world::World;

/// The name of the cookie: the public URL of tests is http.
pub const COOKIE: &str = "tollkeeper";

/// A browser: the cookies that it sends.
#[derive(Clone, Debug)]
pub struct Browser {
    /// The value of the cookie; empty if the browser has none.
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

    /// Sends a form of a page.
    pub fn post(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> Call {
        self.sends(world.call(Method::POST, path)).header("sec-fetch-site", "same-origin").form(fields)
    }

    /// Opens a page that has to be there, and returns its HTML.
    pub async fn page(&self, world: &World, path: &str) -> String {
        let answer = self.get(world, path).send().await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text
    }

    /// Sends a form that has to succeed, and returns where its redirect leads.
    pub async fn done(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(world, path, fields).send().await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        answer.header("location").to_owned()
    }

    /// Takes the cookie of an answer, as a browser does.
    pub fn take(&mut self, answer: &Answer) {
        let set = answer.header("set-cookie");
        let value =
            set.strip_prefix(&format!("{COOKIE}=")).unwrap_or_else(|| panic!("no cookie: {answer:?}"));
        self.cookie = value.split(';').next().unwrap().to_owned();
    }

    /// Adds the cookie to a call.
    pub fn sends(&self, call: Call) -> Call {
        if self.cookie.is_empty() {
            call
        } else {
            call.header("cookie", &format!("{COOKIE}={}", self.cookie))
        }
    }
}

/// Returns the value of the first hidden field of this name.
pub fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Returns the hidden fields of a page, in their order.
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

/// Checks that a page shows this text as text: nothing of it is markup.
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
    /// Opens a browser in which this person is signed in.
    pub async fn browser(&self, id: UserId) -> Browser {
        self.browser_session(id, false).await.0
    }

    /// Opens a browser in which this person is signed in, perhaps for longer than the browser is open; also
    /// returns the session.
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
