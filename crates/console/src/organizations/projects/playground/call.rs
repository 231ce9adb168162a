//! The model call that a form describes.

use api::Api;
use api::gate::Visit;
use gateway::{AnswerBody, AnthropicHeaders, Credential, ModelCall, Operation, UserAgent};
use input::record;
use input::types::{Integer, Temperature, Text};
use kernel::error::Error;
use kernel::shares::Holder;
use serde::Serialize;
use tenants::access::ProjectScope;

use super::answer::{self, Answer, Figures};
use crate::console::Console;
use crate::samples::{ChatCall, Message};

/// The maximum number of output tokens that can be requested. Models have lower limits.
const MAX_TOKENS: i64 = 1_000_000_000;

record! {
    /// The user's input for a model call.
    #[derive(Debug)]
    pub struct Prompt in Api {
        model: Text<128> = required,
        instructions: Option<Text<50_000>> = optional,
        message: Text<50_000> = required,
        max_tokens: Option<Integer<1, MAX_TOKENS>> = optional,
        temperature: Option<Temperature> = optional,
    }
}

impl Prompt {
    /// Returns the call.
    pub(super) fn into_call(self) -> ChatCall {
        let instructions = self.instructions.map(|text| Message { role: "system", content: text.0 });
        let message = Message { role: "user", content: self.message.0 };
        ChatCall {
            model: self.model.0,
            messages: instructions.into_iter().chain([message]).collect(),
            max_tokens: self.max_tokens.map(|tokens| tokens.0),
            temperature: self.temperature.map(|temperature| temperature.0),
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    call: &'a ChatCall,
    stream: bool,
}

/// Makes the call through the gateway, as the scope's user.
///
/// # Errors
/// Those of [`gateway::call()`].
pub(super) async fn make(
    console: &Console,
    visit: &Visit<ProjectScope>,
    call: &ChatCall,
    stream: bool,
) -> Result<gateway::Answer, Error> {
    let (scope, session) = (&visit.scope, visit.person.session());
    let body = serde_json::to_vec(&Body { call, stream }).map_err(Error::internal)?;
    let call = ModelCall {
        operation: Operation::ChatCompletions,
        credential: Credential::Person { user_id: session.user_id, session_id: session.id },
        holder: Holder::Member { group: session.user_id.as_u128(), member: session.id.as_u128() },
        address: scope.trail().address,
        organization: Some(scope.organization_id().to_string()),
        project: Some(scope.project_id().to_string()),
        anthropic: AnthropicHeaders::default(),
        user_agent: Some(UserAgent::Browser),
        body: body.into(),
    };
    gateway::call(&console.gateway, call).await
}

/// Makes the call, and returns its whole answer.
///
/// # Errors
/// Those of [`gateway::call()`].
pub(super) async fn whole(
    console: &Console,
    visit: &Visit<ProjectScope>,
    call: &ChatCall,
) -> Result<Answer, Error> {
    let made = make(console, visit, call, false).await?;
    let AnswerBody::Whole(body) = made.body else {
        return Err(Error::internal("a call without streaming was answered with a stream"));
    };
    let samples = super::as_code(console, call)?;
    let (text, remark) = answer::read_whole(&body);
    let (figures, remark) = match Figures::read(console, &visit.scope, made.call_id).await {
        Ok(figures) => (figures, remark),
        Err(words) => {
            (Figures::unknown(), Some(remark.map_or(words.to_owned(), |said| format!("{said} {words}"))))
        }
    };
    Ok(Answer { text, remark, figures, samples })
}
