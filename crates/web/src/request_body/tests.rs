use std::convert::Infallible;

use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;

use super::*;
use crate::content_coding::tests::encode;

const ALL: [ContentCoding; 3] = [ContentCoding::Gzip, ContentCoding::Zstd, ContentCoding::Brotli];
const HOLDER: Holder = Holder::Member { group: 1, member: 1 };
const MIB: usize = 1024 * 1024;

fn limit(max_bytes: usize) -> BodyLimit {
    BodyLimit::model_call(max_bytes)
}

/// Returns a body that arrives in these pieces, with a pause before each if `is_slow`.
fn arriving(pieces: &[&[u8]], is_slow: bool) -> Body {
    let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    let frames = stream::iter(pieces).then(move |piece| async move {
        if is_slow {
            tokio::task::yield_now().await;
        }
        Ok::<_, Infallible>(Frame::data(piece))
    });
    Body::new(StreamBody::new(Box::pin(frames)))
}

async fn read_decoded(
    body: Body,
    coding: ContentCoding,
    max_bytes: usize,
    budget: &BodyBudget,
) -> Result<Bytes, BodyError> {
    let body = read(body, limit(max_bytes), Duration::from_secs(30), budget, HOLDER).await?;
    decode(body, coding, limit(max_bytes), budget, HOLDER).await.map(ReceivedBody::into_bytes)
}

#[tokio::test]
async fn bodies_are_decoded_however_they_are_split() {
    let text = "{\"name\": \"name name name\", \"é\": [1, 2, 3, 4, 5, 6, 7, 8]}".repeat(3);
    let budget = BodyBudget::new(64 * MIB, usize::MAX);
    for coding in ALL {
        let encoded = encode(coding, text.as_bytes());
        for place in 0..=encoded.len() {
            let (first, second) = encoded.split_at(place);
            for is_slow in [false, true] {
                let body = arriving(&[first, second], is_slow);
                let decoded = read_decoded(body, coding, MIB, &budget).await.unwrap();
                assert_eq!(decoded, text, "{coding:?} {place} {is_slow}");
            }
            let cut = read_decoded(arriving(&[first], true), coding, MIB, &budget).await;
            let due = if place < encoded.len() { Err(BodyError::Undecodable(coding)) } else { Ok(()) };
            assert_eq!(cut.map(|_| ()), due, "{coding:?} {place}");
        }
    }
    assert_eq!((budget.load().0, budget.refused()), (0, 0));
}

