//! Follows the README's steps with curl: the start command, every block, a stop with SIGTERM, a second start,
//! and the last block. Only the ports differ, because port 8080 may be in use. `tests/browser/main.rs`
//! follows the steps in a browser.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use support::python;
use support::world::Folder;

/// Returns the `sh` blocks of the section with this heading, which begins with `##` or `###`.
fn blocks(readme: &str, heading: &str) -> Vec<String> {
    let section = readme.split(&format!("\n{heading}\n")).nth(1).expect(heading);
    let section = section.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The script that runs the blocks. The server runs in the background, where a reader would use another
/// terminal.
const HARNESS: &str = r#"
set -euo pipefail
start() {
    START_COMMAND 2>>server.log &
    SERVER=$!
    for attempt in $(seq 300); do
        curl -sf "$URL/readyz" >/dev/null 2>&1 && return
        sleep 0.1
    done
    cat server.log >&2
    return 1
}
stop() { kill -TERM "$SERVER" 2>/dev/null && wait "$SERVER"; }
trap 'kill "$SERVER" 2>/dev/null || true' EXIT
URL=http://127.0.0.1:8080
start
FIRST_BLOCKS
stop
start
LAST_BLOCK
stop
trap - EXIT
"#;

#[test]
fn commands_of_the_readme_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        python::skip("the README's lines", "`curl` is not installed");
        return;
    }
    let python = python::with("openai");
    let readme = std::fs::read_to_string("README.md").unwrap();
    let [start] = blocks(&readme, "## Run it").try_into().expect("one command runs it");
    assert_eq!(start.trim(), "cargo run --release");
    let mut steps = blocks(&readme, "### With curl");
    let last = steps.pop().unwrap();
    if python.is_none() {
        python::skip("the README's SDK lines", "`python3` can't import `openai`");
        steps.retain(|step| !step.contains("from openai"));
    }
    let script = HARNESS
        .replace("START_COMMAND", start.trim())
        .replace("FIRST_BLOCKS", &steps.join("\necho; echo =====\n"))
        .replace("LAST_BLOCK", &format!("echo =====\n{last}"));
    let output = run(&script, python.as_deref());
    check(&output, last.contains("usage"), python.is_some());
}

fn run(script: &str, python: Option<&Path>) -> String {
    let folder = Folder::new();
    let bin = folder.0.join("bin");
    std::fs::create_dir(&bin).unwrap();
    // The binary under test replaces the one that cargo would build. Nothing else is changed.
    write_program(&bin.join("cargo"), &format!("exec {} \"${{@:3}}\"", env!("CARGO_BIN_EXE_tollkeeper")));
    if let Some(python) = python {
        write_program(&bin.join("python3"), &format!("exec {} \"$@\"", python.display()));
    }
    let ports: [TcpListener; 2] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [public, service] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let script = script.replace("127.0.0.1:8080", &public).replace("127.0.0.1:8081", &service);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder.0)
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", folder.0.to_str().unwrap())])
        .envs([("TOLLKEEPER_LISTEN", &public), ("TOLLKEEPER_SERVICE_LISTEN", &service)])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

fn write_program(path: &Path, line: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/bash\n{line}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn check(output: &str, last_is_usage: bool, has_chat: bool) {
    assert!(!output.contains("\"error\":{"), "{output}");
    let me = "\"email_verified\":true";
    assert_eq!(output.matches(me).count(), 1, "{output}");
    assert!(output.contains("\"allowed\":true"), "{output}");
    assert_eq!(output.matches("\"status\":\"accepted\"").count(), 1, "{output}");
    assert_eq!(output.matches("\"status\":\"duplicate\"").count(), 1, "{output}");
    // The reported call costs 1234 x 0.000002 + 567 x 0.000006 = 0.00587, and the call through the gateway 3
    // x 0.000002 + 42 x 0.000006 = 0.000258. These exact amounts are in the rows and the totals of the
    // project and the organization, and again after the restart.
    let alone = "\"chat\":{\"requests\":1,\"tokens\":{\"prompt\":3,\"completion\":42},\"amount\":0.000258}";
    assert_eq!(output.contains(alone), has_chat, "{output}");
    let (chat, total) = if has_chat {
        let chat =
            "\"chat\":{\"requests\":2,\"tokens\":{\"prompt\":1237,\"completion\":609},\"amount\":0.006128}";
        (chat, "\"usage\":{\"tokens\":1846,\"requests\":2}")
    } else {
        let chat =
            "\"chat\":{\"requests\":1,\"tokens\":{\"prompt\":1234,\"completion\":567},\"amount\":0.00587}";
        (chat, "\"usage\":{\"tokens\":1801,\"requests\":1}")
    };
    assert!(last_is_usage);
    assert_eq!(output.matches(chat).count(), 6, "{output}");
    assert!(output.contains(total), "{output}");
    assert!(
        output.rsplit("=====").next().unwrap().contains(chat),
        "the data is kept after a restart: {output}"
    );
}
