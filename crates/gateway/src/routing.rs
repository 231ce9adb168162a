//! The choice of an upstream for a call: a pure function of the routes and the load of their upstreams.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A route of a model, with the state of its upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate<'a> {
    /// The id of the upstream.
    pub(crate) upstream: &'a str,
    pub(crate) tier: u32,
    pub(crate) weight: u32,
    /// The number of calls of this replica that the upstream is serving.
    pub(crate) calls: u32,
    /// The recent time to the first event of a stream, in microseconds; 0 if it hasn't been measured.
    pub(crate) first_event_us: u64,
    /// `true` if the upstream has a free slot, and isn't known to be failing.
    pub(crate) is_usable: bool,
    /// `true` if the route was already tried for this call.
    pub(crate) was_tried: bool,
}

/// Returns the index of the route to try next; `None` if all routes were tried.
///
/// The route is in the lowest tier with a usable upstream, or in the lowest tier if no upstream is usable.
/// Within the tier, a call with an `affinity` goes to the upstream that its key maps to, unless that upstream
/// has many more calls than the others. For any other call, two upstreams are drawn at random by weight, and
/// the less busy one is chosen.
pub(crate) fn choose(candidates: &[Candidate<'_>], affinity: Option<u64>, random: u64) -> Option<usize> {
    let left = || candidates.iter().enumerate().filter(|(_, candidate)| !candidate.was_tried);
    let usable =
        left().filter(|(_, candidate)| candidate.is_usable).map(|(_, candidate)| candidate.tier).min();
    let needs_usable = usable.is_some();
    let tier = usable.or_else(|| left().map(|(_, candidate)| candidate.tier).min())?;
    let eligible: Vec<_> = left()
        .filter(|(_, candidate)| candidate.tier == tier && candidate.is_usable == needs_usable)
        .collect();
    match affinity {
        Some(key) => by_affinity(&eligible, key),
        None => by_load(&eligible, random),
    }
}

type Eligible<'a> = [(usize, &'a Candidate<'a>)];

/// Rendezvous hashing with bounded loads: the upstream with the highest score for the key, among those with
/// at most 1.25 times the mean number of calls plus two.
fn by_affinity(eligible: &Eligible<'_>, key: u64) -> Option<usize> {
    let count = u64::try_from(eligible.len()).ok().filter(|count| *count > 0)?;
    let calls: u64 = eligible.iter().map(|(_, candidate)| u64::from(candidate.calls)).sum();
    let is_bounded =
        |candidate: &Candidate<'_>| u64::from(candidate.calls) * count * 4 <= calls * 5 + 8 * count;
    let best = eligible.iter().filter(|(_, candidate)| is_bounded(candidate));
    best.max_by_key(|(_, candidate)| score(key, candidate)).map(|(at, _)| *at)
}

/// Returns the highest of several draws, one per unit of weight, so that an upstream gets its share of the
/// keys.
fn score(key: u64, candidate: &Candidate<'_>) -> u64 {
    let draw = |number: u32| {
        let mut hasher = DefaultHasher::new();
        (key, candidate.upstream, number).hash(&mut hasher);
        hasher.finish()
    };
    (0..candidate.weight.max(1)).map(draw).max().unwrap_or_default()
}

/// Draws two upstreams by weight, and chooses the one with the smaller product of calls per weight and time
/// to the first event.
fn by_load(eligible: &Eligible<'_>, random: u64) -> Option<usize> {
    let (first, second) = (random & 0xffff_ffff, random >> 32);
    let (at, one) = draw(eligible, first)?;
    let others: Vec<_> = eligible.iter().copied().filter(|(other, _)| *other != at).collect();
    let Some((other_at, other)) = draw(&others, second) else { return Some(at) };
    Some(if busyness(one, other) <= busyness(other, one) { at } else { other_at })
}

/// Returns how busy an upstream is compared with another one.
fn busyness(one: &Candidate<'_>, other: &Candidate<'_>) -> u128 {
    // An upstream that hasn't been measured counts as equal to the other one.
    let first_event_us = if one.first_event_us == 0 { other.first_event_us } else { one.first_event_us };
    // Instead of dividing by the upstream's weight, the product is multiplied by the other's weight.
    (u128::from(one.calls) + 1) * u128::from(first_event_us.max(1)) * u128::from(other.weight.max(1))
}

fn draw<'a>(eligible: &Eligible<'a>, random: u64) -> Option<(usize, &'a Candidate<'a>)> {
    let total: u64 = eligible.iter().map(|(_, candidate)| u64::from(candidate.weight.max(1))).sum();
    let mut rest = random.checked_rem(total)?;
    for (at, candidate) in eligible {
        match rest.checked_sub(u64::from(candidate.weight.max(1))) {
            Some(less) => rest = less,
            None => return Some((*at, candidate)),
        }
    }
    None
}

