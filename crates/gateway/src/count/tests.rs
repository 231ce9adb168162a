use hyper::body::Bytes;

use super::*;
use crate::answer::chunk::Chunk;

fn usage(prompt: i64, completion: i64, cached: Option<i64>) -> Usage {
    Usage { prompt_tokens: prompt, completion_tokens: completion, cached_prompt_tokens: cached }
}

/// Returns a counter that has seen these chunks.
fn counter(n: i64, chunks: &[&str]) -> StreamCounter {
    let mut counter = StreamCounter::new(n, 1, 250);
    for chunk in chunks {
        counter.add(&Chunk::read(&Bytes::copy_from_slice(chunk.as_bytes())).unwrap().counts);
    }
    counter
}

/// Returns prompt, completion, cached and whether they are estimated, with 1,000 tokens of each reserved.
fn settled(n: i64, chunks: &[&str]) -> (i64, i64, Option<i64>, bool) {
    let Settled { prompt_tokens, completion_tokens, cached_prompt_tokens, estimated } =
        counter(n, chunks).settle(Bounds::new(1_000, 1_000));
    (prompt_tokens, completion_tokens, cached_prompt_tokens, estimated)
}

/// A chunk with text of a choice, and more members.
fn text(index: usize, text: &str, more: &str) -> String {
    format!(
        r#"{{"choices":[{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":null}}]{more}}}"#
    )
}

