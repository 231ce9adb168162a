//! Usage reports as CSV.

use crate::csv::{escape_formula, line};
use billing::rules::periods::Range;
use billing::rules::usage_groups::{Groups, Subject};
use billing::usage_reports::Row;

/// Returns the name of a report's file: its subject, first day and last day.
pub fn usage_file(subject: &str, range: Range) -> String {
    let last = range.end_exclusive.plus(-1).max(range.start);
    format!("usage_{subject}_{}_{last}.csv", range.start)
}

/// Returns a header line and one line per row.
pub fn text(subject: Subject, groups: Groups, rows: &[Row], currency: &str) -> String {
    let named = subject == Subject::Project;
    let mut text = String::new();
    let mut names = vec!["date"];
    let ids = [("model", groups.model), ("project_id", groups.project), ("api_key_id", groups.api_key)];
    names.extend(ids.iter().filter(|(_, on)| *on).map(|(name, _)| *name));
    names.extend(named.then_some("api_key_name"));
    names.extend(["chat_requests", "chat_prompt_tokens", "chat_completion_tokens", "chat_amount"]);
    names.extend(["embeddings_requests", "embeddings_tokens", "embeddings_amount", "currency"]);
    // The last column, so that the others keep their positions.
    names.extend(groups.api_key.then_some("user_id"));
    line(&mut text, names.into_iter().map(str::to_owned));
    for row in rows {
        let (chat, embeddings) = (&row.usage.chat, &row.usage.embeddings);
        let of_row = &row.group;
        let of_group = [
            (&of_row.model, groups.model),
            (&of_row.project_id, groups.project),
            (&of_row.api_key_id, groups.api_key),
            (&of_row.api_key_name, named),
        ];
        let shown = |value: &Option<String>| value.as_deref().map(escape_formula).unwrap_or_default();
        let of_group = of_group.into_iter().filter(|(_, on)| *on).map(|(value, _)| shown(value));
        let person = groups.api_key.then(|| shown(&of_row.user_id));
        let cells = [
            chat.requests.to_string(),
            chat.prompt_tokens.to_string(),
            chat.completion_tokens.to_string(),
            chat.amount.to_string(),
            embeddings.requests.to_string(),
            embeddings.prompt_tokens.to_string(),
            embeddings.amount.to_string(),
            currency.to_owned(),
        ];
        line(&mut text, std::iter::once(row.date.to_string()).chain(of_group).chain(cells).chain(person));
    }
    text
}
