//! The commands `credit`, `billing` and `invoice` while a server runs.

use serde_json::{Value, json};
use tollkeeper::clock::{Clock, DAY_MS};
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::ids::{LedgerTransactionId, OrganizationId};
use tollkeeper::money::Nano;

use tollkeeper::billing::store::ledger::{Account, Movement, Transfer};

use support::process::{ProcessResult, Start, Wire};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

#[test]
fn money_commands_have_help() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--help"], &["organization", "credit", "billing", "invoice"]),
        (&["organization", "--help"], &["list", "show", "set-credit-limit"]),
        (&["organization", "set-credit-limit", "--help"], &["<ID>", "--amount <AMOUNT>", "--json"]),
        (
            &["credit", "add", "--help"],
            &["--organization", "--amount", "--reference", "--grant", "--expires-at", "--json"],
        ),
        (&["credit", "list", "--help"], &["--organization", "--all", "--json"]),
        (&["credit", "take-back", "--help"], &["<ID>", "--amount <AMOUNT>", "--json"]),
        (&["invoice", "give-up", "--help"], &["<ID>", "--json"]),
        (
            &["margin", "--help"],
            &["--from <DATE>", "--to <DATE>", "--month <MONTH>", "--by <WHAT>", "--json"],
        ),
        (&["billing", "close", "--help"], &["--as-of", "--skip-wait", "--json"]),
        (&["invoice", "--help"], &["list", "show", "mark-paid", "give-up", "void"]),
        (&["invoice", "list", "--help"], &["--organization", "--json"]),
        (&["invoice", "show", "--help"], &["--html", "--json"]),
        (&["invoice", "mark-paid", "--help"], &["<ID>", "--amount <AMOUNT>", "--json"]),
        (&["invoice", "void", "--help"], &["<ID>", "--json"]),
    ];
    for (arguments, words) in cases {
        let ended = start.command(arguments);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        assert!(words.iter().all(|word| ended.stdout.contains(word)), "{arguments:?}:\n{}", ended.stdout);
    }
    for (arguments, words) in [
        (
            vec!["credit", "add", "--organization", "x", "--amount", "1", "--reference", "r"],
            "starts with `org_`",
        ),
        (
            vec![
                "credit",
                "add",
                "--organization",
                "org_01h2xcejqtf2nbrexx3vqjhp41",
                "--amount",
                "1e3",
                "--reference",
                "r",
            ],
            "write a decimal",
        ),
        (vec!["billing", "close", "--as-of", "soon"], "write a date"),
        (vec!["invoice", "show", "42"], "`invoice list` shows them"),
        (
            vec!["invoice", "show", "invoice_01h2xcejqtf2nbrexx3vqjhp41", "--html", "--json"],
            "cannot be used with",
        ),
    ] {
        let ended = start.command(&arguments);
        assert_eq!(ended.code, Some(2));
        assert!(ended.log.contains(words), "{}", ended.log);
    }
    assert!(!start.data_dir().exists(), "none of these commands created anything");
}

