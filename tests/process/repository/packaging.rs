//! The examples in packaging/ and in the documents. The names in them must exist, and the test runs those
//! that can run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tollkeeper::api::routes;
use tollkeeper::config::{Config, names, variable, warnings};
use tollkeeper::events::EventType;

use support::process::{Start, free_addresses, run_to_end};
use support::proxy::{Proxy, is_installed};
use support::python::{self, python};
use support::world::Folder;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the path and the text of the README and of every file in packaging/ and docs/ except images.
fn texts() -> Vec<(PathBuf, String)> {
    let mut found = vec![(PathBuf::from("README.md"), read("README.md"))];
    let mut folders = vec![PathBuf::from("packaging"), PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|extension| extension != "png") {
                let text = read(path.to_str().unwrap());
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 15, "{found:?}");
    found
}

/// Returns the words in a text that begin with `start`, up to the first other character.
fn words<'a>(text: &'a str, start: &str, belongs: impl Fn(char) -> bool) -> Vec<&'a str> {
    let found = text.match_indices(start).map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        &rest[..end]
    });
    found.collect()
}

#[test]
fn every_named_variable_and_key_exists() {
    let keys: BTreeSet<&str> = names().collect();
    let variables: BTreeSet<String> = names().map(variable).collect();
    let tables: BTreeSet<&str> = keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    let events: BTreeSet<&str> = EventType::of_installation().map(|event| event.as_str()).collect();
    for (path, text) in texts() {
        for word in words(&text, "TOLLKEEPER_", |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        {
            // `TOLLKEEPER_…` stands for any variable. The last two are examples of variables of other
            // programs in operations.md.
            let known = word == "TOLLKEEPER_"
                || word == "TOLLKEEPER_CONFIG"
                || word.starts_with("TOLLKEEPER_TEST_")
                || ["TOLLKEEPER_SERVICE_HOST", "TOLLKEEPER_PORT_"].contains(&word);
            assert!(known || variables.contains(word), "{}: {word} doesn't exist", path.display());
        }
        for table in &tables {
            let start = format!("`{table}.");
            for word in words(&text, &start, |c| c.is_ascii_lowercase() || "`._".contains(c)) {
                let key = word.trim_matches('`');
                // Audit actions, webhook events and other names can begin with the same words.
                let ours = key.len() > table.len() + 1
                    && !key.contains("..")
                    && word.ends_with('`')
                    && !word.ends_with(".rs`");
                let exists = keys.contains(key) || events.contains(key);
                assert!(!ours || exists, "{}: the key {key} doesn't exist", path.display());
            }
        }
    }
    let guide = read("docs/operations.md");
    let section = guide.split("\n## Configuration\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
    // The other limits are in the table of bounds, which `bounds::table` checks.
    for key in keys.into_iter().filter(|key| !key.starts_with("limits.") || *key == "limits.enabled") {
        assert!(rows.iter().any(|row| row.contains(&format!("`{key}`"))), "no row for {key}");
    }
}

#[test]
fn ports_and_folders_agree() {
    let Config { listen, service_listen, .. } = Config::default();
    assert_eq!((listen.port(), service_listen.port()), (8080, 8081));
    let docker = read("packaging/Dockerfile");
    let kubernetes = read("packaging/kubernetes/tollkeeper.yaml");
    let compose = read("packaging/compose/compose.yaml");
    let unit = read("packaging/systemd/tollkeeper.service");
    for (text, line) in [
        (&docker, "EXPOSE 8080 8081".to_owned()),
        (&docker, "TOLLKEEPER_LISTEN=0.0.0.0:8080".to_owned()),
        (&docker, "TOLLKEEPER_SERVICE_LISTEN=0.0.0.0:8081".to_owned()),
        (&docker, "TOLLKEEPER_DATA_DIR=/var/lib/tollkeeper".to_owned()),
        (&docker, "VOLUME /var/lib/tollkeeper".to_owned()),
        (&docker, "USER 65532:65532".to_owned()),
        (&kubernetes, "runAsUser: 65532".to_owned()),
        (&kubernetes, "containerPort: 8080".to_owned()),
        (&kubernetes, "containerPort: 8081".to_owned()),
        (&kubernetes, "mountPath: /var/lib/tollkeeper".to_owned()),
        (&compose, "server 172.28.10.11:8080".to_owned()),
        (&compose, "- data-1:/var/lib/tollkeeper".to_owned()),
        (&unit, "Environment=TOLLKEEPER_DATA_DIR=/var/lib/tollkeeper".to_owned()),
        (&unit, "StateDirectory=tollkeeper".to_owned()),
        (&read("packaging/nginx/tollkeeper-upstream.conf"), format!("server {listen} ")),
    ] {
        assert!(text.contains(&line), "no `{line}`");
    }
    // The images use the compiler version of the manifest.
    let rust =
        read("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = ").map(str::to_owned));
    assert!(docker.contains(&format!("FROM rust:{}-", rust.unwrap().trim_matches('"'))));
    // The build context has the files that the build reads.
    for name in ["src", "crates", "catalog", "Cargo.toml", "Cargo.lock", ".cargo"] {
        assert!(read("packaging/Dockerfile.dockerignore").contains(&format!("\n!{name}\n")), "{name}");
        assert!(Path::new(name).exists());
    }
    // A probe of a path that doesn't exist would always fail.
    let paths: BTreeSet<_> = routes::table().iter().map(|route| route.path).collect();
    for probe in ["/readyz", "/healthz"] {
        assert!(paths.contains(probe) && kubernetes.contains(&format!("path: {probe},")));
    }
}

#[test]
fn started_commands_exist() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let binary = "/usr/local/bin/tollkeeper";
    let mut commands = Vec::new();
    for path in ["packaging/systemd/tollkeeper.service", "packaging/systemd/tollkeeper-backup.service"] {
        let text = read(path);
        let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        let words = line.split(binary).nth(1).unwrap().trim_end_matches('\'');
        // A shell substitution counts as one word.
        let words = words.replace("$$(date -u +%%Y%%m%%dT%%H%%M%%SZ)", "NOW");
        let words = words.split_whitespace();
        commands.push(words.map(str::to_owned).collect::<Vec<_>>());
    }
    let docker = read("packaging/Dockerfile");
    let list = |text: &str| -> Vec<String> { serde_json::from_str(text).unwrap() };
    let health = docker.lines().find_map(|line| Some(line.split_once(" CMD ")?.1)).unwrap();
    commands.push(list(health)[1..].to_vec());
    assert_eq!(list(health)[0], binary);
    commands.push(list(docker.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap()));
    assert!(docker.contains(&format!("ENTRYPOINT [\"{binary}\"]")));
    commands.push(vec!["serve".to_owned()]);
    assert!(read("packaging/kubernetes/tollkeeper.yaml").contains("args: [\"serve\"]"));
    for command in commands {
        let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
        words.push("--help");
        let ended = start.command(&words);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""), "{command:?}");
        assert!(ended.stdout.contains("Usage: tollkeeper "), "{command:?}: {}", ended.stdout);
    }
}

