//! Passwords: argon2id behind a bounded queue, off the threads that answer requests.
//!
//! Parameters: 19 MiB, two passes, one lane (OWASP Password Storage Cheat Sheet, and decisions section 2), written
//! into every hash as a PHC string, so that they can change and old hashes still be checked. A hash keeps one core
//! busy for tens of milliseconds and 19 MiB of memory, so only so many run at once, only so many more may
//! wait, and anyone past that is told at once to come back. The threads that hash have a lower priority than others.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use subtle::ConstantTimeEq;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use unicode_normalization::UnicodeNormalization;

use crate::error::{Code, Error};
use crate::random::Random;
use crate::secrets::Secret;

const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// No password that `rules::password` lets in is longer, however it is decomposed: 128 characters of at most
/// four bytes once composed, each from at most four characters of four bytes. Longer ones match nothing.
const LONGEST_PASSWORD_BYTES: usize = 2_048;

/// The most that a stored hash may ask for, so that a damaged row can't take the machine down.
const MOST_MEMORY_KIB: u32 = 256 * 1_024;
const MOST_PASSES: u32 = 16;
const MOST_LANES: u32 = 16;

/// By how much hashing gives way to other threads, from 0 to 19; each step gives it a fifth less of a contested core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// What a check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The password is the right one.
    pub matches: bool,
    /// The hash was made with other parameters than today's: store a new one now that the password is known.
    pub needs_rehash: bool,
}

/// Hashes and checks passwords. Clones share one queue.
#[derive(Clone)]
pub struct Hasher {
    shared: Arc<Shared>,
}

struct Shared {
    /// Threads of their own for hashes, made when they are needed: what lowers their priority must not meet other work.
    threads: Option<Runtime>,
    /// One permit for each that runs or waits, and how many there are.
    admission: Arc<Semaphore>,
    admitted: usize,
    /// One permit for each that runs.
    running: Arc<Semaphore>,
    /// Memory of finished hashes for the next ones: getting 19 MiB from the system each time costs 12 %.
    memory: Mutex<Vec<Vec<Block>>>,
    /// The parameters of new hashes.
    today: Params,
    random: Random,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A runtime must not be dropped on an async thread, where it would wait; its threads end by themselves.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl Hasher {
    /// A hasher that runs at most `threads` hashes at once (at least one) and lets `queue` more wait.
    pub fn new(threads: usize, queue: usize, random: Random) -> Self {
        Self::with_parameters(threads, queue, random, today())
    }

    /// The same with other parameters for new hashes: for tests of what is done with passwords, by the ten thousand.
    pub fn with_parameters(threads: usize, queue: usize, random: Random, today: Params) -> Self {
        let threads = threads.clamp(1, 1_024);
        let own = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(threads)
            .thread_name("password-hash")
            .on_thread_start(make_way)
            .build();
        let admitted = threads.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            threads: own.ok(),
            admission: Arc::new(Semaphore::new(admitted)),
            admitted,
            running: Arc::new(Semaphore::new(threads)),
            memory: Mutex::new(Vec::new()),
            today,
            random,
        };
        Self { shared: Arc::new(shared) }
    }

    /// How many run or wait, and how many may.
    pub fn load(&self) -> (usize, usize) {
        let most = self.shared.admitted;
        (most.saturating_sub(self.shared.admission.available_permits()), most)
    }

    /// The PHC string to store for this password.
    ///
    /// # Errors
    /// [`Code::PasswordQueueFull`] at once when too many wait; [`Code::Internal`] for a password that is longer
    /// than `rules::password` allows.
    pub async fn hash(&self, password: &str) -> Result<String, Error> {
        if password.len() > LONGEST_PASSWORD_BYTES {
            return Err(Error::internal("a password that is too long reached the hasher"));
        }
        let (password, salt) = (Secret::new(password), self.shared.random.bytes::<SALT_BYTES>());
        let today = self.today(salt.to_vec(), vec![0; HASH_BYTES]);
        self.run(move |memory| {
            let hash = today.compute(&password, memory)?;
            Ok(Stored { hash, ..today }.to_phc())
        })
        .await
    }

