//! Compares sign-in methods with a model: random sequences of logins, sign-ons, proofs, factors, passkeys,
//! connections, resets, and changes by operators and by the owner of an organization. After each step every
//! session of the sequence requests the organization.
//!
//! The model ([`model`]) decides which logins are accepted, and which requests each session may make.
//! Independently of that, evidence weaker than the account's rule never opens a session
//! ([`Account::is_enough`]). On a mismatch, the test prints the sequence; `TOLLKEEPER_TEST_SEED` repeats it
//! before the others ([`support::seeds`]).

mod calls;
mod factors;
mod model;
mod steps;

use std::fmt::Write;

use tollkeeper::accounts::hasher::Hasher;
use tollkeeper::app::App;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS, SECOND_MS};
use tollkeeper::ids::UserId;
use tollkeeper::kernel::networks::Network;
use tollkeeper::random::Random;
use tollkeeper::tenants::roles::OrganizationRole;
use tollkeeper::web::route::Listener;

use self::calls::Beginning;
use self::model::{Account, Entrance, Kind};
use support::authenticator::STEP_MS;
use support::chance::Chance;
use support::identity_provider::{IdentityProvider, ProvidersFile};
use support::seeds::Seeds;
use support::world::{PASSWORD, Place, TestUser, World, catch_up};
use support::{Database, on_each_database};

/// The number of sequences in a complete run. Queries cost more on PostgreSQL.
const SEQUENCES_ON_SQLITE: u64 = 9_520;
const SEQUENCES_ON_POSTGRES: u64 = 480;
const STEPS: usize = 6;
const PEOPLE: usize = 8;

/// Waits, in milliseconds: close to the expiry of a proof, an access token, and a session opened by the
/// provider.
const WAITS_MS: [i64; 6] =
    [SECOND_MS, 15 * MINUTE_MS - 1, 15 * MINUTE_MS, HOUR_MS, 2 * HOUR_MS - 1, 2 * HOUR_MS];

/// A step. `session` is the number of a session, in the order in which the sequence opened them.
#[derive(Clone, Copy, Debug)]
enum Step {
    LogIn { right: bool, code: Given, kind: Kind },
    UsePasskey { is_gone: bool },
    SignOn { code: Given },
    Prove { session: usize, by: By, code: Given },
    AddApp { session: usize },
    RemoveApp { session: usize },
    AddPasskey { session: usize, is_asked: Option<bool> },
    RemovePasskey { session: usize },
    RenewCodes { session: usize },
    Connect { session: usize },
    Disconnect { session: usize },
    ChangePassword { session: usize },
    ResetPassword,
    LogOut { session: usize },
    EndOthers { session: usize },
    Disable,
    Enable,
    ResetFactors,
    RequireFactor(bool),
    RequireSignOn(bool),
    Wait { ms: i64 },
}

/// The code in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Given {
    None,
    /// The current code of the app.
    App,
    Recovery,
    /// A code that was used, or is no longer valid.
    Spent,
}

/// A proof of identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Password,
    WrongPassword,
    Passkey,
}

/// State shared by all sequences on a database.
struct Stage {
    world: World,
    provider: IdentityProvider,
    boss: TestUser,
    place: Place,
    people: Vec<(UserId, String)>,
    /// The stored hash of the password.
    hash: String,
}

impl Stage {
    async fn new(world: World, file: &ProvidersFile) -> Self {
        let world = with_cheap_hashes(world).await;
        let provider = IdentityProvider::start().await;
        let boss = world.user("boss").await;
        let place = world.place(&boss, "Acme").await;
        world.add_authenticator(&boss.access_token).await;
        let settings = format!(
            "organization = \"{}\"\ndomains = [\"example.com\"]\nsession_hours = 2",
            place.organization
        );
        file.write(&world, &[("acme", &provider.issuer, &settings)]);
        let mut people = Vec::new();
        for number in 0..PEOPLE {
            let name = format!("person{number}");
            let user = world.user(&name).await;
            world.join_organization(&place, &user, OrganizationRole::Member).await;
            people.push((user.id, name));
        }
        let hasher = &world.app.accounts.hasher;
        let hash = hasher.acquire_place(Network::Unknown).unwrap().hash(PASSWORD).await.unwrap();
        Self { world, provider, boss, place, people, hash }
    }
}

/// Replaces the world's server with one that uses cheap password hashes.
async fn with_cheap_hashes(mut world: World) -> World {
    let random = Random::system();
    let cheap = argon2::Params::new(8, 1, 1, None).unwrap();
    let hasher = Hasher::with_parameters(2, 64, random.clone(), cheap);
    let app = App::with_hasher(world.app.config.clone(), world.clock.clone(), random, hasher).unwrap();
    app.boot().await.unwrap();
    world.public = app.dispatcher(Listener::Public);
    world.app = app;
    world
}

/// A running sequence.
struct Sequence<'a> {
    stage: &'a Stage,
    id: UserId,
    /// The username, which is also the subject at the provider.
    name: &'a str,
    chance: Chance,
    account: Account,
    /// The number of the next connection.
    next_connection: usize,
    story: String,
    probes: u64,
}

