//! Usage reports as CSV (docs/contract/usage.md#csv).

use std::collections::BTreeMap;

use billing::rules::periods::Range;
use billing::rules::usage_groups::Groups;
use billing::usage_reports::Report;
use catalog::Component;

use crate::csv::{Cell, CsvFile};

/// Returns the name of a report's file, with its subject, first day and last day.
pub fn file_name(subject: &str, range: Range) -> String {
    let last = range.end_exclusive.plus(-1).max(range.start);
    format!("usage_{subject}_{}_{last}.csv", range.start)
}

/// Returns a file with this name and a line for each row. If `named`, the file also has columns for the names
/// of the projects and callers by which the report is grouped.
pub fn file(name: String, named: bool, groups: Groups, report: &Report, currency: &str) -> CsvFile {
    let mut names = vec!["date"];
    let ids = [("model", groups.model), ("project_id", groups.project), ("api_key_id", groups.api_key)];
    names.extend(ids.iter().filter(|(_, on)| *on).map(|(name, _)| *name));
    let (has_project_names, has_caller_names) = (named && groups.project, named && groups.api_key);
    names.extend(has_project_names.then_some("project_name"));
    names.extend(has_caller_names.then_some("api_key_name"));
    names.extend(["chat_requests", "chat_prompt_tokens", "chat_completion_tokens", "chat_amount"]);
    names.extend(["embeddings_requests", "embeddings_tokens", "embeddings_amount", "currency"]);
    // Added after the other columns, so that they keep their positions.
    names.extend(groups.api_key.then_some("user_id"));
    let total = &report.total_components;
    let counted = [("chat", &total.chat), ("embeddings", &total.embeddings)];
    let counted = counted.into_iter().flat_map(|(kind, components)| {
        components.keys().map(move |component| format!("{kind}_{}", component.as_str()))
    });
    let component_names: Vec<_> = counted.collect();
    names.extend(component_names.iter().map(String::as_str));
    let mut file = CsvFile::new(name, &names);
    for row in &report.rows {
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
        let quantities = |counted: &BTreeMap<Component, i64>, of_row: &BTreeMap<Component, i64>| {
            let quantity = |component| Cell::value(of_row.get(component).copied().unwrap_or(0));
            counted.keys().map(quantity).collect::<Vec<_>>()
        };
        let components = quantities(&total.chat, &row.components.chat);
        let components =
            components.into_iter().chain(quantities(&total.embeddings, &row.components.embeddings));
        let first = std::iter::once(Cell::value(row.date));
        file.add(first.chain(of_group).chain(cells).chain(person).chain(components));
    }
    file
}