    /// Checks a password against the stored PHC string. `None`, for no such account, takes the same work and never
    /// matches, so that the time of an answer doesn't tell which accounts exist.
    ///
    /// # Errors
    /// [`Code::PasswordQueueFull`] at once when too many wait; [`Code::Internal`] when the stored string is damaged.
    pub async fn verify(&self, password: &str, stored: Option<&str>) -> Result<Verdict, Error> {
        let account = match stored {
            // The error must not show the hash.
            Some(text) => Some(
                Stored::parse(text).ok_or_else(|| Error::internal("a stored password hash is damaged"))?,
            ),
            None => None,
        };
        let possible = account.is_some() && password.len() <= LONGEST_PASSWORD_BYTES;
        let needs_rehash = account.as_ref().is_some_and(|stored| !stored.is_of(&self.shared.today));
        let stored = account.unwrap_or_else(|| self.today(vec![0; SALT_BYTES], vec![0; HASH_BYTES]));
        let end = password.floor_char_boundary(LONGEST_PASSWORD_BYTES);
        let password = Secret::new(password.get(..end).unwrap_or_default());
        self.run(move |memory| {
            let hash = stored.compute(&password, memory)?;
            let same = bool::from(hash.ct_eq(&stored.hash));
            Ok(Verdict { matches: same & possible, needs_rehash })
        })
        .await
    }

    fn today(&self, salt: Vec<u8>, hash: Vec<u8>) -> Stored {
        Stored { params: self.shared.today.clone(), salt, hash }
    }

    /// Runs one hash when its turn comes. Dropped while it waits, it leaves the queue; dropped later, the hash runs
    /// to its end and holds its place until then, because the core is busy for as long.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Vec<Block>) -> Result<T, argon2::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let admission = Arc::clone(&self.shared.admission);
        let place = admission.try_acquire_owned().map_err(|_| Error::new(Code::PasswordQueueFull))?;
        let turn = Arc::clone(&self.shared.running).acquire_owned().await.map_err(Error::internal)?;
        let shared = Arc::clone(&self.shared);
        let hash = move || {
            let mut memory = shared.take_memory();
            let result = work(&mut memory);
            shared.give_back(memory);
            drop((turn, place));
            result
        };
        let threads = self.shared.threads.as_ref().ok_or_else(|| Error::internal("no threads for hashes"))?;
        threads.spawn_blocking(hash).await.map_err(Error::internal)?.map_err(Error::internal)
    }
}

impl Shared {
    fn take_memory(&self) -> Vec<Block> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps memory of today's size; there are never more pieces than hashes that run at once.
    fn give_back(&self, memory: Vec<Block>) {
        if memory.len() == self.today.block_count() {
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}

/// Lets threads that answer requests run first when there are too few cores for all (nice(2); of this thread only).
fn make_way() {
    #[cfg(target_os = "linux")]
    if rustix::process::nice(NICENESS).is_err() {
        // Then they share the cores evenly, as without this.
    }
}

/// A PHC string taken apart: `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
struct Stored {
    params: Params,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Stored {
    fn is_of(&self, today: &Params) -> bool {
        parameters(&self.params) == parameters(today)
            && (self.salt.len(), self.hash.len()) == (SALT_BYTES, HASH_BYTES)
    }

    /// Reads what [`Stored::to_phc`] writes, with any parameters up to a bound.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (params, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let mut params = params.split(',');
        let mut number = |key: &str, most: u32| -> Option<u32> {
            let value = params.next()?.strip_prefix(key)?.parse().ok()?;
            (value <= most).then_some(value)
        };
        let memory = number("m=", MOST_MEMORY_KIB)?;
        let passes = number("t=", MOST_PASSES)?;
        let lanes = number("p=", MOST_LANES)?;
        if parts.next().is_some() || params.next().is_some() {
            return None;
        }
        let salt = STANDARD_NO_PAD.decode(salt).ok()?;
        let hash = STANDARD_NO_PAD.decode(hash).ok()?;
        if !(8..=64).contains(&salt.len()) || !(16..=64).contains(&hash.len()) {
            return None;
        }
        Some(Self { params: Params::new(memory, passes, lanes, None).ok()?, salt, hash })
    }

    fn to_phc(&self) -> String {
        let (memory, passes, lanes) = parameters(&self.params);
        let (salt, hash) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(&self.hash));
        format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}")
    }

