//! The table of bounds in docs/operations.md. It must contain every key of the table `limits` with its
//! default, and no other key.

use tollkeeper::config::{self, Config};
use tollkeeper::error::Code;

/// Returns the rows of the table: subject, bound with the share of one holder, key and refusal.
fn rows() -> Vec<[String; 4]> {
    let text = std::fs::read_to_string("docs/operations.md").unwrap();
    let section = text.split("\n## Bounds\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()));
    cells.map(|cells| cells.collect::<Vec<_>>().try_into().unwrap_or_else(|row| panic!("{row:?}"))).collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Formats a number with thousands separators: `1,000,000`.
fn with_commas(number: &str) -> String {
    let digits: Vec<_> = number.bytes().rev().collect();
    let groups: Vec<_> = digits.chunks(3).map(|group| String::from_utf8(group.to_vec()).unwrap()).collect();
    groups.join(",").chars().rev().collect()
}

#[test]
fn table_of_bounds_has_every_limit_with_its_default() {
    let folder = support::world::Folder::new();
    let config: Config = support::world::config(&folder.0, None, &[]);
    let shown: toml::Table = config.to_toml().parse().unwrap();
    let rows = rows();
    let mut named = Vec::new();
    for [what, most, keys, _] in &rows {
        for key in quoted(keys) {
            assert!(config::names().any(|name| name == key), "{what}: no key is named `{key}`");
            named.push(key);
            let (table, name) = key.split_once('.').unwrap();
            let default = with_commas(&shown[table][name].to_string());
            let words: Vec<_> = most.split([' ', ';']).map(|word| word.trim_end_matches(',')).collect();
            let is_size = ["server.body_budget_bytes", "server.body_bytes_per_second"].contains(&key);
            let is_least = key == "server.body_timeout_seconds";
            assert!(is_size || is_least || words.contains(&default.as_str()), "{key}: {default} in {most:?}");
        }
    }
    for key in config::names().filter(|key| key.starts_with("limits.") && *key != "limits.enabled") {
        assert!(named.contains(&key), "`{key}` is not in the table of bounds");
    }
}

#[test]
fn table_of_bounds_has_existing_codes_only() {
    for [what, _, _, refusal] in rows() {
        let Some(status) = refusal.split(' ').find(|word| word.parse::<u16>().is_ok()) else { continue };
        // The answer to bytes that aren't a request has only a status.
        if refusal.ends_with(" without a body") {
            continue;
        }
        let word = quoted(&refusal)[0];
        let code = Code::ALL.iter().find(|code| code.as_str() == word);
        let code = code.unwrap_or_else(|| panic!("{what}: no code is named `{word}`"));
        assert_eq!(code.status().as_str(), status, "{what}: {word}");
    }
}
