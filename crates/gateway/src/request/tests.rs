use super::*;
use catalog::UpstreamKind;

const HELLO: &str = r#""messages":[{"role":"user","content":"Hello"}]"#;

fn read(body: &str) -> Result<ModelRequest, Error> {
    ModelRequest::read(Operation::ChatCompletions, &Bytes::copy_from_slice(body.as_bytes()))
}

/// Reads a request with these additional members.
fn with(members: &str) -> ModelRequest {
    read(&format!(r#"{{"model":"m",{HELLO}{members}}}"#)).unwrap()
}

/// Returns the path and the code of each problem.
fn problems(body: &str) -> Vec<(String, &'static str)> {
    let error = read(body).unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest, "{error}");
    error.details.into_iter().map(|detail| (detail.param, detail.code)).collect()
}

#[test]
fn what_matters_is_read() {
    let request = with("");
    assert_eq!((request.model.as_str(), request.choices, request.contents.items), ("m", 1, 1));
    assert_eq!((request.is_stream, request.asked_tokens()), (false, None));
    assert_eq!(
        (request.include_usage, request.continuous_usage, request.timings_per_token),
        (false, false, false)
    );

    let request = with(
        r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true,"include_obfuscation":[{}]},
        "timings_per_token":true,"n":128,"max_tokens":7.0,"max_completion_tokens":5,"future":{"model":1}"#,
    );
    assert_eq!((request.is_stream, request.include_usage, request.continuous_usage), (true, true, true));
    assert_eq!((request.timings_per_token, request.choices), (true, 128));
    assert_eq!((request.max_tokens, request.max_completion_tokens), (Some(7), Some(5)));
    assert_eq!(request.asked_tokens(), Some(5));
    assert_eq!(with(r#","max_tokens":3,"max_completion_tokens":4"#).asked_tokens(), Some(3));
    assert_eq!(with(r#","max_completion_tokens":1000000000"#).asked_tokens(), Some(1_000_000_000));
}

#[test]
fn null_is_absent() {
    let null = r#","stream":null,"stream_options":null,"max_tokens":null,"max_completion_tokens":null,"n":null,
        "timings_per_token":null"#;
    let request = with(null);
    assert_eq!((request.is_stream, request.choices, request.asked_tokens()), (false, 1, None));
    assert!(!with(r#","stream_options":{"include_usage":null}"#).include_usage);
}

#[test]
fn every_problem_is_named() {
    let body = r#"{"model":1,"messages":"Hi","stream":"yes","stream_options":{"include_usage":1},
        "max_tokens":0,"max_completion_tokens":"5","n":129,"timings_per_token":0}"#;
    let expected = [
        ("model", "wrong_type"),
        ("messages", "wrong_type"),
        ("stream", "wrong_type"),
        ("stream_options.include_usage", "wrong_type"),
        ("max_tokens", "out_of_range"),
        ("max_completion_tokens", "wrong_type"),
        ("n", "out_of_range"),
        ("timings_per_token", "wrong_type"),
    ];
    assert_eq!(problems(body), expected.map(|(param, code)| (param.to_owned(), code)));
    let one = |members: &str, param: &str, code: &'static str| {
        assert_eq!(problems(&format!("{{{members}}}")), [(param.to_owned(), code)], "{members}");
    };
    one(HELLO, "model", "required");
    one(r#""model":"m""#, "messages", "required");
    one(r#""model":"m","messages":null"#, "messages", "required");
    one(r#""model":"m","messages":[]"#, "messages", "empty");
    one(r#""model":"m","messages":{}"#, "messages", "wrong_type");
    one(&format!(r#""model":null,{HELLO}"#), "model", "required");
    for value in ["-1", "0", "1000000001", "1.5", "1e99"] {
        one(&format!(r#""model":"m",{HELLO},"max_tokens":{value}"#), "max_tokens", "out_of_range");
    }
    one(&format!(r#""model":"m",{HELLO},"n":0"#), "n", "out_of_range");
    one(&format!(r#""model":"m",{HELLO},"stream_options":[]"#), "stream_options", "wrong_type");
    let message = |body: &str| read(body).unwrap_err().public_message().to_owned();
    assert_eq!(message(r#"{"model":"m","messages":7}"#), "`messages` must be an array, not an integer.");
    assert_eq!(message(r#"{"model":"m","messages":[]}"#), "`messages` must have at least one message.");
}

#[test]
fn bodies_that_can_be_read_in_two_ways_are_refused() {
    let message = |body: &str| {
        let error = read(body).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), (Code::InvalidJson, Some("body")), "{body}");
        error.public_message().to_owned()
    };
    for (member, name) in [
        (r#""model":"m""#, "model"),
        (r#""\u006dodel":"m""#, "model"),
        (HELLO, "messages"),
        (r#""max_tokens":1,"max_tokens":null"#, "max_tokens"),
        (r#""n_predict":1,"n_predict":1"#, "n_predict"),
    ] {
        let expected = format!("The body is not valid JSON: the key \"{name}\" appears twice.");
        assert_eq!(message(&format!(r#"{{"model":"m",{HELLO},{member}}}"#)), expected);
    }
    let twice = r#""stream_options":{"include_usage":true,"include_usage":false}"#;
    assert!(
        message(&format!(r#"{{"model":"m",{HELLO},{twice}}}"#)).contains("\"include_usage\" appears twice")
    );
    assert_eq!(message("[]"), "The body must be a JSON object.");
    assert_eq!(message(""), "The body is not valid JSON: EOF while parsing a value at line 1 column 0.");
    let deep = format!(r#"{{"model":"m",{HELLO},"x":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    assert_eq!(message(&deep), "The body is nested deeper than 128.");
    let deep = format!(r#"{{"model":"m","messages":[{}{}]}}"#, "[".repeat(200), "]".repeat(200));
    assert!(read(&deep).is_err());
    // Other members are left to the upstream.
    assert!(read(&format!(r#"{{"model":"m",{HELLO},"x":1,"x":2}}"#)).is_ok());
}

#[test]
fn parts_that_are_not_text_are_counted() {
    let body = r#"{"model":"m","messages":[
        {"role":"system","content":"image_url"},
        {"role":"user","content":[
            {"type":"text","text":"{\"type\":\"image_url\"}"},
            {"type":"image_url","image_url":{"url":"https://example.com/a.png"}},
            {"image_url":"data:image/png;base64,AA"},
            {"type":"text","text":"x","type":"image_url"},
            {"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},
            {"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}},
            {"type":"file","file":{"file_id":"f"}},
            7, null, "image_url", ["image_url"], {"type":7}
        ]},
        {"role":"user","content":{"type":"image_url"},"content":[{"type":"\u0069mage_url"}]},
        {"role":"assistant","content":null,"tool_calls":[{"type":"image_url"}]},
        "text", 3.5
    ]}"#;
    let contents = read(body).unwrap().contents;
    assert_eq!(contents.items, 6);
    // Three parts are remote: an image, a video and a file.
    assert_eq!(contents.parts, Parts { images: 5, audios: 1, videos: 1, files: 1, remote: 3 });
    // `image_url` twice, `{"type":"image_url"}`, `x` and `text`. Audio of fewer than 64 characters counts as
    // text.
    let texts = ["image_url", "image_url", r#"{"type":"image_url"}"#, "x", "text", "AA"];
    let texts = texts.map(TextTokens::of).into_iter().fold(TextTokens::default(), |sum, text| sum + text);
    // A remote image and video, an image of unknown size, and a remote file.
    let media = TextTokens::new(765 + 2_500 + 765 + 1_500);
    assert_eq!(contents.text, texts + media);
}

#[test]
fn the_prompt_is_bounded() {
    let request = with("");
    assert_eq!(request.object.text().len(), 60);
    // The bound is 60 for the bytes, 512 for the template, and 16 for the message.
    assert_eq!(request.prompt_tokens_bound(), 588);
    let body = r#"{"model":"m","messages":[{"content":[{"type":"image_url"},{"type":"file"}]},{}]}"#;
    // The bound is 80 for the bytes, 512 for the template, 16 for each of two messages, and 16,384 each for
    // an image and a file.
    assert_eq!((body.len(), read(body).unwrap().prompt_tokens_bound()), (80, 80 + 512 + 32 + 2 * 16_384));
}

#[test]
fn whole_context_is_reserved_for_what_stands_elsewhere() {
    let reserved = |part: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
        let request = read(&body).unwrap();
        let known = request.reserved_prompt_tokens(Some(100_000), []);
        assert!(request.reserved_prompt_tokens(None, []) < 100_000, "{part}");
        known == 100_000
    };
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}"#,
        r#"{"type":"image_url","image_url":"HTTP://example.com/a.png"}"#,
        r#"{"type":"input_image","image_url":"https://example.com/a.png"}"#,
        r#"{"type":"input_image","file_id":"file-1"}"#,
        r#"{"type":"file","file":{"file_id":"file-1"}}"#,
        r#"{"type":"input_file","file_url":"https://example.com/a.pdf"}"#,
        r#"{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}"#,
        r#"{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"http://a/b"}}]}"#,
        r#"{"type":"video_url","video_url":{"url":"file:///etc/passwd"}}"#,
    ] {
        assert!(reserved(part), "{part}");
    }
    for part in [
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}"#,
        r#"{"type":"text","text":"https://example.com/a.png"}"#,
    ] {
        assert!(!reserved(part), "{part}");
    }
}

#[test]
fn upstreams_count_at_most_the_context_of_each_prompt() {
    let request = read_as(Operation::Completions, r#""prompt":["a","b","c"]"#).unwrap();
    assert_eq!(request.countable_prompt_tokens(Some(5_000)), 15_000);
    // An unknown context counts as 1,048,576 tokens.
    assert_eq!(request.countable_prompt_tokens(None), 3_145_728);
}

/// The estimate has the tokens of the text and of the images, tokens sent as numbers, and three tokens for
/// each message.
#[test]
fn estimate_of_a_prompt_counts_what_a_model_reads() {
    let estimate = |operation, members: &str| read_as(operation, members).unwrap().estimated_prompt_tokens();
    let image = format!(
        r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}"#,
        "A".repeat(400_000)
    );
    let chat = format!(
        r#""metadata":{{"a":"{}"}},"messages":[{{"role":"user","content":[{{"type":"text","text":"What is it?"}},{image}]}},
        {{"role":"assistant","content":"A cat."}}]"#,
        "x".repeat(4_000)
    );
    // 0.24 + 3 × 0.23 + 4 × 0.23 + 0.52 and 0.24 + 3 × 0.23 + 0.52, an image of unknown size, two messages.
    assert_eq!(estimate(Operation::ChatCompletions, &chat), 4 + 765 + 6);
    // A value of 6 letters, three names of 8 and 11 letters, and one token for each value: 1.38 + 4.37 + 4.
    let tools =
        r#""tools":[{"function":{"description":"abcdef"}}],"messages":[{"role":"user","content":"abcd"}]"#;
    assert_eq!(estimate(Operation::ChatCompletions, tools), 11 + 3);
    assert_eq!(estimate(Operation::Completions, r#""prompt":[1,2,3]"#), 3);
    assert_eq!(estimate(Operation::Embeddings, r#""input":[[1,2],[3],"abcdefgh"]"#), 3 + 2);
    assert_eq!(estimate(Operation::Responses, r#""instructions":"abcdef","input":"abcd""#), 3 + 3);
    assert_eq!(
        estimate(Operation::Messages, r#""system":null,"messages":[{"role":"user","content":"a"}]"#),
        4
    );
}

/// Neither the bytes of media nor the punctuation of JSON count as text, in any operation, part or nesting.
#[test]
fn estimate_does_not_grow_with_bytes_that_are_not_text() {
    let base64 = |length: usize| "QUJD".repeat(length / 4);
    for (operation, form) in [
        (
            Operation::ChatCompletions,
            r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,DATA"}}]}]"#,
        ),
        (
            Operation::ChatCompletions,
            r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:image/jpeg;base64,DATA"}]}]"#,
        ),
        (
            Operation::ChatCompletions,
            r#""messages":[{"role":"tool","tool_call_id":"1","content":[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,DATA"}}]}]"#,
        ),
        (
            Operation::Responses,
            r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/jpeg;base64,DATA"}]}]"#,
        ),
        (
            Operation::Responses,
            r#""input":[{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"data:image/jpeg;base64,DATA"}]}]"#,
        ),
        (Operation::Responses, r#""input":[{"type":"image_generation_call","id":"1","result":"DATA"}]"#),
        (Operation::Responses, r#""input":[{"type":"reasoning","summary":[],"encrypted_content":"DATA"}]"#),
        (
            Operation::Messages,
            r#""messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"DATA"}}]}]"#,
        ),
        (
            Operation::Messages,
            r#""messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"DATA"}}]}]}]"#,
        ),
        (
            Operation::Messages,
            r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"DATA"}]}]"#,
        ),
    ] {
        let estimate = |length: usize| {
            let members = form.replace("DATA", &base64(length));
            read_as(operation, &members).unwrap().estimated_prompt_tokens()
        };
        assert_eq!(estimate(400), estimate(400_000), "{form}");
        assert!(estimate(400) < 1_000, "{form}");
    }
    // White space between the members of a tool doesn't count.
    let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}"#;
    let estimate = |tool: &str| {
        let members = format!(r#""tools":[{tool}],"messages":[{{"role":"user","content":"a"}}]"#);
        read_as(Operation::ChatCompletions, &members).unwrap().estimated_prompt_tokens()
    };
    assert_eq!(estimate(tool), estimate(&tool.replace(':', " :\n                ")));
}

#[test]
fn several_answers_are_not_for_llamacpp() {
    let refused = |members: &str| {
        let error = with(members).check_dialect(Dialect::of(UpstreamKind::Llamacpp)).unwrap_err();
        assert_eq!(error.code, Code::UnsupportedParameter);
        error.param.unwrap()
    };
    assert_eq!(refused(r#","n":2"#), "n");
    assert_eq!(refused(r#","best_of":2,"n":1"#), "best_of");
    assert_eq!(refused(r#","n_cmpl":"2","n":1"#), "n_cmpl");
    for members in ["", r#","n":1,"best_of":1.0,"n_cmpl":null"#] {
        assert!(with(members).check_dialect(Dialect::of(UpstreamKind::Llamacpp)).is_ok(), "{members}");
    }
    for kind in [UpstreamKind::Vllm, UpstreamKind::Sglang, UpstreamKind::Tgi, UpstreamKind::Openai] {
        assert!(with(r#","n":2,"best_of":2"#).check_dialect(Dialect::of(kind)).is_ok());
    }
}

/// Reads a request of this operation, with the model `m`.
fn read_as(operation: Operation, members: &str) -> Result<ModelRequest, Error> {
    ModelRequest::read(operation, &Bytes::from(format!(r#"{{"model":"m",{members}}}"#)))
}

#[test]
fn texts_are_counted() {
    for (value, texts) in [
        (r#""a text""#, 1),
        (r#"["a","b","c"]"#, 3),
        ("[1,2,3]", 1),
        ("[[1,2],[3]]", 2),
        (r#"["a",[1],2]"#, 3),
    ] {
        let embeddings = read_as(Operation::Embeddings, &format!(r#""input":{value}"#)).unwrap();
        assert_eq!(
            (embeddings.prompts, embeddings.is_stream, embeddings.asked_tokens()),
            (texts, false, None)
        );
        let more = format!(r#""prompt":{value},"n":2,"best_of":3,"max_tokens":7"#);
        let completions = read_as(Operation::Completions, &more).unwrap();
        assert_eq!((completions.prompts, completions.asked_tokens()), (texts, Some(7)));
        assert_eq!((completions.choices, completions.generated), (2 * texts, 3 * texts), "{value}");
    }
    // The bound is 43 for the bytes, and 16 for each text.
    let request = read_as(Operation::Embeddings, r#""input":["one","two","three"]"#).unwrap();
    assert_eq!((request.object.text().len(), request.prompt_tokens_bound()), (43, 43 + 48));
}

#[test]
fn every_operation_names_its_problems() {
    let one = |operation: Operation, members: &str, param: &str, code: &str| {
        let error = read_as(operation, members).unwrap_err();
        let details: Vec<_> =
            error.details.iter().map(|detail| (detail.param.as_str(), detail.code)).collect();
        assert_eq!(details, [(param, code)], "{members}");
    };
    one(Operation::Completions, r#""messages":[]"#, "prompt", "required");
    one(Operation::Completions, r#""prompt":[]"#, "prompt", "empty");
    one(Operation::Completions, r#""prompt":1"#, "prompt", "wrong_type");
    one(Operation::Completions, r#""prompt":"a","best_of":200"#, "best_of", "out_of_range");
    one(Operation::Embeddings, r#""input":{}"#, "input", "wrong_type");
    let many = vec!["\"a\""; 2_049].join(",");
    one(Operation::Embeddings, &format!(r#""input":[{many}]"#), "input", "too_many");
    one(Operation::Responses, r#""messages":[]"#, "input", "required");
    one(Operation::Responses, r#""input":"a","max_output_tokens":0"#, "max_output_tokens", "out_of_range");
    one(Operation::Messages, r#""messages":[]"#, "messages", "empty");
    one(Operation::Messages, r#""messages":[{}],"stream":1"#, "stream", "wrong_type");
    let message = read_as(Operation::Messages, r#""messages":[{}],"max_tokens":9,"n":3"#).unwrap();
    assert_eq!((message.asked_tokens(), message.choices), (Some(9), 1), "`n` isn't a field of messages");
    let most = vec!["1"; 5_000].join(",");
    assert!(
        read_as(Operation::Embeddings, &format!(r#""input":[{most}]"#)).is_ok(),
        "one text of 5,000 tokens"
    );
}

#[test]
fn responses_need_nothing_that_is_stored() {
    let refused = |members: &str| {
        let error = read_as(Operation::Responses, members).unwrap_err();
        assert_eq!(error.code, Code::UnsupportedParameter, "{members}");
        error.param.unwrap()
    };
    assert_eq!(refused(r#""input":"a","previous_response_id":"resp_1""#), "previous_response_id");
    assert_eq!(refused(r#""input":"a","conversation":{"id":"conv_1"}"#), "conversation");
    assert_eq!(refused(r#""input":"a","prompt":{"id":"pmpt_1"}"#), "prompt");
    assert_eq!(refused(r#""input":"a","background":true"#), "background");
    assert_eq!(refused(r#""input":[{"type":"item_reference","id":"msg_1"}]"#), "input");
    assert_eq!(refused(r#""input":[{"role":"user","content":"a"},{"id":"msg_1","type":null}]"#), "input");
    let good = r#""input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]},
        {"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_url":"x"}]},
        {"type":"message","id":"msg_1","role":"assistant","content":[]}],
        "previous_response_id":null,"background":false,"max_output_tokens":5"#;
    let request = read_as(Operation::Responses, good).unwrap();
    assert_eq!((request.contents.items, request.asked_tokens()), (3, Some(5)));
    assert_eq!(request.contents.parts, Parts { images: 1, files: 1, ..Parts::default() });
}

#[test]
fn parts_of_messages_are_counted_in_tool_results_too() {
    let members = r#""messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":""}},
        {"type":"tool_result","content":[{"type":"image","source":{}},{"type":"document","source":{}}]}]}]"#;
    let request = read_as(Operation::Messages, members).unwrap();
    assert_eq!(request.contents.parts, Parts { images: 2, files: 1, ..Parts::default() });
}

#[test]
fn kinds_without_an_operation_are_not_asked() {
    let response = read_as(Operation::Responses, r#""input":"a""#).unwrap();
    assert_eq!(
        response.check_dialect(Dialect::of(UpstreamKind::Tgi)).unwrap_err().code,
        Code::ModelNotServed
    );
    for kind in [UpstreamKind::Vllm, UpstreamKind::Llamacpp, UpstreamKind::Openai] {
        assert!(response.check_dialect(Dialect::of(kind)).is_ok());
    }
    // llama.cpp counts only one of several prompts.
    let several = read_as(Operation::Completions, r#""prompt":["a","b"]"#).unwrap();
    let error = several.check_dialect(Dialect::of(UpstreamKind::Llamacpp)).unwrap_err();
    assert_eq!((error.code, error.param.as_deref()), (Code::UnsupportedParameter, Some("prompt")));
    assert!(several.check_dialect(Dialect::of(UpstreamKind::Vllm)).is_ok());
    let inputs = read_as(Operation::Embeddings, r#""input":["a","b"]"#).unwrap();
    assert!(inputs.check_dialect(Dialect::of(UpstreamKind::Llamacpp)).is_ok());
}

/// The text around an unpaired surrogate is counted.
#[test]
fn unpaired_surrogates_leave_the_rest_of_a_prompt_counted() {
    let text = "many words of a text ".repeat(10);
    for (operation, members) in [
        (
            Operation::Messages,
            r#""messages":[{"role":"user","content":"Hi"}],"max_tokens":9,"system":"TEXT""#,
        ),
        (Operation::Responses, r#""input":"Hi","instructions":"TEXT""#),
        (Operation::ChatCompletions, r#""messages":[{"role":"user","content":"TEXT"}]"#),
        (
            Operation::ChatCompletions,
            r#""messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","description":"TEXT"}}]"#,
        ),
    ] {
        let tokens = |text: &str| {
            let body = format!(r#"{{"model":"m",{}}}"#, members.replace("TEXT", text));
            ModelRequest::read(operation, &Bytes::from(body)).unwrap().estimated_prompt_tokens()
        };
        assert!(tokens(&text) > 20);
        assert_eq!(tokens(&format!("{text}\\ud83d")), tokens(&format!("{text} ")), "{members}");
    }
    let name =
        r#"{"model":"m","messages":[{"role":"user","content":"Hi","a\ud83d":1}],"tools":[{"a\ud83d":1}]}"#;
    assert_eq!(read(name).unwrap_err().code, Code::InvalidJson);
}
