//! Usage reports as CSV (docs/contract/usage.md#csv).

use billing::rules::periods::Range;
use billing::rules::usage_groups::Groups;
use billing::usage_reports::Row;

use crate::csv::{Cell, CsvFile};

/// Returns the name of a report's file: its subject, first day and last day.
pub fn file_name(subject: &str, range: Range) -> String {
    let last = range.end_exclusive.plus(-1).max(range.start);
    format!("usage_{subject}_{}_{last}.csv", range.start)
}

/// Returns a file of this name with a line per row. If `named`, it has the names of the projects and callers that
/// it is grouped by.
pub fn file(name: String, named: bool, groups: Groups, rows: &[Row], currency: &str) -> CsvFile {
    let mut names = vec!["date"];
    let ids = [("model", groups.model), ("project_id", groups.project), ("api_key_id", groups.api_key)];
    names.extend(ids.iter().filter(|(_, on)| *on).map(|(name, _)| *name));
    let (has_project_names, has_caller_names) = (named && groups.project, named && groups.api_key);
    names.extend(has_project_names.then_some("project_name"));
    names.extend(has_caller_names.then_some("api_key_name"));
    names.extend(["chat_requests", "chat_prompt_tokens", "chat_completion_tokens", "chat_amount"]);
    names.extend(["embeddings_requests", "embeddings_tokens", "embeddings_amount", "currency"]);
    // The last column, so that the others keep their positions.
    names.extend(groups.api_key.then_some("user_id"));
    let mut file = CsvFile::new(name, &names);
    for row in rows {
        let (chat, embeddings) = (&row.usage.chat, &row.usage.embeddings);
        let of_row = &row.group;
        let of_group = [
            (&of_row.model, groups.model),
            (&of_row.project_id, groups.project),
            (&of_row.api_key_id, groups.api_key),
            (&of_row.project_name, has_project_names),
            (&of_row.api_key_name, has_caller_names),
        ];
        let shown = |value: &Option<String>| Cell::text(value.as_deref().unwrap_or_default());
        let of_group = of_group.into_iter().filter(|(_, on)| *on).map(|(value, _)| shown(value));
        let person = groups.api_key.then(|| shown(&of_row.user_id));
        let cells = [
            Cell::value(chat.requests),
            Cell::value(chat.prompt_tokens),
            Cell::value(chat.completion_tokens),
            Cell::value(chat.amount),
            Cell::value(embeddings.requests),
            Cell::value(embeddings.prompt_tokens),
            Cell::value(embeddings.amount),
            Cell::value(currency),
        ];
        file.add(std::iter::once(Cell::value(row.date)).chain(of_group).chain(cells).chain(person));
    }
    file
}
