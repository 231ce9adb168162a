//! The callers of the access matrix and the targets of their calls.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::world::{Place, TestUser, World, id};
use support::{billed, webhooks};

/// A kind of caller: the heading of its column, an explanation where the heading isn't enough, and the user
/// whose roles apply.
pub struct Caller {
    pub head: String,
    pub meaning: String,
    pub bearer: String,
    pub user_id: String,
    /// The API key that the bearer is a secret of; for other callers, an id that doesn't exist.
    pub key_id: String,
    /// `true` if the bearer is an access token or an API key.
    pub is_authenticated: bool,
}

/// The member in a path.
#[derive(Clone)]
pub enum Member {
    Caller,
    Other(String),
}

/// The API key in a path.
#[derive(Clone)]
pub enum NamedKey {
    /// The caller's own key.
    Caller,
    Other(String),
}

/// The session in a path.
#[derive(Clone)]
pub enum NamedSession {
    /// A new session of the caller.
    Caller,
    Other(String),
}

/// The values for the parameters of a path.
#[derive(Clone)]
pub struct Target {
    pub title: &'static str,
    pub organization: String,
    pub project: String,
    pub key: NamedKey,
    pub invoice: String,
    pub budget: String,
    pub payment: String,
    pub invitation: String,
    pub webhook: String,
    pub delivery: String,
    pub call: String,
    pub member: Member,
    pub session: NamedSession,
}

/// Callers without an access token or API key.
const UNAUTHENTICATED: [&str; 4] = ["non", "jnk", "ref", "srv"];

/// The route whose bearer belongs to a proxied request, not to the caller.
pub const FORWARD_AUTH: &str = "/service/v1/forward-auth";

/// The title of the forward-auth target without the service token.
pub const NO_SERVICE_TOKEN: &str = "private, no service token";

/// All callers, and the projects that they call.
pub struct Scene {
    pub callers: Vec<Caller>,
    own: TargetProject,
    sibling: TargetProject,
    public: TargetProject,
    foreign: TargetProject,
    nowhere: TargetProject,
    /// Keys of the private project, made by an admin of the organization, an admin of the project, and a
    /// removed member.
    by_admin: String,
    by_project_admin: String,
    by_removed: String,
}

/// A project with a key and a member that are only targets of calls, never callers.
#[derive(Clone)]
struct TargetProject {
    place: Place,
    key: String,
    invoice: String,
    budget: String,
    payment: String,
    invitation: String,
    webhook: String,
    delivery: String,
    call: String,
    member: String,
    /// A session of the member.
    session: String,
}

impl Scene {
    pub async fn new(world: &World) -> Self {
        let owner = world.user("owner").await;
        let place = world.place(&owner, "Own").await;
        let stranger = world.user("stranger").await;
        let foreign = world.place(&stranger, "Foreign").await;
        let foreign = target_project(world, &stranger, foreign, "away").await;
        let own = target_project(world, &owner, place.clone(), "inside").await;
        let sibling = sibling_project(world, &owner, &place, &json!({"name": "Sibling"})).await;
        let sibling = target_project(world, &owner, sibling, "beside").await;
        let public = json!({"name": "Public", "visibility": "public"});
        let public = sibling_project(world, &owner, &place, &public).await;
        let public = target_project(world, &owner, public, "open").await;
        let nowhere = Place {
            organization: "org_01h2xcejqtf2nbrexx3vqjhp41".into(),
            project: "proj_01h2xcejqtf2nbrexx3vqjhp41".into(),
        };
        let nowhere = TargetProject {
            place: nowhere,
            key: "key_01h2xcejqtf2nbrexx3vqjhp41".into(),
            invoice: "invoice_01h2xcejqtf2nbrexx3vqjhp41".into(),
            budget: "budget_01h2xcejqtf2nbrexx3vqjhp41".into(),
            payment: "payment_01h2xcejqtf2nbrexx3vqjhp41".into(),
            invitation: "inv_01h2xcejqtf2nbrexx3vqjhp41".into(),
            webhook: "webhook_01h2xcejqtf2nbrexx3vqjhp41".into(),
            delivery: "delivery_01h2xcejqtf2nbrexx3vqjhp41".into(),
            call: "call_01h2xcejqtf2nbrexx3vqjhp41".into(),
            member: "user_01h2xcejqtf2nbrexx3vqjhp41".into(),
            session: "sess_01h2xcejqtf2nbrexx3vqjhp41".into(),
        };
        let mut scene = Self {
            callers: Vec::new(),
            own,
            sibling,
            public,
            foreign,
            nowhere,
            by_admin: String::new(),
            by_project_admin: String::new(),
            by_removed: String::new(),
        };
        scene.add_special_callers(world, &owner, &stranger).await;
        scene.add_members(world, &owner).await;
        scene.add_rotated_keys(world, &owner).await;
        save(world).await;
        scene
    }

