use super::*;

fn read(body: &str) -> UpstreamError {
    UpstreamError::read::<&str>(&Bytes::copy_from_slice(body.as_bytes()), &[])
}

/// Errors of servers about a prompt that is too long, in their original form with made-up numbers.
#[test]
fn prompts_that_are_too_long_are_known_in_every_spelling() {
    for body in [
        // OpenAI: chats, and responses in a stream
        r#"{"error":{"message":"Too long.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        r#"{"type":"response.failed","response":{"status":"failed"},"error":{"code":"context_length_exceeded","message":"x"}}"#,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust it.","type":"invalid_request_error"}}"#,
        // vLLM, older and 0.32
        r#"{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.","type":"BadRequestError","code":400}"#,
        r#"{"error":{"message":"You passed 1025 input tokens and requested 0 output tokens. However, the model's context length is only 1024 tokens, resulting in a maximum input length of 1024 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#,
        // SGLang
        r#"{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","code":400}"#,
        // llama.cpp
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}"#,
        // TGI
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`","error_type":"validation"}"#,
        // Anthropic, Gemini, xAI, Groq
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
        r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
        r#"{"error":"This model's maximum prompt length is 131072 but the request contains 140000 tokens.","code":"invalid"}"#,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages"}}"#,
    ] {
        let error = read(body);
        assert!(error.is_context_length(), "{body}");
        assert_eq!(error.clone().in_stream().code, Code::ContextLengthExceeded, "{body}");
        assert_eq!(error.of_client(Code::InvalidRequest).code, Code::ContextLengthExceeded, "{body}");
    }
    for body in [
        r#"{"error":{"message":"max_tokens=4096 cannot be greater than max_model_len=1024","param":"max_tokens","code":400}}"#,
        r#"{"error":{"message":"The context of this picture is unclear.","code":"invalid_image"}}"#,
        "{}",
        "<html>",
    ] {
        assert!(!read(body).is_context_length(), "{body}");
    }
}

#[test]
fn errors_name_their_status() {
    for (body, status) in [
        (r#"{"error":{"message":"no","type":"BadRequestError","code":400}}"#, Some(400)),
        (r#"{"error":{"message":"no","type":"Bad Request"}}"#, Some(400)),
        (r#"{"object":"error","message":"no","code":404}"#, Some(404)),
        (r#"{"error":{"message":"no","code":"422"}}"#, Some(422)),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#, Some(529)),
        (r#"{"type":"error","error":{"type":"rate_limit_error","message":"busy"}}"#, Some(429)),
        (r#"{"error":{"message":"died","type":"InternalServerError","code":500}}"#, Some(500)),
        (r#"{"error":{"message":"no","status":503}}"#, Some(503)),
        (r#"{"error":{"message":"no","code":7}}"#, None),
        (r#"{"error":"no"}"#, None),
    ] {
        assert_eq!(read(body).status(), status, "{body}");
    }
}

#[test]
fn client_gets_the_member_that_is_wrong_and_nothing_else() {
    let error = read(r#"{"error":{"message":"too many","param":"top_logprobs","code":400}}"#);
    let error = error.of_client(Code::InvalidRequest);
    assert_eq!((error.code, error.param.as_deref()), (Code::InvalidRequest, Some("top_logprobs")));
    assert_eq!(error.message.as_deref(), Some("too many"));
    for param in ["a b", "", "http://10.0.0.5/", "ä", &"x".repeat(65)] {
        let body = serde_json::json!({"error": {"message": "no", "param": param}}).to_string();
        assert_eq!(read(&body).of_client(Code::InvalidRequest).param, None, "{param}");
    }
    let path = read(r#"{"error":{"message":"no","param":"messages[0].content"}}"#);
    assert_eq!(path.of_client(Code::InvalidRequest).param.as_deref(), Some("messages[0].content"));
    // Problems of the upstream aren't reported in detail.
    let died =
        read(r#"{"error":{"message":"engine died","type":"InternalServerError","code":500}}"#).in_stream();
    assert_eq!((died.code, died.message), (Code::UpstreamCut, None));
}

#[test]
fn errors_of_the_operators_account_are_known() {
    for body in [
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
        r#"{"error":"Incorrect API key provided: xa***. You can obtain an API key from the console."}"#,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        r#"{"error":{"message":"x","type":"invalid_request_error","code":"billing_hard_limit_reached"}}"#,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
        r#"{"error":{"message":"x","code":402}}"#,
    ] {
        let error = read(body);
        assert!(error.is_of_account(), "{body}");
        assert_eq!(error.in_stream().code, Code::UpstreamCut, "{body}");
    }
    for body in [
        r#"{"error":{"message":"max_tokens is too large: 9000","type":"invalid_request_error","code":400}}"#,
        r#"{"error":{"message":"The field `api_key` is unknown.","code":400}}"#,
        "{}",
    ] {
        assert!(!read(body).is_of_account(), "{body}");
    }
}
