//! Tests of the hasher and its queue.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::*;

fn hasher() -> Hasher {
    Hasher::new(2, 8, Random::system())
}

/// Takes a place for a client of the network with this number.
fn place(hasher: &Hasher, number: u8) -> Place {
    hasher.acquire_place(Network::V4([203, 0, number])).unwrap()
}

fn verdict(matches: bool, needs_rehash: bool) -> Verdict {
    Verdict { matches, needs_rehash }
}

#[tokio::test]
async fn password_matches_only_its_own_hash() {
    let place = place(&hasher(), 1);
    let stored = place.hash("Correct horse 7").await.unwrap();
    let (head, tail) = stored.rsplit_once('$').unwrap();
    assert!(head.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{head}");
    assert_eq!((head.rsplit_once('$').unwrap().1.len(), tail.len()), (22, 43));
    assert_eq!(place.verify("Correct horse 7", Some(&stored)).await.unwrap(), verdict(true, false));
    assert_eq!(place.verify("Correct horse 8", Some(&stored)).await.unwrap(), verdict(false, false));
    assert_eq!(place.verify("", Some(&stored)).await.unwrap(), verdict(false, false));
    assert_ne!(stored, place.hash("Correct horse 7").await.unwrap());
}

#[tokio::test]
async fn unknown_user_never_matches() {
    assert_eq!(place(&hasher(), 1).verify("anything", None).await.unwrap(), verdict(false, false));
}

#[tokio::test]
async fn composed_and_decomposed_letters_match() {
    let stored = place(&hasher(), 1).hash("Caf\u{e9} 2026").await.unwrap();
    assert!(place(&hasher(), 1).verify("Cafe\u{301} 2026", Some(&stored)).await.unwrap().matches);
}

#[tokio::test]
async fn hashes_that_are_stored_already_are_read() {
    // Computed with OpenSSL, with the salt "0123456789abcdef".
    let stored =
        "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$04LEriRLpoCMiRvzxOyZi2hYlaj8uBOASFKrn61tIOg";
    let place = place(&hasher(), 1);
    assert_eq!(place.verify("Correct horse 7", Some(stored)).await.unwrap(), verdict(true, false));
    assert_eq!(place.verify("Correct horse 8", Some(stored)).await.unwrap(), verdict(false, false));
}

#[tokio::test]
async fn older_parameters_are_read_from_the_hash() {
    // From the reference implementation's test.c: 64 MiB, t = 2, p = 1, "password", "somesalt".
    let stored = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    let hasher = hasher();
    let place = place(&hasher, 1);
    assert_eq!(place.verify("password", Some(stored)).await.unwrap(), verdict(true, true));
    assert_eq!(place.verify("passwore", Some(stored)).await.unwrap(), verdict(false, true));
    assert!(hasher.shared.memory.lock().unwrap().is_empty(), "64 MiB are not kept");
}

#[tokio::test]
async fn overlong_password_is_truncated_and_never_matches() {
    let longest = "A".repeat(MAX_PASSWORD_BYTES);
    let stored = place(&hasher(), 1).hash(&longest).await.unwrap();
    assert!(place(&hasher(), 1).verify(&longest, Some(&stored)).await.unwrap().matches);
    assert!(!place(&hasher(), 1).verify(&format!("{longest}A"), Some(&stored)).await.unwrap().matches);
    assert_eq!(place(&hasher(), 1).hash(&format!("{longest}A")).await.unwrap_err().code, Code::Internal);
}

#[tokio::test]
async fn damaged_hash_is_an_internal_error() {
    let good = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    assert!(PhcHash::parse(good).is_some());
    let long = STANDARD_NO_PAD.encode([7; 65]);
    for (from, to) in [
        ("argon2id", "argon2i"),
        ("v=19", "v=16"),
        ("m=19456", "m=4294967295"),
        ("m=19456", "m=1"),
        ("t=2", "t=0"),
        ("t=2", "t=99"),
        ("p=1", "p=0"),
        ("p=1", "p=-1"),
        // A salt of 7 and of 65 bytes, and a hash of 15 and of 65 bytes.
        ("c29tZXNhbHQ", "c29tZXNhbA"),
        ("c29tZXNhbHQ", &long),
        ("CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "CTFhFdXPJO1aFaMaO6Mm"),
        ("CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", &long),
        ("p=1", "p=1,x=2"),
        ("p=1", "p=1,p=1"),
        ("p=1", "p=01"),
        (",p=1", ""),
        (",p=1", ",p=1,keyid=AAAA"),
        ("$v=19", ""),
        ("m=19456,t=2", "t=2,m=19456"),
        ("c29tZXNhbHQ", "c2"),
        ("c29tZXNhbHQ", "c29tZXNhbHQ="),
        ("PPc", "PPc$"),
        ("PPc", "PP!"),
        ("$argon2id", ""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(PhcHash::parse(&bad).is_none(), "{bad}");
        let error = place(&hasher(), 1).verify("password", Some(&bad)).await.unwrap_err();
        assert_eq!(error.code, Code::Internal, "{bad}");
        assert!(!error.to_string().contains("CTFh"), "{error}");
    }
}

#[tokio::test]
async fn full_queue_refuses_at_once_and_the_others_finish() {
    let hasher = Hasher::new(1, 3, Random::system());
    // While the test holds the only permit to run, every hash waits in the queue.
    let turn = Arc::clone(&hasher.shared.running).acquire_owned().await.unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|i| {
            let hasher = hasher.clone();
            tokio::spawn(async move {
                hasher
                    .acquire_place(Network::V4([203, 0, i]))?
                    .hash(&format!("Password {i}"))
                    .await
                    .map(|_| i)
            })
        })
        .collect();
    while hasher.shared.queue.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hasher.acquire_place(Network::Unknown).unwrap_err().code, Code::PasswordQueueFull);
    drop(turn);
    let mut outcomes = Vec::new();
    for task in waiting {
        outcomes.push(task.await.unwrap().map_err(|e| e.code));
    }
    let refused = outcomes.iter().filter(|o| **o == Err(Code::PasswordQueueFull)).count();
    assert_eq!((outcomes.iter().filter(|o| o.is_ok()).count(), refused), (4, 6));
    assert_eq!(hasher.shared.queue.available_permits(), 4);
    assert!(hasher.shared.places_by_network.lock().unwrap().is_empty(), "a refusal takes nothing");
    assert_eq!(hasher.shared.memory.lock().unwrap().len(), 1, "one thread needs one piece of memory");
}

#[tokio::test]
async fn network_gets_an_eighth_of_the_places_rounded_up() {
    for (threads, queue, share) in [(1, 0, 1), (1, 7, 1), (1, 8, 2), (1, 64, 9), (4, 1_000, 126)] {
        let hasher = Hasher::new(threads, queue, Random::system());
        let network = Network::V4([192, 0, 2]);
        let mut places: Vec<_> = (0..share).map(|_| hasher.acquire_place(network).unwrap()).collect();
        assert_eq!(
            hasher.acquire_place(network).unwrap_err().code,
            Code::PasswordQueueFull,
            "{threads} {queue}"
        );
        assert_eq!(hasher.load().0, share, "a refusal takes no place");
        assert_eq!(hasher.acquire_place(Network::Unknown).is_ok(), share < threads + queue);
        // A returned place is available to the next caller.
        places.pop();
        places.push(hasher.acquire_place(network).unwrap());
        drop(places);
        assert_eq!(hasher.load().0, 0);
        assert!(hasher.shared.places_by_network.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn place_is_held_until_its_hash_ends() {
    let hasher = Hasher::new(1, 0, Random::system());
    let begun = Arc::new(Semaphore::new(0));
    let signal = Arc::clone(&begun);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let place = place(&hasher, 1);
    let hash = tokio::spawn(async move {
        place
            .run(move |_| {
                signal.add_permits(1);
                wait.recv().ok();
                Ok(())
            })
            .await
    });
    begun.acquire().await.unwrap().forget();
    hash.abort();
    assert!(hash.await.unwrap_err().is_cancelled());
    assert_eq!(hasher.acquire_place(Network::Unknown).unwrap_err().code, Code::PasswordQueueFull);
    drop(release);
    while hasher.acquire_place(Network::Unknown).is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dropped_caller_leaves_the_queue() {
    let hasher = Hasher::new(1, 0, Random::system());
    let turn = Arc::clone(&hasher.shared.running).acquire_owned().await.unwrap();
    for _ in 0..5 {
        let wait = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(wait, place(&hasher, 1).hash("Password 1")).await.is_err());
    }
    drop(turn);
    assert!(place(&hasher, 1).hash("Password 1").await.is_ok());
}

#[test]
fn current_parameters_are_those_of_owasp() {
    assert_eq!(parameters(&current_params()), (19_456, 2, 1));
    assert_eq!(parameters(&Params::DEFAULT), (19_456, 2, 1));
}

proptest::proptest! {
    #[test]
    fn parsing_noise_never_panics(noise in "\\$argon2id\\$v=19\\$.*") {
        proptest::prop_assert!(PhcHash::parse(&noise).is_none());
    }
}
