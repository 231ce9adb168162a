//! Schemathesis: valid and invalid requests generated from our document, one by one and in chains, with all
//! of its checks. Exceptions and their reasons are in `tests/schemathesis`.

use serde_json::json;

use support::billed::budgets_path;
use support::process::Start;
use support::python::python;
use support::world::{Folder, PASSWORD};

/// The number of examples for each operation, which is small to keep the suite quick.
/// `TOLLKEEPER_TEST_SCHEMATHESIS=200` sets another number.
const EXAMPLES: u32 = 5;

#[test]
fn schemathesis_finds_nothing() {
    let Some(mut program) = python("schemathesis", "schemathesis", "Schemathesis against the document")
    else {
        return;
    };
    let examples = std::env::var("TOLLKEEPER_TEST_SCHEMATHESIS").map_or(EXAMPLES, |n| n.parse().unwrap());
    let folder = Folder::new();
    // A run sends more requests per minute than one user may.
    let server = Start::new(&folder.0).set("TOLLKEEPER_LIMITS__ENABLED", "false").run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let bob = server.sign_up("bob");
    let me = server.get("/v1/auth/me").bearer(&bob.access_token).data();
    let bob_id = me["user"]["id"].as_str().unwrap();
    let member = json!({"user_id": bob_id, "role": "viewer"});
    let members = format!("{}/members", place.project_path);
    server.post(&members, &member).bearer(&ada.access_token).data();
    let ids: Vec<_> = place.project_path.split('/').collect();
    let invitations = format!("/v1/organizations/{}/invitations", ids[3]);
    let guest = json!({"email": "guest@example.com"});
    let invited = server.post(&invitations, &guest).bearer(&ada.access_token).data();
    let budgets = budgets_path(ids[3]);
    let budget = json!({"name": "Most", "scope": "organization", "period": "total", "limit": 1_000_000});
    let budget = server.post(&budgets, &budget).bearer(&ada.access_token).data();
    let call = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 10});
    let decision = server.ask("/service/v1/authorize", &call).bare();
    let document = folder.0.join("openapi.json");
    let urls = [server.public, server.service].map(|address| format!("http://{address}"));
    let text =
        tollkeeper::api::openapi::document(&tollkeeper::api::routes::table(), &urls[0], &urls[1]).to_string();
    std::fs::write(&document, text).unwrap();
    let setup = json!({
        "public": server.public.to_string(),
        "service": server.service.to_string(),
        "folder": folder.0,
        "document": document,
        "examples": examples,
        "seed": 1,
        // Ada's password changes during the run.
        "login": {"email": "bob@example.com", "password": PASSWORD},
        "accessToken": ada.access_token,
        "refreshToken": ada.refresh_token,
        "bearer": ada.access_token,
        "modelKey": place.key,
        "serviceToken": server.service_token(),
        "organization_id": ids[3],
        "project_id": ids[5],
        "key_id": place.key_id,
        "member_id": bob_id,
        "model_id": "svc-1",
        "invoice_id": "invoice_00000000000000000000000000",
        "budget_id": budget["id"],
        "payment_id": "payment_00000000000000000000000000",
        "invitation_id": invited["invitation_id"],
        "reservation_id": decision["reservation"]["id"],
        "session_id": "sess_00000000000000000000000000",
        "connection_id": "con_00000000000000000000000000",
    });
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis/run.py")).arg(setup.to_string());
    if let Some(report) = std::env::var_os("TOLLKEEPER_TEST_SCHEMATHESIS_REPORT") {
        program.env("TOLLKEEPER_TEST_SCHEMATHESIS_REPORT", report);
    }
    // Schemathesis takes longer than other processes here, and ends itself when it hangs.
    let ended = program.output().unwrap();
    let output = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), "nothing found", "{output}");
    assert!(ended.status.success(), "{output}");
}