fn data_of(ended: &ProcessResult) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    serde_json::from_str(ended.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

/// Makes an organization look two months old, with usage in the first month, and stops the server's own
/// scheduler: each month closes only once, and these tests close it.
async fn use_something(settings: &Settings, organization: &str) {
    let db = Db::open(settings).unwrap();
    let day = Clock::System.now().plus_ms(-62 * DAY_MS).day().month_start();
    let mut tx = db.write().await.unwrap();
    sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
             requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         VALUES ($1, 'proj_1', 'key_1', 'svc-1', 1704067200000, 'chat', $2, $3, 1, 500000, 1000000, 7000000000000, 7000000000)")
    .bind(organization)
    .bind(day)
    .bind(day.month())
    .execute(&mut tx)
    .await
    .unwrap();
    sql("UPDATE wallets SET open_month = $2, posted_nano = -7000000000 WHERE organization_id = $1")
        .bind(organization)
        .bind(day.month())
        .execute(&mut tx)
        .await
        .unwrap();
    let now = Clock::System.now();
    let transfer = Transfer {
        id: LedgerTransactionId::from_parts(now, 1),
        organization_id: OrganizationId::parse(organization).unwrap(),
        movement: Movement::Usage,
        idempotency_key: "usage:1".into(),
        account: Account::Usage,
        to_wallet: Nano::from_units(-7_000_000_000),
    };
    tollkeeper::billing::store::ledger::record(&mut tx, &transfer, now).await.unwrap();
    sql("INSERT INTO job_leases (job, holder, leased_until) VALUES ('billing', 'the test', $1)
         ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, leased_until = excluded.leased_until")
    .bind(i64::MAX)
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
fn money_commands_work_while_a_server_runs(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let owner = server.sign_up("ada");
        let place = server.settle(&owner);
        let organization = place.project_path.split('/').nth(3).unwrap();
        let settings = match url {
            Some(url) => Settings::Postgres { url: url.to_owned() },
            None => Settings::Sqlite { path: start.data_dir().join("tollkeeper.db") },
        };
        runtime().block_on(use_something(&settings, organization));
        run_money_commands(&start, organization);
        let path = format!("/v1/organizations/{organization}/billing/invoices");
        let invoices = server.get(&path).bearer(&owner.access_token).data();
        assert_eq!(invoices["invoices"][0]["status"], "void", "the server uses the changes of the commands");
        assert_eq!(server.stop().code, Some(0));
    });
}

/// A chat call of 10 prompt tokens at 0.000002 and 100 completion tokens at 0.000006 reserves 0.00062.
#[on_each_database]
fn organization_commands_work_while_a_server_runs(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let [ada, bob] = ["ada", "bob"].map(|name| server.sign_up(name));
        let [place, other] = [&ada, &bob].map(|owner| server.settle(owner));
        let [id, others] = [&place, &other].map(|place| place.project_path.split('/').nth(3).unwrap());
        let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
            "estimated_prompt_tokens": 10});
        let decision = || server.ask("/service/v1/authorize", &question).bare();
        assert_eq!(decision()["allowed"], true);
        let show = || data_of(&start.command(&["organization", "show", id, "--json"]));
        let shown = show();
        let limit = shown["credit_limit"].clone();
        for (field, due) in [
            ("name", json!("Acme")),
            ("deleted", json!(false)),
            ("currency", json!("USD")),
            ("balance", json!(0)),
            ("reserved", json!(0.00062)),
            ("open_invoices", json!(0)),
        ] {
            assert_eq!(shown[field], due, "{field} of {shown}");
        }
        assert_eq!(limit, 100);

        let set = |amount: &str, more: &[&str]| {
            start.command(&[&["organization", "set-limit", id, "--amount", amount], more].concat())
        };
        let output = set("0", &[]);
        assert_eq!(
            output.stdout.trim(),
            "The credit limit of Acme is now 0 USD; it was 100.",
            "{}",
            output.log
        );
        assert_eq!(set("0.00", &[]).stdout.trim(), "The credit limit of Acme was already 0 USD.");
        let refused = decision();
        assert_eq!((&refused["allowed"], &refused["code"]), (&json!(false), &json!("insufficient_quota")));
        assert_eq!(show()["credit_limit"], 0);
        let again = data_of(&set("2.50", &["--json"]));
        let due = json!({"id": id, "currency": "USD", "credit_limit": 2.5, "before": 0, "already": false});
        assert_eq!(again, due);
        assert_eq!(decision()["allowed"], true);
        for (amount, words) in [
            ("-1", "--amount -1 is negative"),
            ("0.001", "--amount 0.001 is too precise: the smallest unit of USD is 0.01"),
            ("9223372036.86", "the maximum limit is 9223372036.854775807"),
        ] {
            let ended = set(amount, &[]);
            assert!(ended.code == Some(1) && ended.log.contains(words), "{amount}: {}", ended.log);
        }
        let trail = start.command(&["audit-log", "--json"]).stdout;
        let entries: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let changes: Vec<_> =
            entries.iter().filter(|entry| entry["action"] == "organization.credit_limit_set").collect();
        assert_eq!(changes.len(), 2, "{trail}");
        assert_eq!((&changes[0]["actor"], &changes[0]["target"]), (&json!("operator"), &json!(id)));
        assert_eq!(changes[0]["detail"], json!({"before": "0", "after": "2.5"}));

        let path = format!("/v1/organizations/{others}");
        let gone = Wire::new(server.public, "DELETE", &path).bearer(&bob.access_token).send();
        assert_eq!(gone.status, 200);
        let list = start.command(&["organization", "list"]);
        let lines: Vec<_> = list.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{}", list.stdout);
        let line = format!("{id}  Acme  balance 0 USD, 0.00124 reserved, limit 2.5, 0 open invoices");
        assert_eq!(lines[0], line);
        assert!(lines[1].starts_with(others) && lines[1].ends_with(", deleted"), "{}", lines[1]);
        let listed = start.command(&["organization", "list", "--json"]).stdout;
        assert_eq!(serde_json::from_str::<Value>(listed.lines().next().unwrap()).unwrap(), show());
        let text = start.command(&["organization", "show", others]).stdout;
        assert!(text.contains("deleted") && text.contains("Credit limit"), "{text}");
        for unknown in [others, "org_01h2xcejqtf2nbrexx3vqjhp42"] {
            let ended = start.command(&["organization", "set-limit", unknown, "--amount", "1"]);
            let words = format!("tollkeeper: organization {unknown} doesn't exist");
            assert_eq!((ended.code, ended.log.trim()), (Some(1), words.as_str()));
        }
        assert_eq!(server.stop().code, Some(0));
    });
}