fn running(prompt: i64, completion: i64) -> String {
    format!(r#","usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}"#)
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn usage_is_read() {
    for (text, expected) in [
        (r#"{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}"#, Some(usage(7, 3, None))),
        (
            r#"{"completion_tokens":0,"prompt_tokens":0,"prompt_tokens_details":{"audio_tokens":1,"cached_tokens":0}}"#,
            Some(usage(0, 0, Some(0))),
        ),
        (
            r#"{"prompt_tokens":25,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":26},"reasoning_tokens":2}"#,
            Some(usage(25, 4, Some(25))),
        ),
        (
            r#"{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":null}"#,
            Some(usage(7, 3, None)),
        ),
        (r#"{"prompt_tokens":7}"#, None),
        (r#"{"prompt_tokens":-1,"completion_tokens":3}"#, None),
        (r#"{"prompt_tokens":7,"completion_tokens":"3"}"#, None),
        (r#"{"prompt_tokens":7,"completion_tokens":1000000001}"#, None),
        ("null", None),
        ("[7,3]", None),
    ] {
        assert_eq!(Usage::read(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn timings_are_read() {
    for (text, expected) in [
        (r#"{"cache_n":20,"prompt_n":5,"prompt_ms":1.5,"predicted_n":4}"#, Some(usage(25, 4, Some(20)))),
        (r#"{"prompt_n":5,"predicted_n":4}"#, Some(usage(5, 4, None))),
        (r#"{"cache_n":0,"prompt_n":-1,"predicted_n":0}"#, None),
        ("null", None),
    ] {
        assert_eq!(Usage::read_timings(text.as_bytes()), expected, "{text}");
    }
    let timings = Some(usage(25, 4, Some(20)));
    assert_eq!(Usage::merge(Some(usage(24, 5, None)), timings), Some(usage(24, 5, Some(20))));
    assert_eq!(Usage::merge(Some(usage(24, 5, Some(1))), timings), Some(usage(24, 5, Some(1))));
    assert_eq!(Usage::merge(None, timings), timings);
}

#[test]
fn the_usage_at_the_end_counts() {
    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}}"#;
    assert_eq!(settled(1, &[&text(0, "ab", ""), STOP, total]), (9, 5, Some(8), false));
    // It also corrects running counts that were wrong, up or down.
    assert_eq!(settled(1, &[&text(0, "ab", &running(9, 900)), total]), (9, 5, Some(8), false));
    // Zero is zero, though there was text.
    let zero = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    assert_eq!(settled(1, &[&text(0, "ab", ""), STOP, zero]), (0, 0, None, false));
    // llama.cpp's usage of each choice, between the text of others: none takes back another.
    let of_choice = |tokens: i64| format!(r#"{{"choices":[]{}}}"#, running(9, tokens));
    assert_eq!(settled(2, &[&of_choice(4), &text(1, "x", ""), &of_choice(2)]), (9, 4, None, false));
}

#[test]
fn running_usage_counts_at_a_cut() {
    let chunks = [text(0, "a", &running(9, 1)), text(0, "bc", &running(9, 4))];
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    assert_eq!(settled(1, &chunks[..1]), (9, 1, None, false));
    assert_eq!(settled(1, &chunks), (9, 4, None, false));
    // It never goes down.
    assert_eq!(settled(1, &[chunks[1], chunks[0]]), (9, 4, None, false));
    // The chunk with the role has none; text that follows is estimated.
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}"#;
    assert_eq!(settled(1, &[role]), (9, 0, None, false));
    assert_eq!(settled(1, &[role, &text(0, "a", ""), &text(0, "b", "")]), (9, 2, None, true));
    assert_eq!(settled(1, &[chunks[1], &text(0, "12345678901", "")]), (9, 6, None, true));
    // A usage with the last finish reason, as some servers send it, is the whole.
    let last = STOP.replace("]}", &format!("]{}}}", running(9, 700)));
    assert_eq!(settled(1, &[&text(0, "a", ""), &last]), (9, 700, None, false));
    // Timings of llama.cpp.
    let timings = text(0, "a", r#","timings":{"cache_n":20,"prompt_n":5,"predicted_n":3}"#);
    assert_eq!(settled(1, &[&timings]), (25, 3, Some(20), false));
}

#[test]
fn running_usage_of_several_choices_is_added_up() {
    let chunks = [
        text(0, "a", &running(9, 1)),
        text(1, "b", &running(9, 2)),
        text(0, "c", &running(9, 3)),
        text(2, "d", &running(9, 1)),
    ];
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    assert_eq!(settled(3, &chunks), (9, 6, None, false));
}

#[test]
fn running_usage_that_cannot_be_right_is_an_estimate() {
    // 300 events of 2 bytes: at most 300 × 2 + 300 × 16 + 256 = 5,656 tokens.
    let run = |last: i64| {
        let chunk = text(0, "ab", "");
        let mut chunks = vec![chunk.as_str(); 299];
        let last = text(0, "ab", &running(9, last));
        chunks.push(&last);
        let settled = counter(1, &chunks).settle(Bounds::new(10_000, 10_000));
        (settled.prompt_tokens, settled.completion_tokens, settled.estimated)
    };
    assert_eq!(run(5_656), (9, 5_656, false));
    assert_eq!(run(5_657), (9, 300, true));
}

#[test]
fn without_usage_tokens_are_estimated() {
    assert_eq!(settled(1, &[]), (0, 0, None, true));
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#;
    // A quarter of the 1,000 tokens that were reserved for the prompt.
    assert_eq!(settled(1, &[role]), (250, 0, None, true));
    assert_eq!(settled(1, &[role, &text(0, "a", ""), &text(0, "b", ""), STOP]), (250, 2, None, true));
    assert_eq!(settled(1, &[&text(0, "123456789012", "")]), (250, 3, None, true));
    let all = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"1234","reasoning_content":"5678","refusal":"90",
        "tool_calls":[{"index":0,"id":"call_123456789","type":"function","function":{"name":"ab","arguments":"{}é"}}],
        "audio":{"id":"x","data":"AAAAAAAAAAAAAAAA","transcript":"12"}}},
        {"index":1,"text":"12345678","logprobs":{"tokens":["abcdefgh"]}}]}"#;
    // 4 + 4 + 2 + 2 + 4 + 2 bytes and 8 more: 26 / 4.
    assert_eq!(settled(2, &[all]), (250, 6, None, true));
    // The text of an error is none, and by itself no answer.
    assert_eq!(
        settled(1, &[r#"{"error":{"message":"a long text that nobody generated"}}"#]),
        (0, 0, None, true)
    );
}

#[test]
fn counted_prompt_is_charged_above_the_reservation_and_an_estimate_is_not() {
    let bounds = Bounds { counted_prompt_tokens: 100, reserved_prompt_tokens: 10, completion_tokens: 5 };
    let total = |prompt: i64| {
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":9}}}}"#)
    };
    for (counted, charged) in [(10, 10), (90, 90), (101, 100)] {
        let settled = counter(1, &[&total(counted)]).settle(bounds);
        assert_eq!((settled.prompt_tokens, settled.completion_tokens), (charged, 5));
        let settled = counter(1, &[&text(0, "a", &running(counted, 1))]).settle(bounds);
        assert_eq!((settled.prompt_tokens, settled.estimated), (charged, false));
    }
    let settled = counter(1, &[&text(0, "a", "")]).settle(bounds);
    assert_eq!((settled.prompt_tokens, settled.estimated), (10, true));
}

#[test]
fn stream_is_counted_once_all_of_its_text_and_every_prompt_is() {
    assert!(!counter(1, &[]).is_counted());
    let (first, second) = (text(0, "a", &running(9, 1)), text(0, "b", ""));
    assert!(counter(1, &[&first]).is_counted());
    assert!(!counter(1, &[&first, &second]).is_counted());
    assert!(!counter(1, &[&text(0, "a", &running(9, 100_000))]).is_counted(), "a count that can't be right");
    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
    assert!(counter(1, &[&second, total]).is_counted());
    let mut two = StreamCounter::new(2, 2, 0);
    for (chunk, is_counted) in [(&first, false), (&text(1, "b", &running(3, 1)), true)] {
        two.add(&Chunk::read(&Bytes::copy_from_slice(chunk.as_bytes())).unwrap().counts);
        assert_eq!(two.is_counted(), is_counted);
    }
}

#[test]
fn prompt_counts_once_the_client_has_left() {
    let mut counter = counter(1, &[]);
    counter.mark_left();
    assert_eq!(counter.settle(Bounds::new(1_000, 1_000)).prompt_tokens, 250);
}

#[test]
fn nothing_exceeds_what_was_reserved() {
    let total = r#"{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":80}}}"#;
    let settled = counter(1, &[total]).settle(Bounds::new(10, 5));
    let expected =
        Settled { prompt_tokens: 10, completion_tokens: 5, cached_prompt_tokens: Some(10), estimated: false };
    assert_eq!(settled, expected);
    let counter = counter(1, &[&text(0, "123456789012", "")]);
    assert_eq!(counter.settle(Bounds::new(7, 2)).completion_tokens, 2);
    assert_eq!(counter.settle(Bounds::new(7, 2)).prompt_tokens, 7);
}

#[test]
fn an_answer_is_complete_with_every_end() {
    let finish = |index: usize| {
        format!(r#"{{"choices":[{{"index":{index},"finish_reason":"length","delta":{{}}}}]}}"#)
    };
    let mut counter = counter(2, &[&finish(1), &finish(1), &finish(7)]);
    counter.mark_done();
    assert_eq!((counter.is_finished(), counter.is_complete()), (false, false));
    counter.add(&Chunk::read(&Bytes::from(finish(0))).unwrap().counts);
    assert_eq!((counter.is_finished(), counter.is_complete()), (true, true));

    let open = |chunks: &[&str]| super::tests::counter(1, chunks);
    assert!(!open(&[STOP]).is_complete());
    for reason in ["null", "\"\"", "false"] {
        let chunk = STOP.replace("\"stop\"", reason);
        assert!(!open(&[&chunk]).is_finished(), "{reason}");
    }
    for (kind, is_end) in
        [(UpstreamKind::Tgi, true), (UpstreamKind::Vllm, false), (UpstreamKind::Llamacpp, false)]
    {
        let mut counter = open(&[STOP]);
        counter.mark_end_of_body(kind);
        assert_eq!(counter.is_complete(), is_end, "{kind:?}");
        let mut counter = open(&[&text(0, "a", "")]);
        counter.mark_end_of_body(kind);
        assert!(!counter.is_complete(), "{kind:?}");
    }
    // All 128 choices have a place.
    let chunks: Vec<String> = (0..128).map(finish).collect();
    assert!(super::tests::counter(128, &chunks.iter().map(String::as_str).collect::<Vec<_>>()).is_finished());
}