/// Returns the key that routes an organization's requests with the same beginning to the same upstream.
pub(crate) fn affinity_key(organization: &str, model: &str, beginning: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (organization, model, beginning).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(upstream: &str) -> Candidate<'_> {
        let (first_event_us, is_usable, was_tried) = (1_000, true, false);
        Candidate { upstream, tier: 0, weight: 1, calls: 0, first_event_us, is_usable, was_tried }
    }

    /// Counts the choices of many random numbers.
    fn counts(candidates: &[Candidate<'_>]) -> Vec<usize> {
        let mut counts = vec![0; candidates.len()];
        for number in 0..10_000_u64 {
            let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            counts[choose(candidates, None, random).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn lowest_tier_with_a_usable_upstream_is_taken() {
        let mut routes =
            [route("a"), Candidate { tier: 1, ..route("b") }, Candidate { tier: 2, ..route("c") }];
        assert_eq!(choose(&routes, None, 7), Some(0));
        routes[0].is_usable = false;
        assert_eq!(choose(&routes, None, 7), Some(1));
        routes[1].was_tried = true;
        assert_eq!(choose(&routes, None, 7), Some(2));
        routes[2].is_usable = false;
        assert_eq!(choose(&routes, None, 7), Some(0), "the lowest, to wait there");
        routes.iter_mut().for_each(|route| route.was_tried = true);
        assert_eq!(choose(&routes, None, 7), None);
        assert_eq!(choose(&[], Some(1), 7), None);
    }

    #[test]
    fn less_busy_one_of_two_is_taken() {
        // Equally busy upstreams get half of the calls each. If one has more calls for its weight, the other
        // gets all.
        let even = counts(&[route("a"), route("b")]);
        assert!((4_500..5_500).contains(&even[0]), "{even:?}");
        assert_eq!(counts(&[Candidate { calls: 3, ..route("a") }, route("b")]), [0, 10_000]);
        assert_eq!(counts(&[Candidate { calls: 3, weight: 5, ..route("a") }, route("b")]), [10_000, 0]);
        assert_eq!(
            counts(&[
                Candidate { first_event_us: 9_000, calls: 1, ..route("a") },
                Candidate { calls: 4, ..route("b") }
            ]),
            [0, 10_000]
        );
        // An upstream that hasn't been measured counts as equally fast.
        assert_eq!(
            counts(&[Candidate { first_event_us: 0, ..route("a") }, Candidate { calls: 1, ..route("b") }]),
            [10_000, 0]
        );
    }

    #[test]
    fn slowest_of_three_gets_the_least() {
        let slow = Candidate { first_event_us: 10_000, ..route("slow") };
        let got = counts(&[route("a"), slow, route("b")]);
        assert_eq!(got[1], 0, "{got:?}");
        assert!((4_000..6_000).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn affinity_is_stable_and_bounded() {
        let mut routes = [route("a"), route("b"), Candidate { weight: 2, ..route("c") }];
        let of = |routes: &[Candidate<'_>], key| choose(routes, Some(key), key).unwrap();
        let before: Vec<_> = (0..4_000).map(|key| of(&routes, key)).collect();
        let shares = [0, 1, 2].map(|at| before.iter().filter(|chosen| **chosen == at).count());
        assert!((850..1_150).contains(&shares[0]) && (1_850..2_150).contains(&shares[2]), "{shares:?}");
        // If one upstream is removed, only its keys move.
        routes[0].was_tried = true;
        let after = (0..4_000).map(|key| of(&routes, key));
        assert!(after.zip(&before).all(|(after, before)| *before == 0 || after == *before));
        routes[0].was_tried = false;
        // With a mean of 3, up to 1.25 × 3 + 2 = 5 calls are allowed.
        routes[0].calls = 9;
        assert!((0..4_000).all(|key| of(&routes, key) != 0));
        routes[0].calls = 3;
        assert_eq!((0..4_000).map(|key| of(&routes, key)).collect::<Vec<_>>(), before);
    }

    #[test]
    fn key_depends_on_every_part() {
        let key = affinity_key("org_1", "chat-1", b"hello");
        assert_eq!(key, affinity_key("org_1", "chat-1", b"hello"));
        let others =
            [("org_2", "chat-1", "hello"), ("org_1", "chat-2", "hello"), ("org_1", "chat-1", "hellp")];
        assert!(others.iter().all(|(a, b, c)| affinity_key(a, b, c.as_bytes()) != key));
    }
}