#[test]
fn example_configurations_are_valid() {
    Config::load(Some(Path::new("packaging/tollkeeper.toml")), []).unwrap();
    let Some(mut command) = python("yaml", "pyyaml", "the YAML of packaging/") else { return };
    // Returns the variables of the replicas, as their runtimes set them.
    let program = r#"
import json, re, sys, yaml
compose = yaml.safe_load(open("packaging/compose/compose.yaml"))
replicas = [service for name, service in compose["services"].items() if name.startswith("tollkeeper-")]
assert len(replicas) == 2
fill = {"POSTGRES_PASSWORD": "p", "TOLLKEEPER_SERVICE_TOKEN": "svc_0123456789abcdef", "TOLLKEEPER_MAIL__URL": "smtp://mail"}
interpolated = lambda text: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: fill[found[1]], text)
environments = [{name: interpolated(str(value)) for name, value in replica["environment"].items()} for replica in replicas]
for replica in replicas:
    assert replica["read_only"] and replica["cap_drop"] == ["ALL"], replica
    assert "ports" not in replica
networks = compose["services"]["nginx"]["networks"]
assert environments[0]["TOLLKEEPER_TRUSTED_PROXIES"] == networks["front"]["ipv4_address"]
upstream = compose["configs"]["upstream"]["content"]
for replica in replicas:
    assert "server " + replica["networks"]["front"]["ipv4_address"] + ":8080 " in upstream

documents = list(yaml.safe_load_all(open("packaging/kubernetes/tollkeeper.yaml")))
by_kind = {}
for document in documents:
    by_kind.setdefault(document["kind"], []).append(document)
    assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "tollkeeper", document