    fn add(&mut self, head: impl Into<String>, meaning: &str, bearer: &str, user: &TestUser) {
        let head = head.into();
        let (is_authenticated, user_id) = (!UNAUTHENTICATED.contains(&head.as_str()), user.id.to_string());
        let (meaning, bearer) = (meaning.to_owned(), bearer.to_owned());
        let key_id = self.nowhere.key.clone();
        self.callers.push(Caller { head, meaning, bearer, user_id, key_id, is_authenticated });
    }

    fn add_key(
        &mut self,
        head: impl Into<String>,
        meaning: &str,
        (id, secret): &(String, String),
        user: &TestUser,
    ) {
        self.add(head, meaning, secret, user);
        if let Some(caller) = self.callers.last_mut() {
            caller.key_id.clone_from(id);
        }
    }

    async fn add_special_callers(&mut self, world: &World, owner: &TestUser, stranger: &TestUser) {
        let (own, sibling) = (self.own.place.clone(), self.sibling.place.clone());
        let foreign = self.foreign.place.clone();
        let sibling = world.key(owner, &sibling, &json!({"name": "caller"})).await;
        let key = world.key(stranger, &foreign, &json!({"name": "caller"})).await;
        let elsewhere = world.place(owner, "Elsewhere").await;
        let elsewhere = world.key(owner, &elsewhere, &json!({"name": "caller"})).await;
        self.add("non", "no credential", "", owner);
        self.add("jnk", "an invalid bearer", "nonsense", owner);
        self.add("ref", "a refresh token of the organization's owner", &owner.refresh_token, owner);
        self.add("srv", "the service token", world.app.api.service_token.expose(), owner);
        self.add("for", "owner of another organization", &stranger.access_token, stranger);
        self.add_key("kfo", "API key of that organization, made by its owner", &key, stranger);
        self.add_key(
            "ksi",
            "API key of the sibling project, made by the organization's owner",
            &sibling,
            owner,
        );
        self.add_key("kel", "API key of another organization, made by this one's owner", &elsewhere, owner);
        for (head, meaning, body) in [
            ("kch", "like koo, with the permission `chat` only", json!({"permissions": ["chat"]})),
            ("kml", "like koo, for one model only", json!({"restrictions": {"models": ["svc-1"]}})),
            ("ktk", "like koo, with a limit of tokens", json!({"restrictions": {"max_tokens": 100}})),
            (
                "kip",
                "like koo, from some addresses only",
                json!({"restrictions": {"allowed_ips": ["10.0.0.0/24"]}}),
            ),
            ("krl", "like koo, with a rate limit", json!({"restrictions": {"rate_limit": 1_000_000}})),
            ("kex", "like koo, with an end", json!({"expires_at": "2026-12-01T00:00:00Z"})),
        ] {
            let mut body = body;
            body["name"] = json!(head);
            let key = world.key(owner, &own, &body).await;
            self.add_key(head, meaning, &key, owner);
        }
    }

