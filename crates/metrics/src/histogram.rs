//! Histograms with fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};

use super::text::{Labels, Seconds, Text};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The bounds of durations, in nanoseconds: from a call with a cached key to the longest requests.
const DURATIONS: [u64; 18] = [
    25 * US,
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2_500 * MS,
    5 * S,
    10 * S,
];

/// The bounds of sizes, up to the largest of one transaction.
const SIZES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1_000];

/// A histogram with fixed bounds.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    sum: AtomicU64,
    buckets: [AtomicU64; N],
    beyond: AtomicU64,
}

/// A histogram of durations.
#[derive(Debug)]
pub struct Durations(Histogram<18>);

/// A histogram of sizes.
#[derive(Debug)]
pub struct Sizes(Histogram<10>);

impl<const N: usize> Histogram<N> {
    const fn new(bounds: &'static [u64; N]) -> Self {
        Self {
            bounds,
            sum: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; N],
            beyond: AtomicU64::new(0),
        }
    }

    /// Counts a value. Small values are the frequent ones, so the search begins there.
    fn note(&self, value: u64) {
        let mut buckets = self.bounds.iter().zip(&self.buckets);
        let bucket = buckets.find(|(bound, _)| value <= **bound).map_or(&self.beyond, |(_, bucket)| bucket);
        bucket.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Writes the samples, cumulative as the format requires; `shown` formats a number.
    fn render(&self, name: &str, labels: Labels<'_>, text: &mut Text, shown: impl Fn(u64) -> String) {
        let (bucket_name, mut count) = (format!("{name}_bucket"), 0);
        let bounds = self.bounds.iter().map(|bound| shown(*bound)).chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(self.buckets.iter().chain([&self.beyond])) {
            count += bucket.load(Ordering::Relaxed);
            text.sample(&bucket_name, &[labels, &[("le", bound.as_str())]].concat(), count);
        }
        text.sample(&format!("{name}_sum"), labels, shown(self.sum.load(Ordering::Relaxed)));
        text.sample(&format!("{name}_count"), labels, count);
    }

    fn is_empty(&self) -> bool {
        self.buckets.iter().chain([&self.beyond]).all(|bucket| bucket.load(Ordering::Relaxed) == 0)
    }
}

impl Durations {
    /// Counts a duration in nanoseconds.
    pub fn note_ns(&self, took_ns: u64) {
        self.0.note(took_ns);
    }

    /// Returns `true` if no duration was counted yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the samples, in seconds.
    pub fn render(&self, name: &str, labels: Labels<'_>, text: &mut Text) {
        self.0.render(name, labels, text, |nanoseconds| Seconds(nanoseconds).to_string());
    }
}

impl Sizes {
    /// Counts a size.
    pub fn note(&self, size: usize) {
        self.0.note(u64::try_from(size).unwrap_or(u64::MAX));
    }

    /// Writes the samples.
    pub fn render(&self, name: &str, labels: Labels<'_>, text: &mut Text) {
        self.0.render(name, labels, text, |size| size.to_string());
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self(Histogram::new(&DURATIONS))
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self(Histogram::new(&SIZES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_and_belong_to_their_bucket() {
        assert!(DURATIONS.is_sorted_by(|a, b| a < b) && SIZES.is_sorted_by(|a, b| a < b));
        let sizes = Sizes::default();
        for size in [0, 1, 2, 3, 1_000, 1_001, usize::MAX] {
            sizes.note(size);
        }
        let mut text = Text::new();
        sizes.render("s", &[("x", "y")], &mut text);
        let text = text.into_string();
        let counts: Vec<_> = text.lines().map(|line| line.rsplit_once(' ').unwrap().1).collect();
        // The sum wraps at u64::MAX, as any counter does at its end.
        assert_eq!(counts[..11], ["2", "3", "4", "4", "4", "4", "4", "4", "4", "5", "7"], "{text}");
        assert_eq!(counts[12], "7");
        assert!(text.starts_with("s_bucket{x=\"y\",le=\"1\"} 2\n"), "{text}");
        assert!(text.contains("s_bucket{x=\"y\",le=\"+Inf\"} 7\n"), "{text}");
    }

    #[test]
    fn durations_are_written_in_seconds() {
        let durations = Durations::default();
        assert!(durations.is_empty());
        for took_ns in [25_000, 25_001, 11 * S] {
            durations.note_ns(took_ns);
        }
        let mut text = Text::new();
        durations.render("d", &[], &mut text);
        let text = text.into_string();
        for line in ["d_bucket{le=\"0.000025\"} 1", "d_bucket{le=\"0.00005\"} 2", "d_bucket{le=\"10\"} 2"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("d_bucket{le=\"+Inf\"} 3\nd_sum 11.000050001\nd_count 3\n"), "{text}");
    }
}
