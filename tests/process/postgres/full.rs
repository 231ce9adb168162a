//! PostgreSQL's disk, which fills up and empties again while clients keep running.

use super::load;
use crate::faults::{fill_up, private_mounts};
use support::chance::number;
use support::postgres::Cluster;
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

#[on_postgres]
fn answered_requests_survive_a_full_disk_of_postgres(_: Database) {
    let folder = Folder::new();
    // In private mounts of other users, every process is root, and PostgreSQL refuses to run as root.
    let mount = "mount -t tmpfs -o size=1m none \"$0\"";
    let Some(words) = private_mounts(&folder.0, mount).filter(|words| words[1] == "-m") else { return };
    drop(words);
    let Some(cluster) = Cluster::on_a_small_disk(160) else { return };
    let rounds = number("TOLLKEEPER_TEST_TRIALS").unwrap_or(2);
    let url = runtime().block_on(cluster.empty_database());
    let start = load::start(&folder, &url);
    let ballast = cluster.disk().join("ballast");
    let mut codes = Vec::new();
    load::under_load(&format!("PostgreSQL's disk was full {rounds} times"), &start, |load| {
        let trial = |round: u64| {
            load.wait_for_answer(&format!("full-{round}"));
            fill_up(&ballast);
            let (mut answered, refused) = load.report_until_refused(&format!("full-{round}-event"));
            assert_eq!(refused.status, 503, "{}", refused.text);
            assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
            codes.push(refused.code());
            std::fs::remove_file(&ballast).unwrap();
            // PostgreSQL stops when it has no space for its journal. An operator would start it again.
            cluster.revive();
            load.wait_for_answer(&format!("full-{round}-over"));
            answered.extend([format!("full-{round}"), format!("full-{round}-over")]);
            answered
        };
        (0..rounds).flat_map(trial).collect()
    });
    println!("codes: {codes:?}");
    assert!(codes.iter().all(|code| code == "storage_full" || code == "database_unavailable"), "{codes:?}");
}
