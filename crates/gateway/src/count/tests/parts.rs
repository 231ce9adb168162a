//! The parts in `usage` objects, and the service tiers of answers.

use Component::{
    AudioCompletion, AudioPrompt, CacheWrite1h, CacheWrite5m, ImagePrompt, Reasoning, Search, Second,
};

use super::*;

fn said(parts: &[(Component, i64)]) -> ReportedParts {
    parts.iter().fold(ReportedParts::default(), |all, (part, quantity)| all.with(*part, Some(*quantity)))
}

fn known(parts: &[(Component, i64)]) -> Parts {
    parts.iter().fold(Parts::default(), |all, (part, quantity)| all.with(*part, *quantity))
}

#[test]
fn parts_of_chats_and_responses_are_read() {
    type Listed = &'static [(Component, i64)];
    let cases: [(&str, Listed); 14] = [
        ("", &[]),
        (r#","prompt_tokens_details":null,"completion_tokens_details":null"#, &[]),
        // OpenAI.
        (
            r#","prompt_tokens_details":{"cached_tokens":1,"audio_tokens":2,"cache_write_tokens":3},"completion_tokens_details":{"reasoning_tokens":4,"audio_tokens":5,"accepted_prediction_tokens":6}"#,
            &[(AudioPrompt, 2), (CacheWrite5m, 3), (Reasoning, 4), (AudioCompletion, 5)],
        ),
        // xAI: sources that were read don't count as searches.
        (
            r#","prompt_tokens_details":{"text_tokens":9,"audio_tokens":0,"image_tokens":7,"cached_tokens":1},"num_sources_used":12,"server_side_tool_usage_details":{"web_search_calls":2,"x_search_calls":3}"#,
            &[(AudioPrompt, 0), (ImagePrompt, 7), (Search, 2)],
        ),
        // OpenRouter, with a number in a string and a number with a fraction.
        (
            r#","prompt_tokens_details":{"cache_write_tokens":"11"},"server_tool_use":{"web_search_requests":1.2}"#,
            &[(CacheWrite5m, 11), (Search, 2)],
        ),
        // vLLM, and SGLang.
        (
            r#","prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":128,"multimodal_tokens":{"image":64,"audio":5,"video":3}},"reasoning_tokens":4"#,
            &[(CacheWrite5m, 128), (ImagePrompt, 64), (AudioPrompt, 5), (Reasoning, 4)],
        ),
        // Perplexity.
        (r#","num_search_queries":3,"citation_tokens":90"#, &[(Search, 3)]),
        // Mistral: a whole number or a fraction, and an empty object for a prompt without audio.
        (r#","prompt_audio_seconds":7.2"#, &[(Second, 8)]),
        (r#","prompt_audio_seconds":{},"prompt_token_details":{"cached_tokens":1}"#, &[]),
        // Alibaba.
        (r#","prompt_tokens_details":{"cache_creation_input_tokens":40}"#, &[(CacheWrite5m, 40)]),
        // Details that appear twice: zeros don't reset counts.
        (
            r#","prompt_tokens_details":{"image_tokens":5},"input_tokens_details":{"image_tokens":0}"#,
            &[(ImagePrompt, 5)],
        ),
        // Values that aren't counts are ignored.
        (r#","prompt_tokens_details":{"image_tokens":-5,"audio_tokens":"many"}"#, &[]),
        (r#","prompt_tokens_details":{"multimodal_tokens":null},"server_tool_use":null"#, &[]),
        (r#","prompt_tokens_details":[1],"completion_tokens_details":7"#, &[]),
    ];
    for (more, parts) in cases {
        let text = format!(r#"{{"prompt_tokens":500,"completion_tokens":100{more}}}"#);
        assert_eq!(Usage::read(text.as_bytes()).unwrap().parts, said(parts), "{text}");
        let half = format!(r#"{{"prompt_tokens":500{more}}}"#);
        assert_eq!(Usage::read_partial(half.as_bytes()).parts, said(parts), "{half}");
        assert_eq!(Usage::read_embeddings(half.as_bytes()).unwrap().parts, said(parts), "{half}");
    }
}

/// Reasoning that is counted separately from the answer is still a part of it.
#[test]
fn reasoning_in_the_total_is_a_part_of_the_answer() {
    let text = r#"{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}"#;
    let usage = Usage::read(text.as_bytes()).unwrap();
    assert_eq!((usage.completion_tokens, usage.parts), (103, said(&[(Reasoning, 94)])));
}

#[test]
fn what_a_message_writes_to_a_cache_is_counted_once() {
    let usage = |members: &str| {
        let text =
            format!(r#"{{"input_tokens":3,"cache_read_input_tokens":40,"output_tokens":19{members}}}"#);
        let usage = MessageUsage::read(text.as_bytes()).total().unwrap();
        (usage.prompt_tokens, usage.parts)
    };
    let both = r#","cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":23}"#;
    let written = |minutes_5, hour| said(&[(CacheWrite5m, minutes_5), (CacheWrite1h, hour)]);
    let cases = [
        ("", (43, ReportedParts::default())),
        (r#","cache_creation_input_tokens":123"#, (166, written(123, 0))),
        (r#","cache_creation_input_tokens":123,"cache_creation":null"#, (166, written(123, 0))),
        (&format!(r#","cache_creation_input_tokens":123{both}"#), (166, written(100, 23))),
        (&format!(r#"{both},"cache_creation_input_tokens":123"#), (166, written(100, 23))),
        // Without the sum, with a larger sum, and with a smaller sum.
        (both, (166, written(100, 23))),
        (&format!(r#"{both},"cache_creation_input_tokens":130"#), (173, written(107, 23))),
        (&format!(r#"{both},"cache_creation_input_tokens":20"#), (63, written(0, 20))),
    ];
    for (members, expected) in cases {
        assert_eq!(usage(members), expected, "{members}");
    }
}

#[test]
fn later_usages_of_a_message_keep_what_only_the_first_says() {
    let read = |text: &str| MessageUsage::read(text.as_bytes());
    let start = read(
        r#"{"input_tokens":3,"cache_creation_input_tokens":50,"cache_read_input_tokens":400,
        "cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30},"output_tokens":2,
        "service_tier":"priority"}"#,
    );
    let end = read(
        r#"{"input_tokens":3,"cache_creation_input_tokens":50,"cache_read_input_tokens":400,"output_tokens":15,
        "server_tool_use":{"web_search_requests":2},"output_tokens_details":{"thinking_tokens":9}}"#,
    );
    let whole = start.then(end);
    let parts = said(&[(CacheWrite5m, 20), (CacheWrite1h, 30), (Reasoning, 9), (Search, 2)]);
    assert_eq!(whole.total().unwrap().parts, parts);
    assert_eq!(whole.service_tier(), Some(ServiceTier::Priority));
    // Another `usage` object doesn't reset any count, and the last tier counts.
    let more =
        read(r#"{"output_tokens":16,"server_tool_use":{"web_search_requests":0},"service_tier":"standard"}"#);
    assert_eq!(whole.then(more).total().unwrap().parts, parts);
    assert_eq!(whole.then(more).service_tier(), Some(ServiceTier::Default));
    let iterations = read(
        r#"{"input_tokens":1,"output_tokens":1,"iterations":[
        {"input_tokens":10,"output_tokens":1,"cache_creation_input_tokens":7,"cache_creation":{"ephemeral_1h_input_tokens":7}},
        {"input_tokens":20,"output_tokens":2,"cache_creation_input_tokens":5}]}"#,
    );
    let summed = iterations.total().unwrap();
    assert_eq!((summed.prompt_tokens, summed.parts), (42, said(&[(CacheWrite5m, 5), (CacheWrite1h, 7)])));
}

#[test]
fn parts_of_a_stream_are_those_of_its_last_usage() {
    let usage = |completion: i64, reasoning: i64| {
        format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":{completion},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}}}"#
        )
    };
    let mut stream = counter(1, &[&usage(5, 4), &usage(20, 18), &usage(19, 0), &usage(19, 17), STOP]);
    let settled = |stream: &StreamCounter| stream.settle(Bounds::new(1_000, 1_000));
    // Until the end, counts only grow.
    assert_eq!((settled(&stream).completion_tokens, settled(&stream).parts), (20, known(&[(Reasoning, 18)])));
    stream.mark_done();
    assert_eq!((settled(&stream).completion_tokens, settled(&stream).parts), (19, known(&[(Reasoning, 17)])));
}

#[test]
fn parts_of_several_choices_are_added_up() {
    let choice = |index: usize, image: i64, reasoning: i64| {
        let usage = format!(
            r#","usage":{{"prompt_tokens":9,"completion_tokens":20,"prompt_tokens_details":{{"image_tokens":{image}}},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#
        );
        text(index, "a", &usage)
    };
    // Both choices share the prompt.
    let stream = counter(2, &[&choice(0, 5, 3), &choice(1, 5, 4), &choice(0, 5, 6)]);
    let settled = stream.settle(Bounds::new(1_000, 1_000));
    assert_eq!(settled.parts, known(&[(ImagePrompt, 5), (Reasoning, 10)]));
    let end = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":40,"completion_tokens_details":{"reasoning_tokens":11}}}"#;
    let stream = counter(2, &[&choice(0, 5, 3), &choice(1, 5, 4), end]);
    let settled = stream.settle(Bounds::new(1_000, 1_000));
    assert_eq!(settled.parts, known(&[(ImagePrompt, 5), (Reasoning, 11)]));
}

#[test]
fn half_a_usage_has_its_parts() {
    let half = r#"{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"image_tokens":5}}}"#;
    let settled = counter(1, &[&text(0, "ab", ""), half]).settle(Bounds::new(1_000, 1_000));
    assert_eq!(
        (settled.prompt_tokens, settled.parts, settled.estimated),
        (9, known(&[(ImagePrompt, 5)]), true)
    );
}

#[test]
fn last_tier_of_a_stream_counts() {
    let named = |tier: &str| text(0, "a", &format!(r#","service_tier":{tier}"#));
    let tier = |chunks: &[&str]| counter(1, chunks).settle(Bounds::new(1_000, 1_000)).service_tier;
    let (auto, flex, priority) = (named(r#""auto""#), named(r#""flex""#), named(r#""priority""#));
    let (null, number, unknown) = (named("null"), named("7"), named(r#""scale""#));
    assert_eq!(tier(&[&text(0, "a", "")]), ServiceTier::Default);
    assert_eq!(tier(&[&auto, &flex]), ServiceTier::Flex);
    assert_eq!(tier(&[&flex, &null, &number, &text(0, "a", "")]), ServiceTier::Flex);
    assert_eq!(tier(&[&flex, &priority]), ServiceTier::Priority);
    assert_eq!(tier(&[&flex, &unknown]), ServiceTier::Default);
    // The tier is also read from a chunk with a `usage` object.
    let counted = text(0, "a", &(running(9, 1) + r#","service_tier":"batch""#));
    assert_eq!(tier(&[&counted]), ServiceTier::Batch);
}

/// A model may have prices for parts that a cut stream hasn't reported yet.
#[test]
fn cut_before_priced_parts_are_known_is_an_estimate() {
    let priced = |part: Component| {
        let mut bounds = Bounds::new(1_000, 1_000);
        bounds.priced.parts.set(part, true);
        bounds
    };
    let first = text(
        0,
        "a",
        r#","usage":{"prompt_tokens":9,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":0}}"#,
    );
    assert!(counter(1, &[&first]).settle(priced(CacheWrite5m)).estimated);
    assert!(!counter(1, &[&first]).settle(priced(Reasoning)).estimated);
    let mut whole = counter(1, &[&first, STOP]);
    whole.mark_done();
    assert!(!whole.settle(priced(CacheWrite5m)).estimated);
}

#[test]
fn priced_parts_are_those_that_cost_something_else() {
    let pico = |units: i128| Some(kernel::money::Pico::from_units(units));
    let parts = catalog::PartPrices::default()
        .with(CacheWrite5m, pico(125))
        .with(ImagePrompt, pico(100))
        .with(Reasoning, pico(300))
        .with(AudioCompletion, pico(0))
        .with(Search, pico(5));
    let rates = catalog::ComponentPrices {
        prompt: kernel::money::Pico::from_units(100),
        cached_prompt: pico(100),
        completion: kernel::money::Pico::from_units(300),
        parts,
    };
    let priced = PricedParts::of(&[Price::new(kernel::clock::Time::from_unix_ms(0), rates)]);
    let expected = PerPart::default().with(CacheWrite5m, true).with(AudioCompletion, true);
    assert_eq!(priced, PricedParts { cached_prompt: false, parts: expected });
}