    /// Adds users with every pair of roles in the organization and the private project, and a key of each
    /// user.
    async fn add_members(&mut self, world: &World, owner: &TestUser) {
        use OrganizationRole as O;
        use ProjectRole as P;
        let place = self.own.place.clone();
        let (mut people, mut keys) = (Vec::new(), Vec::new());
        for (letter, in_organization) in
            [('.', None), ('m', Some(O::Member)), ('a', Some(O::Admin)), ('o', Some(O::Owner))]
        {
            for (second, in_project) in [
                ('.', None),
                ('v', Some(P::Viewer)),
                ('d', Some(P::Developer)),
                ('a', Some(P::Admin)),
                ('o', Some(P::Owner)),
            ] {
                let name = format!("{letter}{second}");
                let user = world.user(&format!("who-{}", name.replace('.', "x"))).await;
                // The user makes the key as an admin, then gets the roles of the column.
                world.join_organization(&place, &user, O::Admin).await;
                let key = world.key(&user, &place, &json!({ "name": name })).await;
                let target = target_key(world, &user, &place, &format!("target of {name}")).await;
                match name.as_str() {
                    "a." => self.by_admin = target,
                    "ma" => self.by_project_admin = target,
                    ".." => self.by_removed = target,
                    _ => {}
                }
                let path = format!("{}/members/{}", place.organization_path(), user.id);
                world.call(Method::DELETE, &path).bearer(&owner.access_token).data().await;
                if let Some(role) = in_organization {
                    world.join_organization(&place, &user, role).await;
                }
                if let Some(role) = in_project {
                    world.join_project(&place, &user, role).await;
                }
                keys.push((format!("k{name}"), key, user.clone()));
                people.push((name, user));
            }
        }
        for (name, user) in &people {
            self.add(name.as_str(), "", &user.access_token, user);
        }
        for (name, key, user) in &keys {
            self.add_key(name.as_str(), "", key, user);
        }
    }

    /// Adds an owner's key that was rotated by another owner, who then became an admin of the project.
    async fn add_rotated_keys(&mut self, world: &World, owner: &TestUser) {
        let place = self.own.place.clone();
        let rotator = world.user("rotator").await;
        world.join_organization(&place, &rotator, OrganizationRole::Owner).await;
        let (id, _) = world.key(owner, &place, &json!({"name": "rotated"})).await;
        let path = format!("{}/api-keys/{id}/rotate", place.project_path());
        let rotated = world.call(Method::POST, &path).bearer(&rotator.access_token).data().await;
        let mut tx = world.app.db.write().await.unwrap();
        let text = "UPDATE organization_members SET role = 'member' WHERE user_id = $1";
        sql(text).bind(rotator.id).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        world.join_project(&place, &rotator, ProjectRole::Admin).await;
        let secret = rotated["key"].as_str().unwrap().to_owned();
        self.add_key("kro", "like koo, rotated by an owner with the role ma since", &(id, secret), owner);
    }

