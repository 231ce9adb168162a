//! The request of `authorize`.

use std::net::IpAddr;

use crate::Api;
use crate::service::decision::{Choices, Inputs, QuestionId, Tokens, require_model};
use input::record;
use input::types::{Integer, Text};
use keys::rules::permissions::Permission;

record! {
    /// The request of `authorize`.
    #[derive(PartialEq, Debug)]
    pub struct Authorize in Api {
        /// The API key or the access token of the client that makes the model call.
        pub(super) credential: Text<4096> = required,
        /// The address of the client that makes the model call.
        pub(super) client_address: Option<IpAddr> = optional,
        /// The operation of the call.
        pub(super) operation: Permission = required,
        /// The id of the model.
        pub(super) model: Option<Text<128>> = optional,
        /// The maximum number of tokens per request; null for the model's limit.
        pub(super) max_tokens: Option<Tokens> = optional,
        /// The approximate number of tokens of the prompt; without it, the model's maximum is reserved.
        pub(super) estimated_prompt_tokens: Option<Tokens> = optional,
        /// The id of the organization.
        pub(super) organization_id: Option<Text<64>> = optional,
        /// The id of the project.
        pub(super) project_id: Option<Text<64>> = optional,
        /// The number of answers that the call requests (`n`).
        pub(super) choices: Choices = or(Integer(1)),
        /// The number of inputs in the call, for embeddings.
        pub(super) inputs: Inputs = or(Integer(1)),
        /// The maximum number of searches that the upstream makes for the answer.
        pub(super) searches: Integer<0, 1_000> = or(Integer(0)),
        /// The maximum number of seconds of audio or video that the upstream counts.
        pub(super) seconds: Integer<0, 86_400> = or(Integer(0)),
        /// The gateway's own id for the call. A repeated request with this id gets the same reservation.
        pub(super) request_id: Option<QuestionId> = optional,
        /// `false` for a decision that reserves no money.
        pub(super) reserve: bool = or(true),
    }
    check(fields) {
        require_model(fields, operation, model.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use input::fields::read_without_state;

    const BODIES: &[(&str, bool)] = &[
        (r#"{"credential": "tk_x", "operation": "models"}"#, true),
        (r#"{"credential": "tk_x", "operation": "chat", "model": "svc-1"}"#, true),
        (
            r#"{"credential":"a","client_address":"::1","operation":"embeddings","model":"m","max_tokens":0}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"files","max_tokens":1000000000,"estimated_prompt_tokens":7}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"files","client_address":null,"model":null,"max_tokens":null}"#,
            true,
        ),
        (r#" {"operation":"files" , "credential":"ключ"} "#, true),
        (
            r#"{"credential":"a.b.c","operation":"files","organization_id":"org_1","project_id":"proj_1"}"#,
            true,
        ),
        (r#"{"credential":"a","operation":"chat","model":"m","reserve":false}"#, true),
        (r#"{"credential":"a","operation":"chat","model":"m","reserve":null}"#, true),
        (
            r#"{"credential":"a","operation":"chat","model":"m","choices":128,"inputs":2048,"request_id":"call-1"}"#,
            true,
        ),
        (
            r#"{"credential":"a","operation":"chat","model":"m","choices":null,"inputs":null,"request_id":null}"#,
            true,
        ),
        // Uncommon, but valid.
        (r#"{"credential":"a\u0062","operation":"files"}"#, true),
        (r#"{"credential":"a","operation":"files","max_tokens":3.0}"#, true),
        (r#"{"credential":"a","operation":"files","max_tokens":3e2}"#, true),
        // Invalid.
        (r#"{"credential":"a","operation":"chat"}"#, false),
        (r#"{"credential":"a","operation":"fly"}"#, false),
        (r#"{"credential":"a"}"#, false),
        (r#"{"credential":null,"operation":"files"}"#, false),
        (r#"{"credential":"a","credential":"a","operation":"files"}"#, false),
        (r#"{"credential":"a","operation":"files","mode":1}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":-1}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":1000000001}"#, false),
        (r#"{"credential":"a","operation":"files","max_tokens":"1"}"#, false),
        (r#"{"credential":"a","operation":"files","client_address":"1.2.3"}"#, false),
        (r#"{"credential":"a\u0000","operation":"files"}"#, false),
        (r#"{"credential":"a","operation":"files"} x"#, false),
        (r#"{"credential":"a","operation":"files","reserve":"true"}"#, false),
        (r#"{"credential":"a","operation":"files","choices":0}"#, false),
        (r#"{"credential":"a","operation":"files","choices":129}"#, false),
        (r#"{"credential":"a","operation":"files","inputs":0}"#, false),
        (r#"{"credential":"a","operation":"files","inputs":2049}"#, false),
        (r#"{"credential":"a","operation":"files","request_id":""}"#, false),
        (r#"["a", null, "files", null, null, null, null, null, null]"#, false),
        ("", false),
    ];

    fn read(body: &str) -> Option<Authorize> {
        read_without_state(body.as_bytes())
    }

    #[test]
    fn valid_bodies_are_read() {
        for (body, valid) in BODIES {
            assert_eq!(read(body).is_some(), *valid, "{body}");
        }
        for (length, valid) in [(4096, true), (4097, false)] {
            let body = format!(r#"{{"credential":"{}","operation":"files"}}"#, "x".repeat(length));
            assert_eq!(read(&body).is_some(), valid, "{length}");
        }
    }

    #[test]
    fn every_field_is_read() {
        let full = r#"{"credential":"a","client_address":"::1","operation":"chat","model":"m","max_tokens":3,
            "estimated_prompt_tokens":4,"organization_id":"org_1","project_id":"proj_1","choices":5,"inputs":6,
            "searches":7,"seconds":8,"request_id":"call-1","reserve":false}"#;
        let text = |text: &str| text.to_owned();
        let expected = Authorize {
            credential: Text(text("a")),
            client_address: Some(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
            operation: Permission::Chat,
            model: Some(Text(text("m"))),
            max_tokens: Some(Integer(3)),
            estimated_prompt_tokens: Some(Integer(4)),
            organization_id: Some(Text(text("org_1"))),
            project_id: Some(Text(text("proj_1"))),
            choices: Integer(5),
            inputs: Integer(6),
            searches: Integer(7),
            seconds: Integer(8),
            request_id: Some(QuestionId(text("call-1"))),
            reserve: false,
        };
        assert_eq!(read(full), Some(expected));
        let least = r#"{"credential":"a\u0062","operation":"files","max_tokens":3e2}"#;
        let expected = Authorize {
            credential: Text(text("ab")),
            client_address: None,
            operation: Permission::Files,
            model: None,
            max_tokens: Some(Integer(300)),
            estimated_prompt_tokens: None,
            organization_id: None,
            project_id: None,
            choices: Integer(1),
            inputs: Integer(1),
            searches: Integer(0),
            seconds: Integer(0),
            request_id: None,
            reserve: true,
        };
        assert_eq!(read(least), Some(expected));
    }
}
