//! A history: an organization, its members and their concurrent calls.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::db::{Error, FromRow, Row, sql};
use tollkeeper::ids::InvitationId;
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::tenants::roles::ProjectRole;
use tollkeeper::tenants::store::invitations;

use super::model::{
    ADMIN, Call, HOME, MEMBER, ORGANIZATION_ROLES, OWNER, PEOPLE, PROJECT_ADMIN, PROJECT_ROLES, Project,
    SLOTS, State, Step,
};
use support::chance::Chance;
use support::http::Answer;
use support::twin::Twin;
use support::world::{PASSWORD, Place, TestUser, World};

/// The initial roles: owners, admins, members, a user in a project only, and outsiders.
const INITIAL_ROLES: [usize; PEOPLE] = [OWNER, OWNER, ADMIN, ADMIN, MEMBER, MEMBER, 0, MEMBER, 0, 0];
/// The owners and admins among them.
const MANAGERS: usize = 4;
/// The users whose API keys also make calls.
const KEY_MAKERS: [usize; 3] = [0, 2, IN_PROJECT_ONLY];
const IN_PROJECT_ONLY: usize = 6;

/// A finished call and its answer.
#[derive(Debug)]
pub struct FinishedCall {
    pub call: Call,
    pub status: u16,
    pub code: String,
    pub request_id: String,
    /// The last position of the organization's audit trail before the call, and after it.
    pub seen: [i64; 2],
}

/// An entry of the audit trail. Within an organization, entries are written under its lock, so their
/// positions show the order of the commits.
#[derive(Debug)]
pub struct Entry {
    pub position: i64,
    pub actor: String,
    pub action: String,
    pub target: String,
    pub request_id: String,
}

impl FromRow for Entry {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            position: row.get("position")?,
            actor: row.get("actor")?,
            action: row.get("action")?,
            target: row.get("target")?,
            request_id: row.get("request_id")?,
        })
    }
}

