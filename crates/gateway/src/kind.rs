//! Kinds of upstreams.

/// The software of an upstream: it decides what may be added to a request, and how its tokens are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UpstreamKind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// The server of llama.cpp.
    Llamacpp,
    /// Text Generation Inference.
    Tgi,
    /// OpenAI, and anything that takes the same requests.
    Openai,
    /// The built-in upstream for trying things out.
    Demo,
}

impl UpstreamKind {
    /// Returns whether it can send the usage so far on every chunk of a stream, with
    /// `stream_options.continuous_usage_stats`.
    pub const fn has_continuous_usage(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang | Self::Demo)
    }

    /// Returns whether it can send `timings` on every chunk of a stream, with `timings_per_token`.
    pub const fn has_timings(self) -> bool {
        matches!(self, Self::Llamacpp)
    }
}
