//! The rows of the table: operations that have a request of their own, each with its floor.

use serde_json::{Value, json};

use super::call::{Call, Pool};
use super::floors::Floor;
use super::world::{PASSWORDS, World};
use crate::money;
use crate::tenant::PASSWORD;

/// Returns the request of a row, for a prepared server.
pub(super) type MakeCall = Box<dyn Fn(&World) -> Result<Call, String> + Send + Sync>;

/// A row of the table.
pub struct Operation {
    /// The route to measure.
    pub route: &'static str,
    /// The difference from other operations of the same route.
    pub variant: &'static str,
    pub floor: Floor,
    pub call: MakeCall,
}

pub(super) const ORGANIZATION: &str = "/v1/organizations/{organization_id}";
pub(super) const PROJECT: &str = "/v1/organizations/{organization_id}/projects/{project_id}";

impl Operation {
    /// Returns the route, shortened for the table.
    pub fn label(&self) -> String {
        let path = self.route.replace(PROJECT, "…/{project}").replace(ORGANIZATION, "…/{organization}");
        let path = path.replace("_id}", "}");
        if self.variant.is_empty() { path } else { format!("{path}, {}", self.variant) }
    }
}

fn op(route: &'static str, floor: Floor, call: fn(&World) -> Result<Call, String>) -> Operation {
    variant(route, "", floor, call)
}

fn variant(
    route: &'static str,
    variant: &'static str,
    floor: Floor,
    call: fn(&World) -> Result<Call, String>,
) -> Operation {
    Operation { route, variant, floor, call: Box::new(call) }
}

/// Returns the rows in groups, in the order of the table of routes.
pub(super) fn groups() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        ("Authentication", authentication()),
        ("Organizations", organizations()),
        ("Projects", projects()),
        ("API keys", api_keys()),
        ("Billing and usage", billing()),
        ("Models", models()),
        ("Model calls", model_calls()),
        ("Pages and documents", documents()),
        ("Service listener", service()),
    ]
}

pub(super) fn get(w: &World, path: &str) -> Call {
    Call::to(w.public, "GET", path).bearer(&w.token)
}

fn put(w: &World, path: &str, body: &Value) -> Call {
    Call::to(w.public, "PUT", path).bearer(&w.token).body(body)
}

fn post(w: &World, path: &str, body: &Value) -> Call {
    Call::to(w.public, "POST", path).bearer(&w.token).body(body)
}

fn delete(w: &World, path: &str, each: &Pool) -> Call {
    Call::to(w.public, "DELETE", path).bearer(&w.token).each(each)
}

fn public(w: &World, path: &str, body: &Value) -> Call {
    Call::to(w.public, "POST", path).body(body)
}

const ID: &str = "\"id\":\"";

fn authentication() -> Vec<Operation> {
    vec![
        op("POST /v1/auth/register", Floor::Hash, |w| {
            let body =
                json!({"email": "n{number}@example.com", "password": PASSWORD, "username": "n{number}"});
            Ok(public(w, "/v1/auth/register", &body).over(4))
        }),
        op("POST /v1/auth/verify-email", Floor::Write, |w| {
            Ok(public(w, "/v1/auth/verify-email", &json!({"token": "{text}"})).each(&w.pools.unverified))
        }),
        op("POST /v1/auth/login", Floor::Hash, |w| {
            Ok(public(w, "/v1/auth/login", &json!({"email": w.email, "password": PASSWORD})).over(4))
        }),
        op("POST /v1/auth/refresh-token", Floor::Point, |w| {
            Ok(Call::to(w.public, "POST", "/v1/auth/refresh-token").bearer(&w.refresh_token))
        }),
        op("POST /v1/auth/forgot-password", Floor::Write, |w| {
            Ok(public(w, "/v1/auth/forgot-password", &json!({"email": w.email})))
        }),
        // Two hashes, because the new password is also compared with the old one.
        op("POST /v1/auth/reset-password", Floor::TwoHashes, |w| {
            let [_, new] = PASSWORDS;
            let body = json!({"token": "{text}", "password": new, "password_confirmation": new});
            Ok(public(w, "/v1/auth/reset-password", &body).each(&w.pools.forgotten).over(4))
        }),
        op("POST /v1/auth/change-password", Floor::TwoHashes, |w| {
            let [mut before, mut after] = PASSWORDS;
            if w.round % 2 == 1 {
                (before, after) = (after, before);
            }
            let body = json!({"current_password": before, "new_password": after, "new_password_confirmation": after});
            Ok(public(w, "/v1/auth/change-password", &body).bearer("{text}").each(&w.pools.changing).over(4))
        }),
        op("GET /v1/auth/me", Floor::Hello, |w| Ok(get(w, "/v1/auth/me").expect("\"phone_verified\""))),
        op("PUT /v1/auth/me", Floor::Write, |w| {
            Ok(put(w, "/v1/auth/me", &json!({"full_name": "Ada the {number}."})).expect("\"phone_verified\""))
        }),
        op("POST /v1/auth/logout", Floor::Write, |w| {
            Ok(Call::to(w.public, "POST", "/v1/auth/logout").bearer("{text}").each(&w.pools.sessions))
        }),
        op("GET /v1/auth/sessions", Floor::Page, |w| Ok(get(w, "/v1/auth/sessions").expect("\"current\""))),
    ]
}

