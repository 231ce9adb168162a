//! `tollkeeper audit --receipts`, which compares usage that a reporter has kept with the books.

use serde_json::{Value, json};

use support::process::{Start, usage_event};
use support::world::Folder;
use support::{Database, on_each_database};

#[on_each_database]
fn receipts_show_what_the_books_lack(database: Database) {
    database.run_processes(show_what_the_books_lack);
}

fn show_what_the_books_lack(url: Option<&str>, folder: &Folder) {
    let start = Start::new(&folder.0).database(url);
    let server = start.run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let event = |id: &str| usage_event(&place, id)["events"][0].clone();
    let changed = |id: &str, name: &str, value: Value| {
        let mut event = event(id);
        event[name] = value;
        event
    };
    for id in ["one", "two", "three"] {
        assert_eq!(server.report(&place, id), "accepted");
    }
    let file = folder.0.join("receipts.jsonl");
    let compare = |lines: &[Value], options: &[&str]| {
        let text: String = lines.iter().map(|line| format!("{line}\n\n")).collect();
        std::fs::write(&file, text).unwrap();
        start.command(&[&["audit", "--receipts", file.to_str().unwrap()], options].concat())
    };
    // The receipts are single events, the body of a batch, and a CloudEvent.
    let used = ["api_key_id", "model", "kind", "prompt_tokens", "completion_tokens"];
    let three = event("three");
    let data: Value = used
        .iter()
        .map(|name| ((*name).to_owned(), three[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let cloud_event = json!({"specversion": "1.0", "type": "tollkeeper.usage.v1", "id": "three", "source": "test",
                             "time": three["time"], "data": data});
    let all = [event("one"), json!({"events": [event("two"), event("one")]}), cloud_event];
    let clean = compare(&all, &[]);
    assert_eq!(clean.code, Some(0), "{}", clean.log);
    assert_eq!(
        clean.stdout.trim(),
        "Compared 4 events with the books: 4 are there, 0 are missing with 0 + 0 tokens, 0 differ."
    );
    // The books lack an event, one from another source, and one of a key that never existed. One receipt has
    // other tokens.
    let odd = [
        event("one"),
        event("lost"),
        changed("one", "source", json!("another")),
        changed("one", "api_key_id", json!("key_01kfz3v9xee8tb2m6h0q5w7r4n")),
        changed("two", "completion_tokens", json!(501)),
        changed("ancient", "time", json!("2020-01-31T00:00:00Z")),
    ];
    let found = compare(&odd, &[]);
    assert_eq!(found.code, Some(1));
    let time = event("one")["time"].as_str().unwrap().to_owned();
    let expected = format!(
        "missing  {time}  test  lost  1000 + 500 tokens\n\
         missing  {time}  another  one  1000 + 500 tokens\n\
         missing  {time}  test  one  1000 + 500 tokens\n\
         different  {time}  test  two  1000 + 501 tokens\n\
         Compared 6 events with the books: 1 are there, 3 are missing with 3000 + 1500 tokens, 1 differ. \
         1 are so old that their events may be deleted.\n"
    );
    assert_eq!(found.stdout, expected);
    assert!(found.log.contains("the books lack 3 of 6 events, and 1 differ"), "{}", found.log);
    let report: Value = serde_json::from_str(&compare(&odd, &["--json"]).stdout).unwrap();
    assert_eq!((&report["found"], &report["too_old"]), (&json!(1), &json!(1)));
    assert_eq!(report["missing"][0]["id"], "lost");
    // A missing event is reported again, and is then found.
    assert_eq!(server.report(&place, "lost"), "accepted");
    assert_eq!(compare(&[event("lost")], &[]).code, Some(0));
    // An invalid line is reported with its number.
    let unreadable = compare(&[event("one"), changed("two", "prompt_tokens", json!("many"))], &[]);
    assert_eq!(unreadable.code, Some(1));
    assert!(unreadable.log.contains("receipts.jsonl:3: `prompt_tokens`"), "{}", unreadable.log);
    let both =
        start.command(&["audit", "--receipts", "x", "--organization", "org_01kfz3v9xee8tb2m6h0q5w7r4n"]);
    assert_eq!(both.code, Some(2));
    let missing = start.command(&["audit", "--receipts", "nowhere.jsonl"]);
    assert!(missing.code == Some(1) && missing.log.contains("nowhere.jsonl"), "{}", missing.log);
}
