//! Who calls, and where to.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::ids::{OrganizationId, ProjectId};
use tollkeeper::roles::{OrganizationRole, ProjectRole};
use tollkeeper::store;

use crate::support::billed;
use crate::support::world::{Place, Somebody, World, id};

/// A kind of caller: the column's head, what it means where that isn't said in general, and whose roles count.
pub struct Caller {
    pub head: String,
    pub meaning: String,
    pub bearer: String,
    pub user_id: String,
    /// Whether the bearer is an access token or an API key.
    pub is_known: bool,
}

/// The member that a path names.
#[derive(Clone)]
pub enum Member {
    Oneself,
    Other(String),
}

/// What the parameters of a path stand for.
#[derive(Clone)]
pub struct Target {
    pub title: &'static str,
    pub organization: String,
    pub project: String,
    pub key: String,
    pub invoice: String,
    pub member: Member,
}

/// Callers without an access token or API key.
const STRANGE: [&str; 4] = ["non", "jnk", "ref", "srv"];

/// Where the bearer is not the caller's own, but that of somebody whose request a proxy asks about.
pub const FORWARD_AUTH: &str = "/service/v1/forward-auth";

/// The same without the proxy's own token.
pub const NO_SERVICE_TOKEN: &str = "private, no service token";

/// Everybody, and the places.
pub struct Scene {
    pub callers: Vec<Caller>,
    own: Spot,
    sibling: Spot,
    public: Spot,
    foreign: Spot,
    nowhere: Spot,
}

/// A project with a key and a member whom nobody calls as or with.
#[derive(Clone)]
struct Spot {
    place: Place,
    key: String,
    invoice: String,
    member: String,
}

impl Scene {
    pub async fn new(world: &World) -> Self {
        let owner = world.somebody("owner").await;
        let place = world.place(&owner, "Own").await;
        let stranger = world.somebody("stranger").await;
        let foreign = world.place(&stranger, "Foreign").await;
        let foreign = spot(world, &stranger, foreign, "away").await;
        let own = spot(world, &owner, place.clone(), "inside").await;
        let sibling = beside(world, &owner, &place, &json!({"name": "Sibling"})).await;
        let sibling = spot(world, &owner, sibling, "beside").await;
        let public = json!({"name": "Public", "visibility": "public"});
        let public = beside(world, &owner, &place, &public).await;
        let public = spot(world, &owner, public, "open").await;
        let nowhere = Place {
            organization: "org_01h2xcejqtf2nbrexx3vqjhp41".into(),
            project: "proj_01h2xcejqtf2nbrexx3vqjhp41".into(),
        };
        let nowhere = Spot {
            place: nowhere,
            key: "key_01h2xcejqtf2nbrexx3vqjhp41".into(),
            invoice: "invoice_01h2xcejqtf2nbrexx3vqjhp41".into(),
            member: "user_01h2xcejqtf2nbrexx3vqjhp41".into(),
        };
        let mut scene = Self { callers: Vec::new(), own, sibling, public, foreign, nowhere };
        scene.add_others(world, &owner, &stranger).await;
        scene.add_people(world, &owner).await;
        save(world).await;
        scene
    }

    fn add(&mut self, head: impl Into<String>, meaning: &str, bearer: &str, who: &Somebody) {
        let head = head.into();
        let (is_known, user_id) = (!STRANGE.contains(&head.as_str()), who.id.to_string());
        let (meaning, bearer) = (meaning.to_owned(), bearer.to_owned());
        self.callers.push(Caller { head, meaning, bearer, user_id, is_known });
    }

    async fn add_others(&mut self, world: &World, owner: &Somebody, stranger: &Somebody) {
        let (own, sibling) = (self.own.place.clone(), self.sibling.place.clone());
        let foreign = self.foreign.place.clone();
        let chat = json!({"name": "chat", "permissions": ["chat"]});
        let chat = world.key(owner, &own, &chat).await.1;
        let sibling = world.key(owner, &sibling, &json!({"name": "caller"})).await.1;
        let key = world.key(stranger, &foreign, &json!({"name": "caller"})).await.1;
        let elsewhere = world.place(owner, "Elsewhere").await;
        let elsewhere = world.key(owner, &elsewhere, &json!({"name": "caller"})).await.1;
        self.add("non", "no credential", "", owner);
        self.add("jnk", "a bearer that is nothing", "nonsense", owner);
        self.add("ref", "a refresh token of the organization's owner", &owner.refresh_token, owner);
        self.add("srv", "the service token", world.app.service_token.expose(), owner);
        self.add("for", "owner of another organization", &stranger.access_token, stranger);
        self.add("kfo", "API key of that organization, made by its owner", &key, stranger);
        self.add("ksi", "API key of the sibling project, made by the organization's owner", &sibling, owner);
        self.add("kel", "API key of another organization, made by this one's owner", &elsewhere, owner);
        self.add("kch", "like koo, with the permission `chat` only", &chat, owner);
    }