#[tokio::test]
async fn decoded_bodies_keep_to_the_limit() {
    let budget = BodyBudget::new(64 * MIB, usize::MAX);
    for coding in ALL {
        // Below, at and above the limit for immediate decoding.
        for max_bytes in [1_000, 16 * 1024, MAX_DECODED_AT_ONCE - 1, MAX_DECODED_AT_ONCE, MIB] {
            for (length, is_taken) in [(max_bytes, true), (max_bytes + 1, false), (3 * max_bytes, false)] {
                let encoded = encode(coding, &vec![0; length]);
                let decoded = read_decoded(encoded.into(), coding, max_bytes, &budget).await;
                let due = if is_taken { Ok(length) } else { Err(BodyError::TooLong) };
                assert_eq!(decoded.map(|bytes| bytes.len()), due, "{coding:?} {max_bytes} {length}");
            }
        }
        // The limit also applies to encoded bytes: a body that hardly shrinks is decoded in a turn.
        let noise: Vec<u8> = (0..MAX_CODED_AT_ONCE as u64 * 2)
            .map(|n| (n * n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
            .collect();
        let encoded = encode(coding, &noise);
        assert!(encoded.len() > MAX_CODED_AT_ONCE, "{coding:?} {}", encoded.len());
        let decoded = read_decoded(encoded.clone().into(), coding, MIB, &budget).await.unwrap();
        assert!(decoded == noise, "{coding:?}");
        let refused = read_decoded(encoded.into(), coding, 32 * 1024, &budget).await;
        assert_eq!(refused, Err(BodyError::TooLong), "{coding:?}");
    }
    assert_eq!((budget.load().0, budget.refused()), (0, 0));
}

#[tokio::test]
async fn decoded_bytes_are_taken_from_the_budget() {
    // A single member gets at most a third of three quarters of the budget.
    let budget = BodyBudget::new(4 * MIB, usize::MAX);
    for coding in ALL {
        let refused_before = budget.refused();
        for (length, is_taken) in [(MIB, true), (MIB + 1, false)] {
            let encoded = Body::from(encode(coding, &vec![0; length]));
            let body = read(encoded, limit(8 * MIB), Duration::from_secs(30), &budget, HOLDER).await.unwrap();
            assert_eq!(budget.load().0, 0, "it has arrived at once");
            let decoded = decode(body, coding, limit(8 * MIB), &budget, HOLDER).await;
            if is_taken {
                assert_eq!(budget.load().0, length, "{coding:?}");
            }
            let due = if is_taken { Ok(length) } else { Err(BodyError::BudgetExhausted) };
            assert_eq!(decoded.map(|body| body.len()), due, "{coding:?} {length}");
            assert_eq!(budget.load().0, 0, "{coding:?}");
        }
        assert_eq!(budget.refused() - refused_before, 1, "{coding:?}");
    }
    // Another holder takes memory in the meantime, and even a small body needs a step.
    let taken = budget.try_take(HOLDER, MIB).unwrap();
    let small = || ReceivedBody { bytes: encode(ContentCoding::Gzip, b"{}").into(), permit: None };
    let refused = decode(small(), ContentCoding::Gzip, limit(MIB), &budget, HOLDER).await;
    assert_eq!(refused.map(ReceivedBody::into_bytes), Err(BodyError::BudgetExhausted));
    let other = Holder::Member { group: 2, member: 1 };
    let decoded = decode(small(), ContentCoding::Gzip, limit(MIB), &budget, other).await.unwrap();
    assert_eq!((&*decoded, budget.load().0), (b"{}".as_slice(), MIB + BUDGET_STEP_BYTES));
    drop(taken);
}

#[test]
fn one_byte_order_mark_is_taken_off() {
    let without = |bytes: &'static [u8]| {
        ReceivedBody { bytes: bytes.into(), permit: None }.without_byte_order_mark().into_bytes()
    };
    assert_eq!(without(b"\xef\xbb\xbf{}"), "{}");
    assert_eq!(without(b"\xef\xbb\xbf\xef\xbb\xbf{}"), "\u{feff}{}");
    assert_eq!(without(b"\xef\xbb\xbf"), "");
    for bytes in [b"".as_slice(), b"{}", b"\xef\xbb", b" \xef\xbb\xbf{}", b"\xfe\xff"] {
        assert_eq!(without(bytes), bytes);
    }
}

/// At 1 MiB/s, with an eighth of a second free, 2 MiB of one organization take 1.875 s. Another organization
/// isn't delayed meanwhile.
#[tokio::test(start_paused = true)]
async fn bodies_of_an_organization_arrive_at_its_rate() {
    let budget = BodyBudget::new(64 * MIB, MIB);
    let piece = vec![b' '; 64 * 1024];
    let one = |holder, pieces: usize| {
        let (body, budget) = (arriving(&vec![piece.as_slice(); pieces], true), &budget);
        async move {
            let started = tokio::time::Instant::now();
            let body = read(body, limit(8 * MIB), Duration::from_secs(30), budget, holder).await.unwrap();
            assert_eq!(body.len(), pieces * 64 * 1024);
            started.elapsed().as_millis()
        }
    };
    let other = Holder::Member { group: 2, member: 1 };
    let (first, second, other) = tokio::join!(one(HOLDER, 16), one(HOLDER, 16), one(other, 2));
    assert!((1_870..1_890).contains(&first.max(second)), "{first} ms, {second} ms");
    assert!(other < 10, "{other} ms");
}