[deployment], [secret], [budget] = by_kind["Deployment"], by_kind["Secret"], by_kind["PodDisruptionBudget"]
labels = deployment["spec"]["template"]["metadata"]["labels"]
assert deployment["spec"]["replicas"] == 2 and budget["spec"]["minAvailable"] == 1
selectors = [deployment["spec"]["selector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]]
selectors += [service["spec"]["selector"] for service in by_kind["Service"]]
selectors += [policy["spec"]["podSelector"]["matchLabels"] for policy in by_kind["NetworkPolicy"]]
assert all(selector == labels for selector in selectors), selectors
pod = deployment["spec"]["template"]["spec"]
[container] = pod["containers"]
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
for service in by_kind["Service"]:
    for port in service["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"], port
assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
environment = {"TOLLKEEPER_MASTER_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
               "TOLLKEEPER_SERVICE_TOKEN": fill["TOLLKEEPER_SERVICE_TOKEN"]}
for variable in container["env"]:
    if "value" in variable:
        environment[variable["name"]] = variable["value"]
    else:
        reference = variable["valueFrom"]["secretKeyRef"]
        assert reference["name"] == secret["metadata"]["name"], reference
        environment.setdefault(variable["name"], secret["stringData"][reference["key"]])
print(json.dumps(environments + [environment]))
"#;
    command.args(["-c", program]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let environments: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let docker = read("packaging/Dockerfile");
    let image: Vec<_> = words(&docker, "TOLLKEEPER_", |c| !c.is_whitespace())
        .into_iter()
        .filter_map(|word| word.split_once('='))
        .collect();
    assert_eq!(image.len(), 3, "{image:?}");
    let folder = Folder::new();
    for environment in environments {
        let own = environment
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
        let start = image
            .iter()
            .copied()
            .chain(own)
            .fold(Start::new(&folder.0), |start, (name, value)| start.set(name, value));
        let ended = start.command(&["config", "--json"]);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(shown["public_url"], "https://keeper.example.com");
        // A start with an example must log no warning.
        let config = start.config();
        assert!(!config.listen.ip().is_loopback());
        assert_eq!(warnings(&config), Vec::<String>::new());
        assert!(shown["mail"]["url"].as_str().unwrap().starts_with("smtp://"), "{shown}");
    }
}

/// The nginx example is unchanged except for addresses and the path of the certificate.
#[test]
fn nginx_example_keeps_the_clients_address() {
    if !is_installed("nginx", "nginx-light", "nginx in front of the public listener") {
        return;
    }
    for program in ["openssl", "curl"] {
        if Command::new(program).arg("version").output().is_err() {
            python::skip_without("nginx", "nginx in front of the public listener", &format!("no {program}"));
            return;
        }
    }
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.1").run();
    let (plain, tls) = free_addresses();
    let _proxy = front(&folder, server.public, plain, tls);
    let curl = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--insecure", "--max-time", "20"]).args(arguments);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        ended.stdout
    };
    let redirected = curl(&[
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{redirect_url}",
        &format!("http://{plain}/v1/models?a=b"),
    ]);
    assert!(redirected.starts_with("308 https://") && redirected.ends_with("/v1/models?a=b"), "{redirected}");

    let ada = server.sign_up("ada");
    let bearer = format!("authorization: Bearer {}", ada.access_token);
    // The request comes from another address of this machine, with a forged header.
    let me = curl(&[
        "--interface",
        "127.0.0.2",
        "-H",
        &bearer,
        "-H",
        "x-forwarded-for: 192.0.2.9",
        &format!("https://{tls}/v1/auth/me"),
    ]);
    assert!(me.contains("\"username\":\"ada\""), "{me}");
    server.wait_for_log("address=127.0.0.2");
    assert!(!server.log().contains("192.0.2.9"), "{}", server.log());
    let hidden = curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("https://{tls}/readyz")]);
    assert_eq!(hidden, "404");
    // nginx refuses a body that is too large, but with an error in our format.
    let large = folder.0.join("large");
    std::fs::write(&large, vec![b' '; 1_500_000]).unwrap();
    let body = format!("@{}", large.display());
    let refused = curl(&[
        "-H",
        "content-type: application/json",
        "--data-binary",
        &body,
        &format!("https://{tls}/v1/auth/login"),
    ]);
    assert!(refused.contains("\"code\":\"payload_too_large\""), "{refused}");

    // Model calls have a larger limit, and errors in another format.
    let bearer = format!("authorization: Bearer {}", server.settle(&ada).key);
    let json = "content-type: application/json";
    let call = |operation: &str| {
        let url = format!("https://{tls}/v1/{operation}");
        curl(&["-H", &bearer, "-H", json, "--data-binary", &body, &url])
    };
    for operation in ["chat/completions", "completions", "embeddings", "responses", "messages"] {
        let read = call(operation);
        assert!(read.contains("\"code\":\"invalid_json\""), "{operation}: {read}");
    }
    std::fs::write(&large, vec![b' '; (16 << 20) + 1]).unwrap();
    let refused: Value = serde_json::from_str(&call("chat/completions")).unwrap();
    assert_eq!(refused["error"]["code"], "payload_too_large");
    assert!(refused["status_code"].is_null(), "{refused}");
}

/// Starts nginx with the two files in packaging/nginx.
fn front(folder: &Folder, server: SocketAddr, plain: SocketAddr, tls: SocketAddr) -> Proxy {
    let path = folder.0.display();
    let mut make = Command::new("openssl");
    make.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    make.args(["-subj", "/CN=keeper.example.com", "-keyout", &format!("{path}/keeper.example.com.key")]);
    make.args(["-out", &format!("{path}/keeper.example.com.crt")]);
    assert_eq!(run_to_end(make).code, Some(0));
    let mut text =
        read("packaging/nginx/tollkeeper-upstream.conf") + &read("packaging/nginx/tollkeeper.conf");
    for (documented, here) in [
        ("server 127.0.0.1:8080 ", format!("server {server} ")),
        ("listen 80;", format!("listen {plain};")),
        ("listen 443 ssl http2;", format!("listen {tls} ssl http2;")),
        ("    listen [::]:80;\n", String::new()),
        ("    listen [::]:443 ssl http2;\n", String::new()),
        ("/etc/nginx/tls/", format!("{path}/")),
    ] {
        assert!(text.contains(documented), "no {documented:?}");
        text = text.replace(documented, &here);
    }
    Proxy::nginx(&folder.0, &text, tls)
}
