//! Statements about the call log. They use an index, regardless of the number of calls.

use support::on_each_database;
use support::world::World;
use tollkeeper::call_log::store::calls::{ADD_REPEATS, ADJUST};
use tollkeeper::call_log::store::days::OF_DAY;
use tollkeeper::call_log::store::reading::{Subject, get_text, list_text, scan_end_text};
use tollkeeper::call_log::store::retention::{
    FIRST_HOUR, NEXT_ORGANIZATION, REMOVE_CALLS, REMOVE_HOURS, SLICE_END,
};
use tollkeeper::call_log::store::sums::{Groups, range_text};
use tollkeeper::db::{Tx, sql};

use super::plan;

/// The numbers of organizations and of calls.
const ORGANIZATIONS: i64 = 50;
const CALLS: i64 = 10_000;

/// Inserts calls, one each second: of each organization every 50 seconds. Also inserts an hour of each
/// organization for each of its calls.
async fn fill(tx: &mut Tx) {
    let series = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {CALLS})");
    let names = format!(
        "{series} INSERT INTO call_names (number, name) SELECT i, 'n' || CAST(i AS TEXT) FROM n WHERE i <= {ORGANIZATIONS}"
    );
    let calls = format!(
        "{series} INSERT INTO calls (low, request_low, amount_pico, organization, project, caller, second, part,
             request_second, request_part, model, upstream, upstream_model, code, source, prompt_tokens,
             cached_prompt_tokens, completion_tokens, reasoning_tokens, first_event_ms, duration_ms, repeated, events,
             operation, ended, flags, attempts, status, user_agent, event_id, end_user)
         SELECT -i, 0, 0, i % {ORGANIZATIONS}, i % {ORGANIZATIONS}, i % {ORGANIZATIONS}, i, 0, 0, 0, 1, 0, 0, 0, 0, 1, -1,
             1, -1, -1, -1, 0, 1, 0, 0, 0, 0, 0, 0, '', '' FROM n"
    );
    let buckets: Vec<_> = (0..32).flat_map(|n| [format!("first_{n}"), format!("duration_{n}")]).collect();
    let hours = format!(
        "{series} INSERT INTO call_hours (organization, hour, project, caller, model, code, calls, prompt_tokens,
             cached_prompt_tokens, completion_tokens, amount_pico, timed_tokens, timed_ms, {})
         SELECT i % {ORGANIZATIONS}, i / {ORGANIZATIONS}, 1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0{} FROM n",
        buckets.join(", "),
        ", 0".repeat(buckets.len()),
    );
    for text in [names, calls, hours, "ANALYZE".to_owned()] {
        sql(text).execute(tx).await.unwrap();
    }
}

#[on_each_database]
async fn calls_are_found_by_an_index(world: World) {
    let mut tx = world.app.db.write().await.unwrap();
    fill(&mut tx).await;
    tx.commit().await.unwrap();
    let scan = ["7", "0", "9000", "0", "0"];
    let filters = ["7", "-1", "-1", "-1", "-1", "-1", "-1", "-1", "0", "0", "0", "x", "0", "51"];
    let list = [scan.as_slice(), filters.as_slice()].concat();
    let by_hour = "call_hours_pkey|PRIMARY KEY|call_hours";
    let cases: [(String, &[&str], &str); 14] = [
        (list_text(Subject::Organization(7)), &list, "calls_organization"),
        (list_text(Subject::Project(7)), &list, "calls_project"),
        (list_text(Subject::Caller(7)), &list, "calls_caller"),
        (scan_end_text(Subject::Organization(7)), &scan, "calls_organization"),
        (scan_end_text(Subject::Caller(7)), &scan, "calls_caller"),
        (get_text(), &["7", "107", "0", "-107", "-1"], "calls_organization"),
        (ADJUST.to_owned(), &["7", "107", "0", "-107", "0", "0", "0", "0", "0"], "calls_organization"),
        (ADD_REPEATS.to_owned(), &["7", "107", "0", "-107", "1"], "calls_organization"),
        (OF_DAY.to_owned(), &["n7", "0", "900"], "calls_organization"),
        (SLICE_END.to_owned(), &["7", "900", "1000"], "calls_organization"),
        (REMOVE_CALLS.to_owned(), &["7", "900"], "calls_organization"),
        (FIRST_HOUR.to_owned(), &["7"], by_hour),
        (REMOVE_HOURS.to_owned(), &["7", "900"], by_hour),
        (range_text(Groups::default()), &["7", "0", "900", "1", "-1", "-1", "100"], by_hour),
    ];
    for (text, parameters, index) in cases {
        let plan = plan(&world, &text, parameters).await;
        let what = format!("on {}: {text}\n{plan}", world.backend);
        assert!(index.split('|').any(|index| plan.contains(index)), "{what}");
        // A scan of the rows of a subquery reads no table.
        let scans = |line: &&str| {
            line.contains("Seq Scan on calls")
                || *line == "SCAN calls"
                || line.contains("Seq Scan on call_hours")
        };
        assert_eq!(plan.lines().find(scans), None, "{what}");
    }
    let next = plan(&world, NEXT_ORGANIZATION, &["7"]).await;
    assert!(next.contains("calls_organization"), "{next}");
}
