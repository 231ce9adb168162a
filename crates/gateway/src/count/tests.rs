use hyper::body::Bytes;

use proptest::prelude::*;

use super::*;
use crate::answer::chunk::Chunk;

mod parts;

fn usage(prompt: i64, completion: i64, cached: Option<i64>) -> Usage {
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        cached_prompt_tokens: cached,
        parts: ReportedParts::default(),
    }
}

/// Returns usage without parts, which have separate tests.
fn without_parts(usage: Option<Usage>) -> Option<Usage> {
    usage.map(|usage| Usage { parts: ReportedParts::default(), ..usage })
}

/// Returns a counter that has seen these chunks.
fn counter(n: i64, chunks: &[&str]) -> StreamCounter {
    let mut counter = StreamCounter::new(n, 1, 250);
    for chunk in chunks {
        counter.add(&Chunk::read(&Bytes::copy_from_slice(chunk.as_bytes())).unwrap().counts);
    }
    counter
}

/// Returns the prompt, completion and cached tokens, and whether they are estimated, with 1,000 tokens of
/// each kind reserved.
fn settled(n: i64, chunks: &[&str]) -> (i64, i64, Option<i64>, bool) {
    let Settled { prompt_tokens, completion_tokens, cached_prompt_tokens, estimated, .. } =
        counter(n, chunks).settle(Bounds::new(1_000, 1_000));
    (prompt_tokens, completion_tokens, cached_prompt_tokens, estimated)
}