    /// Returns the targets for the parameters of a path.
    pub fn targets(&self, path: &str) -> Vec<Target> {
        let (own, foreign, nowhere) = (&self.own, &self.foreign, &self.nowhere);
        let target = |title, organization: &TargetProject, project: &TargetProject| Target {
            title,
            organization: organization.place.organization.clone(),
            project: project.place.project.clone(),
            key: NamedKey::Other(project.key.clone()),
            invoice: organization.invoice.clone(),
            budget: organization.budget.clone(),
            payment: organization.payment.clone(),
            invitation: organization.invitation.clone(),
            webhook: organization.webhook.clone(),
            delivery: organization.delivery.clone(),
            call: project.call.clone(),
            member: Member::Other(project.member.clone()),
            session: NamedSession::Other(project.session.clone()),
        };
        let member = |title, member: &Member| Target { member: member.clone(), ..target(title, own, own) };
        let other = |target_project: &TargetProject| Member::Other(target_project.member.clone());
        if path == FORWARD_AUTH {
            // Both ids are in the query.
            return vec![
                target("private", own, own),
                target("sibling", own, &self.sibling),
                target("public", own, &self.public),
                target("foreign", foreign, foreign),
                target("own/foreign", own, foreign),
                target("own/unknown", own, nowhere),
                target("unknown/own", nowhere, own),
                target(NO_SERVICE_TOKEN, own, own),
            ];
        }
        if path.contains("{session_id}") {
            let own_session = Target { session: NamedSession::Caller, ..target("one's own", own, own) };
            let others = [("another person's", own), ("unknown", nowhere)];
            return [own_session]
                .into_iter()
                .chain(others.map(|(title, of)| target(title, of, of)))
                .collect();
        }
        if !path.contains("{organization_id}") {
            return vec![target("", nowhere, nowhere)];
        }
        let mut targets = vec![target("own", own, own)];
        if !path.contains("{project_id}") {
            if path.contains("{member_id}") {
                targets = vec![member("own, a member", &other(own)), member("own, oneself", &Member::Caller)];
                targets.push(member("own, unknown", &other(nowhere)));
                targets.push(member("own, of another organization", &other(foreign)));
            }
            if path.contains("{invoice_id}") {
                let invoice = |title, target_project: &TargetProject| Target {
                    invoice: target_project.invoice.clone(),
                    ..target(title, own, own)
                };
                targets.push(invoice("own, unknown", nowhere));
                targets.push(invoice("own, of another organization", foreign));
            }
            if path.contains("{budget_id}") {
                let budget = |title, target_project: &TargetProject| Target {
                    budget: target_project.budget.clone(),
                    ..target(title, own, own)
                };
                targets.push(budget("own, unknown", nowhere));
                targets.push(budget("own, of another organization", foreign));
            }
            if path.contains("{payment_id}") {
                let payment = |title, target_project: &TargetProject| Target {
                    payment: target_project.payment.clone(),
                    ..target(title, own, own)
                };
                targets.push(payment("own, unknown", nowhere));
                targets.push(payment("own, of another organization", foreign));
            }
            if path.contains("{webhook_id}") {
                let webhook = |title, target_project: &TargetProject| Target {
                    webhook: target_project.webhook.clone(),
                    ..target(title, own, own)
                };
                targets.push(webhook("own, unknown", nowhere));
                targets.push(webhook("own, of another organization", foreign));
            }
            if path.contains("{delivery_id}") {
                let delivery = |title, target_project: &TargetProject| Target {
                    delivery: target_project.delivery.clone(),
                    ..target(title, own, own)
                };
                targets.push(delivery("own, of no delivery", nowhere));
                targets.push(delivery("own, of another webhook", foreign));
            }
            if path.contains("{call_id}") {
                let call = |title, target_project: &TargetProject| Target {
                    call: target_project.call.clone(),
                    ..target(title, own, own)
                };
                targets.push(call("own, unknown", nowhere));
                targets.push(call("own, of another organization", foreign));
            }
            if path.contains("{invitation_id}") {
                let invitation = |title, target_project: &TargetProject| Target {
                    invitation: target_project.invitation.clone(),
                    ..target(title, own, own)
                };
                targets.push(invitation("own, unknown", nowhere));
                targets.push(invitation("own, of another organization", foreign));
            }
            targets.push(target("foreign", foreign, foreign));
            targets.push(target("unknown", nowhere, own));
            return targets;
        }
        if path.contains("{member_id}") {
            targets =
                vec![member("private, a viewer", &other(own)), member("private, oneself", &Member::Caller)];
            targets.push(member("private, unknown", &other(nowhere)));
            targets.push(member("private, a sibling's", &other(&self.sibling)));
        } else {
            targets = vec![target("private", own, own)];
        }
        if path.contains("{key_id}") {
            let key = |title, key: NamedKey| Target { key, ..target(title, own, own) };
            let other = |id: &String| NamedKey::Other(id.clone());
            targets.push(key("private, an admin's", other(&self.by_admin)));
            targets.push(key("private, a project admin's", other(&self.by_project_admin)));
            targets.push(key("private, of a removed member", other(&self.by_removed)));
            targets.push(key("private, itself", NamedKey::Caller));
            targets.push(key("private, unknown", other(&nowhere.key)));
            targets.push(key("private, a sibling's", other(&self.sibling.key)));
        }
        targets.extend([
            target("sibling", own, &self.sibling),
            target("public", own, &self.public),
            target("foreign", foreign, foreign),
            target("own/foreign", own, foreign),
            target("own/unknown", own, nowhere),
            target("foreign/own", foreign, own),
            target("unknown/own", nowhere, own),
        ]);
        targets
    }
}