fn organizations() -> Vec<Operation> {
    let mut operations = vec![
        op("POST /v1/organizations", Floor::Write, |w| {
            let call = Call::to(w.public, "POST", "/v1/organizations").bearer(&w.other_token);
            Ok(call.body(&json!({"name": "Another {number}"})).keep(ID, &w.pools.organizations))
        }),
        op("GET /v1/organizations", Floor::Page, |w| Ok(get(w, "/v1/organizations").expect("\"role\""))),
        op("GET /v1/organizations/{organization_id}", Floor::Point, |w| {
            Ok(get(w, &w.organization).expect("\"members_count\""))
        }),
        op("PUT /v1/organizations/{organization_id}", Floor::Write, |w| {
            Ok(put(w, &w.busy_organization, &json!({"description": "Change {number}"})))
        }),
        op("DELETE /v1/organizations/{organization_id}", Floor::Write, |w| {
            let call = Call::to(w.public, "DELETE", "/v1/organizations/{text}").bearer(&w.other_token);
            Ok(call.each(&w.pools.organizations))
        }),
        op("GET /v1/organizations/{organization_id}/members", Floor::Page, |w| {
            Ok(get(w, &format!("{}/members", w.organization)).expect("\"total\":20,"))
        }),
        op("GET /v1/organizations/{organization_id}/audit-log", Floor::Page, |w| {
            Ok(get(w, &format!("{}/audit-log", w.organization)).expect("\"entries\""))
        }),
    ];
    operations.extend(invitations());
    operations
}

fn invitations() -> Vec<Operation> {
    vec![
        op("POST /v1/organizations/{organization_id}/invitations", Floor::Write, |w| {
            let body = json!({"email": "i{number}@example.com", "role": "member"});
            let call = post(w, &format!("{}/invitations", w.busy_organization), &body);
            Ok(call.keep("\"invitation_id\":\"", &w.pools.invited))
        }),
        op("GET /v1/organizations/{organization_id}/invitations", Floor::Page, |w| {
            Ok(get(w, &format!("{}/invitations", w.organization)).expect("\"total\":19,"))
        }),
        op(
            "POST /v1/organizations/{organization_id}/invitations/{invitation_id}/resend",
            Floor::Write,
            |w| {
                let path = format!("{}/invitations/{{text}}/resend", w.busy_organization);
                let call = Call::to(w.public, "POST", &path).bearer(&w.token).each(&w.pools.invited);
                Ok(call.keep(ID, &w.pools.resent))
            },
        ),
        op("DELETE /v1/organizations/{organization_id}/invitations/{invitation_id}", Floor::Write, |w| {
            Ok(delete(w, &format!("{}/invitations/{{text}}", w.busy_organization), &w.pools.resent))
        }),
    ]
}

/// Returns the operations on members. Removals from the organization also affect projects, so they are last.
fn members() -> Vec<Operation> {
    vec![
        op("PUT /v1/organizations/{organization_id}/members/{member_id}", Floor::Write, |w| {
            let path = format!("{}/members/{{text}}", w.busy_organization);
            Ok(put(w, &path, &json!({"role": "admin"})).each(&w.pools.promoted))
        }),
        op("DELETE /v1/organizations/{organization_id}/members/{member_id}", Floor::Write, |w| {
            Ok(delete(w, &format!("{}/members/{{text}}", w.busy_organization), &w.pools.leaving))
        }),
    ]
}

