use hyper::body::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use catalog::UpstreamKind;

const MESSAGES: &str = r#""messages":[{"role":"user","content":"Hi"}]"#;

/// Returns the request with these members as written for an upstream, without its messages.
fn rewritten(members: &str, kind: UpstreamKind, inject: Injection) -> String {
    let body = Bytes::from(format!(r#"{{"model":"m",{MESSAGES}{members}}}"#));
    let upstream = Target {
        dialect: Dialect::of(kind),
        model: "own/Model-1",
        max_completion_tokens: 100,
        inject,
        options: TargetOptions::default(),
    };
    let text = ModelRequest::read(Operation::ChatCompletions, &body).unwrap().write_for(&upstream);
    std::str::from_utf8(&text).unwrap().replace(&format!("{MESSAGES},"), "")
}

fn of_kind(members: &str, kind: UpstreamKind) -> String {
    rewritten(members, kind, Injection::default())
}

use UpstreamKind::{Demo, Llamacpp, Openai, Sglang, Tgi, Vllm};

#[test]
fn model_and_limit_are_written() {
    for (kind, members, expected) in [
        (Vllm, "", r#"{"model":"own/Model-1","max_tokens":100}"#),
        (Openai, "", r#"{"model":"own/Model-1","max_tokens":100,"max_completion_tokens":100}"#),
        (Openai, r#","max_tokens":9"#, r#"{"model":"own/Model-1","max_tokens":9}"#),
        (Vllm, r#","max_tokens": null ,"x":1"#, r#"{"model":"own/Model-1","max_tokens": 100 ,"x":1}"#),
        (Vllm, r#","max_tokens":100"#, r#"{"model":"own/Model-1","max_tokens":100}"#),
        (Vllm, r#","max_tokens":101"#, r#"{"model":"own/Model-1","max_tokens":100}"#),
        (Sglang, r#","max_completion_tokens":5"#, r#"{"model":"own/Model-1","max_completion_tokens":5}"#),
        (
            Demo,
            r#","max_completion_tokens":500,"max_tokens":200"#,
            r#"{"model":"own/Model-1","max_completion_tokens":100,"max_tokens":100}"#,
        ),
        (
            Tgi,
            r#","max_completion_tokens":5"#,
            r#"{"model":"own/Model-1","max_completion_tokens":5,"max_tokens":5}"#,
        ),
        (
            Llamacpp,
            r#","max_completion_tokens":500"#,
            r#"{"model":"own/Model-1","max_completion_tokens":100,"max_tokens":100}"#,
        ),
        (
            Llamacpp,
            r#","max_tokens":5,"n_predict":7"#,
            r#"{"model":"own/Model-1","max_tokens":5,"n_predict":7}"#,
        ),
        (
            Llamacpp,
            r#","max_tokens":5,"n_predict":-1"#,
            r#"{"model":"own/Model-1","max_tokens":5,"n_predict":100}"#,
        ),
        (
            Vllm,
            r#","max_tokens":5,"n_predict":-1"#,
            r#"{"model":"own/Model-1","max_tokens":5,"n_predict":-1}"#,
        ),
    ] {
        assert_eq!(of_kind(members, kind), expected, "{kind:?} {members}");
    }
}

#[test]
fn options_of_a_stream_are_completed() {
    let stream = |options: &str| {
        let members = format!(r#","max_tokens":1,"stream":true,"stream_options":{options}"#);
        let text = of_kind(&members, Vllm);
        text.split_once(r#""stream_options":"#).unwrap().1.strip_suffix('}').unwrap().to_owned()
    };
    for (options, expected) in [
        ("null", r#"{"include_usage":true,"continuous_usage_stats":true}"#),
        ("{}", r#"{"include_usage":true,"continuous_usage_stats":true}"#),
        (
            "{ \"include_obfuscation\": true }",
            r#"{ "include_obfuscation": true,"include_usage":true,"continuous_usage_stats":true }"#,
        ),
        (
            r#"{"include_usage": false,"include_obfuscation":false}"#,
            r#"{"include_usage": true,"include_obfuscation":false,"continuous_usage_stats":true}"#,
        ),
        (
            r#"{"continuous_usage_stats":null, "include_usage":true}"#,
            r#"{"continuous_usage_stats":true, "include_usage":true}"#,
        ),
        (
            r#"{"include_usage" :true,"continuous_usage_stats": true}"#,
            r#"{"include_usage" :true,"continuous_usage_stats": true}"#,
        ),
    ] {
        assert_eq!(stream(options), expected, "{options}");
    }
}

#[test]
fn refused_fields_are_left_out() {
    let stream = r#","max_tokens":1,"stream":true"#;
    let head = r#"{"model":"own/Model-1","max_tokens":1,"stream":true"#;
    let all = Injection::default();
    let usage = r#","stream_options":{"include_usage":true}"#;
    for (kind, inject, rest) in [
        (Vllm, all.without(InjectedField::ContinuousUsage), usage),
        (Vllm, all.without(InjectedField::IncludeUsage), ""),
        (Tgi, all.without(InjectedField::IncludeUsage), ""),
        (Llamacpp, all.without(InjectedField::TimingsPerToken), usage),
        (Llamacpp, all.without(InjectedField::IncludeUsage), r#","timings_per_token":true"#),
    ] {
        assert_eq!(rewritten(stream, kind, inject), format!("{head}{rest}}}"), "{kind:?} {inject:?}");
    }
    // The client's members are kept.
    let own = format!(r#"{stream},"stream_options":{{"include_usage":false}}"#);
    let kept = format!(r#"{head},"stream_options":{{"include_usage":false}}}}"#);
    assert_eq!(rewritten(&own, Tgi, all.without(InjectedField::IncludeUsage)), kept);
}

#[test]
fn refusals_name_their_field() {
    let field = |body: &str| refused_field(&Bytes::copy_from_slice(body.as_bytes()));
    for (body, expected) in [
        (
            r#"{"error":{"message":"unknown field `continuous_usage_stats`, expected `include_usage`","code":400}}"#,
            Some(InjectedField::ContinuousUsage),
        ),
        (
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","continuous_usage_stats"],"msg":"Extra inputs are not permitted","input":true}]}"#,
            Some(InjectedField::ContinuousUsage),
        ),
        (
            r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted', 'input': {'include_usage': True, 'continuous_usage_stats': True}}]","code":400}"#,
            Some(InjectedField::IncludeUsage),
        ),
        (
            r#"{"error":"unknown field `stream_options`, expected one of `messages`"}"#,
            Some(InjectedField::IncludeUsage),
        ),
        (
            r#"{"error":{"message":"Unrecognized request argument supplied: timings_per_token"}}"#,
            Some(InjectedField::TimingsPerToken),
        ),
        (r#"{"error":{"message":"max_tokens is too large: 500"}}"#, None),
        (
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model.","param":"max_tokens"}}"#,
            Some(InjectedField::MaxTokens),
        ),
        (
            r#"{"error":{"message":"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."}}"#,
            Some(InjectedField::MaxTokens),
        ),
        ("<html>stream_options</html>", None),
        ("", None),
    ] {
        assert_eq!(field(body), expected, "{body}");
    }
}

/// The forms in which servers refuse an unknown field, with its name and with its path within the body.
const REFUSALS: [fn(&str, &str) -> String; 11] = [
    // FastAPI with pydantic, whose repeated input may name other fields.
    |name, _| {
        format!(
            r#"{{"detail":[{{"type":"extra_forbidden","loc":["body","{name}"],"msg":"Extra inputs are not permitted","input":{{"max_tokens":1}}}}]}}"#
        )
    },
    // vLLM, which sends pydantic's list as a string.
    |name, _| {
        format!(
            r#"{{"object":"error","message":"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted', 'input': {{'max_tokens': 1}}}}]","code":400}}"#
        )
    },
    |name, _| {
        format!(
            r#"{{"error":{{"message":"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted', 'input': True}}]","code":400}}}}"#
        )
    },
    // serde, as in TGI and mistral.rs.
    |name, _| {
        format!(
            r#"{{"error":"Failed to deserialize the JSON body: unknown field `{name}`, expected one of `messages`, `model`"}}"#
        )
    },
    // OpenAI, currently and in the past.
    |_, path| {
        format!(
            r#"{{"error":{{"message":"Unknown parameter: '{path}'.","type":"invalid_request_error","param":"{path}","code":"unknown_parameter"}}}}"#
        )
    },
    |name, _| {
        format!(
            r#"{{"error":{{"message":"Unrecognized request argument supplied: {name}","type":"invalid_request_error"}}}}"#
        )
    },
    |name, _| {
        format!(
            r#"{{"error":{{"message":"Unsupported parameter: '{name}' is not supported with this model.","param":"{name}"}}}}"#
        )
    },
    // Go, with and without a list of errors.
    |name, _| format!(r#"{{"error":{{"message":"json: unknown field \"{name}\""}}}}"#),
    // Python's own message.
    |name, _| format!(r#"{{"detail":"create() got an unexpected keyword argument '{name}'"}}"#),
    // Only a message.
    |name, _| format!(r#"{{"error":{{"message":"{name} is not supported","code":null}}}}"#),
    |name, _| format!(r#"{{"error":{{"message":"{name}: not allowed"}}}}"#),
];

#[test]
fn every_form_of_a_refusal_names_each_field() {
    for field in InjectedField::ALL {
        let (name, path) = match field {
            InjectedField::IncludeUsage => ("stream_options", "stream_options.include_usage"),
            InjectedField::ContinuousUsage => {
                ("continuous_usage_stats", "stream_options.continuous_usage_stats")
            }
            InjectedField::TimingsPerToken => ("timings_per_token", "timings_per_token"),
            InjectedField::MaxTokens => ("max_tokens", "max_tokens"),
        };
        for form in REFUSALS {
            let body = form(name, path);
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
            assert_eq!(refused_field(&Bytes::from(body.clone())), Some(field), "{body}");
        }
    }
}

proptest! {
    /// Every member that the gateway doesn't write keeps its meaning, its text and its position.
    #[test]
    fn the_rest_is_the_clients(
        others in proptest::collection::vec((0_usize..6, 0_usize..4), 0..5),
        at in 0_usize..6,
        asked in proptest::option::of(1_i64..200),
        options in proptest::option::of(0_usize..4),
        kind in 0_usize..UpstreamKind::ALL.len(),
    ) {
        let texts = ["1.50", "\"a\\u0062\\n\"", "[ {\"model\" :\"x\"}, -0 ]", "{\"max_tokens\":9}"];
        let mut members: Vec<String> = Vec::new();
        for (name, value) in others {
            let name = format!("\"o{name}\" : ");
            if !members.iter().any(|other| other.starts_with(&name)) {
                members.push(name + texts[value]);
            }
        }
        let kept = members.clone();
        members.extend(asked.map(|asked| format!("\"max_tokens\":{asked}")));
        let padding = "{\"include_usage\":false , \"include_obfuscation\":\"\\\\\"}";
        let forms = ["null", "{}", "{\"include_obfuscation\": 1}", padding];
        members.extend(options.map(|form| format!("\"stream_options\":{}", forms[form])));
        members.insert(at.min(members.len()), format!("{MESSAGES},\"model\": \"m\" , \"stream\":true"));
        let body = format!("{{\n{}\n}}", members.join(" ,\n "));
        let kind = UpstreamKind::ALL[kind];
        let upstream = Target { dialect: Dialect::of(kind), model: "M", max_completion_tokens: 100, inject: Injection::default(), options: TargetOptions::default() };
        let result = ModelRequest::read(Operation::ChatCompletions, &Bytes::from(body.clone())).unwrap().write_for(&upstream);

        let mut before: Map<String, Value> = serde_json::from_str(&body).unwrap();
        let mut after: Map<String, Value> = serde_json::from_slice(&result).unwrap();
        prop_assert_eq!(after.remove("model"), Some(json!("M")));
        prop_assert_eq!(after.remove("max_tokens"), Some(json!(asked.unwrap_or(100).min(100))));
        let newer = after.remove("max_completion_tokens");
        prop_assert_eq!(newer, (upstream.dialect.limit == Limit::Newer && asked.is_none()).then(|| json!(100)));
        let mut options = before.remove("stream_options").filter(|options| !options.is_null()).unwrap_or(json!({}));
        options["include_usage"] = json!(true);
        if upstream.dialect.running_counts == RunningCounts::Usage {
            options["continuous_usage_stats"] = json!(true);
        }
        prop_assert_eq!(after.remove("stream_options"), Some(options));
        prop_assert_eq!(after.remove("timings_per_token").is_some(), upstream.dialect.running_counts == RunningCounts::Timings);
        before.remove("model");
        before.remove("max_tokens");
        prop_assert_eq!(after, before);
        let mut rest = std::str::from_utf8(&result).unwrap();
        for member in kept {
            rest = rest.split_once(&member).unwrap().1;
        }
    }
}

#[test]
fn each_operation_is_written_with_its_own_limit() {
    let write = |operation: Operation, kind: UpstreamKind, members: &str| {
        let body = Bytes::from(format!(r#"{{"model":"m",{members}}}"#));
        let upstream = Target {
            dialect: Dialect::of(kind),
            model: "own/Model-1",
            max_completion_tokens: 100,
            inject: Injection::default(),
            options: TargetOptions::default(),
        };
        let text = ModelRequest::read(operation, &body).unwrap().write_for(&upstream);
        String::from_utf8(text.to_vec()).unwrap().replace(r#""model":"own/Model-1","#, "")
    };
    use Operation::{Completions, Embeddings, Messages, Responses};
    let usage = r#""stream_options":{"include_usage":true}"#;
    for (operation, kind, members, expected) in [
        (Completions, Openai, r#""prompt":"a""#, r#""prompt":"a","max_tokens":100"#.to_owned()),
        (
            Completions,
            Vllm,
            r#""prompt":"a","max_tokens":101"#,
            r#""prompt":"a","max_tokens":100"#.to_owned(),
        ),
        (
            Completions,
            Openai,
            r#""prompt":"a","max_tokens":5,"stream":true"#,
            format!(r#""prompt":"a","max_tokens":5,"stream":true,{usage}"#),
        ),
        (Embeddings, Vllm, r#""input":"a","dimensions":4"#, r#""input":"a","dimensions":4"#.to_owned()),
        (
            Responses,
            Vllm,
            r#""input":"a","stream":true"#,
            r#""input":"a","stream":true,"max_output_tokens":100"#.to_owned(),
        ),
        (
            Responses,
            Llamacpp,
            r#""input":"a","stream":true,"max_output_tokens":5,"n_predict":-1"#,
            r#""input":"a","stream":true,"max_output_tokens":5,"n_predict":100,"timings_per_token":true"#
                .to_owned(),
        ),
        (
            Messages,
            Llamacpp,
            r#""messages":[{}],"stream":true"#,
            r#""messages":[{}],"stream":true,"max_tokens":100"#.to_owned(),
        ),
    ] {
        assert_eq!(write(operation, kind, members), format!("{{{expected}}}"), "{operation:?} {kind:?}");
    }
}
