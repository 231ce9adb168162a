//! Compares sessions with a model: random sequences of logins and session ends on two servers with one
//! database. After each step every token of the sequence is checked on both servers.
//!
//! The model ([`Model::accepts`]): a token is valid until it expires, its session expires, or the first
//! logout, password change or reset ends the session. On a mismatch, the test prints the sequence;
//! `TOLLKEEPER_TEST_SEED` repeats it before the others ([`support::seeds`]).

mod calls;
mod model;

use std::fmt::Write;

use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::{DAY_MS, HOUR_MS, SECOND_MS, Time};
use tollkeeper::ids::UserId;
use tollkeeper::kernel::secrets::token::MailToken;

use self::calls::{mail_token, passes_the_gate, reads_its_owner};
use self::model::Model;
use support::chance::Chance;
use support::seeds::Seeds;
use support::twin::{Twin, settle};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

/// The number of sequences in a complete run. Queries cost more on PostgreSQL.
const SEQUENCES_ON_SQLITE: u64 = 10_000;
const SEQUENCES_ON_POSTGRES: u64 = 500;
const STEPS: usize = 6;
const PEOPLE: usize = 16;

/// Waits, in milliseconds: close to each expiry of a token or a session, and shorter than a second.
const WAITS_MS: [i64; 9] = [
    1,
    500,
    SECOND_MS,
    HOUR_MS - 1,
    HOUR_MS,
    DAY_MS,
    29 * DAY_MS + 23 * HOUR_MS + 30 * 60 * SECOND_MS,
    30 * DAY_MS - 1,
    30 * DAY_MS,
];

/// A step. Tokens are numbered in the order in which the sequence got them; users are numbered 0 and 1.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait { ms: i64 },
    Login { person: usize, right: bool },
    Refresh { token: usize },
    Logout { token: usize },
    ChangePassword { token: usize, current: Current },
    ResetPassword { person: usize, mailed: Mailed },
}

/// The current password given for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Current {
    Right,
    Wrong,
    /// The right password, but the new password breaks a rule.
    RightForAWeakOne,
}

/// The token used to set a new password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mailed {
    Fresh,
    Used,
    /// A fresh token, but the new password breaks a rule.
    FreshForAWeakOne,
}

/// A user of many sequences.
struct Person {
    id: UserId,
    email: String,
    password: String,
    /// The last token that set a new password.
    used: String,
}

/// A running sequence.
struct Sequence<'a> {
    world: &'a World,
    twins: &'a [Twin; 2],
    people: [&'a mut Person; 2],
    chance: Chance,
    model: Model,
    story: String,
    probes: u64,
}