fn projects() -> Vec<Operation> {
    let mut operations = vec![
        op("POST /v1/organizations/{organization_id}/projects", Floor::Write, |w| {
            let path = format!("{}/projects", w.busy_organization);
            Ok(post(w, &path, &json!({"name": "Another {number}"})).keep(ID, &w.pools.projects))
        }),
        op("GET /v1/organizations/{organization_id}/projects", Floor::Page, |w| {
            Ok(get(w, &format!("{}/projects", w.organization)).expect("\"total\":20,"))
        }),
        op("GET /v1/organizations/{organization_id}/projects/{project_id}", Floor::Point, |w| {
            Ok(get(w, &w.project).expect("\"api_keys_count\":20"))
        }),
        op("PUT /v1/organizations/{organization_id}/projects/{project_id}", Floor::Write, |w| {
            Ok(put(w, &w.busy_project, &json!({"description": "Change {number}"})))
        }),
        op("DELETE /v1/organizations/{organization_id}/projects/{project_id}", Floor::Write, |w| {
            Ok(delete(w, &format!("{}/projects/{{text}}", w.busy_organization), &w.pools.projects))
        }),
        op("POST /v1/organizations/{organization_id}/projects/{project_id}/members", Floor::Write, |w| {
            let body = json!({"user_id": "{text}", "role": "viewer"});
            Ok(post(w, &format!("{}/members", w.busy_project), &body)
                .each(&w.pools.joining)
                .keep(ID, &w.pools.joined))
        }),
        op("GET /v1/organizations/{organization_id}/projects/{project_id}/members", Floor::Page, |w| {
            Ok(get(w, &format!("{}/members", w.project)).expect("\"total\":20,"))
        }),
        op(
            "PUT /v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
            Floor::Write,
            |w| {
                let path = format!("{}/members/{{text}}", w.busy_project);
                let call = put(w, &path, &json!({"role": "developer"})).each(&w.pools.joined);
                Ok(call.keep(ID, &w.pools.promoted_in_project))
            },
        ),
        op(
            "DELETE /v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
            Floor::Write,
            |w| Ok(delete(w, &format!("{}/members/{{text}}", w.busy_project), &w.pools.promoted_in_project)),
        ),
    ];
    operations.extend(members());
    operations
}

fn api_keys() -> Vec<Operation> {
    vec![
        op("POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys", Floor::Write, |w| {
            let path = format!("{}/api-keys", w.busy_project);
            Ok(post(w, &path, &json!({"name": "Another {number}"})).keep(ID, &w.pools.keys))
        }),
        op("GET /v1/organizations/{organization_id}/projects/{project_id}/api-keys", Floor::Page, |w| {
            Ok(get(w, &format!("{}/api-keys", w.project)).expect("\"total\":20,"))
        }),
        op(
            "GET /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
            Floor::Point,
            |w| Ok(get(w, &format!("{}/api-keys/{}", w.project, w.key_id)).expect("\"total_requests\"")),
        ),
        op(
            "PUT /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
            Floor::Write,
            |w| {
                let path = format!("{}/api-keys/{}", w.busy_project, w.busy_key_id);
                Ok(put(w, &path, &json!({"description": "Change {number}"})))
            },
        ),
        op(
            "POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
            Floor::Write,
            |w| {
                let path = format!("{}/api-keys/{{text}}/rotate", w.busy_project);
                let call = Call::to(w.public, "POST", &path).bearer(&w.token).each(&w.pools.keys);
                Ok(call.keep(ID, &w.pools.rotated))
            },
        ),
        op(
            "POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation",
            Floor::Write,
            |w| {
                let path = format!("{}/api-keys/{{text}}/end-rotation", w.busy_project);
                let call = Call::to(w.public, "POST", &path).bearer(&w.token).each(&w.pools.rotated);
                Ok(call.keep(ID, &w.pools.settled))
            },
        ),
        op(
            "DELETE /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
            Floor::Write,
            |w| Ok(delete(w, &format!("{}/api-keys/{{text}}", w.busy_project), &w.pools.settled)),
        ),
    ]
}

