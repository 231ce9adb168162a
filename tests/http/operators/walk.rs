//! Follows docs/operations.md from an empty folder to a disabled account, word by word. Only the ports and
//! the provider's address differ.

use std::net::TcpListener;
use std::process::Command;

use support::identity_provider::IdentityProvider;
use support::python;
use support::world::{Folder, runtime};

/// The script that runs the blocks. The server runs in the background, where a reader would use another
/// terminal.
const HARNESS: &str = r#"
set -euo pipefail
FILES
echo =====
START_COMMAND 2>server.log &
SERVER=$!
trap 'kill "$SERVER" 2>/dev/null || true' EXIT
for attempt in $(seq 300); do
    curl -sf http://127.0.0.1:8080/readyz >/dev/null 2>&1 && break
    sleep 0.1
done
BLOCKS
"#;

fn blocks(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string("docs/operations.md").unwrap();
    let section = text.split(&format!("\n{heading}\n")).nth(1).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn an_empty_folder_becomes_an_installation_by_the_docs_alone() {
    if Command::new("curl").arg("--version").output().is_err() {
        python::skip("an operator's tasks", "`curl` is not installed");
        return;
    }
    let mut steps = blocks("## The first operator");
    let (files, start) = (steps.remove(0), steps.remove(0));
    let script = HARNESS.replace("FILES", files.trim()).replace("START_COMMAND", start.trim());
    let script = script.replace("BLOCKS", &steps.join("\necho =====\n"));
    // The provider answers as long as its runtime lives.
    let runtime = runtime();
    let provider = runtime.block_on(IdentityProvider::start());
    let script = script.replace("https://id.acme.example", &provider.issuer);
    let folder = Folder::new();
    let bin = folder.0.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollkeeper"), bin.join("tollkeeper")).unwrap();
    let ports: [TcpListener; 2] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [public, service] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script.replace("127.0.0.1:8080", &public)])
        .current_dir(&folder.0)
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", folder.0.to_str().unwrap())])
        .envs([("TOLLKEEPER_LISTEN", &public), ("TOLLKEEPER_SERVICE_LISTEN", &service)])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let parts: Vec<_> = stdout.split("=====\n").collect();
    let [checked, setup, operator, sign_on, closed, person, disabled] = parts.as_slice() else {
        panic!("{stdout}")
    };
    assert!(checked.contains("acme") && checked.contains(&provider.issuer), "{checked}");
    assert!(setup.contains(&format!("http://{public}/console/first-account?token=")), "{setup}");
    assert!(operator.contains("grace@example.com") && operator.contains("operator"), "{operator}");
    assert!(sign_on.contains("\"name\":\"Acme\""), "{sign_on}");
    assert!(sign_on.contains(&format!("\n{}/authorize?", provider.issuer)), "{sign_on}");
    assert!(closed.contains("\"registration_closed\""), "{closed}");
    assert!(person.contains("\"access_token\""), "{person}");
    assert!(disabled.contains("ada@example.com is disabled; sessions ended: 1."), "{disabled}");
    assert!(disabled.contains("\"account_disabled\""), "{disabled}");
    assert!(disabled.contains("ada@example.com  ada  disabled"), "{disabled}");
}