/// Numbers the rows of the audit trail in their order, which SQLite does automatically.
pub async fn number_entries(world: &World) {
    if world.app.db.is_postgres() {
        let mut tx = world.app.db.write().await.unwrap();
        sql("ALTER TABLE audit_log ADD COLUMN rowid BIGSERIAL").execute(&mut tx).await.unwrap();
        let index = "CREATE INDEX audit_log_position ON audit_log (organization_id, rowid)";
        sql(index).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// An e-mailed link.
#[derive(Clone)]
struct Link {
    guest: usize,
    invitation: Arc<str>,
    token: String,
}

pub struct History {
    pub seed: u64,
    pub backend: &'static str,
    pub twins: [Twin; 2],
    pub place: Place,
    pub people: Vec<TestUser>,
    pub ids: [String; PEOPLE],
    /// Id and secret of the keys of each key maker.
    pub keys: Vec<(usize, String, String)>,
    pub start: State,
    pub starts_at: i64,
    projects: Mutex<[Option<Arc<str>>; SLOTS]>,
    links: Mutex<Vec<Link>>,
}

impl History {
    pub async fn begin(world: &World, twins: &[Twin; 2], seed: u64) -> Self {
        let mut people = Vec::new();
        for number in 0..PEOPLE {
            people.push(world.user(&format!("h{seed}p{number}")).await);
        }
        let place = world.place(&people[0], &format!("H{seed}")).await;
        for (person, role) in people.iter().zip(INITIAL_ROLES).skip(1).filter(|(_, role)| *role > 0) {
            let role = ORGANIZATION_ROLES[role].parse().unwrap();
            world.join_organization(&place, person, role).await;
        }
        world.join_project(&place, &people[IN_PROJECT_ONLY], ProjectRole::Admin).await;
        let mut keys = Vec::new();
        for maker in KEY_MAKERS {
            let name = json!({"name": format!("key {maker}")});
            let (id, secret) = world.key(&people[maker], &place, &name).await;
            keys.push((maker, id, secret));
        }
        let home: Arc<str> = place.project.as_str().into();
        let mut in_home = [0; PEOPLE];
        (in_home[0], in_home[IN_PROJECT_ONLY]) = (PROJECT_ADMIN + 1, PROJECT_ADMIN);
        let start = State {
            exists: true,
            roles: INITIAL_ROLES,
            default_role: MEMBER,
            allow_public: true,
            projects: vec![Project { id: Arc::clone(&home), slot: HOME, public: false, roles: in_home }],
            invitations: Vec::new(),
        };
        let mut history = Self {
            seed,
            backend: world.backend,
            twins: twins.clone(),
            ids: std::array::from_fn(|number| people[number].id.to_string()),
            place,
            people,
            keys,
            start,
            starts_at: 0,
            projects: Mutex::new([Some(home), None, None]),
            links: Mutex::new(Vec::new()),
        };
        history.starts_at = history.trail_end(&twins[0]).await;
        history
    }

    /// Returns the calls of each task, determined by the seed alone; their results depend on the
    /// interleaving.
    pub fn deal(&self, tasks: usize, steps: usize) -> Vec<Vec<(usize, Call)>> {
        let mut chance = Chance::new(self.seed);
        let mut hands = vec![Vec::new(); tasks];
        for number in 0..steps {
            let late = number * 4 >= steps * 3;
            let mut call = self.next(&mut chance);
            // Of sixteen organizations, one is deleted before its history ends.
            if self.seed.is_multiple_of(16) && late && chance.below(8) == 0 {
                call.step = Step::DeleteOrganization;
            }
            hands[number % tasks].push((chance.below(2), call));
        }
        hands
    }

    fn next(&self, chance: &mut Chance) -> Call {
        let (person, slot) = (chance.below(PEOPLE), chance.below(SLOTS));
        let role = chance.one_of(&[MEMBER, ADMIN, ADMIN, OWNER, OWNER]);
        let project_role = 1 + chance.below(PROJECT_ADMIN + 1);
        // The caller is often one of the initial managers, so that many calls are allowed.
        let among = chance.one_of(&[MANAGERS, MANAGERS, PEOPLE]);
        let mut by = chance.below(among);
        let step = match chance.below(100) {
            0..14 => Step::Invite { guest: person, role: Some(role).filter(|_| chance.below(4) > 0) },
            14..24 => Step::FollowLink { older: chance.below(6) / 2 },
            24..27 => Step::ProveAddress,
            27..45 => Step::ChangeRole { member: person, role },
            45..49 => Step::Remove { member: person },
            49..51 => Step::Remove { member: by },
            51..60 => Step::CreateProject { slot, public: chance.below(2) == 0 },
            60..63 => Step::DeleteProject { slot: slot.max(HOME + 1) },
            63..78 => Step::AddToProject { slot, person, role: project_role },
            78..88 => Step::ChangeProjectRole { slot, person, role: project_role },
            88..92 => Step::RemoveFromProject { slot, person },
            92..94 => Step::RemoveFromProject { slot, person: by },
            _ => Step::ChangeSettings {
                default_role: chance.one_of(&[MEMBER, ADMIN]),
                allow_public: chance.below(3) > 0,
            },
        };
        if matches!(step, Step::ProveAddress) {
            by = person;
        }
        let alone = matches!(step, Step::FollowLink { .. } | Step::ProveAddress);
        if !alone && chance.below(5) == 0 {
            by = chance.one_of(&KEY_MAKERS);
        }
        let with_key = !alone && KEY_MAKERS.contains(&by) && chance.below(3) == 0;
        Call { by, with_key, step, project: None, invitation: None }
    }

    /// Runs one task's calls.
    pub async fn play(self: Arc<Self>, hand: Vec<(usize, Call)>) -> Vec<FinishedCall> {
        let mut seen = self.starts_at;
        let mut all = Vec::new();
        for (on, mut call) in hand {
            let twin = &self.twins[on];
            let answer = self.send(twin, &mut call).await;
            let after = self.trail_end(twin).await;
            // A page isn't JSON.
            let code = if answer.text.starts_with('{') { answer.code() } else { String::new() };
            let request_id = answer.header("x-request-id").to_owned();
            if answer.status == 200 {
                self.remember(twin, &call, &answer).await;
            }
            twin.app.clock.advance_ms(1);
            all.push(FinishedCall { call, status: answer.status, code, request_id, seen: [seen, after] });
            seen = after;
        }
        all
    }

    /// Returns the end of the organization's audit trail; also checks that the organization has an owner.
    pub async fn trail_end(&self, twin: &Twin) -> i64 {
        let (position, exists, owners): (i64, i64, i64) = sql(
            "SELECT COALESCE((SELECT MAX(rowid) FROM audit_log WHERE organization_id = $1), 0) AS position,
                    (SELECT COUNT(*) FROM organizations WHERE id = $1) AS found,
                    (SELECT COUNT(*) FROM organization_members WHERE organization_id = $1 AND role = 'owner') AS owners",
        )
        .bind(self.place.organization.as_str())
        .one(&mut twin.app.db.read().await.unwrap())
        .await
        .unwrap();
        let (place, seed) = (self.backend, self.seed);
        assert!(exists == 0 || owners > 0, "on {place}, TOLLKEEPER_TEST_SEED={seed}: no owner");
        position
    }

    pub async fn entries(&self) -> Vec<Entry> {
        sql("SELECT rowid AS position, actor, action, target, request_id FROM audit_log
             WHERE organization_id = $1 AND rowid > $2 ORDER BY rowid")
        .bind(self.place.organization.as_str())
        .bind(self.starts_at)
        .all(&mut self.twins[0].app.db.read().await.unwrap())
        .await
        .unwrap()
    }

    async fn send(&self, twin: &Twin, call: &mut Call) -> Answer {
        let organization = self.place.organization_path();
        let member = |person: usize| format!("{organization}/members/{}", self.ids[person]);
        let (method, path, body) = match call.step {
            Step::FollowLink { older } => return self.follow_link(twin, call, older).await,
            Step::ProveAddress => return self.prove_address(twin, call.by).await,
            Step::Invite { guest, role } => {
                let mut body = json!({"email": self.address(guest)});
                if let Some(role) = role {
                    body["role"] = ORGANIZATION_ROLES[role].into();
                }
                (Method::POST, format!("{organization}/invitations"), body)
            }
            Step::ChangeRole { member: person, role } => {
                (Method::PUT, member(person), json!({"role": ORGANIZATION_ROLES[role]}))
            }
            Step::Remove { member: person } => (Method::DELETE, member(person), Value::Null),
            Step::CreateProject { slot, public } => {
                let visibility = if public { "public" } else { "private" };
                // The project in the slot `HOME` gets the initial project's name.
                let name =
                    if slot == HOME { format!("h{} PROJECT", self.seed) } else { format!("Project {slot}") };
                let body = json!({"name": name, "visibility": visibility});
                (Method::POST, format!("{organization}/projects"), body)
            }
            Step::DeleteProject { slot } => (Method::DELETE, self.project(call, slot, ""), Value::Null),
            Step::AddToProject { slot, person, role } => {
                let body = json!({"user_id": self.ids[person], "role": PROJECT_ROLES[role]});
                (Method::POST, self.project(call, slot, "/members"), body)
            }
            Step::ChangeProjectRole { slot, person, role } => {
                let path = self.project(call, slot, &format!("/members/{}", self.ids[person]));
                (Method::PUT, path, json!({"role": PROJECT_ROLES[role]}))
            }
            Step::RemoveFromProject { slot, person } => {
                let path = self.project(call, slot, &format!("/members/{}", self.ids[person]));
                (Method::DELETE, path, Value::Null)
            }
            Step::ChangeSettings { default_role, allow_public } => {
                let settings = json!({"default_role": ORGANIZATION_ROLES[default_role],
                                      "allow_public_projects": allow_public});
                (Method::PUT, organization, json!({ "settings": settings }))
            }
            Step::DeleteOrganization => (Method::DELETE, organization, Value::Null),
        };
        let request = twin.call(method, &path).bearer(self.bearer(call));
        if body.is_null() { request.send().await } else { request.json(&body).send().await }
    }

    fn bearer(&self, call: &Call) -> &str {
        if call.with_key { &self.key(call.by).2 } else { &self.people[call.by].access_token }
    }

    fn key(&self, maker: usize) -> &(usize, String, String) {
        self.keys.iter().find(|key| key.0 == maker).unwrap()
    }

    /// Returns the actor that the audit trail should contain.
    pub fn actor(&self, call: &Call) -> &str {
        if call.with_key { &self.key(call.by).1 } else { &self.ids[call.by] }
    }

    fn address(&self, person: usize) -> String {
        format!("h{}p{person}@example.com", self.seed)
    }

    /// Returns the path of the latest project with this number.
    fn project(&self, call: &mut Call, slot: usize, rest: &str) -> String {
        call.project.clone_from(&self.projects.lock().unwrap()[slot]);
        let id = call.project.as_deref().unwrap_or("proj_of_nobody");
        format!("{}/projects/{id}{rest}", self.place.organization_path())
    }

    async fn follow_link(&self, twin: &Twin, call: &mut Call, older: usize) -> Answer {
        let link = self.links.lock().unwrap().iter().rev().nth(older).cloned();
        let token = match link {
            Some(Link { guest, invitation, token }) => {
                (call.by, call.invitation) = (guest, Some(invitation));
                token
            }
            None => "A".repeat(43),
        };
        twin.call(Method::POST, "/invitations/accept").form(&[("token", &token)]).send().await
    }

    async fn prove_address(&self, twin: &Twin, person: usize) -> Answer {
        let body = json!({"email": self.address(person), "password": PASSWORD});
        twin.post("/v1/auth/login", &body).send().await
    }

    /// Stores the parts of an answer that later calls need.
    async fn remember(&self, twin: &Twin, call: &Call, answer: &Answer) {
        let id = |field: &str| answer.json()["data"][field].as_str().unwrap().to_owned();
        match call.step {
            Step::CreateProject { slot, .. } => {
                self.projects.lock().unwrap()[slot] = Some(id("id").into());
            }
            Step::Invite { guest, .. } => {
                // Does the same as the job that sends e-mails.
                let (app, invitation) = (&twin.app, id("invitation_id"));
                let (token, id) =
                    (MailToken::generate(&app.random), InvitationId::parse(&invitation).unwrap());
                let now = app.clock.now();
                let expires_at = now.plus_ms(7 * DAY_MS);
                let mut tx = app.db.write().await.unwrap();
                invitations::set_token(&mut tx, id, token.hash(), expires_at, now).await.unwrap();
                tx.commit().await.unwrap();
                let token = token.expose().to_owned();
                self.links.lock().unwrap().push(Link { guest, invitation: invitation.into(), token });
            }
            _ => {}
        }
    }

    /// Fails the test and prints the history.
    pub fn fail(&self, what: &str, all: &[FinishedCall], entries: &[Entry]) -> ! {
        let mut story = format!(
            "{what}\non {}, TOLLKEEPER_TEST_SEED={} (the people: {:?})",
            self.backend, self.seed, self.ids
        );
        let mut all: Vec<_> = all.iter().collect();
        all.sort_by_key(|done| done.seen);
        for done in all {
            let of_it = entries.iter().filter(|entry| entry.request_id == done.request_id);
            let entries: Vec<_> =
                of_it.map(|entry| format!("{} {} {}", entry.position, entry.action, entry.target)).collect();
            write!(story, "\n{:?} {:?}: {} {} {entries:?}", done.seen, done.call, done.status, done.code)
                .unwrap();
        }
        panic!("{story}");
    }
}