fn billing() -> Vec<Operation> {
    vec![
        op("GET /v1/organizations/{organization_id}/billing/summary", Floor::Point, |w| {
            Ok(get(w, &format!("{}/billing/summary", w.organization)).expect("\"balance\""))
        }),
        op("GET /v1/organizations/{organization_id}/billing/invoices", Floor::Page, |w| {
            Ok(get(w, &format!("{}/billing/invoices", w.organization)).expect("\"total\":12,"))
        }),
        op("GET /v1/organizations/{organization_id}/billing/invoices/{invoice_id}", Floor::Point, |w| {
            Ok(get(w, &w.invoice).expect("\"items\""))
        }),
        op("GET /v1/organizations/{organization_id}/billing/credits", Floor::Page, |w| {
            Ok(get(w, &format!("{}/billing/credits", w.organization)).expect("\"credits\""))
        }),
        op("GET /v1/organizations/{organization_id}/billing/movements", Floor::Page, |w| {
            Ok(get(w, &format!("{}/billing/movements", w.organization)).expect("\"movements\""))
        }),
        op("GET /v1/organizations/{organization_id}/limits", Floor::Point, |w| {
            Ok(get(w, &format!("{}/limits", w.organization)).expect("\"credit_limit\""))
        }),
        op("GET /v1/organizations/{organization_id}/billing/usage", Floor::Page, |w| {
            let path = format!("{}/billing/usage?start_date=2025-06-01&end_date=2025-07-01", w.organization);
            Ok(get(w, &path).expect("\"usage\""))
        }),
        op("GET /v1/organizations/{organization_id}/projects/{project_id}/usage", Floor::Page, |w| {
            Ok(get(w, &format!("{}/usage?start_date=2025-06-01&end_date=2025-06-03", w.project))
                .expect("\"usage\""))
        }),
        op("GET /v1/billing/pricing", Floor::Hello, |w| {
            Ok(get(w, "/v1/billing/pricing").expect("\"volume_discounts\""))
        }),
    ]
}

fn models() -> Vec<Operation> {
    vec![
        op("GET /v1/models", Floor::Hello, |w| {
            Ok(Call::to(w.public, "GET", "/v1/models").bearer(&w.key).expect("\"svc-1\""))
        }),
        op("GET /v1/models/{*model_id}", Floor::Hello, |w| {
            Ok(Call::to(w.public, "GET", "/v1/models/svc-1").bearer(&w.key).expect("\"limits\""))
        }),
    ]
}

/// Returns calls that the built-in demo answers immediately, with 8 tokens.
fn model_calls() -> Vec<Operation> {
    fn call(w: &World, path: &str, body: &Value) -> Call {
        Call::to(w.public, "POST", path).bearer(&w.busy_key).body(body).expect("\"usage\"")
    }
    fn messages() -> Value {
        json!([{"role": "user", "content": "Who are you?"}])
    }
    vec![
        op("POST /v1/chat/completions", Floor::Event, |w| {
            let body = json!({"model": "svc-1", "messages": messages(), "max_tokens": 8});
            Ok(call(w, "/v1/chat/completions", &body))
        }),
        op("POST /v1/completions", Floor::Event, |w| {
            let body = json!({"model": "svc-1", "prompt": "Who are you?", "max_tokens": 8});
            Ok(call(w, "/v1/completions", &body))
        }),
        op("POST /v1/embeddings", Floor::Event, |w| {
            let body = json!({"model": "svc-embedding-1", "input": "Who are you?"});
            Ok(call(w, "/v1/embeddings", &body))
        }),
        op("POST /v1/responses", Floor::Event, |w| {
            let body = json!({"model": "svc-1", "input": "Who are you?", "max_output_tokens": 8});
            Ok(call(w, "/v1/responses", &body))
        }),
        op("POST /v1/messages", Floor::Event, |w| {
            let body = json!({"model": "svc-1", "messages": messages(), "max_tokens": 8});
            Ok(call(w, "/v1/messages", &body))
        }),
        op("POST /v1/messages/count_tokens", Floor::Hello, |w| {
            let body = json!({"model": "svc-1", "messages": messages(), "max_tokens": 8});
            Ok(call(w, "/v1/messages/count_tokens", &body))
        }),
    ]
}

