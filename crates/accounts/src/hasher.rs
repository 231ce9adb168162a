//! Passwords: argon2id behind a bounded queue, off the threads that answer requests.
//!
//! Parameters: 19 MiB, two passes, one lane (OWASP Password Storage Cheat Sheet;
//! docs/contract/accounts.md#password-hashing), written
//! into every hash as a PHC string, so that they can change and old hashes still be checked. A hash keeps one core
//! busy for tens of milliseconds and 19 MiB of memory, so only so many run at once, only so many more may
//! wait, and anyone past that is told at once to come back. The threads that hash have a lower priority than others.
//!
//! Each client network has at most an eighth of the places, so that none of them can keep the others waiting.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use subtle::ConstantTimeEq;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use unicode_normalization::UnicodeNormalization;

use kernel::error::{Code, Error};
use kernel::networks::Network;
use kernel::random::Random;
use kernel::secrets::Secret;

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

/// One network gets one in so many places, rounded up.
const NETWORKS_SHARE: usize = 8;

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
    /// Places that are taken by each network that has any.
    taken: Mutex<HashMap<Network, usize>>,
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
            taken: Mutex::new(HashMap::new()),
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

    /// Takes a place in the queue for a client of this network. It lasts for any number of hashes, one after the other.
    ///
    /// # Errors
    /// [`Code::PasswordQueueFull`] at once when too many wait, or too many of this network.
    pub fn place(&self, network: Network) -> Result<Place, Error> {
        let mut taken = self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network = taken.get(&network).copied().unwrap_or_default();
        if of_network >= self.shared.admitted.div_ceil(NETWORKS_SHARE) {
            return Err(Code::PasswordQueueFull.into());
        }
        let admission = Arc::clone(&self.shared.admission);
        let permit = admission.try_acquire_owned().map_err(|_| Error::new(Code::PasswordQueueFull))?;
        taken.insert(network, of_network + 1);
        drop(taken);
        let seat = Seat { shared: Arc::clone(&self.shared), network, _permit: permit };
        Ok(Place { seat: Arc::new(seat) })
    }
}

/// A place in the queue; the only way to a hash.
#[must_use]
pub struct Place {
    seat: Arc<Seat>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("network", &self.seat.network).finish_non_exhaustive()
    }
}

/// The permits that a place holds until its last hash has ended.
struct Seat {
    shared: Arc<Shared>,
    network: Network,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.network)),
        }
    }
}

impl Place {
    /// The PHC string to store for this password.
    ///
    /// # Errors
    /// [`Code::Internal`] for a password that is longer than `rules::password` allows.
    pub async fn hash(&self, password: &str) -> Result<String, Error> {
        if password.len() > LONGEST_PASSWORD_BYTES {
            return Err(Error::internal("a password that is too long reached the hasher"));
        }
        let (password, salt) = (Secret::new(password), self.shared().random.bytes::<SALT_BYTES>());
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
    /// [`Code::Internal`] when the stored string is damaged.
    pub async fn verify(&self, password: &str, stored: Option<&str>) -> Result<Verdict, Error> {
        let account = match stored {
            // The error must not show the hash.
            Some(text) => Some(
                Stored::parse(text).ok_or_else(|| Error::internal("a stored password hash is damaged"))?,
            ),
            None => None,
        };
        let possible = account.is_some() && password.len() <= LONGEST_PASSWORD_BYTES;
        let needs_rehash = account.as_ref().is_some_and(|stored| !stored.is_of(&self.shared().today));
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

    fn shared(&self) -> &Arc<Shared> {
        &self.seat.shared
    }

    fn today(&self, salt: Vec<u8>, hash: Vec<u8>) -> Stored {
        Stored { params: self.shared().today.clone(), salt, hash }
    }

    /// Runs one hash when its turn comes. Dropped while it waits, with its place, it leaves the queue; dropped
    /// later, the hash runs to its end and holds the place until then, because the core is busy for as long.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Vec<Block>) -> Result<T, argon2::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.shared().running).acquire_owned().await.map_err(Error::internal)?;
        let seat = Arc::clone(&self.seat);
        let hash = move || {
            let mut memory = seat.shared.take_memory();
            let result = work(&mut memory);
            seat.shared.give_back(memory);
            drop((turn, seat));
            result
        };
        let threads =
            self.shared().threads.as_ref().ok_or_else(|| Error::internal("no threads for hashes"))?;
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
mod tests;
