//! Clients that are generated from a server's document with the commands of the contract
//! (docs/contract/README.md#generate-a-client): they have a function for each operation, their types are
//! valid, and they can make the journey of the README.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::operations;
use support::node::node;
use support::process::{ProcessResult, Server, Start, run_to_end};
use support::python;
use support::world::Folder;

/// The programs that use the clients, and the checkers of their types.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

#[test]
fn generated_python_client_makes_the_journey() {
    let what = "a generated client for Python";
    let needed = "openapi_python_client, mypy";
    let Some(mut python) = python::python(needed, "openapi-python-client mypy", what) else { return };
    let place = Place::new(&["journey.py", "mypy.ini"]);
    let programs = Path::new(python.get_program()).parent().unwrap().to_owned();
    place.generate("openapi-python-client", &programs);
    let api = place.folder.0.join("tollkeeper_client/api");
    let subjects = std::fs::read_dir(&api).unwrap().map(|entry| entry.unwrap().path());
    let files = subjects.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut functions: BTreeSet<_> = files.map(|entry| stem(entry.unwrap().path())).collect();
    functions.remove("__init__");
    functions.remove("__pycache__");
    assert_eq!(functions, place.operation_ids());

    let mut mypy = place.command(programs.join("mypy").to_str().unwrap());
    mypy.args(["--config-file", "mypy.ini", "journey.py", "tollkeeper_client"]);
    succeed(mypy);
    python.current_dir(&place.folder.0).arg("journey.py").arg(place.setup());
    assert_eq!(succeed(python).stdout.trim(), "all good");
}

#[test]
fn generated_typescript_client_makes_the_journey() {
    let what = "a generated client for TypeScript";
    let Some(mut node) = node("typescript", what) else { return };
    let modules = PathBuf::from(std::env::var_os("TOLLKEEPER_TEST_NODE_MODULES").unwrap_or_default());
    if !modules.join("@hey-api/openapi-ts").exists() {
        python::skip_without("node", what, "`@hey-api/openapi-ts` isn't next to `typescript`");
        return;
    }
    let place = Place::new(&["journey.ts", "tsconfig.json"]);
    std::os::unix::fs::symlink(&modules, place.folder.0.join("node_modules")).unwrap();
    let generated = place.generate("npx openapi-ts", &modules.join(".bin"));
    assert!(!generated.to_lowercase().contains("warn"), "{generated}");
    let sdk = std::fs::read_to_string(place.folder.0.join("tollkeeper-client/sdk.gen.ts")).unwrap();
    let functions = sdk.lines().filter_map(|line| line.strip_prefix("export const ")?.split_once(" ="));
    let functions: BTreeSet<_> = functions.map(|(name, _)| name.to_owned()).collect();
    let due: BTreeSet<_> = place.operation_ids().iter().map(|id| in_camel_case(id)).collect();
    assert_eq!(functions, due);

    let mut tsc = place.command(modules.join(".bin/tsc").to_str().unwrap());
    tsc.args(["--project", "."]);
    succeed(tsc);
    node.current_dir(&place.folder.0).arg("built/journey.js").arg(place.setup());
    assert_eq!(succeed(node).stdout.trim(), "all good");
}

/// A folder with a program and its checks, and a server.
struct Place {
    folder: Folder,
    server: Server,
}

impl Place {
    fn new(files: &[&str]) -> Self {
        let folder = Folder::new();
        for file in files {
            std::fs::copy(Path::new(PROGRAMS).join(file), folder.0.join(file)).unwrap();
        }
        // The links in e-mails point to the listener.
        let server = Start::new(&folder.0).unset("TOLLKEEPER_PUBLIC_URL").run();
        Self { folder, server }
    }

    /// Runs the contract's command that begins with these words, for this server; returns its output.
    fn generate(&self, words: &str, programs: &Path) -> String {
        let contract = include_str!("../../../docs/contract/README.md");
        let section = contract.split("\n### Generate a client\n").nth(1).unwrap();
        let is_command = |line: &&str| line.starts_with(words);
        let line = section.lines().find(is_command).unwrap_or_else(|| panic!("{words} isn't there"));
        let address = self.server.public.to_string();
        assert!(line.contains("http://127.0.0.1:8080/openapi.json"), "{line}");
        let mut command = self.command("sh");
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", programs.display()));
        // Otherwise, npm looks for newer versions of itself.
        command.env("npm_config_offline", "true").env("npm_config_update_notifier", "false");
        command.args(["-c", &line.replace("127.0.0.1:8080", &address)]);
        let ended = succeed(command);
        ended.stdout + &ended.log
    }

    /// Returns a command in the folder, without this process's environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder.0).env_clear().env("HOME", &self.folder.0);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    fn operation_ids(&self) -> BTreeSet<String> {
        let document = self.server.get("/openapi.json").bare();
        let operations = operations(&document);
        let id = |operation: &Value| operation.as_str().unwrap().to_owned();
        let ids: BTreeSet<_> = operations.iter().map(|(_, _, one)| id(&one["operationId"])).collect();
        assert_eq!(ids.len(), operations.len(), "each has its own");
        ids
    }

    /// Returns the argument of a program.
    fn setup(&self) -> String {
        let setup = json!({
            "public": format!("http://{}", self.server.public),
            "service": format!("http://{}", self.server.service),
            "service_token": self.server.service_token(),
            "mails": self.server.data_dir.join("mail"),
        });
        setup.to_string()
    }
}

fn succeed(command: Command) -> ProcessResult {
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
    ended
}

/// Returns the name of a function in TypeScript: `createApiKey` for `create_api_key`.
fn in_camel_case(id: &str) -> String {
    let mut words = id.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}
