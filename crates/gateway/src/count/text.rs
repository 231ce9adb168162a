//! Tokens of text that no upstream has counted, estimated from its characters.
//!
//! Tokenizers differ: the same Georgian text has 1,200 tokens in one tokenizer and 7,400 in another. The
//! weights below are between those of four common tokenizers (o200k, cl100k, Llama 3, Qwen 2.5), so that an
//! estimate is at most three times too large or too small for each of them. `tests/tokens` contains their
//! counts.

use std::ops::{Add, AddAssign, SubAssign};

/// An estimated number of tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct TextTokens {
    thousandths: i64,
}

impl TextTokens {
    /// Returns this many tokens.
    pub const fn new(tokens: i64) -> Self {
        Self { thousandths: tokens.saturating_mul(1_000) }
    }

    /// Estimates the tokens of the text.
    pub fn of(text: &str) -> Self {
        let mut thousandths: i64 = 0;
        let mut before = Class::Space;
        let mut word_length = 0_u32;
        for character in text.chars() {
            let class = Class::of(character);
            word_length = if class.is_of_a_word() && before.is_of_a_word() { word_length + 1 } else { 0 };
            thousandths += class.weight(before, word_length);
            before = class;
        }
        // Text that isn't empty is at least a part of a token.
        Self { thousandths: if text.is_empty() { 0 } else { thousandths.max(1) } }
    }

    /// Returns whether the text is empty.
    pub const fn is_empty(self) -> bool {
        self.thousandths == 0
    }

    /// Returns the number of tokens, rounded up.
    pub const fn count(self) -> i64 {
        self.thousandths.saturating_add(999) / 1_000
    }
}

impl Add for TextTokens {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { thousandths: self.thousandths.saturating_add(more.thousandths) }
    }
}

impl AddAssign for TextTokens {
    fn add_assign(&mut self, more: Self) {
        *self = *self + more;
    }
}

impl SubAssign for TextTokens {
    fn sub_assign(&mut self, less: Self) {
        self.thousandths -= less.thousandths;
    }
}

/// Classes of characters that tokenizers turn into about the same number of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// White space within a line.
    Space,
    LineEnd,
    Lower,
    Upper,
    Digit,
    /// An ASCII symbol or control character.
    Sign,
    /// Another letter or symbol, with its thousandths of a token.
    Other(u16),
}

impl Class {
    const fn of(character: char) -> Self {
        match character {
            'a'..='z' => Self::Lower,
            ' ' | '\t' => Self::Space,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '\n' | '\r' => Self::LineEnd,
            '\0'..='\u{7f}' => Self::Sign,
            // Latin with diacritics, which Vietnamese uses most; Cyrillic; Arabic.
            '\u{80}'..='\u{36f}' | '\u{1e00}'..='\u{1eff}' => Self::Other(650),
            '\u{400}'..='\u{52f}' => Self::Other(380),
            '\u{600}'..='\u{77f}' => Self::Other(480),
            // Greek; Hebrew; Thai and Lao; Devanagari.
            '\u{370}'..='\u{3ff}' | '\u{590}'..='\u{5ff}' | '\u{e00}'..='\u{eff}' | '\u{900}'..='\u{97f}' => {
                Self::Other(680)
            }
            // Armenian and Georgian; other scripts of India; Ethiopic and other scripts that few tokenizers
            // cover.
            '\u{530}'..='\u{58f}' | '\u{10a0}'..='\u{10ff}' => Self::Other(670),
            '\u{980}'..='\u{dff}' => Self::Other(820),
            '\u{f00}'..='\u{109f}' | '\u{1200}'..='\u{1dff}' => Self::Other(1_700),
            // Joiners, punctuation and variation selectors; kana and Han; Hangul.
            '\u{2000}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' => Self::Other(600),
            '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}' => Self::Other(830),
            '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7ff}' => Self::Other(760),
            '\u{20000}'..='\u{3ffff}' => Self::Other(1_800),
            // Emoji.
            '\u{1f000}'..='\u{1ffff}' => Self::Other(1_800),
            _ => Self::Other(1_300),
        }
    }

    const fn is_of_a_word(self) -> bool {
        matches!(self, Self::Lower | Self::Upper | Self::Digit)
    }

    /// Returns the thousandths of a token for a character. `word_length` is the number of letters and digits
    /// before the character in its word.
    const fn weight(self, before: Self, word_length: u32) -> i64 {
        /// Longer words are usually codes, which tokenizers split into many tokens.
        const LONG_WORD: u32 = 24;
        match (self, before) {
            // A space belongs to the word after it. A run of spaces is one token.
            (Self::Space, Self::Space) => 20,
            (Self::Space, Self::Other(_)) => 60,
            (Self::Space, _) => 0,
            (Self::LineEnd, Self::LineEnd) => 150,
            (Self::LineEnd, _) => 500,
            (Self::Lower | Self::Upper, _) if word_length >= LONG_WORD => 600,
            // Tokenizers make one token of a number, or one of each digit.
            (Self::Digit, _) => 550,
            (Self::Lower, Self::Digit) | (Self::Upper, Self::Digit | Self::Lower) => 500,
            (Self::Lower, _) => 230,
            (Self::Upper, Self::Upper) => 300,
            (Self::Upper, _) => 240,
            (Self::Sign, Self::Sign) => 380,
            (Self::Sign, _) => 520,
            (Self::Other(weight), _) => weight as i64,
        }
    }
}

#[cfg(test)]
mod tests;
