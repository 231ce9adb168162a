//! POST /console/organizations/{organization_id}/projects/{project_id}/playground/stream: the same call for
//! the page's script, which receives the answer piece by piece.
//!
//! The reply has one JSON object per line: `text` is a piece of the answer, `remark` and `failure` are
//! sentences, and the last line has `figures`.

use std::convert::Infallible;

use api::gate::Visit;
use futures_util::{Stream, StreamExt, stream};
use gateway::sse::Framer;
use gateway::{AnswerBody, Events};
use http::{HeaderValue, Response, StatusCode, header};
use kernel::error::{Code, Error};
use kernel::ids::ModelCallId;
use schemars::SchemaGenerator;
use serde::Serialize;
use tenants::access::ProjectScope;
use web::forms::ObjectForm;
use web::reply::{self, Body, Reply};

use super::answer::{self, Figures, Piece};
use super::call::{self, Prompt};
use super::{LABELS, as_code, is_shown_with_form};
use crate::console::Console;
use crate::form_view::FormView;

/// A line of the reply.
#[derive(Default, Serialize)]
pub struct Line {
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    /// The code sample for a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    curl: Option<String>,
    /// The code sample for Python.
    #[serde(skip_serializing_if = "Option::is_none")]
    python: Option<String>,
}

impl Line {
    fn into_text(self) -> String {
        // Text can always be serialized.
        serde_json::to_string(&self).map(|json| json + "\n").unwrap_or_default()
    }
}

/// The lines of a reply.
pub enum Lines {
    /// A call that is refused: one line, with the status of the error.
    Refused { code: Code, line: Box<Line> },
    /// The answer as it arrives.
    Answer(Box<Relay>),
}

/// An answer that is being sent to the page.
pub struct Relay {
    console: Console,
    scope: ProjectScope,
    call_id: ModelCallId,
    events: Events,
    framer: Framer,
    /// The first line, until it was sent.
    first: Option<Line>,
    has_ended: bool,
}

/// Call a model, and stream the answer.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<Prompt>,
) -> Result<Lines, Error> {
    let chat_call = form.take()?.into_call();
    let samples = as_code(&console, &chat_call)?;
    let first = Line { curl: Some(samples.curl), python: Some(samples.python), ..Line::default() };
    let made = match call::make(&console, &visit, &chat_call, true).await {
        Ok(made) => made,
        Err(error) if !is_shown_with_form(&error) => return Err(error),
        Err(error) => {
            let view = FormView::with_mistakes(LABELS, &form, &error);
            let sentences: Vec<_> = view.mistakes().iter().map(|mistake| mistake.sentence.as_str()).collect();
            let failure = Some(sentences.join(" "));
            return Ok(Lines::Refused { code: error.code, line: Box::new(Line { failure, ..first }) });
        }
    };
    let AnswerBody::Stream(events) = made.body else {
        return Err(Error::internal("a streaming call was answered without a stream"));
    };
    Ok(Lines::Answer(Box::new(Relay {
        console,
        scope: visit.scope,
        call_id: made.call_id,
        events,
        framer: Framer::new(),
        first: Some(first),
        has_ended: false,
    })))
}

impl Relay {
    /// Returns the next lines; `None` at the end. If this is dropped, the call is canceled.
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first.into_text());
        }
        while !self.has_ended {
            let Some(Ok(piece)) = self.events.next().await else {
                self.has_ended = true;
                return Some(self.last().await.into_text());
            };
            self.framer.push(piece);
            let (mut line, mut is_alive) = (Line::default(), false);
            // The gateway sends whole events, none of which is too long.
            while let Ok(Some(frame)) = self.framer.next_event() {
                is_alive = true;
                let Piece { text, remark, failure } =
                    frame.data.as_deref().map(answer::read_piece).unwrap_or_default();
                line.text.push_str(&text);
                line.remark = remark.or(line.remark);
                line.failure = failure.or(line.failure);
            }
            if is_alive {
                return Some(line.into_text());
            }
        }
        None
    }

    /// Returns the last line, with the charged usage.
    async fn last(&self) -> Line {
        match Figures::read(&self.console, &self.scope, self.call_id).await {
            Ok(figures) => Line { figures: Some(figures), ..Line::default() },
            Err(remark) => Line { remark: Some(remark.to_owned()), ..Line::default() },
        }
    }

    fn into_stream(self) -> impl Stream<Item = Result<String, Infallible>> {
        stream::unfold(self, async |mut relay| {
            let lines = relay.next().await?;
            Some((Ok(lines), relay))
        })
    }
}

impl Reply for Lines {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = match self {
            Self::Refused { code, line } => {
                let mut response = Response::new(reply::whole(line.into_text()));
                *response.status_mut() = code.status();
                response.extensions_mut().insert(code);
                response
            }
            Self::Answer(relay) => {
                let mut response = Response::new(Body::from_stream(relay.into_stream()));
                *response.status_mut() = StatusCode::OK;
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        // Without this header, nginx buffers the lines.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }

    fn content_type() -> &'static str {
        "application/x-ndjson"
    }

    fn schema(_: &mut SchemaGenerator) -> serde_json::Value {
        serde_json::json!({"type": "object"})
    }
}
