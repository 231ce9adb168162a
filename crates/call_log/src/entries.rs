//! The calls to be logged.

use std::sync::Arc;

use kernel::clock::Time;
use kernel::ids::{CallerId, IdText, ModelCallId, OrganizationId, ProjectId, RequestId};
use kernel::money::Pico;

use crate::rules::clients::UserAgent;
use crate::words::words;

/// An operation of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    ChatCompletions,
    Completions,
    Embeddings,
    Responses,
    Messages,
    /// A chat of an unknown form, which another server has made.
    Chat,
}

/// The way a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Completed,
    /// The answer ended too early.
    Cut,
    ClientLeft,
    /// No upstream answered.
    Failed,
    /// The call wasn't let through.
    Refused,
}

words!(Operation {
    ChatCompletions = 0 "chat_completions",
    Completions = 1 "completions",
    Embeddings = 2 "embeddings",
    Responses = 3 "responses",
    Messages = 4 "messages",
    Chat = 5 "chat",
});

words!(Ended {
    Completed = 0 "completed",
    Cut = 1 "cut",
    ClientLeft = 2 "client_left",
    Failed = 3 "failed",
    Refused = 4 "refused",
});

/// The program that made a call, and the person that it names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Client {
    pub user_agent: Option<UserAgent>,
    /// At most 128 characters.
    pub end_user: Option<Arc<str>>,
}

/// The course of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Course {
    pub operation: Operation,
    pub request_id: Option<RequestId>,
    /// The id of the upstream that was called last.
    pub upstream: Option<Arc<str>>,
    /// The name of the model at that upstream.
    pub upstream_model: Option<Arc<str>>,
    pub is_stream: bool,
    /// The number of upstreams that were called.
    pub attempts: u32,
    /// The HTTP status; `None` if the client left before its answer, or if it isn't known.
    pub status: Option<u16>,
    /// The error code; `None` if no error occurred.
    pub code: Option<&'static str>,
    pub ended: Ended,
    /// The time to the first event of a stream.
    pub first_event_ms: Option<i64>,
    pub duration_ms: Option<i64>,
    pub client: Client,
}

impl Course {
    /// Returns the course of a call of which only its operation is known.
    pub fn reported(operation: Operation, ended: Ended) -> Self {
        Self {
            operation,
            request_id: None,
            upstream: None,
            upstream_model: None,
            is_stream: false,
            attempts: 0,
            status: None,
            code: None,
            ended,
            first_event_ms: None,
            duration_ms: None,
            client: Client::default(),
        }
    }
}

/// The charged usage of a call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// The number of usage events that count as requests: 0 if the call wasn't charged.
    pub events: i64,
    pub prompt_tokens: i64,
    pub cached_prompt_tokens: Option<i64>,
    pub completion_tokens: i64,
    /// A part of the completion tokens; `None` if it isn't known.
    pub reasoning_tokens: Option<i64>,
    pub is_estimated: bool,
    /// The list price.
    pub amount: Pico,
}

/// The usage event of a call that another server has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub source: Arc<str>,
    pub event_id: Arc<str>,
}

/// A call to be added to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewCall {
    /// The id, which contains the time of the call.
    pub id: ModelCallId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub caller: CallerId,
    /// The id of a model in the catalog.
    pub model: Option<Arc<str>>,
    pub course: Course,
    pub usage: Usage,
    /// `None` for calls of the gateway.
    pub origin: Option<Origin>,
}

impl NewCall {
    pub fn time(&self) -> Time {
        self.id.created_at()
    }

    /// Returns the names that the row refers to by number.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name<'_>> {
        let Course { upstream, upstream_model, code, .. } = &self.course;
        let ids = [
            Name::Id(self.organization_id.short_text()),
            Name::Id(self.project_id.short_text()),
            Name::Id(self.caller.short_text()),
        ];
        let source = self.origin.as_ref().map(|origin| &origin.source);
        let shared = [self.model.as_ref(), upstream.as_ref(), upstream_model.as_ref(), source];
        let shared = shared.into_iter().flatten().map(|name| Name::Text(name));
        ids.into_iter().chain(shared).chain(code.map(Name::Text))
    }
}

/// A name that a row refers to by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    Id(IdText),
    Text(&'a str),
}

impl Name<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Id(id) => id.as_str(),
            Self::Text(text) => text,
        }
    }
}

/// A later charge of a call, or a correction, which is added to the call's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adjustment {
    pub id: ModelCallId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub caller: CallerId,
    pub model: Arc<str>,
    /// Tokens and the amount are negative in a correction.
    pub usage: Usage,
}

impl Adjustment {
    /// Returns the names that the row of sums refers to by number.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name<'_>> {
        [
            Name::Id(self.organization_id.short_text()),
            Name::Id(self.project_id.short_text()),
            Name::Id(self.caller.short_text()),
            Name::Text(&self.model),
        ]
        .into_iter()
    }
}
