//! Histograms of durations, from which percentiles are estimated.

/// The number of buckets. The last one has all longer durations: those above 7.7 minutes.
pub const BUCKETS: usize = 32;

/// The ends of the buckets, in milliseconds: 10 ms times powers of √2, rounded.
#[rustfmt::skip]
const ENDS: [i64; BUCKETS - 1] = [
    10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 453, 640, 905, 1_280, 1_810, 2_560, 3_620, 5_120, 7_241, 10_240,
    14_482, 20_480, 28_963, 40_960, 57_926, 81_920, 115_852, 163_840, 231_705, 327_680,
];

/// Returns the bucket of a duration, which has the durations up to its end, inclusive.
pub fn bucket_of(ms: i64) -> usize {
    ENDS.partition_point(|end| *end < ms)
}

/// Returns the duration in milliseconds that this percentage of the calls don't exceed, interpolated in its
/// bucket; `None` without calls. The last bucket counts as its beginning.
pub fn percentile(counts: &[i64; BUCKETS], percent: i64) -> Option<i64> {
    let total: i64 = counts.iter().sum();
    if total <= 0 {
        return None;
    }
    // The rank of the call, from 1: the smallest one that covers the percentage.
    let rank = (i128::from(total) * i128::from(percent)).div_euclid(100);
    let is_exact = (i128::from(total) * i128::from(percent)) % 100 == 0;
    let rank = if is_exact { rank } else { rank + 1 }.max(1);
    let mut before: i128 = 0;
    for (bucket, count) in counts.iter().enumerate() {
        let count = i128::from(*count);
        if before + count >= rank {
            let start = bucket.checked_sub(1).and_then(|before| ENDS.get(before)).copied().unwrap_or(0);
            let end = ENDS.get(bucket).copied().unwrap_or(start);
            let within = i128::from(end - start) * (rank - before) / count.max(1);
            return Some(start + i64::try_from(within).unwrap_or(0));
        }
        before += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_at_powers_of_the_root_of_two() {
        for (ms, bucket) in [
            (0, 0),
            (10, 0),
            (11, 1),
            (14, 1),
            (15, 2),
            (20, 2),
            (1_280, 14),
            (1_281, 15),
            (327_680, 30),
            (327_681, 31),
            (i64::MAX, 31),
        ] {
            assert_eq!(bucket_of(ms), bucket, "{ms}");
        }
        for (at, end) in ENDS.iter().enumerate() {
            // The square of each end is 100 times a power of two, up to rounding.
            let square = 100 * (1_i64 << at);
            let error = (end * end - square).abs();
            assert!(error <= *end, "{end}");
        }
    }

    #[test]
    fn percentiles_are_interpolated() {
        let mut counts = [0; BUCKETS];
        assert_eq!(percentile(&counts, 50), None);
        counts[1] = 4;
        // The four calls are spread over 10 to 14 ms.
        assert_eq!(percentile(&counts, 50), Some(12));
        assert_eq!(percentile(&counts, 99), Some(14));
        counts[31] = 96;
        assert_eq!(percentile(&counts, 50), Some(327_680));
        assert_eq!(percentile(&counts, 4), Some(14));
        assert_eq!(percentile(&counts, 1), Some(11));
    }

    #[test]
    fn percentiles_are_in_the_bucket_of_the_exact_one() {
        let durations: Vec<i64> = (1..=2_000).map(|n| n * n / 15 + 5).collect();
        let mut counts = [0; BUCKETS];
        durations.iter().for_each(|ms| counts[bucket_of(*ms)] += 1);
        for percent in [1, 50, 95, 99] {
            let exact = durations[usize::try_from(percent).unwrap() * 20 - 1];
            let found = percentile(&counts, percent).unwrap();
            assert_eq!(bucket_of(found), bucket_of(exact), "{percent}: {found} instead of {exact}");
            // The last calls fill only a part of their bucket, so the largest percentile may be further away.
            let is_near = (found - exact).abs() * 100 <= exact * 10;
            assert!(is_near || percent == 99, "{percent}: {found} instead of {exact}");
        }
    }
}
