//! Password hashing: argon2id behind a bounded queue, on separate threads.
//!
//! Parameters: 19 MiB, two passes, one lane (OWASP Password Storage Cheat Sheet;
//! docs/contract/accounts.md#password-hashing). Every hash is stored as a PHC string with its parameters, so
//! that old hashes can still be checked after the parameters change. A hash keeps one core busy for tens of
//! milliseconds and needs 19 MiB. Therefore only a few run at a time, a bounded number waits, and further
//! callers are refused immediately. The hashing threads have a lower priority than other threads.
//!
//! Each client network may take at most an eighth of the places in the queue, so that one network can't block
//! the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use unicode_normalization::UnicodeNormalization;

use kernel::background::BackgroundThreads;
use kernel::error::{Code, Error};
use kernel::networks::Network;
use kernel::random::Random;
use kernel::secrets::Secret;

const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// The maximum length of a password that is hashed. Every password that [`crate::rules::password`] accepts is
/// within it: 128 composed characters, each decomposed into at most four characters of four bytes. A longer
/// password never matches.
const MAX_PASSWORD_BYTES: usize = 2_048;

/// Bounds of the parameters in a stored hash, so that a damaged row can't exhaust the machine.
const MAX_MEMORY_KIB: u32 = 256 * 1_024;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 16;
/// The minimum length of a stored hash. The parser requires a salt of 8 to 48 bytes, and a hash of at most 64
/// bytes.
const MIN_HASH_BYTES: usize = 16;

/// The number of all places is divided by this, and rounded up, to get the share of one network.
const NETWORK_SHARE_DIVISOR: usize = 8;

/// The result of checking a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// `true` if the password is right.
    pub matches: bool,
    /// `true` if the hash has other parameters than the current ones. If the password matches, store a new
    /// hash of it.
    pub needs_rehash: bool,
}

/// Hashes and checks passwords. Clones share one queue.
#[derive(Clone)]
pub struct Hasher {
    shared: Arc<Shared>,
}

struct Shared {
    threads: BackgroundThreads,
    /// A permit for each hash that runs or waits.
    queue: Arc<Semaphore>,
    capacity: usize,
    /// The number of places taken by each network. Networks without places aren't in the map.
    places_by_network: Mutex<HashMap<Network, usize>>,
    /// A permit for each hash that runs.
    running: Arc<Semaphore>,
    /// The memory of finished hashes, for reuse. Allocating 19 MiB for each hash would take 12% more time.
    memory: Mutex<Vec<Vec<Block>>>,
    /// The parameters of new hashes.
    current_params: Params,
    random: Random,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

impl Hasher {
    /// Creates a hasher that runs at most `threads` hashes at a time (at least one) while at most `queue`
    /// more wait.
    pub fn new(threads: usize, queue: usize, random: Random) -> Self {
        Self::with_parameters(threads, queue, random, current_params())
    }

    /// Creates a hasher with other parameters for new hashes. Tests that need thousands of passwords use
    /// cheaper ones.
    pub fn with_parameters(threads: usize, queue: usize, random: Random, current_params: Params) -> Self {
        let threads = threads.clamp(1, 1_024);
        let capacity = threads.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            threads: BackgroundThreads::new("password-hash", threads),
            queue: Arc::new(Semaphore::new(capacity)),
            capacity,
            places_by_network: Mutex::new(HashMap::new()),
            running: Arc::new(Semaphore::new(threads)),
            memory: Mutex::new(Vec::new()),
            current_params,
            random,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the number of places taken by hashes that run or wait, and the number of all places.
    pub fn load(&self) -> (usize, usize) {
        let capacity = self.shared.capacity;
        (capacity.saturating_sub(self.shared.queue.available_permits()), capacity)
    }

    /// Takes a place in the queue for a client of this network. The place can be used for any number of
    /// consecutive hashes.
    ///
    /// # Errors
    /// [`Code::PasswordQueueFull`], without waiting, if all places are taken, or this network has taken its
    /// share.
    pub fn acquire_place(&self, network: Network) -> Result<Place, Error> {
        let mut places_by_network =
            self.shared.places_by_network.lock().unwrap_or_else(PoisonError::into_inner);
        let network_places = places_by_network.get(&network).copied().unwrap_or_default();
        if network_places >= self.shared.capacity.div_ceil(NETWORK_SHARE_DIVISOR) {
            return Err(Code::PasswordQueueFull.into());
        }
        let queue = Arc::clone(&self.shared.queue);
        let permit = queue.try_acquire_owned().map_err(|_| Error::new(Code::PasswordQueueFull))?;
        places_by_network.insert(network, network_places + 1);
        drop(places_by_network);
        let permits = PlacePermits { shared: Arc::clone(&self.shared), network, _permit: permit };
        Ok(Place { permits: Arc::new(permits) })
    }
}

/// A place in the queue, which is required for hashing.
#[must_use]
pub struct Place {
    permits: Arc<PlacePermits>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("network", &self.permits.network).finish_non_exhaustive()
    }
}

/// The permits of a place, kept until its last hash has ended.
struct PlacePermits {
    shared: Arc<Shared>,
    network: Network,
    _permit: OwnedSemaphorePermit,
}

impl Drop for PlacePermits {
    fn drop(&mut self) {
        let mut places_by_network =
            self.shared.places_by_network.lock().unwrap_or_else(PoisonError::into_inner);
        match places_by_network.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(places_by_network.remove(&self.network)),
        }
    }
}

