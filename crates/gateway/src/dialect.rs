//! The differences between kinds of upstreams, one row per kind.

use crate::operation::Operation;
use catalog::UpstreamKind;

/// The properties of a kind of upstream that determine how it is called, counted and checked
/// (docs/operations.md#kinds-of-upstreams).
#[derive(Debug)]
pub struct Dialect {
    /// The supported operations. [`UpstreamKind::serves`] must agree on embeddings.
    pub operations: &'static [Operation],
    /// `true` for a provider that bills the operator, and gets only fields that are known to cost nothing
    /// extra.
    pub is_provider: bool,
    /// `true` for the upstream within this process.
    pub is_demo: bool,
    /// The path of the health check, from the root of the server.
    pub health_path: Option<&'static str>,
    /// The path below the upstream's URL that counts the tokens of a message's prompt.
    pub prompt_count_path: Option<&'static str>,
    /// The member of a request that limits the tokens of an answer.
    pub limit: Limit,
    /// A further limit, which takes precedence over the others.
    pub own_limit: Option<&'static str>,
    /// The counts that the upstream can send with every chunk of a stream.
    pub running_counts: RunningCounts,
    /// The operations in which the upstream separates its prompt cache by `cache_salt`.
    pub salted_operations: &'static [Operation],
    /// `true` if the upstream counts only one of several answers or prompts.
    pub counts_one_answer: bool,
    /// `true` if the upstream answers with the model that it has loaded, regardless of the requested name.
    pub ignores_model_names: bool,
    /// `true` if the upstream shortens an answer whose limit exceeds the context, instead of refusing the
    /// call.
    pub shortens_answers: bool,
}

/// The accepted names of the token limit. The older name is the operation's, such as `max_tokens`. The newer
/// name, for chats, is `max_completion_tokens`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Both names are accepted.
    Both,
    /// Only the older name is accepted.
    Older,
    /// Both names are accepted. A chat without a limit gets both.
    Newer,
}

/// The counts that an upstream can send with every chunk of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningCounts {
    None,
    /// The usage so far (`stream_options.continuous_usage_stats`).
    Usage,
    /// The number of tokens processed so far (`timings_per_token`).
    Timings,
}

/// The operations with a salt at servers that support `cache_salt`.
const SALTED: &[Operation] = &[Operation::ChatCompletions, Operation::Completions, Operation::Responses];

const VLLM: Dialect = Dialect {
    operations: &Operation::ALL,
    is_provider: false,
    is_demo: false,
    health_path: Some("/health"),
    prompt_count_path: Some("/messages/count_tokens"),
    limit: Limit::Both,
    own_limit: None,
    running_counts: RunningCounts::Usage,
    salted_operations: SALTED,
    counts_one_answer: false,
    ignores_model_names: false,
    shortens_answers: false,
};

const SGLANG: Dialect = Dialect { prompt_count_path: None, ..VLLM };

const LLAMACPP: Dialect = Dialect {
    operations: &Operation::ALL,
    is_provider: false,
    is_demo: false,
    health_path: Some("/health"),
    prompt_count_path: Some("/messages/count_tokens"),
    // Older versions don't support the newer name.
    limit: Limit::Older,
    own_limit: Some("n_predict"),
    running_counts: RunningCounts::Timings,
    salted_operations: &[],
    counts_one_answer: true,
    ignores_model_names: true,
    shortens_answers: true,
};

const TGI: Dialect = Dialect {
    operations: &[Operation::ChatCompletions, Operation::Completions],
    is_provider: false,
    is_demo: false,
    health_path: Some("/health"),
    prompt_count_path: None,
    limit: Limit::Older,
    own_limit: None,
    running_counts: RunningCounts::None,
    salted_operations: &[],
    counts_one_answer: false,
    ignores_model_names: true,
    shortens_answers: false,
};

const OPENAI: Dialect = Dialect {
    operations: &Operation::ALL,
    is_provider: true,
    is_demo: false,
    health_path: None,
    prompt_count_path: None,
    limit: Limit::Newer,
    own_limit: None,
    running_counts: RunningCounts::None,
    salted_operations: &[],
    counts_one_answer: false,
    ignores_model_names: false,
    shortens_answers: false,
};

/// The demo speaks the protocol of vLLM, without a server.
const DEMO: Dialect =
    Dialect { is_demo: true, health_path: None, prompt_count_path: None, salted_operations: &[], ..VLLM };

