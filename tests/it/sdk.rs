//! The official SDK of OpenAI against a real server: what programs that exist already see of the model endpoints.

use serde_json::json;

use crate::support::process::{Start, run_to_end};
use crate::support::python::python;
use crate::support::world::Folder;

#[test]
fn the_openai_sdk_for_python_understands_us() {
    let Some(mut program) = python("openai", "openai", "the OpenAI SDK for Python") else { return };
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let key = |body: serde_json::Value| {
        let path = format!("{}/api-keys", place.project_path);
        let key = server.post(&path, &body).bearer(&ada.access_token).data();
        key["key"].as_str().unwrap().to_owned()
    };
    let setup = json!({
        "base_url": format!("http://{}/v1", server.public),
        "key": place.key,
        "access_token": ada.access_token,
        "no_models_key": key(json!({"name": "chat only", "permissions": ["chat"]})),
        "one_model_key": key(json!({"name": "svc-1 only", "restrictions": {"models": ["svc-1"]}})),
        "slow_key": key(json!({"name": "slow", "restrictions": {"rate_limit": 1}})),
    });
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/openai_client.py")).arg(setup.to_string());
    let ended = run_to_end(program);
    assert_eq!((ended.code, ended.stdout.trim()), (Some(0), "all good"), "{}", ended.log);
    // Nothing was tried twice: an answer that says not to come back is believed.
    let log = server.stop().log;
    let refused = log.lines().filter(|line| line.contains("tollkeeper::access") && line.contains("status=4"));
    assert_eq!(refused.count(), 9, "{log}");
}
