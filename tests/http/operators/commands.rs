//! The commands of operators, as processes next to a running server.

use serde_json::{Value, json};

use support::process::{PUBLIC_URL, ProcessResult, Server, Start, until};
use support::world::PASSWORD;
use support::{Database, on_each_database};

pub fn run_with_start(database: Database, test: impl Fn(Start)) {
    database.run_processes(|url, folder| test(Start::new(&folder.0).database(url)));
}

/// Waits until a token is refused; returns `false` if that takes too long.
fn is_refused(server: &Server, token: &str) -> bool {
    until(|| server.get("/v1/auth/me").bearer(token).try_send().is_ok_and(|answer| answer.status == 401))
}

pub fn run(start: &Start, arguments: &[&str]) -> ProcessResult {
    let ended = start.command(arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.log);
    ended
}

pub fn json_of(start: &Start, arguments: &[&str]) -> Value {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(run(start, &arguments).stdout.trim()).unwrap()
}

pub fn lines(start: &Start, arguments: &[&str]) -> Vec<Value> {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--json"]).collect();
    run(start, &arguments).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[on_each_database]
fn people_are_created_disabled_and_enabled(database: Database) {
    run_with_start(database, |start| {
        let server = start.run();
        let setup = json_of(&start, &["setup"]);
        let link = setup["link"].as_str().unwrap();
        assert!(link.starts_with(&format!("{PUBLIC_URL}/console/first-account?token=")), "{link}");
        assert!(server.log().contains(link), "the log contains it too");

        let created = json_of(&start, &["user", "create", "--email", "Ada@example.com", "--operator"]);
        assert_eq!((&created["email"], &created["username"]), (&json!("Ada@example.com"), &json!("Ada")));
        assert!(created["operator_since"].is_string() && created["email_verified_at"].is_null());
        let link = created["link"].as_str().unwrap();
        let token = link.strip_prefix(&format!("{PUBLIC_URL}/reset-password?token=")).unwrap();
        let body = json!({"token": token, "password": PASSWORD, "password_confirmation": PASSWORD});
        server.post("/v1/auth/reset-password", &body).data();
        let ada = server.log_in("ada");
        let refused = start.command(&["setup"]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.log.contains("operator list"), "{}", refused.log);

        let second = json_of(&start, &["user", "create", "--email", "ada@example.org"]);
        assert_eq!(second["username"], "ada-1", "made unique");
        let taken = start.command(&["user", "create", "--email", "ada@example.org"]);
        assert!(taken.code == Some(1) && taken.log.contains("email_taken"), "{}", taken.log);
        let wrong = start.command(&["user", "create", "--email", "ada"]);
        assert!(wrong.code == Some(2) && wrong.log.contains("must be one address"), "{}", wrong.log);

        let listed = lines(&start, &["user", "list"]);
        let names: Vec<_> = listed.iter().map(|user| user["username"].as_str().unwrap()).collect();
        assert_eq!(names, ["Ada", "ada-1"]);
        assert_eq!(lines(&start, &["user", "list", "--search", "EXAMPLE.ORG"]).len(), 1);
        let text = run(&start, &["user", "list"]).stdout;
        assert!(text.lines().next().unwrap().ends_with("Ada@example.com  Ada  operator"), "{text}");

        let shown = json_of(&start, &["user", "show", "ada@example.com"]);
        assert_eq!((&shown["sessions"], &shown["second_factor"]), (&json!(1), &json!(false)));
        let ended = json_of(&start, &["user", "end-sessions", "ada@example.com"]);
        assert_eq!(ended["ended_sessions"], 1);
        assert!(is_refused(&server, &ada.access_token));
        let ada = server.log_in("ada");
        let disabled = json_of(&start, &["user", "disable", "ada@example.com"]);
        assert_eq!((&disabled["already"], &disabled["ended_sessions"]), (&json!(false), &json!(1)));
        assert!(is_refused(&server, &ada.access_token), "within a second");
        assert_eq!(lines(&start, &["user", "list", "--disabled"]).len(), 1);
        let again = run(&start, &["user", "disable", "ada@example.com"]).stdout;
        assert_eq!(again.trim(), "Ada@example.com was already disabled.");
        let enabled = run(&start, &["user", "enable", "ada@example.com"]).stdout;
        assert_eq!(enabled.trim(), "Ada@example.com is enabled again.");
        let none = run(&start, &["user", "reset-second-factor", "ada@example.com"]).stdout;
        assert_eq!(none.trim(), "Ada@example.com had no second factor.");
        let unknown = start.command(&["user", "show", "nobody@example.com"]);
        assert!(
            unknown.code == Some(1) && unknown.log.contains("no account has the address or id"),
            "{}",
            unknown.log
        );

        let actions: Vec<_> = lines(&start, &["audit-log", "--actor", "operator"])
            .iter()
            .map(|entry| entry["action"].as_str().unwrap().to_owned())
            .collect();
        for action in ["user.created", "operator.granted", "sessions.ended", "user.disabled", "user.enabled"]
        {
            assert!(actions.contains(&action.to_owned()), "{action}: {actions:?}");
        }
    });
}

#[on_each_database]
fn operators_are_granted_and_revoked(database: Database) {
    run_with_start(database, |start| {
        let server = start.run();
        server.sign_up("ada");
        assert!(lines(&start, &["operator", "list"]).is_empty());
        let granted = json_of(&start, &["operator", "grant", "ada@example.com"]);
        assert_eq!((&granted["already"], &granted["ended_sessions"]), (&json!(false), &json!(1)));
        let again = run(&start, &["operator", "grant", "ada@example.com"]).stdout;
        assert_eq!(again.trim(), "ada@example.com was already an operator.");
        assert_eq!(lines(&start, &["operator", "list"]).len(), 1);
        assert!(
            !server.data_dir.join("first-account.token").exists()
                || start.command(&["setup"]).code == Some(1)
        );
        let revoked = run(&start, &["operator", "revoke", "ada@example.com"]).stdout;
        assert_eq!(revoked.trim(), "ada@example.com is no longer an operator.");
        assert!(lines(&start, &["operator", "list"]).is_empty());
    });
}

#[on_each_database]
fn money_that_operators_change_is_told_to_the_owners(database: Database) {
    run_with_start(database, |start| {
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let organization = place.project_path.split('/').nth(3).unwrap().to_owned();
        let set = ["organization", "set-credit-limit", &organization, "--amount", "7"];
        assert_eq!(json_of(&start, &set)["credit_limit"], 7);
        let add = ["credit", "add", "--organization", &organization, "--amount", "25", "--reference", "R-1"];
        for already in [false, true] {
            assert_eq!(json_of(&start, &add)["already_there"], already);
        }
        server.wait_for_log("Admin change to Acme");
        let mails = std::fs::read_dir(server.data_dir.join("mail")).unwrap();
        let texts: Vec<_> = mails
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .filter(|text| text.contains("An administrator of "))
            .collect();
        assert!(texts.len() <= 2 && !texts.is_empty(), "a repetition sends no notice: {texts:?}");
        assert!(texts.iter().all(|text| text.contains("To: ada@example.com")));
    });
}

#[on_each_database]
fn mails_are_tested_listed_and_retried(database: Database) {
    run_with_start(database, |start| {
        // Nothing listens on this port.
        let start = start.set("TOLLKEEPER_MAIL__URL", "smtp://127.0.0.1:9?tls=none");
        let server = start.run();
        let register = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
        server.post("/v1/auth/register", &register).data();
        server.wait_for_log("sending an e-mail failed");
        let waiting = lines(&start, &["mail", "list"]);
        let [mail] = waiting.as_slice() else { panic!("{waiting:?}") };
        assert_eq!((&mail["template"], &mail["email"]), (&json!("verify_email"), &json!("ada@example.com")));
        assert!(mail["last_error"].as_str().is_some_and(|error| !error.is_empty()), "{mail}");
        let retried = json_of(&start, &["mail", "retry", mail["id"].as_str().unwrap()]);
        assert_eq!(retried["mails"], 1);
        assert_eq!(json_of(&start, &["mail", "retry"])["mails"], 1);
        let unknown = start.command(&["mail", "retry", "mail_01kfz3v9xee8tb2m6h0q5w7r4n"]);
        assert_eq!(unknown.code, Some(1));
        let failed = start.command(&["mail", "test", "--to", "ops@example.com", "--json"]);
        assert_eq!(failed.code, Some(1));
        let report: Value = serde_json::from_str(failed.stdout.trim()).unwrap();
        assert_eq!(report["sent"], false);
        // Delivery to a folder works.
        let start = start.set("TOLLKEEPER_MAIL__URL", "file");
        let sent = run(&start, &["mail", "test", "--to", "ops@example.com"]).stdout;
        assert_eq!(sent.trim(), "A test mail to ops@example.com was accepted for delivery.");
    });
}
