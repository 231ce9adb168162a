use serde_json::json;

use super::*;

fn ask(request: &Value) -> Vec<String> {
    let mut answer = answer(
        Operation::ChatCompletions,
        request.to_string().as_bytes(),
        None,
        Time::from_unix_ms(1_773_050_400_999),
    )
    .unwrap();
    std::iter::from_fn(|| answer.next_chunk()).map(|chunk| String::from_utf8(chunk.into()).unwrap()).collect()
}

#[test]
fn words_of_the_prompt_are_its_tokens() {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": " one  two\nthree"}, {"type": "image_url"}]},
        {"role": "user"},
    ]);
    let chunks = ask(&json!({"model": "svc-1", "messages": messages, "max_tokens": 4, "n": 2}));
    let answer: Value = serde_json::from_str(&chunks[0]).unwrap();
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13});
    assert_eq!((chunks.len(), &answer["usage"]), (1, &usage));
    let choice = &answer["choices"][1];
    assert_eq!(choice["message"]["content"], "This is the demo");
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(1), &json!("length")));
    assert_eq!((&answer["model"], &answer["created"]), (&json!("svc-1"), &json!(1_773_050_400)));
}

#[test]
fn stream_holds_the_same_text_and_counts() {
    let request = json!({"model": "svc-1", "messages": [{"content": "hi"}], "stream": true});
    let chunks = ask(&request);
    assert_eq!(chunks.last().unwrap(), "data: [DONE]\n\n");
    let read = |chunk: &String| serde_json::from_str::<Value>(chunk.strip_prefix("data: ").unwrap()).unwrap();
    let events: Vec<_> = chunks[..chunks.len() - 1].iter().map(read).collect();
    let text: String =
        events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect();
    assert_eq!(text, TEXT);
    let words = TEXT.split(' ').count();
    let usage = json!({"prompt_tokens": 1, "completion_tokens": words, "total_tokens": words + 1});
    assert_eq!(events.last().unwrap()["usage"], usage);
    assert_eq!(events.last().unwrap()["choices"], json!([]));
    assert_eq!(events[events.len() - 2].pointer("/choices/0/finish_reason").unwrap(), "stop");
    assert_eq!(events[5]["usage"]["completion_tokens"], 5);
}

#[test]
fn body_that_cannot_be_read_has_no_answer() {
    assert!(answer(Operation::ChatCompletions, b"{\"messages\": 1}", None, Time::from_unix_ms(0)).is_none());
}

/// Returns the only body of an answer.
fn whole(operation: Operation, request: &Value) -> Value {
    let mut answer =
        answer(operation, request.to_string().as_bytes(), None, Time::from_unix_ms(1_000)).unwrap();
    let body = answer.next_chunk().unwrap();
    assert!(answer.next_chunk().is_none());
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn every_operation_has_an_answer_with_its_counts() {
    let completion = whole(
        Operation::Completions,
        &json!({"model": "m", "prompt": ["one two", "three"], "n": 2, "max_tokens": 3}),
    );
    assert_eq!(completion["choices"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&completion["choices"][3]["text"], &completion["choices"][3]["index"]),
        (&json!("This is the"), &json!(3))
    );
    assert_eq!(completion["usage"], json!({"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}));

    let response = whole(
        Operation::Responses,
        &json!({"model": "m", "input": [{"role": "user", "content": "one two"}], "max_output_tokens": 2}),
    );
    assert_eq!(response.pointer("/output/0/content/0/text").unwrap(), "This is");
    assert_eq!((&response["status"], &response["usage"]["input_tokens"]), (&json!("incomplete"), &json!(2)));
    assert_eq!(response["usage"]["output_tokens"], 2);

    let message = whole(
        Operation::Messages,
        &json!({"model": "m", "messages": [{"role": "user", "content": "one"}], "max_tokens": 1}),
    );
    assert_eq!(
        (&message["content"][0]["text"], &message["stop_reason"]),
        (&json!("This"), &json!("max_tokens"))
    );
    assert_eq!(message["usage"], json!({"input_tokens": 1, "output_tokens": 1}));
}

#[test]
fn equal_texts_have_equal_vectors() {
    let ask = |more: Value| {
        let mut request = json!({"model": "m", "input": ["aa", "b", "aa"]});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        whole(Operation::Embeddings, &request)
    };
    let plain = ask(json!({}));
    let vector = |at: usize| &plain["data"][at]["embedding"];
    assert_eq!((vector(0), plain["data"][2]["index"].as_u64()), (vector(2), Some(2)));
    assert_ne!(vector(0), vector(1));
    assert_eq!(vector(0).as_array().unwrap().len(), 8);
    assert_eq!(plain["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    // 3 numbers of 4 bytes are 16 characters.
    let short = ask(json!({"dimensions": 3, "encoding_format": "base64"}));
    assert_eq!(short["data"][0]["embedding"].as_str().unwrap().len(), 16);
}

#[test]
fn events_say_the_same_as_whole_answers() {
    for (operation, request) in [
        (Operation::Responses, json!({"model": "m", "input": "one", "stream": true})),
        (Operation::Messages, json!({"model": "m", "messages": [{"content": "one"}], "stream": true})),
    ] {
        let mut answer =
            answer(operation, request.to_string().as_bytes(), None, Time::from_unix_ms(0)).unwrap();
        let mut text = String::new();
        let mut events = 0;
        while let Some(chunk) = answer.next_chunk() {
            let event = std::str::from_utf8(&chunk).unwrap();
            let (name, data) = event.trim_end().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
            let delta = data["delta"].as_str().or_else(|| data["delta"]["text"].as_str());
            text += delta.unwrap_or_default();
            events += 1;
        }
        assert_eq!(text, TEXT, "{operation:?}");
        assert!(events > TEXT.split(' ').count());
    }
}
