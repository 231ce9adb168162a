//! The command `tollkeeper export`.

use support::csv;
use support::process::Start;
use support::{Database, on_each_database};

#[on_each_database]
fn command_exports_one_organization_or_all(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let mut paths = Vec::new();
        for name in ["ada", "bob"] {
            let owner = server.sign_up(name);
            let place = server.settle(&owner);
            server.report(&place, "event");
            let organization = place.project_path.split('/').nth(3).unwrap().to_owned();
            let month = tollkeeper::clock::Clock::System.now().day().month().to_string();
            let path = format!("/v1/organizations/{organization}/billing/export?format=focus&month={month}");
            let answer = server.get(&path).bearer(&owner.access_token).send();
            assert_eq!(answer.status, 200, "{}", answer.text);
            paths.push((organization, month, answer.text));
        }
        let (organization, month, answered) = &paths[0];
        let one = start.command(&["export", "--month", month, "--organization", organization]);
        assert_eq!((one.code, one.log.as_str(), &one.stdout), (Some(0), "", answered));
        assert!(!csv::rows(answered).is_empty());
        let all = start.command(&["export", "--month", month]);
        assert_eq!(all.code, Some(0), "{}", all.log);
        let accounts = csv::rows(&all.stdout);
        let of = |id: &String| accounts.iter().filter(|row| row["BillingAccountId"] == *id).count();
        for (organization, _, answered) in &paths {
            assert_eq!(of(organization), csv::rows(answered).len());
        }
        let file = folder.0.join("all.csv");
        std::fs::write(&file, "old").unwrap();
        let output = file.to_str().unwrap();
        let written = start.command(&["export", "--month", month, "--output", output]);
        assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{}", written.log);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), all.stdout);
        let unknown = "org_01h2xcejqtf2nbrexx3vqjhp42";
        let refused =
            start.command(&["export", "--month", month, "--organization", unknown, "--output", output]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{}", refused.log);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), all.stdout, "the old file remains");
        let names: Vec<_> =
            std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_str().unwrap().contains("partial")), "{names:?}");
        let nowhere = folder.0.join("missing/all.csv");
        let refused = start.command(&["export", "--month", month, "--output", nowhere.to_str().unwrap()]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.log.contains("--output"), "{}", refused.log);
        let lines = |arguments: &[&str]| {
            let ended =
                start.command(&[&["export", "--month", month, "--focus-version", "1.4"], arguments].concat());
            assert_eq!(ended.code, Some(0), "{}", ended.log);
            csv::rows(&ended.stdout)
        };
        assert_eq!(lines(&[]).len(), accounts.len());
        let periods = lines(&["--dataset", "billing_period"]);
        assert_eq!(periods.len(), 1, "of all organizations: {periods:?}");
        assert_eq!(periods, lines(&["--dataset", "billing_period", "--organization", organization]));
        assert!(lines(&["--dataset", "invoice_detail"]).is_empty(), "no month is closed");
        for (arguments, why) in [
            (["--focus-version", "1.1"], "write 1.2, 1.3 or 1.4"),
            (["--dataset", "invoices"], "write cost_and_usage, invoice_detail or billing_period"),
            (["--dataset", "invoice_detail"], "add `--focus-version 1.4`"),
        ] {
            let refused = start.command(&[&["export", "--month", month], &arguments[..]].concat());
            assert!(refused.code != Some(0) && refused.log.contains(why), "{}", refused.log);
        }
        let refused = start.command(&["export", "--month", "2026-13"]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.log.contains("write a month such as 2026-01"), "{}", refused.log);
        assert_eq!(server.stop().code, Some(0));
    });
}
