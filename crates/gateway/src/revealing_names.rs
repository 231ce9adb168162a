//! The names of members that reveal what an upstream has cached.

/// Returns these names and the names of members outside the usage that reveal what was cached: those of llama.cpp,
/// SGLang, vLLM and providers. An answer is read with them, because only members that were read can be removed.
macro_rules! with_revealing_names {
    ($($name:literal $(,)?)*) => {
        &[$($name,)* "prompt_progress", "__verbose", "sglext", "metrics", "x_groq", "usage_breakdown", "stats"]
    };
}
pub(crate) use with_revealing_names;
