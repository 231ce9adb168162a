//! A model's answer, and its cost.

use kernel::error::Error;
use kernel::ids::ModelCallId;
use serde::{Deserialize, Serialize};
use tenants::access::ProjectScope;

use crate::console::Console;
use crate::samples::Samples;
use crate::show;

/// An answer as a page shows it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    /// A remark about the answer, for example if it was cut off.
    pub(super) remark: Option<String>,
    pub(super) figures: Figures,
    pub(super) samples: Samples,
}

/// The usage of a call, as a page shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) prompt_tokens: String,
    pub(super) completion_tokens: String,
    pub(super) price: String,
    /// The price with all its digits; empty if nothing was charged.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) exact_price: String,
}

impl Figures {
    /// Returns dashes, for a call that hasn't finished.
    pub(super) fn unknown() -> Self {
        let [prompt_tokens, completion_tokens, price] = ["–"; 3].map(str::to_owned);
        Self { prompt_tokens, completion_tokens, price, exact_price: String::new() }
    }

    /// Returns the charged usage of a finished call. If it can't be read, returns a sentence instead, because
    /// the answer is shown in any case.
    pub(super) async fn read(
        console: &Console,
        scope: &ProjectScope,
        call_id: ModelCallId,
    ) -> Result<Self, &'static str> {
        Self::try_read(console, scope, call_id).await.map_err(|error| {
            tracing::warn!(%call_id, "the price of a call can't be shown: {error}");
            "The price isn’t available right now. See the project’s usage."
        })
    }

    async fn try_read(console: &Console, scope: &ProjectScope, call_id: ModelCallId) -> Result<Self, Error> {
        let Some(used) = billing::calls::used(&console.billing, scope, call_id).await? else {
            return Ok(Self { price: "nothing".to_owned(), ..Self::unknown() });
        };
        let about = if used.is_estimated { "about " } else { "" };
        let currency = &console.billing.settings.currency;
        let cached = match used.tokens.cached_prompt {
            0 => String::new(),
            cached => format!(", {} of them cached", show::number(cached)),
        };
        Ok(Self {
            prompt_tokens: format!("{about}{}{cached}", show::number(used.tokens.prompt)),
            completion_tokens: format!("{about}{}", show::number(used.tokens.completion)),
            price: show::money(used.amount, currency).into_parts().0,
            exact_price: show::exact(used.amount, currency),
        })
    }
}

/// A model's answer, or a piece of it.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, alias = "delta")]
    message: Option<Said>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

/// A piece of an answer.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) remark: Option<String>,
    /// The reason why the answer is incomplete.
    pub(super) failure: Option<String>,
}

/// Reads the data of an event of a stream, or a whole answer. Unknown fields are ignored.
pub(super) fn read_piece(json: &[u8]) -> Piece {
    let Ok(Reply { choices, error }) = serde_json::from_slice(json) else { return Piece::default() };
    let failure = error.map(|failure| failure.message);
    let Some(choice) = choices.into_iter().next() else { return Piece { failure, ..Piece::default() } };
    let text = choice.message.and_then(|said| said.content).unwrap_or_default();
    let remark = match choice.finish_reason.as_deref() {
        Some("length") => Some("The answer was cut off at the token limit."),
        Some("content_filter") => Some("The model’s content filter removed part of the answer."),
        _ => None,
    };
    Piece { text, remark: remark.map(str::to_owned), failure }
}

/// Reads a whole answer: its text, and a remark about it.
pub(super) fn read_whole(json: &[u8]) -> (String, Option<String>) {
    let Piece { text, remark, .. } = read_piece(json);
    let silent = || Some("The model returned an answer without any text.".to_owned());
    let remark = remark.or_else(|| if text.is_empty() { silent() } else { None });
    (text, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_leniently() {
        let piece = |json: &str| read_piece(json.as_bytes());
        let said = piece(
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hé"},"finish_reason":null}]}"#,
        );
        assert_eq!(said, Piece { text: "Hé".to_owned(), ..Piece::default() });
        let cut = piece(r#"{"choices":[{"message":{"content":"x"},"finish_reason":"length"}]}"#);
        assert!(cut.remark.is_some_and(|remark| remark.contains("cut")));
        let failed = piece(r#"{"error":{"message":"It failed.","code":"upstream_cut"}}"#);
        assert_eq!(failed.failure.as_deref(), Some("It failed."));
        for json in
            ["[DONE]", "", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"delta":{"content":null}}]}"#, "[1]"]
        {
            assert_eq!(piece(json), Piece::default(), "{json}");
        }
        assert!(read_whole(b"{}").1.is_some_and(|remark| remark.contains("without any text")));
    }
}
