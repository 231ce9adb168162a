use super::*;

/// A text, and its number of tokens in four tokenizers (`tests/tokens/record.mjs`).
#[derive(serde::Deserialize)]
struct Sample {
    text: String,
    o200k: i64,
    cl100k: i64,
    llama3: i64,
    qwen25: i64,
}

#[test]
fn estimates_are_near_what_tokenizers_count() {
    const SAMPLES: &str = include_str!("../../../../../tests/tokens/samples.json");
    let samples: Vec<Sample> = serde_json::from_str(SAMPLES).unwrap();
    assert_eq!(samples.len(), 200);
    for Sample { text, o200k, cl100k, llama3, qwen25 } in samples {
        let estimate = TextTokens::of(&text).count();
        for (name, counted) in [("o200k", o200k), ("cl100k", cl100k), ("llama3", llama3), ("qwen25", qwen25)]
        {
            let is_near = 10 * estimate >= 3 * counted && estimate <= 3 * counted;
            assert!(is_near, "{estimate}, but {name} counts {counted}: {text:?}");
        }
    }
}

#[test]
fn pieces_add_up_to_about_the_whole() {
    let text = "The quick brown fox jumps over the lazy dog, 17 times. ".repeat(20);
    let whole = TextTokens::of(&text).count();
    let mut sum = TextTokens::default();
    for word in text.split_inclusive(' ') {
        sum += TextTokens::of(word);
    }
    assert!((whole - sum.count()).abs() * 20 <= whole, "{whole} and {sum:?}");
}

#[test]
fn only_no_text_is_nothing() {
    assert!(TextTokens::of("").is_empty());
    assert_eq!(TextTokens::of("").count(), 0);
    for text in [" ", "a", "\n", "é", "😀", "漢"] {
        assert!(!TextTokens::of(text).is_empty(), "{text:?}");
        assert!((1..=2).contains(&TextTokens::of(text).count()), "{text:?}");
    }
}
