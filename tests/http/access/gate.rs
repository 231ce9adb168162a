//! Checks of the gate other than roles, on every route: the access matrix covers roles under one
//! configuration.

use std::fmt::Debug;

use http::{HeaderMap, Method, Uri, header};
use serde_json::json;
use tollkeeper::api::gate::{
    self, Access, Bearer, KeyAction, Org, OrgBudget, OrgDelivery, OrgInvitation, OrgInvoice, OrgMember,
    OrgPayment, OrgWebhook, Person, Project, ProjectMember, Public, Service, Session,
};
use tollkeeper::api::routes;
use tollkeeper::db::{Tx, sql};
use tollkeeper::error::Error;
use tollkeeper::ids::{OrganizationId, ProjectId, RequestId};
use tollkeeper::tenants::access::KeyKind;
use tollkeeper::tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};
use tollkeeper::trail::Trail;
use tollkeeper::web::reply::Body;
use tollkeeper::webhooks::access::WebhookAction;

use super::matrix::scene::reported_call;
use support::http::Call;
use support::world::World;
use support::{Database, on_each_database};
use support::{billed, webhooks};

#[on_each_database]
fn configuration_limits_keys_on_every_route(database: Database) {
    for management in ["full", "read", "none"] {
        database.run(&[("TOLLKEEPER_API_KEYS__MANAGEMENT", management)], async |world| {
            let ada = world.user("ada").await;
            let bob = world.user("bob").await;
            let place = world.place(&ada, "Acme").await;
            world.join_organization(&place, &bob, OrganizationRole::Member).await;
            world.join_project(&place, &bob, ProjectRole::Viewer).await;
            let (key_id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
            let invoice = billed::invoice(&world, &place.organization).await;
            let budget = billed::budget(&world, &ada, &place).await;
            let payment = billed::payment(&world, &place).await;
            let logged = reported_call(&world, &ada, &place, &key_id).await;
            let (webhook, delivery) = webhooks::webhook(&world, &ada, &place).await;
            let guest = ("guest@example.com", "guest@example.com");
            let invitation = world.insert_invitation(&place, guest, OrganizationRole::Member, ada.id).await;
            let mut routes = 0;
            // Reads run before deletions of the objects that they need.
            let mut table = routes::table();
            table.sort_by_key(|route| route.method != Method::GET);
            for route in table.iter().filter(|route| route.access.scheme == Some("bearer")) {
                let path = route
                    .path
                    .replace("{organization_id}", &place.organization)
                    .replace("{project_id}", &place.project)
                    .replace("{key_id}", &key_id)
                    .replace("{member_id}", &bob.id.to_string())
                    .replace("{invoice_id}", &invoice)
                    .replace("{budget_id}", &budget)
                    .replace("{payment_id}", &payment)
                    .replace("{webhook_id}", &webhook)
                    .replace("{delivery_id}", &delivery)
                    .replace("{call_id}", &logged)
                    .replace("{invitation_id}", &invitation.to_string())
                    .replace("{*model_id}", "svc-1")
                    .replace("/billing/export", "/billing/export?format=focus&month=2026-03");
                let is_read = route.method == Method::GET;
                let call = Call::new(&world.public, route.method.clone(), &path).bearer(&key);
                // The handler refuses this body if the gate lets the call through.
                let answer = if is_read { call } else { call.json(&json!({"name": 1})) }.send().await;
                let is_narrowed = !path.starts_with("/v1/models")
                    && (management == "none" || management == "read" && !is_read);
                let code = if answer.status == 200 { String::new() } else { answer.code() };
                let refused = (answer.status, code.as_str()) == (403, "api_key_management_disabled");
                assert_eq!(refused, is_narrowed, "{management}: {route:?}: {}", answer.text);
                assert!(!is_read || refused || answer.status == 200, "{route:?}: {}", answer.text);
                routes += 1;
            }
            assert!(routes > 20, "only {routes} routes");
        });
    }
}

/// A request that has reached the gate.
fn call(world: &World, bearer: &str, path: &[(&str, &str)]) -> gate::Call {
    let mut headers = HeaderMap::new();
    if !bearer.is_empty() {
        headers.insert(header::AUTHORIZATION, format!("Bearer {bearer}").parse().unwrap());
    }
    gate::Call {
        method: Method::GET,
        uri: Uri::from_static("/"),
        headers,
        path: path.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        address: Some("192.0.2.7".parse().unwrap()),
        request_id: RequestId::new(world.clock.now(), &world.app.random),
        body: Body::empty(),
        form: None,
        caller: String::new(),
        credential: gate::Credential::default(),
    }
}

fn word(answer: Result<impl Debug, Error>) -> String {
    answer.map_or_else(|error| error.code.as_str().to_owned(), |role| format!("{role:?}"))
}

async fn change(world: &World, text: &str, id: impl ToString) {
    let mut tx = world.app.db.write().await.unwrap();
    sql(text.to_owned()).bind(id.to_string()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
async fn lock_and_recheck_repeats_the_gates_checks(world: World) {
    let ada = world.user("ada").await;
    let bob = world.user("bob").await;
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Admin).await;
    world.join_project(&place, &bob, ProjectRole::Developer).await;
    let (key_id, _) = world.key(&bob, &place, &json!({"name": "k"})).await;
    let guest = ("guest@example.com", "guest@example.com");
    let invitation_id = world.insert_invitation(&place, guest, OrganizationRole::Member, ada.id).await;
    let (bob_id, invitation_id) = (bob.id.to_string(), invitation_id.to_string());
    let path = [
        ("organization_id", place.organization.as_str()),
        ("project_id", &place.project),
        ("key_id", &key_id),
        ("member_id", &bob_id),
        ("invitation_id", &invitation_id),
    ];
    let app = &world.app;
    let mut call = call(&world, &bob.access_token, &path);
    let org = Org(OrganizationAction::Modify).admit(&app.api, &mut call).await.unwrap();
    let invitation = OrgInvitation.admit(&app.api, &mut call).await.unwrap();
    let member = OrgMember::Managed.admit(&app.api, &mut call).await.unwrap();
    let leaving = OrgMember::ManagedOrLeaving.admit(&app.api, &mut call).await.unwrap();
    let project = Project::to(ProjectAction::Modify).admit(&app.api, &mut call).await.unwrap();
    let project_member = ProjectMember::Managed.admit(&app.api, &mut call).await.unwrap();
    let leaving_project = ProjectMember::ManagedOrLeaving.admit(&app.api, &mut call).await.unwrap();
    let key = KeyAction::Rotate.admit(&app.api, &mut call).await.unwrap();
    assert!(leaving.is_leaving() && leaving_project.is_leaving());
    assert!(!member.is_leaving() && !project_member.is_leaving());
    // Takes each lock in its own transaction, because two open transactions would wait for each other.
    macro_rules! hold {
        ($scope:ident.$hold:ident $(($now:expr))?, $role:expr) => {{
            let mut tx = app.db.write().await.unwrap();
            word($scope.$hold(&mut tx $(, $now)?).await.map($role))
        }};
    }
    let holds = async || {
        [
            hold!(org.lock_and_recheck, |(_, held)| held.grantor.role),
            hold!(org.lock_for_removal_and_recheck, |(_, held)| held.grantor.role),
            hold!(member.lock_and_recheck, |(_, held)| held.grantor.role),
            hold!(leaving.lock_and_recheck, |(_, held)| held.grantor.role),
            hold!(project.lock_and_recheck, |(_, held)| held.grantor.role),
            hold!(key.lock_and_recheck, |_| ProjectRole::Owner),
            hold!(key.lock_and_recheck_with_secret, |_| ProjectRole::Owner),
            hold!(project_member.lock_and_recheck, |(_, grantor, _)| grantor.role),
            hold!(leaving_project.lock_and_recheck, |(_, grantor, _)| grantor.role),
            hold!(invitation.lock_and_recheck(world.clock.now()), |(_, held)| held.grantor.role),
        ]
    };
    let (low, gone) = ("insufficient_role", "organization_not_found");
    let admin = ["Admin", "Admin", "Admin", "Admin", "Owner", "Owner", "Owner", "Owner", "Owner", "Admin"];
    assert_eq!(holds().await, admin);
    change(&world, "UPDATE organization_members SET role = 'member' WHERE user_id = $1", bob.id).await;
    // Every member may leave.
    assert_eq!(holds().await, [low, low, low, "Member", low, low, low, low, "Developer", low]);
    change(&world, "DELETE FROM organization_members WHERE user_id = $1", bob.id).await;
    change(&world, "DELETE FROM project_members WHERE user_id = $1", bob.id).await;
    assert_eq!(
        holds().await,
        [low, low, low, "member_not_found", low, low, low, low, "member_not_found", low]
    );
    change(&world, "UPDATE invitations SET ended_at = 0 WHERE id = $1", &invitation_id).await;
    assert_eq!(holds().await[9], "invitation_not_found");
    change(&world, "DELETE FROM projects WHERE id = $1", &place.project).await;
    let no_project = "project_not_found";
    assert_eq!(holds().await[4..9], [no_project; 5]);
    change(&world, "DELETE FROM organizations WHERE id = $1", &place.organization).await;
    assert_eq!(holds().await, [gone; 10]);
}

#[on_each_database]
async fn scopes_name_their_subject_and_place(world: World) {
    let ada = world.user("ada").await;
    let bob = world.user("bob").await;
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    world.join_project(&place, &bob, ProjectRole::Viewer).await;
    let (key_id, secret) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let (another, _) = world.key(&ada, &place, &json!({"name": "another"})).await;
    let invoice_id = billed::invoice(&world, &place.organization).await;
    let guest = ("guest@example.com", "guest@example.com");
    let invitation_id = world.insert_invitation(&place, guest, OrganizationRole::Member, ada.id).await;
    let budget_id = billed::budget(&world, &ada, &place).await;
    let payment_id = billed::payment(&world, &place).await;
    let (webhook_id, delivery_id) = webhooks::webhook(&world, &ada, &place).await;
    let (bob_id, invitation_text) = (bob.id.to_string(), invitation_id.to_string());
    let path = [
        ("organization_id", place.organization.as_str()),
        ("project_id", &place.project),
        ("key_id", &key_id),
        ("member_id", &bob_id),
        ("invoice_id", &invoice_id),
        ("budget_id", &budget_id),
        ("payment_id", &payment_id),
        ("webhook_id", &webhook_id),
        ("delivery_id", &delivery_id),
        ("invitation_id", &invitation_text),
    ];
    // A key can't manage itself.
    let of_another = path.map(|(name, value)| (name, if name == "key_id" { &another } else { value }));
    let app = &world.app;
    let organization_id = OrganizationId::parse(&place.organization).unwrap();
    let project_id = ProjectId::parse(&place.project).unwrap();
    for (bearer, actor) in [(&ada.access_token, ada.id.to_string()), (&secret, key_id.clone())] {
        let mut call = call(&world, bearer, &path);
        let trail = Trail { actor: actor.clone(), address: call.address, request_id: Some(call.request_id) };
        let is_key = actor == key_id;
        let anyone = Bearer { with: KeyKind::Any }.admit(&app.api, &mut call).await.unwrap();
        let only = is_key.then_some(organization_id);
        assert_eq!((anyone.user_id(), anyone.only_organization()), (ada.id, only));
        assert_eq!(call.caller, actor);
        let org = Org(OrganizationAction::View).admit(&app.api, &mut call).await.unwrap();
        assert_eq!((org.organization_id(), org.user_id(), org.trail()), (organization_id, ada.id, &trail));
        assert_eq!((org.role(), org.only_project()), (OrganizationRole::Owner, is_key.then_some(project_id)));
        let invoice = OrgInvoice(OrganizationAction::ViewBilling).admit(&app.api, &mut call).await.unwrap();
        assert_eq!(invoice.organization_id(), organization_id);
        assert_eq!(invoice.invoice().id.to_string(), invoice_id);
        let budget = OrgBudget(OrganizationAction::ManageBilling).admit(&app.api, &mut call).await.unwrap();
        assert_eq!(budget.organization().organization_id(), organization_id);
        assert_eq!(budget.id().to_string(), budget_id);
        let payment = OrgPayment(OrganizationAction::ViewBilling).admit(&app.api, &mut call).await.unwrap();
        assert_eq!(payment.into_payment().id.to_string(), payment_id);
        let webhook = OrgWebhook(WebhookAction::Read).admit(&app.api, &mut call).await.unwrap();
        assert_eq!((webhook.organization_id(), webhook.trail()), (organization_id, &trail));
        assert_eq!(webhook.webhook_id().to_string(), webhook_id);
        let delivery = OrgDelivery.admit(&app.api, &mut call).await.unwrap();
        assert_eq!(delivery.webhook.webhook_id().to_string(), webhook_id);
        assert_eq!(delivery.delivery_id().to_string(), delivery_id);
        let invitation = OrgInvitation.admit(&app.api, &mut call).await.unwrap();
        assert_eq!(
            (invitation.organization_id(), invitation.invitation_id()),
            (organization_id, invitation_id)
        );
        assert_eq!((invitation.user_id(), invitation.trail()), (ada.id, &trail));
        let member = OrgMember::ManagedOrLeaving.admit(&app.api, &mut call).await.unwrap();
        assert_eq!((member.organization_id(), member.member_id()), (organization_id, bob.id));
        assert_eq!((member.trail(), member.is_leaving()), (&trail, false));
        let project = Project::to(ProjectAction::View).admit(&app.api, &mut call).await.unwrap();
        assert_eq!((project.organization_id(), project.project_id()), (organization_id, project_id));
        assert_eq!((project.user_id(), project.trail()), (ada.id, &trail));
        let member = ProjectMember::ManagedOrLeaving.admit(&app.api, &mut call).await.unwrap();
        assert_eq!((member.project_id(), member.member_id()), (project_id, bob.id));
        assert_eq!((member.project().trail(), member.is_leaving()), (&trail, false));
        let key =
            KeyAction::Rotate.admit(&app.api, &mut self::call(&world, bearer, &of_another)).await.unwrap();
        assert_eq!((key.organization_id(), key.project_id()), (organization_id, project_id));
        assert_eq!((key.api_key_id().to_string(), &key.trail().actor), (another.clone(), &trail.actor));
        let person = Person.admit(&app.api, &mut call).await;
        assert_eq!(person.is_err(), is_key);
        if let Ok(person) = person {
            assert_eq!((person.user_id(), person.trail()), (ada.id, &trail));
        }
    }
    let mut call = call(&world, &ada.access_token, &[]);
    let session = Session::AccessToken.admit(&app.api, &mut call).await.unwrap();
    assert_eq!((session.user_id(), session.session_id()), (ada.id, ada.session_id));
    assert_eq!((session.trail().actor.clone(), call.path("no such thing")), (ada.id.to_string(), ""));
    let visitor = Public::Login.admit(&app.api, &mut self::call(&world, "", &[])).await.unwrap();
    assert_eq!(visitor.trail().actor, "anonymous");
    assert_eq!(visitor.trail().by(bob.id).actor, bob.id.to_string());
    assert_eq!(visitor.trail().by(bob.id).address, visitor.trail().address);
}

#[on_each_database]
async fn service_is_named_in_the_log(world: World) {
    let token = world.app.api.service_token.expose().to_owned();
    let mut by_bearer = call(&world, &token, &[]);
    Service::Calls.admit(&world.app.api, &mut by_bearer).await.unwrap();
    let mut by_header = call(&world, "", &[]);
    by_header.headers.insert("x-tollkeeper-service-token", token.parse().unwrap());
    Service::Proxied.admit(&world.app.api, &mut by_header).await.unwrap();
    assert_eq!([by_bearer.caller, by_header.caller], ["service", "service"]);
}

#[on_each_database]
fn addresses_are_limited_unless_limits_are_off(database: Database) {
    for enabled in ["true", "false"] {
        let settings = [
            ("TOLLKEEPER_LIMITS__ENABLED", enabled),
            ("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "2"),
            ("TOLLKEEPER_LIMITS__REGISTRATIONS_PER_MINUTE", "1"),
        ];
        database.run(&settings, async |world| {
            let mut admitted = [0; 3];
            let kinds = [Public::Login, Public::Register, Public::Unlimited];
            for (count, kind) in admitted.iter_mut().zip(kinds) {
                for _ in 0..5 {
                    let visitor = kind.admit(&world.app.api, &mut call(&world, "", &[])).await;
                    *count += usize::from(visitor.is_ok());
                }
            }
            assert_eq!(admitted, if enabled == "true" { [2, 1, 5] } else { [5, 5, 5] });
        });
    }
}

/// Waits until this statement, in its own transaction, waits for a lock that `first` holds; then releases the
/// lock.
async fn assert_waits_for_lock(world: &World, first: Tx, statement: &'static str, id: OrganizationId) {
    let app = world.app.clone();
    let second = tokio::spawn(async move {
        let mut tx = app.db.write().await.unwrap();
        sql(statement).bind(id).execute(&mut tx).await.unwrap();
    });
    loop {
        assert!(!second.is_finished(), "nothing was locked");
        let waiting = "SELECT COUNT(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let mut tx = world.app.db.read().await.unwrap();
        let (waiting,): (i64,) = sql(waiting).one(&mut tx).await.unwrap();
        if waiting > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(first);
    second.await.unwrap();
}

#[on_each_database]
async fn lock_of_a_scope_locks_the_organization(world: World) {
    // SQLite has one writer and no row locks.
    if !world.app.db.is_postgres() {
        return;
    }
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let ada_id = ada.id.to_string();
    let path = [
        ("organization_id", place.organization.as_str()),
        ("project_id", &place.project),
        ("key_id", &key_id),
        ("member_id", &ada_id),
    ];
    let app = &world.app;
    let mut call = call(&world, &ada.access_token, &path);
    let org = Org(OrganizationAction::Delete).admit(&app.api, &mut call).await.unwrap();
    let member = OrgMember::Managed.admit(&app.api, &mut call).await.unwrap();
    let project = Project::to(ProjectAction::Modify).admit(&app.api, &mut call).await.unwrap();
    let project_member = ProjectMember::Managed.admit(&app.api, &mut call).await.unwrap();
    let key = KeyAction::Rotate.admit(&app.api, &mut call).await.unwrap();
    let id = org.organization_id();
    let lock = "UPDATE organizations SET updated_at = updated_at WHERE id = $1";
    let write = async || app.db.write().await.unwrap();
    let mut tx = write().await;
    org.lock_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, lock, id).await;
    let mut tx = write().await;
    member.lock_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, lock, id).await;
    let mut tx = write().await;
    project.lock_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, lock, id).await;
    let mut tx = write().await;
    project_member.lock_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, lock, id).await;
    let mut tx = write().await;
    key.lock_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, lock, id).await;
    // Rows that refer to the organization are inserted with `FOR KEY SHARE`, which only the lock for removal
    // blocks.
    let mut tx = write().await;
    org.lock_for_removal_and_recheck(&mut tx).await.unwrap();
    assert_waits_for_lock(&world, tx, "SELECT id FROM organizations WHERE id = $1 FOR KEY SHARE", id).await;
}