/// Runs the commands one after another while the server runs.
fn run_money_commands(start: &Start, organization: &str) {
    let ahead = start.command(&["billing", "close", "--as-of", "2999-01-01"]);
    assert_eq!(ahead.code, Some(1));
    assert!(ahead.log.contains("must not be in the future"), "{}", ahead.log);
    let long_ago = start.command(&["billing", "close", "--skip-wait", "--as-of", "2020-01-01T00:00:00Z"]);
    assert_eq!((long_ago.code, long_ago.stdout.trim()), (Some(0), "No month was due."));

    // The server was just started, so earlier usage may not be written yet.
    let early = start.command(&["billing", "close"]);
    assert_eq!(early.code, Some(1));
    assert!(early.log.contains("up for two hours") && early.log.contains("--skip-wait"), "{}", early.log);
    let closed = start.command(&["billing", "close", "--skip-wait", "--json"]);
    let first: Value = serde_json::from_str(closed.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["number"], &first["amount"], &first["status"]),
        (&json!(1), &json!(7), &json!("open"))
    );
    assert_eq!(first["organization_id"], organization);
    assert!(closed.stdout.lines().count() >= 2, "a month without usage closes too: {}", closed.stdout);
    let again = start.command(&["billing", "close", "--skip-wait"]);
    assert_eq!(again.stdout.trim(), "No month was due.");
    let id = first["invoice_id"].as_str().unwrap();

    let add = |amount: &str, more: &[&str]| {
        let fixed =
            ["credit", "add", "--organization", organization, "--reference", "p 1", "--amount", amount];
        start.command(&[&fixed[..], more].concat())
    };
    let added = data_of(&add("2.00", &["--json"]));
    assert_eq!(
        (&added["already_there"], &added["amount"], &added["balance"]),
        (&json!(false), &json!(2), &json!(-5))
    );
    assert_eq!(data_of(&add("2", &["--json"]))["already_there"], true);
    assert!(add("2", &[]).stdout.contains("was already added"));
    let other = add("3", &[]);
    assert_eq!(other.code, Some(1));
    assert!(other.log.contains("another credit already has the reference"), "{}", other.log);

    let list = start.command(&["invoice", "list", "--organization", organization, "--json"]);
    let listed = data_of(&list);
    assert_eq!((&listed["due"], &listed["items"][1]["amount"]), (&json!(5), &json!(6)));
    let list = start.command(&["invoice", "list", "--organization", organization]);
    assert!(list.stdout.contains("7 USD  open, 5 due"), "{}", list.stdout);
    let shown = start.command(&["invoice", "show", id]);
    assert!(shown.stdout.contains("svc-1, completion tokens: 1,000,000 x 0.000006 = 6"), "{}", shown.stdout);
    assert!(shown.stdout.contains("Total 7.00 USD, 5.00 due"), "{}", shown.stdout);
    assert_eq!(data_of(&start.command(&["invoice", "show", id, "--json"])), listed);
    let page = start.command(&["invoice", "show", id, "--html"]);
    assert!(page.stdout.starts_with("<!doctype html>") && page.stdout.contains("<h1>Invoice 1</h1>"));

    let paid = start.command(&["invoice", "mark-paid", id]);
    assert_eq!(
        (paid.code, paid.stdout.trim()),
        (Some(0), "Invoice 1 is now paid: 5 USD booked, 0 of it left as credit.")
    );
    let paid = data_of(&start.command(&["invoice", "mark-paid", id, "--json"]));
    assert_eq!(
        paid,
        json!({"id": id, "number": 1, "status": "paid", "due": 0, "already": true, "amount": null, "remaining": null})
    );
    let void = data_of(&start.command(&["invoice", "void", id, "--json"]));
    assert_eq!((&void["status"], &void["already"]), (&json!("void"), &json!(false)));
    assert_eq!(start.command(&["invoice", "void", id]).stdout.trim(), "Invoice 1 was already void.");
    let refused = start.command(&["invoice", "mark-paid", id]);
    assert_eq!(
        (refused.code, refused.log.trim()),
        (Some(1), "tollkeeper: invoice 1 is void and can't be paid")
    );

    let refused = start.command(&["invoice", "give-up", id]);
    assert_eq!(refused.log.trim(), "tollkeeper: invoice 1 is void and can't be given up");

    // The paid part of the void invoice is returned to the credits that paid it.
    let list =
        |more: &[&str]| start.command(&[&["credit", "list", "--organization", organization], more].concat());
    let lines = list(&["--json"]).stdout;
    let credits: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let left: Vec<_> = credits.iter().map(|credit| (&credit["kind"], &credit["remaining"])).collect();
    assert_eq!(left, [(&json!("purchase"), &json!(2)), (&json!("payment"), &json!(5))]);
    let credit = credits[0]["id"].as_str().unwrap();
    let taken = data_of(&start.command(&["credit", "take-back", credit, "--amount", "0.5", "--json"]));
    assert_eq!(
        (&taken["amount"], &taken["remaining"], &taken["balance"]),
        (&json!(0.5), &json!(1.5), &json!(6.5))
    );
    let taken = start.command(&["credit", "take-back", credit]).stdout;
    assert_eq!(
        taken.trim(),
        "Took back 1.5 USD of the credit `p 1`. 0 USD of it remain. The balance is 5 USD."
    );
    assert_eq!((list(&[]).stdout.lines().count(), list(&["--all"]).stdout.lines().count()), (1, 2));
    assert!(list(&["--all"]).stdout.contains("purchase `p 1`, added "), "{}", list(&["--all"]).stdout);

    let unknown = "org_01h2xcejqtf2nbrexx3vqjhp42";
    for ended in [
        start.command(&["credit", "list", "--organization", unknown]),
        start.command(&["credit", "add", "--organization", unknown, "--reference", "r", "--amount", "1"]),
        start.command(&["invoice", "list", "--organization", unknown]),
    ] {
        let words = format!("tollkeeper: organization {unknown} doesn't exist");
        assert_eq!((ended.code, ended.log.trim()), (Some(1), words.as_str()));
    }
    let ended = start.command(&["invoice", "show", "invoice_01h2xcejqtf2nbrexx3vqjhp41"]);
    assert_eq!(ended.code, Some(1));
}
