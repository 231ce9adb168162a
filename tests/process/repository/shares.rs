//! Bounds that callers share are taken through `kernel::shares`, `kernel::turns` or `kernel::fair_queue`, which give each
//! organization a share. A semaphore gives everything to the first caller, so each one needs a reason.

use std::path::PathBuf;

/// Files with a semaphore, each with the reason why one caller can't keep others waiting there.
const REASONS: [(&str, &str); 5] = [
    ("crates/accounts/src/hasher.rs", "a client network gets an eighth, which is counted there"),
    ("crates/db/src/sqlite.rs", "long reads: a known limit in docs/security.md"),
    ("crates/kernel/src/io_turns.rs", "a transfer waits 50 ms at most, and holds its turn for 64 KiB"),
    ("crates/metrics/src/requests.rs", "only reads the number of connections"),
    (
        "crates/web/src/server.rs",
        "connections, before a credential is known: a known limit in docs/security.md",
    ),
];

/// Returns the files of the product that name a semaphore outside of their tests.
fn with_semaphore() -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("src"), PathBuf::from("crates")];
    while let Some(path) = waiting.pop() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "tests" && name != "target" {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "testing.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
            if product.lines().any(|line| line.contains("Semaphore") && !line.trim_start().starts_with("//"))
            {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn shared_bounds_have_shares() {
    assert_eq!(with_semaphore(), REASONS.map(|(file, _)| file.to_owned()));
}