fn documents() -> Vec<Operation> {
    vec![
        op("GET /verify-email", Floor::Hello, |w| Ok(get(w, "/verify-email?token=x"))),
        op("GET /reset-password", Floor::Hello, |w| Ok(get(w, "/reset-password?token=x"))),
        op("GET /change-email", Floor::Hello, |w| Ok(get(w, "/change-email?token=x"))),
        op("GET /invitations/accept", Floor::Hello, |w| Ok(get(w, "/invitations/accept?token=x"))),
        op("GET /docs", Floor::Hello, |w| Ok(get(w, "/docs"))),
        op("GET /docs/{subject}", Floor::Hello, |w| Ok(get(w, "/docs/models"))),
        op("GET /openapi.json", Floor::Hello, |w| Ok(get(w, "/openapi.json"))),
        op("GET /.well-known/jwks.json", Floor::Hello, |w| Ok(get(w, "/.well-known/jwks.json"))),
        op("GET /healthz", Floor::Hello, |w| Ok(Call::to(w.public, "GET", "/healthz"))),
        op("GET /api/hello", Floor::Hello, |w| Ok(Call::to(w.public, "GET", "/api/hello"))),
        op("GET /readyz", Floor::Hello, |w| Ok(Call::to(w.public, "GET", "/readyz"))),
    ]
}

fn ask(w: &World, method: &str, path: &str) -> Call {
    Call::to(w.service, method, path).bearer(&w.service_token)
}

fn service() -> Vec<Operation> {
    vec![
        variant("POST /service/v1/authorize", "nothing reserved", Floor::Echo, |w| {
            Ok(ask(w, "POST", "/service/v1/authorize").body(&question(w, false)).expect("\"allowed\":true"))
        }),
        op("GET /service/v1/forward-auth", Floor::Hello, |w| {
            let path = "/service/v1/forward-auth?operation=chat&model=svc-1&max_tokens=256&reserve=false";
            let call = Call::to(w.service, "GET", path).bearer(&w.busy_key);
            Ok(call.header("x-tollkeeper-service-token", &w.service_token).expect("\"allowed\":true"))
        }),
        variant("POST /service/v1/authorize", "reserving", Floor::Event, |w| {
            let call = ask(w, "POST", "/service/v1/authorize").body(&question(w, true));
            Ok(call.expect("\"reservation\":{").keep("\"reservation\":{\"id\":\"", &w.pools.reserved))
        }),
        op("POST /service/v1/reservations/{reservation_id}/extend", Floor::Event, |w| {
            Ok(ask(w, "POST", &format!("/service/v1/reservations/{}/extend", w.reservation)))
        }),
        op("DELETE /service/v1/reservations/{reservation_id}", Floor::Event, |w| {
            Ok(ask(w, "DELETE", "/service/v1/reservations/{text}").each(&w.pools.reserved.half()))
        }),
        variant("POST /service/v1/usage", "capturing", Floor::Event, |w| {
            let mut event = money::event(&w.busy_key_id, "e{number}", &w.now()?);
            if let Some(fields) = event.as_object_mut() {
                fields.insert("reservation_id".to_owned(), json!("{text}"));
            }
            let call = ask(w, "POST", "/service/v1/usage").body(&json!({"events": [event]}));
            Ok(call.each(&w.pools.reserved).expect("\"accepted\""))
        }),
        variant("POST /service/v1/usage", "1 event", Floor::Event, |w| {
            let call = ask(w, "POST", "/service/v1/usage").body(&events(w, &w.busy_key_id, 1)?);
            Ok(call.expect("\"accepted\""))
        }),
        variant("POST /service/v1/usage", "100 events", Floor::Events, |w| {
            let call = ask(w, "POST", "/service/v1/usage").body(&events(w, &w.busy_key_id, 100)?);
            Ok(call.expect("\"accepted\""))
        }),
        op("GET /metrics", Floor::Hello, |w| Ok(ask(w, "GET", "/metrics"))),
    ]
}

/// Returns the body of authorize.
pub(super) fn question(w: &World, reserve: bool) -> Value {
    json!({"credential": w.busy_key, "client_address": "203.0.113.7", "operation": "chat", "model": "svc-1",
           "max_tokens": 256, "estimated_prompt_tokens": 120, "reserve": reserve})
}

pub(super) fn events(w: &World, key: &str, count: usize) -> Result<Value, String> {
    let event = money::event(key, "e{number}", &w.now()?);
    Ok(json!({ "events": vec![event; count] }))
}