    /// Every role in the organization with every role in the private project, and a key made by each.
    async fn add_people(&mut self, world: &World, owner: &Somebody) {
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
                let who = world.somebody(&format!("who-{}", name.replace('.', "x"))).await;
                // Made by an admin, who becomes what the column says afterwards.
                world.join_organization(&place, &who, O::Admin).await;
                let (_, key) = world.key(&who, &place, &json!({ "name": name })).await;
                let path = format!("{}/members/{}", place.organization_path(), who.id);
                world.call(Method::DELETE, &path).bearer(&owner.access_token).data().await;
                if let Some(role) = in_organization {
                    world.join_organization(&place, &who, role).await;
                }
                if let Some(role) = in_project {
                    world.join_project(&place, &who, role).await;
                }
                keys.push((format!("k{name}"), key, who.clone()));
                people.push((name, who));
            }
        }
        for (name, who) in &people {
            self.add(name.as_str(), "", &who.access_token, who);
        }
        for (name, key, who) in &keys {
            self.add(name.as_str(), "", key, who);
        }
    }

    /// Where a path can lead, by the parameters that it has.
    pub fn targets(&self, path: &str) -> Vec<Target> {
        let (own, foreign, nowhere) = (&self.own, &self.foreign, &self.nowhere);
        let target = |title, organization: &Spot, project: &Spot| Target {
            title,
            organization: organization.place.organization.clone(),
            project: project.place.project.clone(),
            key: project.key.clone(),
            invoice: organization.invoice.clone(),
            member: Member::Other(project.member.clone()),
        };
        let member = |title, member: &Member| Target { member: member.clone(), ..target(title, own, own) };
        let other = |spot: &Spot| Member::Other(spot.member.clone());
        if path == FORWARD_AUTH {
            // It names both in the query.
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
        if !path.contains("{organization_id}") {
            return vec![target("", nowhere, nowhere)];
        }
        let mut targets = vec![target("own", own, own)];
        if !path.contains("{project_id}") {
            if path.contains("{member_id}") {
                targets =
                    vec![member("own, a member", &other(own)), member("own, oneself", &Member::Oneself)];
                targets.push(member("own, nobody", &other(nowhere)));
                targets.push(member("own, somebody else's", &other(foreign)));
            }
            if path.contains("{invoice_id}") {
                let invoice =
                    |title, spot: &Spot| Target { invoice: spot.invoice.clone(), ..target(title, own, own) };
                targets.push(invoice("own, unknown", nowhere));
                targets.push(invoice("own, somebody else's", foreign));
            }
            targets.push(target("foreign", foreign, foreign));
            targets.push(target("unknown", nowhere, own));
            return targets;
        }
        if path.contains("{member_id}") {
            targets =
                vec![member("private, a viewer", &other(own)), member("private, oneself", &Member::Oneself)];
            targets.push(member("private, nobody", &other(nowhere)));
            targets.push(member("private, a sibling's", &other(&self.sibling)));
        } else {
            targets = vec![target("private", own, own)];
        }
        if path.contains("{key_id}") {
            let key = |title, spot: &Spot| Target { key: spot.key.clone(), ..target(title, own, own) };
            targets.push(key("private, unknown", nowhere));
            targets.push(key("private, a sibling's", &self.sibling));
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

async fn beside(world: &World, owner: &Somebody, place: &Place, body: &Value) -> Place {
    let path = format!("{}/projects", place.organization_path());
    let project = id(&world.post(&path, body).bearer(&owner.access_token).data().await);
    Place { organization: place.organization.clone(), project }
}

async fn spot(world: &World, owner: &Somebody, place: Place, name: &str) -> Spot {
    let (key, _) = world.key(owner, &place, &json!({"name": "target"})).await;
    let member = world.somebody(name).await;
    let mut tx = world.app.db.write().await.unwrap();
    let now = world.clock.now();
    let organization = OrganizationId::parse(&place.organization).unwrap();
    let (project, role) = (ProjectId::parse(&place.project).unwrap(), OrganizationRole::Member);
    store::organization_members::insert(&mut tx, organization, member.id, role, now).await.unwrap();
    store::project_members::insert(&mut tx, project, member.id, ProjectRole::Viewer, now).await.unwrap();
    tx.commit().await.unwrap();
    let invoice = match name {
        "inside" | "away" => billed::invoice(world, &place.organization).await,
        _ => String::new(),
    };
    Spot { place, key, invoice, member: member.id.to_string() }
}

/// What a call can take away; who is referred to stands before who refers.
const TABLES: [&str; 6] =
    ["organizations", "organization_members", "projects", "project_members", "api_keys", "api_key_secrets"];

/// Keeps a copy of everything that a call can take away.
async fn save(world: &World) {
    let mut tx = world.app.db.write().await.unwrap();
    for table in TABLES {
        let copy = format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}");
        sql(copy).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Puts everything back as it was saved, counts included.
pub async fn restore(world: &World) {
    let mut tx = world.app.db.write().await.unwrap();
    sql("DELETE FROM invitations").execute(&mut tx).await.unwrap();
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