impl Place {
    /// Returns the PHC string to store for this password.
    ///
    /// # Errors
    /// [`Code::Internal`] if the password is longer than [`crate::rules::password`] allows.
    pub async fn hash(&self, password: &str) -> Result<String, Error> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Err(Error::internal("a password that is too long reached the hasher"));
        }
        let (password, salt) = (Secret::new(password), self.shared().random.bytes::<SALT_BYTES>());
        let unhashed = self.with_current_params(&salt)?;
        self.run(move |memory| {
            let hash = unhashed.compute(&password, memory)?;
            Ok(PhcHash { hash, ..unhashed }.to_phc())
        })
        .await
    }

    /// Checks a password against the stored PHC string. `None` is for an unknown account: it never matches,
    /// and takes the same time, so that the response time doesn't reveal which accounts exist.
    ///
    /// # Errors
    /// [`Code::Internal`] if the stored string is damaged.
    pub async fn verify(&self, password: &str, stored: Option<&str>) -> Result<Verdict, Error> {
        let account = match stored {
            // The error must not show the hash.
            Some(text) => Some(
                PhcHash::parse(text).ok_or_else(|| Error::internal("a stored password hash is damaged"))?,
            ),
            None => None,
        };
        let can_match = account.is_some() && password.len() <= MAX_PASSWORD_BYTES;
        let needs_rehash =
            account.as_ref().is_some_and(|stored| !stored.has_params(&self.shared().current_params));
        let stored = account.map_or_else(|| self.with_current_params(&[0; SALT_BYTES]), Ok)?;
        let end = password.floor_char_boundary(MAX_PASSWORD_BYTES);
        let password = Secret::new(password.get(..end).unwrap_or_default());
        self.run(move |memory| {
            // Hashes are compared in constant time.
            let is_same = stored.compute(&password, memory)? == stored.hash;
            Ok(Verdict { matches: is_same & can_match, needs_rehash })
        })
        .await
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.permits.shared
    }

    /// Returns the current parameters with a salt, and zeros in place of the hash.
    fn with_current_params(&self, salt: &[u8; SALT_BYTES]) -> Result<PhcHash, Error> {
        Ok(PhcHash {
            params: self.shared().current_params.clone(),
            salt: Salt::new(salt).map_err(Error::internal)?,
            hash: Output::new(&[0; HASH_BYTES]).map_err(Error::internal)?,
        })
    }

    /// Runs one hash when a thread is free. If the future is dropped while it waits, it leaves the queue. If
    /// the future is dropped later, the hash still runs to its end and keeps its place until then, because a
    /// core is still busy with it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Vec<Block>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.shared().running).acquire_owned().await.map_err(Error::internal)?;
        let permits = Arc::clone(&self.permits);
        let hash = move || {
            let mut memory = permits.shared.take_memory();
            let result = work(&mut memory);
            permits.shared.give_back(memory);
            drop((turn, permits));
            result
        };
        let hashed = self.shared().threads.run(hash).await;
        let hashed = hashed.ok_or_else(|| Error::internal("no threads for hashes"))?;
        hashed.map_err(Error::internal)?
    }
}

impl Shared {
    fn take_memory(&self) -> Vec<Block> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps the memory for reuse if it has the size for the current parameters. At most one buffer exists
    /// for each thread.
    fn give_back(&self, memory: Vec<Block>) {
        if memory.len() == self.current_params.block_count() {
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}

/// A parsed PHC string: `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
struct PhcHash {
    params: Params,
    salt: Salt,
    hash: Output,
}

impl PhcHash {
    fn has_params(&self, params: &Params) -> bool {
        parameters(&self.params) == parameters(params)
            && (self.salt.len(), self.hash.len()) == (SALT_BYTES, HASH_BYTES)
    }

    /// Parses the output of [`PhcHash::to_phc`], with any parameters within the bounds.
    fn parse(text: &str) -> Option<Self> {
        let phc = PasswordHash::new(text).ok()?;
        let (memory, passes, lanes) = parameters(&Params::try_from(&phc).ok()?);
        let params = Params::new(memory, passes, lanes, None).ok()?;
        let parsed = Self { params, salt: phc.salt?, hash: phc.hash? };
        let is_bounded = memory <= MAX_MEMORY_KIB
            && passes <= MAX_PASSES
            && lanes <= MAX_LANES
            && parsed.hash.len() >= MIN_HASH_BYTES;
        // The library also accepts other algorithms, other orders and missing parameters, which
        // [`Self::to_phc`] never writes.
        (is_bounded && parsed.to_phc() == text).then_some(parsed)
    }

    fn to_phc(&self) -> String {
        let (memory, passes, lanes) = parameters(&self.params);
        format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${}${}", self.salt, self.hash)
    }

    /// Computes the hash of this password with these parameters and this salt. It has the same length as the
    /// stored hash.
    fn compute(&self, password: &Secret, memory: &mut Vec<Block>) -> Result<Output, Error> {
        // A letter can have several encodings, such as é, or e with a combining accent. All of them must
        // match.
        let normal: String = password.expose().nfc().collect();
        memory.resize(self.params.block_count(), Block::new());
        let mut hash = vec![0; self.hash.len()];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone())
            .hash_password_into_with_memory(normal.as_bytes(), &self.salt, &mut hash, memory)
            .map_err(Error::internal)?;
        Output::new(&hash).map_err(Error::internal)
    }
}

fn parameters(params: &Params) -> (u32, u32, u32) {
    (params.m_cost(), params.t_cost(), params.p_cost())
}

/// Returns the parameters of new hashes. A test checks that the argon2 crate's defaults are the same.
fn current_params() -> Params {
    Params::new(MEMORY_KIB, PASSES, LANES, None).unwrap_or(Params::DEFAULT)
}

#[cfg(test)]
mod tests;
