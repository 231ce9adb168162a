//! `tollkeeper webhook …` next to a running server.

use serde_json::{Value, json};

use super::commands::{json_of, lines, run, run_with_start};
use support::process::{Start, until};
use support::{Database, on_each_database};

/// Runs a command that is refused; returns its exit code and its error.
fn refused(start: &Start, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = start.command(arguments);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    (ended.code, ended.log)
}

#[on_each_database]
fn webhooks_of_the_installation_are_managed_by_command(database: Database) {
    run_with_start(database, |start| {
        let _server = start.run();
        let events = "audit.drift,invoice.paid,invoice.paid";
        let create = ["webhook", "create", "--url", "https://receiver.invalid/in", "--events", events];
        let created = json_of(&start, &[&create[..], &["--description", "Ours"]].concat());
        let id = created["id"].as_str().unwrap();
        let secret = created["secret"].as_str().unwrap();
        assert!(secret.starts_with("whsec_"), "{created}");
        assert_eq!(
            created,
            json!({"id": id, "secret": secret, "url": "https://receiver.invalid/in",
                "events": ["invoice.paid", "audit.drift"], "description": "Ours", "created_at": created["created_at"]})
        );
        let shown = json_of(&start, &["webhook", "show", id]);
        assert_eq!(
            shown,
            json!({"id": id, "url": "https://receiver.invalid/in", "events": ["invoice.paid", "audit.drift"],
                "description": "Ours", "enabled": true, "disabled_reason": null, "failing_since": null,
                "previous_secret_ends_at": null, "created_at": created["created_at"],
                "updated_at": created["created_at"]})
        );
        assert_eq!(lines(&start, &["webhook", "list"]), [shown]);
        let text = run(&start, &["webhook", "list"]).stdout;
        assert_eq!(text.trim(), format!("{id}  https://receiver.invalid/in  on  invoice.paid,audit.drift"));

        // A running server tries to send the test, but can't reach the receiver.
        let tested = json_of(&start, &["webhook", "test", id]);
        let delivery = tested["delivery_id"].as_str().unwrap();
        let latest = || lines(&start, &["webhook", "deliveries", id]).remove(0);
        assert!(until(|| !latest()["outcome"].is_null()));
        let failing: Value = latest();
        assert_eq!((&failing["id"], &failing["event_type"]), (&json!(delivery), &json!("webhook.test")));
        assert_eq!(failing["outcome"], "not_reachable", "{failing}");
        let off = json_of(&start, &["webhook", "update", id, "--disable", "--description", ""]);
        assert_eq!(
            (&off["enabled"], &off["disabled_reason"], &off["description"]),
            (&json!(false), &json!("owner"), &Value::Null)
        );
        assert_eq!(lines(&start, &["webhook", "deliveries", id, "--state", "failed"]).len(), 1);
        let disabled = refused(&start, &["webhook", "redeliver", id, "--delivery", delivery]);
        assert!(disabled.0 == Some(1) && disabled.1.contains("webhook_disabled"), "{disabled:?}");
        json_of(&start, &["webhook", "update", id, "--enable", "--events", "usage.refused"]);
        let again = json_of(&start, &["webhook", "redeliver", id, "--since", "2020-01-01"]);
        assert_eq!(again, json!({"deliveries": 1}));
        let rotated = json_of(&start, &["webhook", "rotate", id]);
        assert!(rotated["secret"] != json!(secret) && rotated["previous_secret_ends_at"].is_string());

        // Refused arguments: ids of other webhooks, and addresses that aren't allowed.
        for (arguments, code, word) in [
            (
                vec!["webhook", "create", "--url", "http://example.com", "--events", "invoice.paid"],
                1,
                "https_required",
            ),
            (
                vec!["webhook", "create", "--url", "https://10.0.0.1", "--events", "audit.drift"],
                1,
                "address_not_allowed",
            ),
            (vec!["webhook", "create", "--url", "example", "--events", "audit.drift"], 2, "write a URL"),
            (
                vec!["webhook", "create", "--url", "https://example.com", "--events", "webhook.test"],
                2,
                "catalog.refused",
            ),
            (vec!["webhook", "create", "--url", "https://example.com"], 2, "--events"),
            (vec!["webhook", "update", id, "--enable", "--disable"], 2, "cannot be used with"),
            (vec!["webhook", "redeliver", id], 2, "--since"),
            (vec!["webhook", "show", "webhook_01kfz3v9xee8tb2m6h0q5w7r4n"], 1, "webhook_not_found"),
            (vec!["webhook", "show", "org_01kfz3v9xee8tb2m6h0q5w7r4n"], 2, "starts with `webhook_`"),
        ] {
            let (found, log) = refused(&start, &arguments);
            assert!(found == Some(code) && log.contains(word), "{arguments:?}: {found:?} {log}");
        }

        assert_eq!(json_of(&start, &["webhook", "delete", id]), json!({"id": id, "deleted": true}));
        assert!(lines(&start, &["webhook", "list"]).is_empty());
        let log = lines(&start, &["audit-log", "--target", id, "--actor", "operator"]);
        let mut actions: Vec<_> = log.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        actions.reverse();
        assert_eq!(
            actions,
            [
                "webhook.created",
                "webhook.tested",
                "webhook.changed",
                "webhook.changed",
                "webhook.redelivered",
                "webhook.rotated",
                "webhook.deleted"
            ]
        );
    });
}