impl<'a> Sequence<'a> {
    async fn begin(stage: &'a Stage, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let (id, name) = &stage.people[chance.below(stage.people.len())];
        let is_connected = chance.below(3) > 0;
        // A user without a password always has a connection.
        let has_password = !is_connected || chance.below(4) > 0;
        let is_owner = chance.below(4) == 0;
        let beginning = Beginning {
            password_hash: has_password.then_some(stage.hash.as_str()),
            role: if is_owner { "owner" } else { "member" },
            connection: is_connected.then_some((stage.provider.issuer.as_str(), name.as_str())),
        };
        calls::begin(&stage.world, *id, &stage.place.organization, &beginning).await;
        let account = Account {
            password: has_password.then(|| PASSWORD.to_owned()),
            app: None,
            codes: Vec::new(),
            spent: Vec::new(),
            passkeys: Vec::new(),
            gone: Vec::new(),
            are_passkeys_asked: false,
            connection: is_connected.then_some(0),
            is_disabled: false,
            is_owner,
            requires_factor: false,
            requires_sign_on: false,
            sessions: Vec::new(),
        };
        let mut story = format!("on {}, TOLLKEEPER_TEST_SEED={seed}:\n", stage.world.backend);
        writeln!(story, "password: {has_password}, connected: {is_connected}, owner: {is_owner}").unwrap();
        Self { stage, id: *id, name, chance, account, next_connection: 1, story, probes: 0 }
    }

    async fn run(&mut self) {
        for number in 0..STEPS {
            // Half of the steps start a new time step of the app.
            self.stage.world.clock.advance_ms(self.chance.one_of(&[0, STEP_MS]));
            let step = self.next_step(number);
            writeln!(self.story, "{number}. {step:?}").unwrap();
            catch_up(&self.stage.world.app).await;
            self.take(step).await;
            self.probe().await;
        }
    }

    /// Returns the next random step, which opens a session while the sequence has none.
    fn next_step(&mut self, number: usize) -> Step {
        let chance = &mut self.chance;
        let code = chance.one_of(&[Given::None, Given::App, Given::App, Given::Recovery, Given::Spent]);
        let kind = chance.one_of(&[Kind::Api, Kind::Api, Kind::Browser]);
        let right = chance.below(6) > 0;
        let has_password = self.account.password.is_some();
        let log_in = match has_password {
            true => Step::LogIn { right: right || number == 0, code, kind },
            false => Step::SignOn { code },
        };
        if self.account.sessions.is_empty() {
            return if number < 3 { log_in } else { Step::SignOn { code } };
        }
        let session = chance.below(self.account.sessions.len());
        let by = chance.one_of(&[By::Password, By::Password, By::WrongPassword, By::Passkey]);
        let value = chance.below(4) > 0;
        match chance.below(38) {
            0..=4 => Step::LogIn { right, code, kind },
            5 | 6 => Step::UsePasskey { is_gone: false },
            7 => Step::UsePasskey { is_gone: true },
            8..=10 => Step::SignOn { code },
            11..=13 => Step::Prove { session, by, code },
            14..=16 => Step::AddApp { session },
            17 => Step::RemoveApp { session },
            18 | 19 => {
                Step::AddPasskey { session, is_asked: chance.one_of(&[None, Some(true), Some(false)]) }
            }
            20 => Step::RemovePasskey { session },
            21 => Step::RenewCodes { session },
            22 => Step::Connect { session },
            23 => Step::Disconnect { session },
            24 => Step::ChangePassword { session },
            25 => Step::ResetPassword,
            26 => Step::LogOut { session },
            27 => Step::EndOthers { session },
            28 => Step::Disable,
            29 => Step::Enable,
            30 => Step::ResetFactors,
            31 | 32 => Step::RequireFactor(value),
            33 | 34 => Step::RequireSignOn(value),
            _ => Step::Wait { ms: chance.one_of(&WAITS_MS) },
        }
    }

    /// Requests the organization with every session so far.
    async fn probe(&mut self) {
        let (world, now) = (&self.stage.world, self.stage.world.clock.now());
        for (number, session) in self.account.sessions.iter().enumerate() {
            let found = calls::entrance(world, session, &self.stage.place.organization).await;
            self.probes += 1;
            assert!(found == Entrance::SignedOut || !self.account.is_disabled, "{}", self.story);
            let expected = self.account.entrance(number, now);
            assert_eq!(found, expected, "session {number} ({:?})\n{}", session.kind, self.story);
        }
    }
}

#[on_each_database]
fn sign_in_methods_match_the_model(database: Database) {
    let file = ProvidersFile::new();
    // Limits of attempts have their own tests; here thousands of logins come from one address.
    let path = file.path();
    let settings =
        [("TOLLKEEPER_LIMITS__ENABLED", "false"), ("TOLLKEEPER_SIGN_IN__PROVIDERS_FILE", path.as_str())];
    database.run(&settings, async |world| {
        let stage = Stage::new(world, &file).await;
        let seeds = Seeds::of("sign_in_model", database.choose(SEQUENCES_ON_SQLITE, SEQUENCES_ON_POSTGRES));
        let (sequences, mut probes) = (seeds.len(), 0);
        for &seed in &seeds.seeds {
            // Every sequence begins with a time step, so that its seed alone decides which codes are valid.
            let clock = &stage.world.clock;
            clock.advance_ms(STEP_MS - clock.now().unix_ms() % STEP_MS);
            let mut sequence = Sequence::begin(&stage, seed).await;
            sequence.run().await;
            probes += sequence.probes;
        }
        println!("{database:?}: {sequences} sequences, {probes} probes");
        assert!(probes > sequences * 5, "{probes} probes");
    });
}