/// Returns a chunk with text of a choice and additional members.
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
        // Numbers with a fraction, and as strings.
        (r#"{"prompt_tokens":512.0,"completion_tokens":55.0}"#, Some(usage(512, 55, None))),
        (r#"{"prompt_tokens":1234.2,"completion_tokens":"3"}"#, Some(usage(1_235, 3, None))),
        (r#"{"prompt_tokens":" 7.5 ","completion_tokens":3e1}"#, Some(usage(8, 30, None))),
        (r#"{"prompt_tokens":"many","completion_tokens":3}"#, None),
        // A total that is larger than its parts.
        (
            r#"{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}"#,
            Some(usage(32, 103, None)),
        ),
        (r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":215}"#, Some(usage(10, 205, None))),
        (
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"prompt_tokens_details":{"cached_tokens":100}}"#,
            Some(usage(110, 5, Some(100))),
        ),
        (r#"{"prompt_tokens":10,"total_tokens":15}"#, Some(usage(10, 5, None))),
        (r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":3}"#, Some(usage(10, 5, None))),
        // DeepSeek, Kimi, and the names of responses.
        (
            r#"{"prompt_tokens":70,"completion_tokens":5,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":6}"#,
            Some(usage(70, 5, Some(64))),
        ),
        (r#"{"prompt_tokens":19,"completion_tokens":21,"cached_tokens":8}"#, Some(usage(19, 21, Some(8)))),
        (r#"{"input_tokens":19,"output_tokens":21}"#, Some(usage(19, 21, None))),
        (r#"{"prompt_tokens":7,"completion_tokens":1000000001}"#, None),
        ("null", None),
        ("[7,3]", None),
    ] {
        assert_eq!(without_parts(Usage::read(text.as_bytes())), expected, "{text}");
    }
}

#[test]
fn usage_of_other_forms_is_read() {
    for (text, expected) in [
        // Both pairs of names, as written by new-api. Zeros don't reset counts, wherever they are.
        (
            r#"{"prompt_tokens":10000,"completion_tokens":100,"input_tokens":0,"output_tokens":0,"total_tokens":10100}"#,
            usage(10_000, 100, None),
        ),
        (
            r#"{"input_tokens":0,"output_tokens":0,"prompt_tokens":10000,"completion_tokens":100,"total_tokens":10100}"#,
            usage(10_000, 100, None),
        ),
        (
            r#"{"prompt_tokens":70,"completion_tokens":5,"prompt_cache_hit_tokens":64,"prompt_tokens_details":{"cached_tokens":0}}"#,
            usage(70, 5, Some(64)),
        ),
        // xAI: the prompt doesn't include cached tokens, and the answer doesn't include reasoning.
        (
            r#"{"prompt_tokens":4142,"completion_tokens":254,"total_tokens":8824,"prompt_tokens_details":{"cached_tokens":4328},"completion_tokens_details":{"reasoning_tokens":100}}"#,
            usage(8_470, 354, Some(4_328)),
        ),
        // Mistral.
        (r#"{"prompt_tokens":19,"completion_tokens":21,"num_cached_tokens":16}"#, usage(19, 21, Some(16))),
        (
            r#"{"prompt_tokens":19,"completion_tokens":21,"prompt_token_details":{"cached_tokens":16}}"#,
            usage(19, 21, Some(16)),
        ),
    ] {
        assert_eq!(without_parts(Usage::read(text.as_bytes())), Some(expected), "{text}");
    }
}

#[test]
fn usage_of_embeddings_is_read() {
    for (text, expected) in [
        (r#"{"prompt_tokens":9,"total_tokens":9}"#, Some(usage(9, 0, None))),
        (r#"{"total_tokens":9}"#, Some(usage(9, 0, None))),
        (
            r#"{"prompt_tokens":9,"input_tokens":0,"output_tokens":0,"total_tokens":9}"#,
            Some(usage(9, 0, None)),
        ),
        (r#"{"input_tokens":9,"prompt_tokens":0,"total_tokens":0}"#, Some(usage(9, 0, None))),
        (r#"{"prompt_tokens":0,"total_tokens":9}"#, Some(usage(9, 0, None))),
        ("{}", None),
    ] {
        assert_eq!(Usage::read_embeddings(text.as_bytes()), expected, "{text}");
    }
}

/// The counts next to Anthropic's iterations don't include iterations that compact the conversation, which
/// are billed, too.
#[test]
fn iterations_of_a_message_are_charged() {
    let total = |text: &str| MessageUsage::read(text.as_bytes()).total();
    let compacted = r#"{"input_tokens":23000,"output_tokens":1000,"cache_read_input_tokens":null,"iterations":[
        {"type":"compaction","input_tokens":180000,"output_tokens":3500,"cache_read_input_tokens":20},
        {"type":"message","input_tokens":23000,"output_tokens":1000}]}"#;
    assert_eq!(total(compacted), Some(usage(203_020, 4_500, Some(20))));
    let one = r#"{"input_tokens":25,"output_tokens":9,"cache_read_input_tokens":5,
        "iterations":[{"type":"message","input_tokens":25,"output_tokens":8,"cache_read_input_tokens":5}]}"#;
    assert_eq!(total(one), Some(usage(30, 9, Some(5))));
    for odd in ["null", "7", "[null,{}]", "{}"] {
        let text = format!(r#"{{"input_tokens":25,"output_tokens":9,"iterations":{odd}}}"#);
        assert_eq!(total(&text), Some(usage(25, 9, None)), "{text}");
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
    // The total also corrects running counts that were wrong, up or down.
    let settled_whole = |chunks: &[&str]| {
        let mut whole = counter(1, chunks);
        whole.mark_done();
        let settled = whole.settle(Bounds::new(1_000, 1_000));
        (settled.prompt_tokens, settled.completion_tokens)
    };
    assert_eq!(settled_whole(&[&text(0, "ab", &running(9, 900)), STOP, total]), (9, 5));
    assert_eq!(settled_whole(&[&text(0, "ab", &running(9, 2)), STOP, total]), (9, 5));
    // When a stream is cut, counts only grow.
    assert_eq!(settled(1, &[&text(0, "ab", &running(9, 900)), total]), (9, 900, Some(8), false));
    // A zero doesn't reset a count. A zero without other counts is ignored, because every prompt has tokens.
    let zero = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    assert_eq!(settled(1, &[&text(0, "ab", ""), STOP, total, zero]), (9, 5, Some(8), false));
    assert_eq!(settled(1, &[zero, &text(0, "ab", ""), STOP, total]), (9, 5, Some(8), false));
    assert_eq!(settled(1, &[&text(0, "ab", ""), STOP, zero]), (250, 1, None, true));
    // `usage` objects of single choices, between the text of other choices: they don't reset each other, and
    // text after them counts.
    let of_choice = |tokens: i64| format!(r#"{{"choices":[]{}}}"#, running(9, tokens));
    assert_eq!(settled(2, &[&of_choice(4), &text(1, "x", ""), &of_choice(2)]), (9, 4, None, false));
    assert_eq!(settled(1, &[&of_choice(4), &text(0, "x", ""), &text(0, "y", "")]), (9, 6, None, true));
}

#[test]
fn usage_inside_a_choice_counts() {
    let last = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":21}}]}"#;
    assert_eq!(settled(1, &[&text(0, "ab", ""), last]), (19, 21, None, false));
    let of = |index: usize, tokens: i64| {
        format!(r#"{{"choices":[{{"index":{index},"finish_reason":"stop"{}}}]}}"#, running(19, tokens))
    };
    assert_eq!(settled(2, &[&of(0, 20), &of(1, 30)]), (19, 50, None, false));
}

/// vLLM's `include_reasoning: false`: nothing arrives while the model reasons, and then the count is far
/// above the text.
#[test]
fn hidden_reasoning_is_charged() {
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}"#;
    let first = text(0, "Yes", &running(9, 373));
    let second = text(0, ".", &running(9, 374));
    assert_eq!(settled(1, &[role, &first]), (9, 373, None, false));
    let mut left = counter(1, &[role]);
    left.mark_left();
    assert!(!left.is_counted(), "what no text shows is counted with the next event");
    left.add(&Chunk::read(&Bytes::from(first.clone())).unwrap().counts);
    assert!(left.is_counted());
    assert_eq!(settled(1, &[role, &first, &second]), (9, 374, None, false));
}

/// Many servers report the cached part of a prompt only at the end.
#[test]
fn cut_before_cached_tokens_are_known_is_an_estimate() {
    let priced = Bounds::new(1_000, 1_000).with_cached_price();
    let first = text(0, "a", &running(9, 1));
    assert!(counter(1, &[&first]).settle(priced).estimated);
    assert!(!counter(1, &[&first]).settle(Bounds::new(1_000, 1_000)).estimated);
    let known = text(0, "a", r#","timings":{"cache_n":20,"prompt_n":5,"predicted_n":3}"#);
    assert!(!counter(1, &[&known]).settle(priced).estimated);
    let mut whole =
        counter(1, &[&first, STOP, r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#]);
    whole.mark_done();
    assert!(!whole.settle(priced).estimated);
}

proptest! {
    /// `usage` objects in any order, repeated, growing or far too large, with or without text: the last one
    /// of a stream that ended cleanly is charged.
    #[test]
    fn last_usage_of_a_good_stream_is_charged(
        before in prop::collection::vec((0_i64..3, 0_i64..5_000, 0_i64..900_000), 0..20),
        truth in (1_i64..5_000, 1_i64..9_000),
        with_finish in any::<bool>(),
    ) {
        let mut chunks = Vec::new();
        for (place, prompt, completion) in before {
            let usage = running(prompt, completion);
            chunks.push(match place {
                0 => text(0, "some text", &usage),
                1 => format!(r#"{{"choices":[]{usage}}}"#),
                _ => format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"x"}}{usage}}}]}}"#),
            });
        }
        let usage = running(truth.0, truth.1);
        if with_finish {
            chunks.push(STOP.replace("]}", &format!("]{usage}}}")));
        } else {
            chunks.push(STOP.to_owned());
            chunks.push(format!(r#"{{"choices":[]{usage}}}"#));
        }
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let mut counter = counter(1, &chunks);
        counter.mark_done();
        let settled = counter.settle(Bounds::new(1_000_000, 1_000_000));
        prop_assert_eq!((settled.prompt_tokens, settled.completion_tokens, settled.estimated), (truth.0, truth.1, false));
    }
}

#[test]
fn running_usage_counts_at_a_cut() {
    let chunks = [text(0, "a", &running(9, 1)), text(0, "bc", &running(9, 4))];
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    assert_eq!(settled(1, &chunks[..1]), (9, 1, None, false));
    assert_eq!(settled(1, &chunks), (9, 4, None, false));
    // The count never goes down.
    assert_eq!(settled(1, &[chunks[1], chunks[0]]), (9, 4, None, false));
    // The chunk with the role has no text; text that follows is estimated.
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}"#;
    assert_eq!(settled(1, &[role]), (9, 0, None, false));
    assert_eq!(settled(1, &[role, &text(0, "a", ""), &text(0, "b", "")]), (9, 2, None, true));
    // Eleven letters are 2.53 tokens.
    assert_eq!(settled(1, &[chunks[1], &text(0, "abcdefghijk", "")]), (9, 7, None, true));
    // A `usage` object with the last finish reason, as some servers send it, covers the whole answer.
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
fn usage_of_one_choice_does_not_count_the_text_of_others() {
    // Three events of the first choice, without a count; one event of the second choice, with its count of 2.
    let uncounted = text(0, "ab", "");
    let counted = text(1, "ab", &running(9, 2));
    let chunks = [&*uncounted, &uncounted, &uncounted, &counted];
    assert_eq!(settled(2, &chunks), (9, 5, None, true));
    assert!(!counter(2, &chunks).is_counted());
    // A `usage` object of all choices counts them.
    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#;
    assert_eq!(settled(2, &[&uncounted, &counted, total]), (9, 7, None, false));
}

/// A server may split a token across events.
#[test]
fn many_events_of_few_tokens_do_not_exceed_a_limit() {
    let bounds = Bounds::new(1_000, 20);
    let running: Vec<_> = (0..300).map(|_| text(0, "a", &running(9, 10))).collect();
    let running: Vec<_> = running.iter().map(String::as_str).collect();
    assert!(!counter(1, &running).exceeds(bounds));
    let without = text(0, "a", "");
    assert!(counter(1, &vec![&*without; 300]).exceeds(bounds));
    // A `usage` object that counts only the prompt doesn't cover the text after it.
    let start = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}"#;
    let chunks: Vec<_> = std::iter::once(start).chain(std::iter::repeat_n(&*without, 300)).collect();
    assert!(counter(1, &chunks).exceeds(bounds));
}

#[test]
fn server_that_ignores_the_number_of_choices_ends_well() {
    let mut whole = counter(2, &[&text(0, "ab", ""), STOP]);
    whole.mark_end_of_body();
    assert!(!whole.is_complete(), "the second choice may be missing");
    whole.mark_done();
    assert!(whole.is_complete());
    let mut unfinished = counter(2, &[&text(0, "ab", ""), STOP, &text(1, "ab", "")]);
    unfinished.mark_done();
    assert!(!unfinished.is_complete());
    let mut none = counter(2, &[]);
    none.mark_done();
    assert!(!none.is_complete());
}

#[test]
fn without_usage_tokens_are_estimated() {
    assert_eq!(settled(1, &[]), (0, 0, None, true));
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#;
    // The estimate of the prompt is a quarter of the 1,000 reserved tokens.
    assert_eq!(settled(1, &[role]), (250, 0, None, true));
    assert_eq!(settled(1, &[role, &text(0, "a", ""), &text(0, "b", ""), STOP]), (250, 2, None, true));
    // Twelve letters are 2.76 tokens.
    assert_eq!(settled(1, &[&text(0, "abcdefghijkl", "")]), (250, 3, None, true));
    let all = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"1234","reasoning_content":"5678","refusal":"90",
        "tool_calls":[{"index":0,"id":"call_123456789","type":"function","function":{"name":"ab","arguments":"{}é"}}],
        "audio":{"id":"x","data":"AAAAAAAAAAAAAAAA","transcript":"12"}}},
        {"index":1,"text":"12345678","logprobs":{"tokens":["abcdefgh"]}}]}"#;
    // 10 digits, "ab", "{}é", 16 capitals, two digits and 8 more:
    // 20 × 0.55 + 2 × 0.23 + 0.52 + 0.38 + 0.65 + 0.24 + 15 × 0.3.
    assert_eq!(settled(2, &[all]), (250, 18, None, true));
    // The text of an error isn't part of an answer, and an error without an answer isn't charged.
    assert_eq!(
        settled(1, &[r#"{"error":{"message":"a long text that nobody generated"}}"#]),
        (0, 0, None, true)
    );
}

#[test]
fn counted_prompt_is_charged_above_the_reservation_and_an_estimate_is_not() {
    let bounds = Bounds {
        counted_prompt_tokens: 100,
        reserved_prompt_tokens: 10,
        completion_tokens: 5,
        priced: PricedParts::default(),
    };
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
    let expected = Settled {
        prompt_tokens: 10,
        completion_tokens: 5,
        cached_prompt_tokens: Some(10),
        parts: Parts::default(),
        service_tier: ServiceTier::Default,
        estimated: false,
    };
    assert_eq!(settled, expected);
    let counter = counter(1, &[&text(0, "abcdefghijkl", "")]);
    assert_eq!(counter.settle(Bounds::new(7, 2)).completion_tokens, 2);
    assert_eq!(counter.settle(Bounds::new(7, 2)).prompt_tokens, 7);
}

#[test]
fn an_answer_is_complete_with_every_end() {
    let finish = |index: usize| {
        format!(r#"{{"choices":[{{"index":{index},"finish_reason":"length","delta":{{}}}}]}}"#)
    };
    let mut counter = counter(2, &[&finish(1), &finish(1), &finish(7)]);
    counter.mark_end_of_body();
    assert_eq!((counter.is_finished(), counter.is_complete()), (false, false));
    counter.mark_done();
    counter.add(&Chunk::read(&Bytes::from(finish(0))).unwrap().counts);
    assert_eq!((counter.is_finished(), counter.is_complete()), (true, true));

    let open = |chunks: &[&str]| super::tests::counter(1, chunks);
    assert!(!open(&[STOP]).is_complete());
    for reason in ["null", "\"\"", "false"] {
        let chunk = STOP.replace("\"stop\"", reason);
        assert!(!open(&[&chunk]).is_finished(), "{reason}");
    }
    // A body that ends cleanly after every answer has its finish reason is complete, with or without
    // `[DONE]`.
    for (chunk, is_end) in [(STOP, true), (text(0, "a", "").as_str(), false)] {
        let mut counter = open(&[chunk]);
        counter.mark_end_of_body();
        assert_eq!(counter.is_complete(), is_end, "{chunk}");
    }
    // All 128 choices are tracked.
    let chunks: Vec<String> = (0..128).map(finish).collect();
    assert!(super::tests::counter(128, &chunks.iter().map(String::as_str).collect::<Vec<_>>()).is_finished());
}
