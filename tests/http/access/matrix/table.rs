//! The golden table. Equal columns and equal rows are printed once, which keeps the table readable.

use std::fmt::Write;

use tollkeeper::api::paths::is_model_call;
use tollkeeper::api::routes::Route;

use super::scene::Caller;

/// The statuses of all callers for one target.
pub struct Row {
    pub place: &'static str,
    pub statuses: Vec<u16>,
}

struct Block {
    heading: String,
    section: String,
    rows: Vec<Row>,
}

pub struct Table<'a> {
    callers: &'a [Caller],
    how_to_read: &'static str,
    places: &'static str,
    blocks: Vec<Block>,
}

pub const HOW_TO_READ: &str = "Permissions: the status that each kind of caller gets, route by route and place by place.

A column is a kind of caller. Two letters are a person with an access token: the role in the organization (m member, a admin,
o owner, a dot for none) and the role in its private project (v viewer, d developer, a admin, o owner, a dot for none). With a k
before them it is an API key of the private project that such a person has made; k.. is the key of a removed member.
";

pub const PLACES: &str = "A line is a place: the callers' own organization or project (`private`), a private `sibling` and a `public` project next to
it, a `foreign` organization, an `unknown` id, and paths that mix them (organization/project). With a key, a member or a session
in the path, what is named besides. Bodies are good, empty patches, or refused for themselves: 200 and 400 mean that the gate
lets the call through. What a call took away was put back before the next one.
";

impl<'a> Table<'a> {
    pub fn new(callers: &'a [Caller], how_to_read: &'static str, places: &'static str) -> Self {
        Self { callers, how_to_read, places, blocks: Vec::new() }
    }

    pub fn add(&mut self, route: &Route, rows: Vec<Row>) {
        let access = &route.access.text;
        let path = route.path.replace("organization_id", "org").replace("project_id", "proj");
        let path = path
            .replace("member_id", "member")
            .replace("key_id", "key")
            .replace("invoice_id", "invoice")
            .replace("budget_id", "budget")
            .replace("payment_id", "payment")
            .replace("call_id", "call")
            .replace("session_id", "session")
            .replace("invitation_id", "invitation")
            .replace("*model_id", "model")
            .replace("reservation_id", "reservation");
        let heading = format!("{} {path}    [{access}]", route.method);
        self.blocks.push(Block { heading, section: section(route), rows });
    }

    /// Returns, for every caller, the index of the first caller with the same statuses everywhere.
    fn first_equal_columns(&self) -> Vec<usize> {
        let column = |caller: usize| {
            let rows = self.blocks.iter().flat_map(|block| &block.rows);
            rows.map(|row| row.statuses[caller]).collect::<Vec<_>>()
        };
        let columns: Vec<_> = (0..self.callers.len()).map(column).collect();
        columns.iter().map(|one| columns.iter().position(|other| other == one).unwrap()).collect()
    }

    /// Formats one status for each column, or a sentence when all callers get the same.
    fn cells(&self, shown: &[usize], statuses: &[u16]) -> String {
        let mut known: Vec<_> =
            self.callers.iter().zip(statuses).filter(|(caller, _)| caller.is_authenticated).collect();
        known.dedup_by_key(|(_, status)| **status);
        let mut unknown: Vec<_> =
            self.callers.iter().zip(statuses).filter(|(caller, _)| !caller.is_authenticated).collect();
        unknown.dedup_by_key(|(_, status)| **status);
        match (&known[..], &unknown[..]) {
            ([(_, one)], [(_, other)]) if one == other => format!("all callers {one}"),
            ([(_, one)], [(_, other)]) => {
                format!("{other} without an access token or API key, all others {one}")
            }
            _ => {
                let cells: Vec<_> = shown.iter().map(|index| statuses[*index].to_string()).collect();
                cells.join(" ")
            }
        }
    }

