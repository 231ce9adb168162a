//! The operations of models that clients call.

use call_log::entries::Operation as LoggedOperation;
use keys::rules::permissions::Permission;

/// An operation of a model, as a path of the public API and of upstreams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`, of Anthropic's API
    Messages,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] =
        [Self::ChatCompletions, Self::Completions, Self::Embeddings, Self::Responses, Self::Messages];

    /// Returns the path below the URL of an upstream, which ends with `/v1`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
            Self::Completions => "/completions",
            Self::Embeddings => "/embeddings",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    /// Returns the permission that an API key needs.
    pub const fn permission(self) -> Permission {
        match self {
            Self::Embeddings => Permission::Embeddings,
            Self::ChatCompletions | Self::Completions | Self::Responses | Self::Messages => Permission::Chat,
        }
    }

    /// Returns the operation in the call log.
    pub(crate) const fn logged(self) -> LoggedOperation {
        match self {
            Self::ChatCompletions => LoggedOperation::ChatCompletions,
            Self::Completions => LoggedOperation::Completions,
            Self::Embeddings => LoggedOperation::Embeddings,
            Self::Responses => LoggedOperation::Responses,
            Self::Messages => LoggedOperation::Messages,
        }
    }

    /// Returns the name in OpenTelemetry's conventions for generative AI (`gen_ai.operation.name`).
    pub const fn telemetry_name(self) -> &'static str {
        match self {
            Self::Completions => "text_completion",
            Self::Embeddings => "embeddings",
            Self::ChatCompletions | Self::Responses | Self::Messages => "chat",
        }
    }

    /// Returns `true` if streams of this operation consist of chunks with `choices` and end with `[DONE]`.
    pub(crate) const fn has_chunks(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }

    /// Returns the member of a request that limits the tokens of an answer.
    pub(crate) const fn limit(self) -> Option<&'static str> {
        match self {
            Self::ChatCompletions | Self::Completions | Self::Messages => Some("max_tokens"),
            Self::Responses => Some("max_output_tokens"),
            Self::Embeddings => None,
        }
    }

    /// Returns the member of a request with the content that the model reads.
    pub(crate) const fn contents(self) -> &'static str {
        match self {
            Self::ChatCompletions | Self::Messages => "messages",
            Self::Completions => "prompt",
            Self::Embeddings | Self::Responses => "input",
        }
    }
}