async fn sibling_project(world: &World, owner: &TestUser, place: &Place, body: &Value) -> Place {
    let path = format!("{}/projects", place.organization_path());
    let project = id(&world.post(&path, body).bearer(&owner.access_token).data().await);
    Place { organization: place.organization.clone(), project }
}

async fn target_project(world: &World, owner: &TestUser, place: Place, name: &str) -> TargetProject {
    let key = target_key(world, owner, &place, "target").await;
    let member = world.user(name).await;
    world.join_organization(&place, &member, OrganizationRole::Member).await;
    world.join_project(&place, &member, ProjectRole::Viewer).await;
    let (mut invoice, mut budget, mut invitation) = (String::new(), String::new(), String::new());
    let (mut webhook, mut delivery, mut payment) = (String::new(), String::new(), String::new());
    if ["inside", "away"].contains(&name) {
        invoice = billed::invoice(world, &place.organization).await;
        budget = billed::budget(world, owner, &place).await;
        payment = billed::payment(world, &place).await;
        let guest = ("guest@example.com", "guest@example.com");
        let id = world.insert_invitation(&place, guest, OrganizationRole::Member, owner.id).await;
        invitation = id.to_string();
        (webhook, delivery) = webhooks::webhook(world, owner, &place).await;
    }
    let call = reported_call(world, owner, &place, &key).await;
    let (member, session) = (member.id.to_string(), member.session_id.to_string());
    TargetProject {
        place,
        key,
        invoice,
        budget,
        payment,
        invitation,
        webhook,
        delivery,
        call,
        member,
        session,
    }
}

/// Reports a call that costs nothing, and returns its id in the call log.
pub async fn reported_call(world: &World, owner: &TestUser, place: &Place, key: &str) -> String {
    let event = json!({"id": key, "source": "matrix", "time": world.clock.now().to_string(), "api_key_id": key,
        "model": "svc-1", "kind": "chat", "prompt_tokens": 0});
    let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    let path = format!("{}/calls", place.project_path());
    let data = world.get(&path).bearer(&owner.access_token).data().await;
    id(&data["calls"][0])
}

/// Creates a key with a previous secret, which a call can end.
async fn target_key(world: &World, maker: &TestUser, place: &Place, name: &str) -> String {
    let (id, _) = world.key(maker, place, &json!({ "name": name })).await;
    let path = format!("{}/api-keys/{id}/rotate", place.project_path());
    world.call(Method::POST, &path).bearer(&maker.access_token).data().await;
    id
}

/// The tables that calls can delete from; referenced tables come before the tables that refer to them.
const TABLES: [&str; 10] = [
    "organizations",
    "organization_members",
    "invitations",
    "webhooks",
    "webhook_deliveries",
    "projects",
    "project_members",
    "api_keys",
    "api_key_secrets",
    "budgets",
];

/// Copies every row that a call can delete.
async fn save(world: &World) {
    let mut tx = world.app.db.write().await.unwrap();
    for table in TABLES {
        let copy = format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}");
        sql(copy).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Restores the saved rows, including counts.
pub async fn restore(world: &World) {
    let mut tx = world.app.db.write().await.unwrap();
    if world.app.db.is_postgres() {
        // Skips the checks of references and the triggers, which take most of the time.
        sql("SET LOCAL session_replication_role = replica").execute(&mut tx).await.unwrap();
    }
    for table in TABLES.into_iter().rev() {
        sql(format!("DELETE FROM {table}")).execute(&mut tx).await.unwrap();
    }
    sql("DELETE FROM former_api_keys").execute(&mut tx).await.unwrap();
    for table in TABLES {
        sql(format!("INSERT INTO {table} SELECT * FROM saved_{table}")).execute(&mut tx).await.unwrap();
    }
    for (table, column) in [
        ("organizations", "members_count"),
        ("organizations", "projects_count"),
        ("projects", "members_count"),
        ("projects", "api_keys_count"),
    ] {
        let text = format!(
            "UPDATE {table} SET {column} = (SELECT s.{column} FROM saved_{table} s WHERE s.id = {table}.id)"
        );
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}
