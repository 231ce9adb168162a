//! Steps that add and remove factors through the API.

use http::Method;
use serde_json::json;
use tollkeeper::clock::Time;

use super::Sequence;
use super::model::{App, Kind};
use super::steps::{origin, text};
use support::authenticator::{Authenticator, STEP_MS, texts};
use support::http::Answer;
use support::security_key::SecurityKey;

impl Sequence<'_> {
    /// Returns `true` if this session may change factors; otherwise asserts that the change was refused.
    fn may_change(&self, answer: &Answer, session: usize, now: Time) -> bool {
        if !self.account.is_live(session, now) {
            self.expect(answer, 401, "invalid_access_token");
            return false;
        }
        if !self.account.is_fresh(session, now) {
            self.expect(answer, 403, "reauthentication_required");
            return false;
        }
        true
    }

    pub(super) fn is_browser(&self, session: usize) -> bool {
        self.account.sessions[session].kind == Kind::Browser
    }

    pub(super) async fn add_app(&mut self, session: usize, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let answer = self.post(Some(session), "/v1/auth/totp", &json!({})).await;
        if !self.may_change(&answer, session, now) {
            return;
        }
        let authenticator = Authenticator::new(&text(&answer.json()["data"], "secret"));
        let body = json!({"code": authenticator.code(now)});
        let confirmed = self.post(Some(session), "/v1/auth/totp/confirm", &body).await;
        self.expect(&confirmed, 200, "");
        let was_asked = self.account.is_asked();
        self.account.app = Some(App { authenticator, last_step: now.unix_ms() / STEP_MS });
        self.take_codes(&confirmed, session, was_asked);
    }

    /// Stores the recovery codes of a first factor, and asserts that no other answer contains codes.
    fn take_codes(&mut self, answer: &Answer, session: usize, was_asked: bool) {
        let codes = answer.json()["data"]["recovery_codes"].take();
        let is_first = !was_asked && self.account.is_asked();
        assert_eq!(codes.is_array(), is_first, "{codes}\n{}", self.story);
        if is_first {
            self.account.begin_asking(session, texts(&codes));
        }
    }

    pub(super) async fn remove_app(&mut self, session: usize, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let call = self.stage.world.call(Method::DELETE, "/v1/auth/totp");
        let answer = call.bearer(&self.account.sessions[session].token).send().await;
        if !self.may_change(&answer, session, now) {
            return;
        }
        match self.account.app.take() {
            None => self.expect(&answer, 404, "second_factor_not_found"),
            Some(_) => self.expect(&answer, 200, ""),
        }
        self.account.after_removal();
    }

    pub(super) async fn add_passkey(&mut self, session: usize, is_asked: Option<bool>, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let options = self.post(Some(session), "/v1/auth/passkeys/options", &json!({})).await;
        if !self.may_change(&options, session, now) {
            return;
        }
        let (options, mut key) = (options.json()["data"].take(), SecurityKey::new());
        let credential = key.make(&options["public_key"], &origin(&self.stage.world));
        let body = json!({"ceremony": options["ceremony"], "credential": credential, "name": "x",
            "asked_after_password": is_asked});
        let answer = self.post(Some(session), "/v1/auth/passkeys", &body).await;
        self.expect(&answer, 200, "");
        let was_asked = self.account.is_asked();
        self.account.are_passkeys_asked |= is_asked.unwrap_or(self.account.passkeys.is_empty());
        self.account.passkeys.push((text(&answer.json()["data"]["passkey"], "id"), key));
        self.take_codes(&answer, session, was_asked);
    }

    pub(super) async fn remove_passkey(&mut self, session: usize, now: Time) {
        if self.is_browser(session) || self.account.passkeys.is_empty() {
            return;
        }
        let index = self.chance.below(self.account.passkeys.len());
        let path = format!("/v1/auth/passkeys/{}", self.account.passkeys[index].0);
        let call = self.stage.world.call(Method::DELETE, &path);
        let answer = call.bearer(&self.account.sessions[session].token).send().await;
        if !self.may_change(&answer, session, now) {
            return;
        }
        let account = &mut self.account;
        if account.password.is_none() && account.connection.is_none() && account.passkeys.len() == 1 {
            return self.expect(&answer, 409, "last_credential");
        }
        account.gone.push(account.passkeys.remove(index).1);
        account.after_removal();
        self.expect(&answer, 200, "");
    }

    pub(super) async fn renew_codes(&mut self, session: usize, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let answer = self.post(Some(session), "/v1/auth/recovery-codes", &json!({})).await;
        if !self.may_change(&answer, session, now) {
            return;
        }
        if !self.account.is_asked() {
            return self.expect(&answer, 404, "second_factor_not_found");
        }
        self.expect(&answer, 200, "");
        self.account.forget_codes();
        self.account.codes = texts(&answer.json()["data"]["recovery_codes"]);
    }
}
