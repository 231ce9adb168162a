//! The names of members that reveal cached tokens.

/// Returns these names, and the names of members outside the `usage` object in which llama.cpp, SGLang, vLLM
/// and providers reveal cached tokens. An answer is parsed with them, because only members that were
/// requested can be removed.
macro_rules! with_revealing_names {
    ($($name:literal $(,)?)*) => {
        &[$($name,)* "prompt_progress", "__verbose", "sglext", "metrics", "x_groq", "usage_breakdown", "stats"]
    };
}
pub(crate) use with_revealing_names;
