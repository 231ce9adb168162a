//! The steps: their requests, and the answers that the model expects.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::Time;
use tollkeeper::operators::users;
use tollkeeper::trail::Trail;

use super::calls;
use super::model::{Evidence, First, Kind};
use super::{By, Given, Sequence, Step};
use support::console::COOKIE;
use support::http::Answer;
use support::identity_provider::Jar;
use support::security_key::SecurityKey;
use support::world::World;

const WRONG: &str = "Wrong-Kettle-1";
/// Codes that were never issued.
const NO_CODE: &str = "000000";
const NO_RECOVERY_CODE: &str = "ABCDEFGHIJKLMNOPQRSTUVWX";

impl Sequence<'_> {
    pub(super) async fn take(&mut self, step: Step) {
        let (world, now) = (&self.stage.world, self.stage.world.clock.now());
        let (operators, trail) = (&world.app.operators, Trail::operator());
        match step {
            Step::Wait { ms } => world.clock.advance_ms(ms),
            Step::LogIn { right, code, kind: Kind::Api } => self.log_in(right, code, now).await,
            Step::LogIn { right, code, kind: Kind::Browser } => self.log_in_browser(right, code, now).await,
            Step::UsePasskey { is_gone } => self.use_passkey(is_gone, now).await,
            Step::SignOn { code } => self.sign_on(code, now).await,
            Step::Prove { session, by, code } => self.prove(session, by, code, now).await,
            Step::AddApp { session } => self.add_app(session, now).await,
            Step::RemoveApp { session } => self.remove_app(session, now).await,
            Step::AddPasskey { session, is_asked } => self.add_passkey(session, is_asked, now).await,
            Step::RemovePasskey { session } => self.remove_passkey(session, now).await,
            Step::RenewCodes { session } => self.renew_codes(session, now).await,
            Step::Connect { session } => self.connect(session, now).await,
            Step::Disconnect { session } => self.disconnect(session, now).await,
            Step::ChangePassword { session } => self.change_password(session, now).await,
            Step::ResetPassword => self.reset_password().await,
            Step::LogOut { session } => self.log_out(session, now).await,
            Step::EndOthers { session } => self.end_others(session, now).await,
            Step::Disable => {
                users::disable(operators, self.id, &trail).await.unwrap();
                self.account.is_disabled = true;
                self.account.end_all(None);
            }
            Step::Enable => {
                users::enable(operators, self.id, &trail).await.unwrap();
                self.account.is_disabled = false;
            }
            Step::ResetFactors => {
                let had_some = self.account.app.is_some() || !self.account.passkeys.is_empty();
                let change = users::reset_second_factor(operators, self.id, &trail).await.unwrap();
                assert_eq!(change.was_unchanged, !had_some, "{}", self.story);
                if had_some {
                    self.account.app = None;
                    self.account.gone.extend(self.account.passkeys.drain(..).map(|(_, key)| key));
                    self.account.after_removal();
                    self.account.end_all(None);
                }
            }
            Step::RequireFactor(value) => {
                self.require("require_second_factor", value).await;
                self.account.requires_factor = value;
            }
            Step::RequireSignOn(value) => {
                self.require("require_sign_on", value).await;
                self.account.requires_sign_on = value;
            }
        }
    }

    async fn require(&self, name: &str, value: bool) {
        let organization = &self.stage.place.organization;
        calls::require(&self.stage.world, self.stage.boss.id, organization, name, value).await;
    }

    fn email(&self) -> String {
        format!("{}@example.com", self.name)
    }

    fn password(&self, right: bool) -> String {
        let right = if right { self.account.password.clone() } else { None };
        right.unwrap_or_else(|| WRONG.to_owned())
    }

    /// Returns the code to send, valid or not.
    fn code(&self, given: Given, now: Time) -> Option<String> {
        let account = &self.account;
        let shown = account.app.as_ref().map(|app| app.authenticator.code(now));
        let code = match given {
            Given::None => return None,
            Given::App => shown.unwrap_or_else(|| NO_CODE.to_owned()),
            Given::Recovery => account.codes.last().cloned().unwrap_or_else(|| NO_RECOVERY_CODE.to_owned()),
            Given::Spent => account.spent.last().cloned().unwrap_or_else(|| NO_CODE.to_owned()),
        };
        Some(code)
    }

    /// Checks that nothing weaker than the account's rule was accepted.
    fn check_strength(&self, evidence: Evidence) {
        assert!(self.account.is_enough(evidence), "{evidence:?} is too weak\n{}", self.story);
    }

    pub(super) fn expect(&self, answer: &Answer, status: u16, code: &str) {
        let found = if answer.status == 200 { String::new() } else { answer.code() };
        assert_eq!((answer.status, found.as_str()), (status, code), "{}\n{}", answer.text, self.story);
    }

    pub(super) async fn post(&self, session: Option<usize>, path: &str, body: &Value) -> Answer {
        let call = self.stage.world.post(path, body);
        match session {
            Some(session) => call.bearer(&self.account.sessions[session].token).send().await,
            None => call.send().await,
        }
    }

    async fn log_in(&mut self, right: bool, given: Given, now: Time) {
        let code = self.code(given, now);
        let body = json!({"email": self.email(), "password": self.password(right), "one_time_code": code});
        let answer = self.post(None, "/v1/auth/login", &body).await;
        let was_asked = self.account.is_asked();
        let is_right = right && self.account.password.is_some();
        let has_code = is_right
            && was_asked
            && !self.account.is_disabled
            && code.as_ref().is_some_and(|code| self.account.use_code(code, now));
        if answer.status == 200 {
            assert!(is_right, "a wrong password\n{}", self.story);
            self.check_strength(Evidence { first: First::Password, has_code });
        }
        match (is_right, self.account.is_disabled, was_asked, &code, has_code) {
            (false, ..) => self.expect(&answer, 401, "invalid_credentials"),
            (_, true, ..) => self.expect(&answer, 403, "account_disabled"),
            (_, _, true, None, _) => self.expect(&answer, 401, "second_factor_required"),
            (_, _, true, Some(_), false) => self.expect(&answer, 401, "invalid_one_time_code"),
            _ => {
                self.expect(&answer, 200, "");
                self.account.open(Kind::Api, text(&answer.json()["data"], "access_token"), None, now);
            }
        }
    }

    async fn log_in_browser(&mut self, right: bool, given: Given, now: Time) {
        let mut jar = Jar::default();
        let first = jar.sign_in(&self.stage.world, &self.email(), &self.password(right)).await;
        let is_right = right && self.account.password.is_some();
        match (is_right, self.account.is_disabled) {
            (true, false) => assert_eq!(first.status, 303, "{}\n{}", first.text, self.story),
            (true, true) => assert_eq!(first.status, 403, "{}\n{}", first.text, self.story),
            (false, _) => assert_eq!(first.status, 401, "{}\n{}", first.text, self.story),
        }
        let is_first_step = is_right && !self.account.is_disabled;
        self.second_step(jar, is_first_step, (First::Password, None), given, now).await;
    }

    /// Sends a code if the account requires one, and records the session that this opens.
    async fn second_step(
        &mut self,
        mut jar: Jar,
        is_first_step: bool,
        (first, connection): (First, Option<usize>),
        given: Given,
        now: Time,
    ) {
        let is_due = is_first_step && self.account.is_asked();
        let mut has_code = false;
        if is_due {
            assert!(!jar.0.contains_key(COOKIE), "a session exists between the steps\n{}", self.story);
            if let Some(code) = self.code(given, now) {
                let path = "/console/sign-in/second-factor";
                let answer = jar.post(&self.stage.world, path, &[("one_time_code", &code)]).await;
                has_code = self.account.use_code(&code, now);
                let expected = if has_code { 303 } else { 401 };
                assert_eq!(answer.status, expected, "{}\n{}", answer.text, self.story);
            }
        }
        if let Some(token) = jar.0.get(COOKIE) {
            self.check_strength(Evidence { first, has_code });
            self.account.open(Kind::Browser, token.clone(), connection, now);
        }
        let expected = is_first_step && (!is_due || has_code);
        assert_eq!(jar.0.contains_key(COOKIE), expected, "a session\n{}", self.story);
    }

    async fn use_passkey(&mut self, is_gone: bool, now: Time) {
        let world = &self.stage.world;
        let keys = if is_gone { self.account.gone.len() } else { self.account.passkeys.len() };
        if keys == 0 {
            return;
        }
        let index = self.chance.below(keys);
        let key = if is_gone { &mut self.account.gone[index] } else { &mut self.account.passkeys[index].1 };
        let options = world.post("/v1/auth/passkey-login/options", &json!({})).data().await;
        let body = signed(world, key, &options);
        let answer = self.post(None, "/v1/auth/passkey-login", &body).await;
        if answer.status == 200 {
            self.check_strength(Evidence { first: First::Passkey, has_code: false });
        }
        match (is_gone, self.account.is_disabled) {
            (true, _) => self.expect(&answer, 401, "invalid_credential"),
            (false, true) => self.expect(&answer, 403, "account_disabled"),
            (false, false) => {
                self.expect(&answer, 200, "");
                self.account.open(Kind::Api, text(&answer.json()["data"], "access_token"), None, now);
            }
        }
    }

    async fn sign_on(&mut self, given: Given, now: Time) {
        let mut jar = Jar::default();
        let claims = json!({"sub": self.name, "email": self.email(), "email_verified": true});
        let provider = &self.stage.provider;
        let answer = provider.sign_on(&self.stage.world, &mut jar, "/console/sign-in/acme", &claims).await;
        let (is_connected, is_disabled) = (self.account.connection.is_some(), self.account.is_disabled);
        let expected = if is_connected && is_disabled { 403 } else { 303 };
        assert_eq!(answer.status, expected, "{}\n{}", answer.text, self.story);
        if !is_connected {
            // A matching address alone doesn't connect an account.
            assert_eq!(answer.header("location"), "/console/sign-in/confirm", "{}", self.story);
        }
        let of = (First::Provider, self.account.connection);
        self.second_step(jar, is_connected && !is_disabled, of, given, now).await;
    }

    async fn prove(&mut self, session: usize, by: By, given: Given, now: Time) {
        let is_live = self.account.is_live(session, now);
        if by == By::Passkey {
            return self.prove_by_passkey(session, is_live, now).await;
        }
        let (code, password) = (self.code(given, now), self.password(by == By::Password));
        let kind = self.account.sessions[session].kind;
        let mut jar = self.jar(session);
        let answer = match kind {
            Kind::Api => {
                let body = json!({"password": password, "one_time_code": code});
                self.post(Some(session), "/v1/auth/reauthenticate", &body).await
            }
            Kind::Browser => {
                let mut fields = vec![("password", password.as_str())];
                fields.extend(code.as_ref().map(|code| ("one_time_code", code.as_str())));
                jar.post(&self.stage.world, "/console/reauthenticate", &fields).await
            }
        };
        let was_asked = self.account.is_asked();
        let has_password = self.account.password.is_some();
        let is_right = is_live && has_password && by == By::Password;
        let has_code =
            is_right && was_asked && code.as_ref().is_some_and(|code| self.account.use_code(code, now));
        let is_accepted = is_right && (!was_asked || has_code);
        if answer.status == if kind == Kind::Api { 200 } else { 303 } {
            self.check_strength(Evidence { first: First::Password, has_code });
        }
        let token = match kind {
            Kind::Api => {
                match (is_live, has_password, by, was_asked, &code) {
                    (false, ..) => self.expect(&answer, 401, "invalid_access_token"),
                    (_, false, ..) => self.expect(&answer, 400, "no_password"),
                    (_, _, By::WrongPassword, ..) => self.expect(&answer, 401, "wrong_password"),
                    (_, _, _, true, None) => self.expect(&answer, 401, "second_factor_required"),
                    _ if !is_accepted => self.expect(&answer, 401, "invalid_one_time_code"),
                    _ => self.expect(&answer, 200, ""),
                }
                is_accepted.then(|| text(&answer.json()["data"], "access_token"))
            }
            Kind::Browser => {
                assert_eq!(answer.status == 303, is_accepted, "{}\n{}", answer.text, self.story);
                is_accepted.then(|| jar.0[COOKIE].clone())
            }
        };
        if let Some(token) = token {
            self.account.replace(session, token, now);
        }
    }

    async fn prove_by_passkey(&mut self, session: usize, is_live: bool, now: Time) {
        if self.account.sessions[session].kind == Kind::Browser {
            return;
        }
        let path = "/v1/auth/reauthenticate";
        let options = self.post(Some(session), &format!("{path}/options"), &json!({})).await;
        if !is_live {
            return self.expect(&options, 401, "invalid_access_token");
        }
        if self.account.passkeys.is_empty() {
            return self.expect(&options, 404, "passkey_not_found");
        }
        let options = options.json()["data"].take();
        let index = self.chance.below(self.account.passkeys.len());
        let body = signed(&self.stage.world, &mut self.account.passkeys[index].1, &options);
        let answer = self.post(Some(session), path, &body).await;
        self.expect(&answer, 200, "");
        self.account.replace(session, text(&answer.json()["data"], "access_token"), now);
    }

    /// Returns a cookie jar with the session's cookie.
    fn jar(&self, session: usize) -> Jar {
        let mut jar = Jar::default();
        jar.0.insert(COOKIE.to_owned(), self.account.sessions[session].token.clone());
        jar
    }

    async fn connect(&mut self, session: usize, now: Time) {
        if !self.is_browser(session) {
            return;
        }
        let (world, provider, mut jar) = (&self.stage.world, &self.stage.provider, self.jar(session));
        let path = "/console/account/connections/new/acme";
        if !self.account.is_live(session, now) || !self.account.is_fresh(session, now) {
            let answer = jar.click(world, path).await;
            assert!(answer.status == 303 && !answer.header("location").starts_with(&provider.issuer));
            return;
        }
        let answer = provider.sign_on(world, &mut jar, path, &json!({"sub": self.name})).await;
        let confirm = "/console/account/connections/confirm";
        assert_eq!((answer.status, answer.header("location")), (303, confirm), "{}", self.story);
        let answer = jar.post(world, confirm, &[]).await;
        let to = "/console/account/connections?done=connected";
        assert_eq!((answer.status, answer.header("location")), (303, to), "{}\n{}", answer.text, self.story);
        if self.account.connection.is_none() {
            self.account.connection = Some(self.next_connection);
            self.next_connection += 1;
        }
    }

    async fn disconnect(&mut self, session: usize, now: Time) {
        let Some(connection) = self.account.connection.filter(|_| self.is_browser(session)) else { return };
        let (world, issuer) = (&self.stage.world, &self.stage.provider.issuer);
        let id = calls::connection_id(world, issuer, self.name).await.expect("it is connected");
        let path = format!("/console/account/connections/{id}/delete");
        let answer = self.jar(session).post(world, &path, &[]).await;
        let (is_live, is_fresh) = (self.account.is_live(session, now), self.account.is_fresh(session, now));
        let is_last = self.account.password.is_none() && self.account.passkeys.is_empty();
        let expected = match (is_live, is_fresh, is_last) {
            (false, ..) => 401,
            (true, true, true) => 409,
            _ => 303,
        };
        assert_eq!(answer.status, expected, "{}\n{}", answer.text, self.story);
        if is_live && is_fresh && !is_last {
            self.account.connection = None;
            for (number, other) in self.account.sessions.iter_mut().enumerate() {
                other.has_ended |= number != session && other.connection == Some(connection);
            }
        }
    }

    async fn change_password(&mut self, session: usize, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let new = self.new_password();
        let body = json!({"current_password": self.password(true), "new_password": new,
            "new_password_confirmation": new});
        let answer = self.post(Some(session), "/v1/auth/change-password", &body).await;
        if !self.account.is_live(session, now) {
            return self.expect(&answer, 401, "invalid_access_token");
        }
        if self.account.password.is_none() {
            return self.expect(&answer, 400, "no_password");
        }
        // With a second factor, the password alone isn't enough.
        if self.account.is_asked() && !self.account.is_fresh(session, now) {
            return self.expect(&answer, 403, "reauthentication_required");
        }
        self.expect(&answer, 200, "");
        self.account.password = Some(new);
        self.account.end_all(Some(session));
    }

    async fn reset_password(&mut self) {
        let (token, new) = (calls::mailed_token(&self.stage.world, self.id).await, self.new_password());
        let body = json!({"token": token, "password": new, "password_confirmation": new});
        let answer = self.post(None, "/v1/auth/reset-password", &body).await;
        self.expect(&answer, 200, "");
        // The second factor stays, and no session is opened.
        self.account.password = Some(new);
        self.account.end_all(None);
    }

    fn new_password(&mut self) -> String {
        format!("Violet-Kettle-Orbit-{}", self.chance.below(1_000_000_000_000))
    }

    async fn log_out(&mut self, session: usize, now: Time) {
        let is_live = self.account.is_live(session, now);
        if self.is_browser(session) {
            let answer = self.jar(session).post(&self.stage.world, "/console/sign-out", &[]).await;
            assert_eq!(answer.status, 303, "{}\n{}", answer.text, self.story);
        } else {
            let answer = self.post(Some(session), "/v1/auth/logout", &json!({})).await;
            let expected = if is_live { (200, "") } else { (401, "invalid_access_token") };
            self.expect(&answer, expected.0, expected.1);
        }
        self.account.sessions[session].has_ended |= is_live;
    }

    async fn end_others(&mut self, session: usize, now: Time) {
        if self.is_browser(session) {
            return;
        }
        let call = self.stage.world.call(Method::DELETE, "/v1/auth/sessions");
        let answer = call.bearer(&self.account.sessions[session].token).send().await;
        if !self.account.is_live(session, now) {
            return self.expect(&answer, 401, "invalid_access_token");
        }
        self.expect(&answer, 200, "");
        self.account.end_all(Some(session));
    }
}

/// Signs these options; returns the body of the request.
fn signed(world: &World, key: &mut SecurityKey, options: &Value) -> Value {
    let credential = key.sign(&options["public_key"], &origin(world));
    json!({"ceremony": options["ceremony"], "credential": credential})
}

pub(super) fn origin(world: &World) -> String {
    world.app.accounts.passkeys().unwrap().origin().to_owned()
}

pub(super) fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap_or_else(|| panic!("no {name}: {data}")).to_owned()
}