impl Dialect {
    /// Returns the row of a kind.
    pub const fn of(kind: UpstreamKind) -> &'static Self {
        match kind {
            UpstreamKind::Vllm => &VLLM,
            UpstreamKind::Sglang => &SGLANG,
            UpstreamKind::Llamacpp => &LLAMACPP,
            UpstreamKind::Tgi => &TGI,
            UpstreamKind::Openai => &OPENAI,
            UpstreamKind::Demo => &DEMO,
        }
    }

    /// Returns `true` if upstreams of this kind support the operation.
    pub fn has(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    /// Returns `true` if upstreams of this kind separate their prompt cache by a salt in this operation.
    pub(crate) fn has_salt(&self, operation: Operation) -> bool {
        self.salted_operations.contains(&operation)
    }

    /// Returns `true` if upstreams of this kind can send counts with each event of this operation's streams.
    pub const fn counts_while_running(&self, operation: Operation) -> bool {
        match self.running_counts {
            RunningCounts::None => false,
            RunningCounts::Usage => operation.has_chunks(),
            RunningCounts::Timings => operation.has_chunks() || matches!(operation, Operation::Responses),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;
    use crate::request::{Injection, ModelRequest, Target, TargetOptions};
    use catalog::Kind;

    #[test]
    fn operations_are_those_of_the_models_that_a_kind_serves() {
        for kind in UpstreamKind::ALL {
            let dialect = Dialect::of(kind);
            assert_eq!(dialect.has(Operation::Embeddings), kind.serves(Kind::Embeddings), "{kind:?}");
            assert_eq!(dialect.has(Operation::ChatCompletions), kind.serves(Kind::Chat), "{kind:?}");
        }
    }

    #[test]
    fn streams_of_each_kind_get_what_makes_it_count() {
        use UpstreamKind::{Demo, Llamacpp, Openai, Sglang, Tgi, Vllm};
        let both = r#""stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
        let usage = r#""stream_options":{"include_usage":true}"#;
        let timings = r#""timings_per_token":true,"stream_options":{"include_usage":true}"#;
        let cases =
            [(Vllm, both), (Sglang, both), (Llamacpp, timings), (Tgi, usage), (Openai, usage), (Demo, both)];
        assert_eq!(cases.map(|(kind, _)| kind), UpstreamKind::ALL);
        let written = |kind, members: &str| {
            let messages = r#""messages":[{"role":"user","content":"Hi"}]"#;
            let body = Bytes::from(format!(r#"{{"model":"m",{messages},{members}}}"#));
            let upstream = Target {
                dialect: Dialect::of(kind),
                model: "own/Model-1",
                max_completion_tokens: 100,
                inject: Injection::default(),
                options: TargetOptions::default(),
            };
            let text = ModelRequest::read(Operation::ChatCompletions, &body).unwrap().write_for(&upstream);
            std::str::from_utf8(&text).unwrap().replace(&format!("{messages},"), "")
        };
        for (kind, injected) in cases {
            let expected = format!(r#"{{"model":"own/Model-1","max_tokens":1,"stream":true,{injected}}}"#);
            assert_eq!(written(kind, r#""max_tokens":1,"stream":true"#), expected, "{kind:?}");
            let plain = r#"{"model":"own/Model-1","max_tokens":1,"stream":false}"#;
            assert_eq!(written(kind, r#""max_tokens":1,"stream":false"#), plain, "{kind:?}");
        }
    }

    /// Returns the end of a kind's row in the table of kinds in docs/operations.md.
    fn row(kind: UpstreamKind) -> String {
        let Dialect { operations, health_path, running_counts, salted_operations, .. } = Dialect::of(kind);
        let names: Vec<_> = operations
            .iter()
            .map(|operation| format!("`{}`", operation.path().trim_start_matches('/')))
            .collect();
        let is_complete = operations.len() == Operation::ALL.len();
        let operations = if is_complete { "all".to_owned() } else { names.join(", ") };
        let health = health_path.map_or_else(|| "none".to_owned(), |path| format!("`{path}`"));
        let counts = match running_counts {
            RunningCounts::None => "at the end",
            RunningCounts::Usage => "with every event, by `continuous_usage_stats`",
            RunningCounts::Timings => "with every event, by `timings_per_token`",
        };
        let cache = if salted_operations.is_empty() { "shared" } else { "separate" };
        format!("| {operations} | {health} | {counts} | {cache} |")
    }

    #[test]
    fn table_of_kinds_has_each_kind_with_its_properties() {
        let text = include_str!("../../../docs/operations.md");
        for kind in UpstreamKind::ALL {
            let start = format!("| `{}` | ", kind.as_str());
            let mut rows = text.lines().filter(|line| line.starts_with(&start));
            let found = rows.next().unwrap_or_else(|| panic!("no row begins with {start:?}"));
            assert!(found.ends_with(&row(kind)) && rows.next().is_none(), "{found}\n{}", row(kind));
        }
    }
}