    /// The hash that this password has with these parameters and this salt, as long as the stored one.
    fn compute(&self, password: &Secret, memory: &mut Vec<Block>) -> Result<Vec<u8>, argon2::Error> {
        // One letter can be typed in several ways (é, or e and an accent): all must log in.
        let normal: String = password.expose().nfc().collect();
        memory.resize(self.params.block_count(), Block::new());
        let mut hash = vec![0; self.hash.len()];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone())
            .hash_password_into_with_memory(normal.as_bytes(), &self.salt, &mut hash, memory)?;
        Ok(hash)
    }
}

fn parameters(params: &Params) -> (u32, u32, u32) {
    (params.m_cost(), params.t_cost(), params.p_cost())
}

/// The parameters of new hashes. The argon2 crate's defaults are OWASP's too; a test holds them to ours.
fn today() -> Params {
    Params::new(MEMORY_KIB, PASSES, LANES, None).unwrap_or(Params::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hasher() -> Hasher {
        Hasher::new(2, 8, Random::system())
    }

    fn verdict(matches: bool, needs_rehash: bool) -> Verdict {
        Verdict { matches, needs_rehash }
    }

    #[tokio::test]
    async fn a_password_matches_its_own_hash_only() {
        let hasher = hasher();
        let stored = hasher.hash("Correct horse 7").await.unwrap();
        let (head, tail) = stored.rsplit_once('$').unwrap();
        assert!(head.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{head}");
        assert_eq!((head.rsplit_once('$').unwrap().1.len(), tail.len()), (22, 43));
        assert_eq!(hasher.verify("Correct horse 7", Some(&stored)).await.unwrap(), verdict(true, false));
        assert_eq!(hasher.verify("Correct horse 8", Some(&stored)).await.unwrap(), verdict(false, false));
        assert_eq!(hasher.verify("", Some(&stored)).await.unwrap(), verdict(false, false));
        assert_ne!(stored, hasher.hash("Correct horse 7").await.unwrap());
    }

    #[tokio::test]
    async fn nobody_never_matches() {
        assert_eq!(hasher().verify("anything", None).await.unwrap(), verdict(false, false));
    }

    #[tokio::test]
    async fn composed_and_decomposed_letters_are_one_password() {
        let stored = hasher().hash("Caf\u{e9} 2026").await.unwrap();
        assert!(hasher().verify("Cafe\u{301} 2026", Some(&stored)).await.unwrap().matches);
    }

    #[tokio::test]
    async fn older_parameters_are_read_from_the_hash() {
        // From the reference implementation's test.c: 64 MiB, t = 2, p = 1, "password", "somesalt".
        let stored = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let hasher = hasher();
        assert_eq!(hasher.verify("password", Some(stored)).await.unwrap(), verdict(true, true));
        assert_eq!(hasher.verify("passwore", Some(stored)).await.unwrap(), verdict(false, true));
        assert!(hasher.shared.memory.lock().unwrap().is_empty(), "64 MiB are not kept");
    }

    #[tokio::test]
    async fn an_endless_password_is_cut_and_never_matches() {
        let longest = "A".repeat(LONGEST_PASSWORD_BYTES);
        let stored = hasher().hash(&longest).await.unwrap();
        assert!(hasher().verify(&longest, Some(&stored)).await.unwrap().matches);
        assert!(!hasher().verify(&format!("{longest}A"), Some(&stored)).await.unwrap().matches);
        assert_eq!(hasher().hash(&format!("{longest}A")).await.unwrap_err().code, Code::Internal);
    }

    #[tokio::test]
    async fn a_damaged_hash_is_our_mistake() {
        let good = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(Stored::parse(good).is_some());
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
            // Seven bytes of salt, and 65; a hash of 15, and of 65.
            ("c29tZXNhbHQ", "c29tZXNhbA"),
            ("c29tZXNhbHQ", &long),
            ("CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "CTFhFdXPJO1aFaMaO6Mm"),
            ("CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", &long),
            ("p=1", "p=1,x=2"),
            ("m=19456,t=2", "t=2,m=19456"),
            ("c29tZXNhbHQ", "c2"),
            ("c29tZXNhbHQ", "c29tZXNhbHQ="),
            ("PPc", "PPc$"),
            ("PPc", "PP!"),
            ("$argon2id", ""),
        ] {
            let bad = good.replacen(from, to, 1);
            assert!(Stored::parse(&bad).is_none(), "{bad}");
            let error = hasher().verify("password", Some(&bad)).await.unwrap_err();
            assert_eq!(error.code, Code::Internal, "{bad}");
            assert!(!error.to_string().contains("CTFh"), "{error}");
        }
    }

    #[tokio::test]
    async fn past_the_queue_one_is_refused_at_once_and_the_others_finish() {
        let hasher = Hasher::new(1, 3, Random::system());
        // While the test holds the only turn, nobody gets past the queue.
        let turn = Arc::clone(&hasher.shared.running).acquire_owned().await.unwrap();
        let waiting: Vec<_> = (0..10)
            .map(|i| {
                let hasher = hasher.clone();
                tokio::spawn(async move { hasher.hash(&format!("Password {i}")).await.map(|_| i) })
            })
            .collect();
        while hasher.shared.admission.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(hasher.verify("x", None).await.unwrap_err().code, Code::PasswordQueueFull);
        drop(turn);
        let mut outcomes = Vec::new();
        for task in waiting {
            outcomes.push(task.await.unwrap().map_err(|e| e.code));
        }
        let refused = outcomes.iter().filter(|o| **o == Err(Code::PasswordQueueFull)).count();
        assert_eq!((outcomes.iter().filter(|o| o.is_ok()).count(), refused), (4, 6));
        assert_eq!(hasher.shared.admission.available_permits(), 4);
        assert_eq!(hasher.shared.memory.lock().unwrap().len(), 1, "one thread needs one piece of memory");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_queue() {
        let hasher = Hasher::new(1, 0, Random::system());
        let turn = Arc::clone(&hasher.shared.running).acquire_owned().await.unwrap();
        for _ in 0..5 {
            let wait = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(wait, hasher.hash("Password 1")).await.is_err());
        }
        drop(turn);
        assert!(hasher.hash("Password 1").await.is_ok());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn hashes_give_way_to_other_threads() {
        /// The 19th word of `/proc/…/stat`, the 17th behind the name (proc(5)).
        fn niceness() -> i32 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
        }
        let before = niceness();
        let hashing = hasher().run(|_| Ok(niceness())).await.unwrap();
        assert_eq!(hashing, (before + NICENESS).min(19));
        let others = tokio::task::spawn_blocking(niceness).await.unwrap();
        assert_eq!((niceness(), others), (before, before), "nobody else does");
    }

    #[test]
    fn today_s_parameters_are_the_ones_above() {
        assert_eq!(parameters(&today()), (19_456, 2, 1));
        assert_eq!(parameters(&Params::DEFAULT), (19_456, 2, 1));
    }

    proptest::proptest! {
        #[test]
        fn reading_noise_never_panics(noise in "\\$argon2id\\$v=19\\$.*") {
            proptest::prop_assert!(Stored::parse(&noise).is_none());
        }
    }
}
