//! Chats and completions, whole or as chunks with choices.

use std::collections::VecDeque;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{DemoAnswer, Reply};

/// The form of the choices.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// Choices with messages or deltas.
    Chat,
    /// Choices with text.
    Text,
}

/// Returns the answer with this number of choices, each with the whole text.
pub(super) fn answer(reply: &Reply, form: Form, choices: usize) -> DemoAnswer {
    let answer = Answer { reply, form, choices };
    if reply.is_stream { DemoAnswer { chunks: answer.events() } } else { DemoAnswer::whole(&answer.whole()) }
}

struct Answer<'a> {
    reply: &'a Reply,
    form: Form,
    choices: usize,
}

impl Answer<'_> {
    fn finish_reason(&self) -> &'static str {
        if self.reply.is_cut { "length" } else { "stop" }
    }

    fn whole(&self) -> Value {
        let text = self.reply.text();
        let choice = |index| match self.form {
            Form::Chat => json!({
                "index": index,
                "message": {"role": "assistant", "content": text},
                "logprobs": null,
                "finish_reason": self.finish_reason(),
            }),
            Form::Text => self.piece(index, &text, Some(self.finish_reason())),
        };
        let choices: Vec<_> = (0..self.choices).map(choice).collect();
        let object = match self.form {
            Form::Chat => "chat.completion",
            Form::Text => "text_completion",
        };
        self.object(object, &choices.into(), &self.usage(self.reply.words.len() * self.choices))
    }

    /// Returns the events of a stream, in which the choices alternate.
    fn events(&self) -> VecDeque<Bytes> {
        let mut events = VecDeque::new();
        let mut generated = 0;
        let mut push = |choices: Value, generated: usize| {
            let object = match self.form {
                Form::Chat => "chat.completion.chunk",
                Form::Text => "text_completion",
            };
            let chunk = self.object(object, &choices, &self.usage(generated));
            events.push_back(Bytes::from(format!("data: {chunk}\n\n")));
        };
        if matches!(self.form, Form::Chat) {
            for index in 0..self.choices {
                push(
                    json!([self.delta(index, &json!({"role": "assistant", "content": ""}), None)]),
                    generated,
                );
            }
        }
        for word in self.reply.pieces() {
            for index in 0..self.choices {
                generated += 1;
                push(json!([self.piece(index, word, None)]), generated);
            }
        }
        for index in 0..self.choices {
            let reason = Some(self.finish_reason());
            let last = match self.form {
                Form::Chat => self.delta(index, &json!({}), reason),
                Form::Text => self.piece(index, "", reason),
            };
            push(json!([last]), generated);
        }
        push(json!([]), generated);
        events.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    /// Returns a choice with a piece of text.
    fn piece(&self, index: usize, text: &str, finish_reason: Option<&str>) -> Value {
        match self.form {
            Form::Chat => self.delta(index, &json!({"content": text}), finish_reason),
            Form::Text => {
                json!({"index": index, "text": text, "logprobs": null, "finish_reason": finish_reason})
            }
        }
    }

    fn delta(&self, index: usize, delta: &Value, finish_reason: Option<&str>) -> Value {
        json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason})
    }

    fn object(&self, object: &str, choices: &Value, usage: &Value) -> Value {
        json!({
            "id": match self.form {
                Form::Chat => "chatcmpl-demo",
                Form::Text => "cmpl-demo",
            },
            "object": object,
            "created": self.reply.created,
            "model": self.reply.model,
            "choices": choices,
            "usage": usage,
        })
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        let prompt_tokens = self.reply.prompt_tokens;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        })
    }
}