impl Sequence<'_> {
    async fn run(&mut self) {
        for number in 0..STEPS {
            let step = self.next_step(number == 0);
            let on = self.chance.below(2);
            writeln!(self.story, "{number}. on server {on}: {step:?}").unwrap();
            self.take(step, on).await;
            self.probe().await;
        }
    }

    /// Returns the next random step; the first step opens a session.
    fn next_step(&mut self, first: bool) -> Step {
        let chance = &mut self.chance;
        let person = chance.below(2);
        let login = Step::Login { person, right: first || chance.below(6) > 0 };
        let current =
            chance.one_of(&[Current::Right, Current::Right, Current::Wrong, Current::RightForAWeakOne]);
        let mailed = chance.one_of(&[Mailed::Fresh, Mailed::Fresh, Mailed::Used, Mailed::FreshForAWeakOne]);
        if first {
            return login;
        }
        let token = chance.below(self.model.tokens.len());
        match chance.below(12) {
            0..=2 => login,
            3 | 4 => Step::Refresh { token },
            5 | 6 => Step::Logout { token },
            7 | 8 => Step::ChangePassword { token, current },
            9 => Step::ResetPassword { person, mailed },
            _ => Step::Wait { ms: chance.one_of(&WAITS_MS) },
        }
    }

    async fn take(&mut self, step: Step, on: usize) {
        let server = &self.twins[on];
        settle(server).await;
        let now = self.world.clock.now();
        match step {
            Step::Wait { ms } => self.world.clock.advance_ms(ms),
            Step::Login { person, right } => {
                let password = if right { &self.people[person].password } else { "Wrong-Kettle-1" };
                let body = json!({"email": self.people[person].email, "password": password});
                let expected = if right { 200 } else { 401 };
                let tokens = self.post(server, "login", "", &body, expected).await;
                if right {
                    let [access, refresh] = ["access_token", "refresh_token"].map(|name| text(&tokens, name));
                    self.model.begin(person, access, refresh, now);
                }
            }
            Step::Refresh { token } => {
                let (bearer, session, good) = self.bearer(token, TokenKind::Refresh, now);
                let expected = if good { 200 } else { 401 };
                let tokens = self.post(server, "refresh-token", &bearer, &json!({}), expected).await;
                if good {
                    let access = text(&tokens, "access_token");
                    self.model.add(TokenKind::Access, access, session, now.plus_ms(HOUR_MS));
                }
            }
            Step::Logout { token } => {
                let (bearer, session, good) = self.bearer(token, TokenKind::Access, now);
                let expected = if good { 200 } else { 401 };
                self.post(server, "logout", &bearer, &json!({}), expected).await;
                self.model.sessions[session].ended |= good;
            }
            Step::ChangePassword { token, current } => {
                let (bearer, session, good) = self.bearer(token, TokenKind::Access, now);
                self.change_password(server, &bearer, session, good, current).await;
            }
            Step::ResetPassword { person, mailed } => self.reset_password(server, person, mailed).await,
        }
    }

    async fn change_password(
        &mut self,
        server: &Twin,
        bearer: &str,
        session: usize,
        good: bool,
        current: Current,
    ) {
        let person = self.model.sessions[session].person;
        let new = if current == Current::RightForAWeakOne { "weak".to_owned() } else { self.new_password() };
        let given = if current == Current::Wrong { "Wrong-Kettle-1" } else { &self.people[person].password };
        let body = json!({"current_password": given, "new_password": new, "new_password_confirmation": new});
        let expected = match current {
            _ if !good => 401,
            Current::Right => 200,
            Current::Wrong => 401,
            Current::RightForAWeakOne => 400,
        };
        self.post(server, "change-password", bearer, &body, expected).await;
        if expected == 200 {
            self.people[person].password = new;
            self.model.end_all(person, Some(session));
        }
    }

    async fn reset_password(&mut self, server: &Twin, person: usize, mailed: Mailed) {
        let token = match mailed {
            Mailed::Used => self.people[person].used.clone(),
            Mailed::Fresh | Mailed::FreshForAWeakOne => mail_token(server, self.people[person].id).await,
        };
        let new = if mailed == Mailed::FreshForAWeakOne { "weak".to_owned() } else { self.new_password() };
        let body = json!({"token": token, "password": new, "password_confirmation": new});
        let expected = if mailed == Mailed::Fresh { 200 } else { 400 };
        self.post(server, "reset-password", "", &body, expected).await;
        if expected == 200 {
            self.people[person].password = new;
            self.people[person].used = token;
            self.model.end_all(person, None);
        }
    }

    /// Returns a token, its session, and whether it should be valid for this kind of use.
    fn bearer(&self, token: usize, kind: TokenKind, now: Time) -> (String, usize, bool) {
        let token = &self.model.tokens[token];
        let good = token.kind == kind && self.model.accepts(token, now);
        (token.text.clone(), token.session, good)
    }

    fn new_password(&mut self) -> String {
        format!("Violet-Kettle-Orbit-{}", self.chance.below(1_000_000_000_000))
    }

    async fn post(&self, server: &Twin, what: &str, bearer: &str, body: &Value, expected: u16) -> Value {
        let answer = server.post(&format!("/v1/auth/{what}"), body).bearer(bearer).send().await;
        assert_eq!(answer.status, expected, "{}\n{}", answer.text, self.story);
        answer.json()["data"].take()
    }

    /// Checks every token so far, on both servers.
    async fn probe(&mut self) {
        let now = self.world.clock.now();
        for (on, server) in self.twins.iter().enumerate() {
            settle(server).await;
            for (number, token) in self.model.tokens.iter().enumerate() {
                let accepted = match token.kind {
                    TokenKind::Access => reads_its_owner(server, &token.text).await,
                    TokenKind::Refresh => passes_the_gate(server, &token.text).await,
                    TokenKind::Browser => unreachable!("no step opens a browser"),
                };
                self.probes += 1;
                let expected = self.model.accepts(token, now);
                assert_eq!(
                    accepted, expected,
                    "token {number} ({:?}, of session {}) on server {on}\n{}",
                    token.kind, token.session, self.story
                );
            }
        }
    }
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap().to_owned()
}

/// Picks two different elements.
fn two<'a, T>(all: &'a mut [T], chance: &mut Chance) -> [&'a mut T; 2] {
    let one = chance.below(all.len());
    let other = (one + 1 + chance.below(all.len() - 1)) % all.len();
    all.get_disjoint_mut([one, other]).unwrap()
}

#[on_each_database]
fn tokens_match_the_model(database: Database) {
    // Limits of attempts have their own tests; here thousands of logins come from one address.
    database.run(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world| {
        let twins = Twin::both_with_cheap_hashes(&world).await;
        let mut people = Vec::new();
        for number in 0..PEOPLE {
            let name = format!("person{number}");
            let id = world.user(&name).await.id;
            let used = MailToken::generate(&world.app.random).expose().to_owned();
            let email = format!("{name}@example.com");
            people.push(Person { id, email, password: PASSWORD.to_owned(), used });
        }
        let seeds = Seeds::of("sessions_model", database.choose(SEQUENCES_ON_SQLITE, SEQUENCES_ON_POSTGRES));
        let (sequences, mut probes) = (seeds.len(), 0);
        for &seed in &seeds.seeds {
            let mut chance = Chance::new(seed);
            // Every sequence begins on a whole second, so that its seed alone decides when its tokens expire.
            world.clock.advance_ms(SECOND_MS - world.clock.now().unix_ms() % SECOND_MS);
            let mut sequence = Sequence {
                world: &world,
                twins: &twins,
                people: two(&mut people, &mut chance),
                chance,
                model: Model::default(),
                story: format!("on {}, TOLLKEEPER_TEST_SEED={seed}:\n", world.backend),
                probes: 0,
            };
            sequence.run().await;
            probes += sequence.probes;
        }
        println!("{}: {sequences} sequences, {probes} probes", world.backend);
        assert!(probes > sequences * 20, "{probes} probes");
    });
}
