//! The names of members that reveal cached tokens.

/// Returns the given names, and the names of JSON members outside `usage` that reveal cached tokens in
/// answers of llama.cpp, SGLang, vLLM and providers. The parser must look for them, because
/// [`Object`](crate::json::Object) can remove only members whose names it was given.
macro_rules! with_revealing_names {
    ($($name:literal $(,)?)*) => {
        &[$($name,)* "prompt_progress", "__verbose", "sglext", "metrics", "x_groq", "usage_breakdown", "stats"]
    };
}
pub(crate) use with_revealing_names;