    pub fn render(&self) -> String {
        let first_equal_columns = self.first_equal_columns();
        let mut shown: Vec<_> = first_equal_columns.clone();
        shown.sort_unstable();
        shown.dedup();
        let mut text = format!("{}\n", self.how_to_read);
        for caller in self.callers.iter().filter(|caller| !caller.meaning.is_empty()) {
            writeln!(text, "  {}  {}", caller.head, caller.meaning).unwrap();
        }
        text.push_str("\nColumns that are alike in every line stand once:\n\n");
        for first in &shown {
            let same = (0..self.callers.len())
                .filter(|other| first_equal_columns[*other] == *first && other != first);
            let same: Vec<_> = same.map(|other| self.callers[other].head.as_str()).collect();
            if !same.is_empty() {
                writeln!(text, "  {:3} = {}", self.callers[*first].head, same.join(" ")).unwrap();
            }
        }
        write!(text, "\n{}", self.places).unwrap();
        let mut last = "";
        for block in &self.blocks {
            if block.section != last {
                let heads: Vec<_> =
                    shown.iter().map(|index| format!("{:>3}", self.callers[*index].head)).collect();
                write!(text, "\n\n== {:28} {}", block.section, heads.join(" ")).unwrap();
                last = &block.section;
            }
            write!(text, "\n\n{}", block.heading).unwrap();
            for (places, statuses) in merged(&block.rows) {
                write!(text, "\n{}{}", label(&places), self.cells(&shown, statuses)).unwrap();
            }
        }
        let rows: usize = self.blocks.iter().map(|block| block.rows.len()).sum();
        writeln!(
            text,
            "\n\n{} routes, {rows} places, {} callers: {} cases",
            self.blocks.len(),
            self.callers.len(),
            rows * self.callers.len()
        )
        .unwrap();
        text
    }
}

/// Groups the targets for which all callers get the same statuses.
fn merged(rows: &[Row]) -> Vec<(Vec<&'static str>, &[u16])> {
    let mut merged: Vec<(Vec<&str>, &[u16])> = Vec::new();
    for row in rows {
        match merged.iter_mut().find(|(_, statuses)| *statuses == row.statuses) {
            Some((places, _)) => places.push(row.place),
            None => merged.push((vec![row.place], &row.statuses)),
        }
    }
    merged
}

/// Formats the targets of a line, on as many lines as needed; the cells follow the last line.
fn label(places: &[&str]) -> String {
    const WIDTH: usize = 32;
    let mut lines = vec![String::from("  ")];
    for (index, place) in places.iter().enumerate() {
        let comma = if index + 1 < places.len() { "; " } else { "" };
        if lines.last().unwrap().len() + place.len() + 2 > WIDTH {
            lines.push(String::from("  "));
        }
        lines.last_mut().unwrap().push_str(&format!("{place}{comma}"));
    }
    let last = lines.pop().unwrap();
    lines.push(format!("{last:WIDTH$}"));
    lines
        .iter()
        .enumerate()
        .map(|(i, line)| if i + 1 < lines.len() { line.trim_end().to_owned() + "\n" } else { line.clone() })
        .collect()
}

fn section(route: &Route) -> String {
    let section = match route.path {
        path if path == "/" || path.starts_with("/console") => "Console",
        path if path.starts_with("/v1/auth") => "Authentication",
        path if path.contains("/api-keys") => "API keys",
        path if path.contains("/billing") || path.ends_with("/usage") && path.starts_with("/v1") => {
            "Billing and usage"
        }
        path if path.ends_with("/limits") || path.ends_with("/usage/performance") => "Billing and usage",
        path if path.contains("/calls") => "Billing and usage",
        path if path.contains("/projects") => "Projects",
        path if path.starts_with("/v1/organizations") => "Organizations",
        path if path.starts_with("/v1/models") => "Model catalog",
        path if is_model_call(path) => "Model calls",
        _ => "Pages, documents, service",
    };
    section.to_owned()
}
