//! Sealing: authenticated encryption with the master key, for secrets in the database.
//!
//! The cipher is AES-256-GCM (NIST SP 800-38D). A sealed secret consists of one format byte, a nonce of 12
//! random bytes, the ciphertext and a tag of 16 bytes. The format byte and the associated text are also
//! authenticated, so that a sealed secret can't be moved to another row. Random nonces are safe for 2^32
//! encryptions per key (NIST SP 800-38D, section 8.3).

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use crate::error::Error;
use crate::random::Random;

const FORMAT: u8 = 1;

/// A sealer, which seals with the master key, and opens secrets sealed with it or with the previous master
/// key.
pub struct Sealer {
    key: Option<LessSafeKey>,
    previous: Option<LessSafeKey>,
    derivation: hmac::Key,
}

/// A key for one purpose, derived from the master key. It is the same on every server with that key and after
/// every restart.
#[derive(Clone)]
pub struct DerivedKey(hmac::Key);

impl DerivedKey {
    /// Returns the tag of the text. It reveals nothing about the key and, without the key, nothing about the
    /// text (HMAC-SHA256, RFC 2104).
    pub fn tag(&self, text: &[u8]) -> [u8; 32] {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.0, text).as_ref());
        tag
    }
}

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The error of sealing or opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// The format byte is missing or unknown.
    UnknownFormat,
    /// The sealed secret was changed, truncated, or sealed with a different master key or associated text.
    NotAuthentic,
    /// The text is longer than the cipher allows.
    TooLong,
    /// The cryptographic library refused the master key, which is impossible for 32 bytes.
    NoKey,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownFormat => "sealed in an unknown format",
            Self::NotAuthentic => "damaged, or sealed with a different master key or for a different row",
            Self::TooLong => "too long to be sealed",
            Self::NoKey => "the master key was refused",
        })
    }
}

impl std::error::Error for SealError {}

impl From<SealError> for Error {
    /// Converts the error to an internal error.
    fn from(error: SealError) -> Self {
        Self::internal(format_args!("sealed secret: {error}"))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Sealer {
    pub fn new(key: [u8; 32]) -> Self {
        // ring refuses only keys of a different length, which the type rules out.
        Self { key: cipher(&key), previous: None, derivation: hmac::Key::new(hmac::HMAC_SHA256, &key) }
    }

    /// Derives a key for a purpose. A different master key results in a different key.
    pub fn derive(&self, purpose: &str) -> DerivedKey {
        let seed = hmac::sign(&self.derivation, format!("tollkeeper derived key: {purpose}").as_bytes());
        DerivedKey(hmac::Key::new(hmac::HMAC_SHA256, seed.as_ref()))
    }

    /// Adds a previous key, which is only used to open secrets, while the master key is being replaced.
    #[must_use]
    pub fn with_previous(self, previous: [u8; 32]) -> Self {
        Self { previous: cipher(&previous), ..self }
    }

    /// Reseals a secret with the master key. Returns `None` if it is already sealed with that key.
    ///
    /// # Errors
    /// Neither key opens it.
    pub fn reseal(
        &self,
        sealed: &[u8],
        associated: &str,
        random: &Random,
    ) -> Result<Option<Vec<u8>>, SealError> {
        let key = self.key.as_ref().ok_or(SealError::NoKey)?;
        match open(key, sealed, associated) {
            Ok(_) => Ok(None),
            Err(_) => self.seal(&self.open(sealed, associated)?, associated, random).map(Some),
        }
    }

    /// Seals `plain`. The text `associated` identifies where the secret is stored, for instance by the id of
    /// the row, and is needed to open it.
    ///
    /// # Errors
    /// [`SealError::TooLong`] if `plain` is longer than GCM allows (64 GiB).
    pub fn seal(&self, plain: &[u8], associated: &str, random: &Random) -> Result<Vec<u8>, SealError> {
        let key = self.key.as_ref().ok_or(SealError::NoKey)?;
        let nonce: [u8; NONCE_LEN] = random.bytes();
        let mut text = plain.to_vec();
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                additional(associated),
                &mut text,
            )
            .map_err(|_| SealError::TooLong)?;
        Ok([[FORMAT].as_slice(), &nonce, text.as_slice(), tag.as_ref()].concat())
    }

    /// Opens a result of [`Sealer::seal`] with the same associated text.
    ///
    /// # Errors
    /// The bytes were changed, or the master key or the associated text differs.
    pub fn open(&self, sealed: &[u8], associated: &str) -> Result<Vec<u8>, SealError> {
        let key = self.key.as_ref().ok_or(SealError::NoKey)?;
        match (open(key, sealed, associated), &self.previous) {
            (Err(SealError::NotAuthentic), Some(previous)) => open(previous, sealed, associated),
            (outcome, _) => outcome,
        }
    }
}

fn cipher(key: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}

fn open(key: &LessSafeKey, sealed: &[u8], associated: &str) -> Result<Vec<u8>, SealError> {
    let (&format, rest) = sealed.split_first().ok_or(SealError::UnknownFormat)?;
    if format != FORMAT {
        return Err(SealError::UnknownFormat);
    }
    let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError::NotAuthentic)?;
    let mut text = text.to_vec();
    let plain = key
        .open_in_place(Nonce::assume_unique_for_key(*nonce), additional(associated), &mut text)
        .map_err(|_| SealError::NotAuthentic)?;
    Ok(plain.to_vec())
}

fn additional(associated: &str) -> Aad<Vec<u8>> {
    Aad::from([[FORMAT].as_slice(), associated.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn derived_keys_are_the_same_for_a_purpose_and_a_master_key() {
        let tag = |key: [u8; 32], purpose: &str, text: &[u8]| Sealer::new(key).derive(purpose).tag(text);
        let first = tag(KEY, "a", b"org_1");
        assert_eq!(first, tag(KEY, "a", b"org_1"));
        assert_eq!(first, Sealer::new(KEY).with_previous([9; 32]).derive("a").tag(b"org_1"));
        for other in [tag([8; 32], "a", b"org_1"), tag(KEY, "b", b"org_1"), tag(KEY, "a", b"org_2")] {
            assert_ne!(first, other);
        }
        assert_eq!(format!("{:?}", Sealer::new(KEY).derive("a")), "***");
    }

    #[test]
    fn previous_key_opens_but_does_not_seal() {
        let random = Random::system();
        let (old, new) = (Sealer::new(KEY), Sealer::new([8; 32]));
        let both = Sealer::new([8; 32]).with_previous(KEY);
        let sealed = old.seal(b"secret", "place", &random).unwrap();
        assert_eq!(both.open(&sealed, "place").unwrap(), b"secret");
        assert_eq!(both.open(&sealed, "elsewhere"), Err(SealError::NotAuthentic));
        assert_eq!(new.open(&sealed, "place"), Err(SealError::NotAuthentic));
        let by_both = both.seal(b"secret", "place", &random).unwrap();
        assert!(new.open(&by_both, "place").is_ok() && old.open(&by_both, "place").is_err());

        let resealed = both.reseal(&sealed, "place", &random).unwrap().unwrap();
        assert_eq!(new.open(&resealed, "place").unwrap(), b"secret");
        assert_eq!(both.reseal(&resealed, "place", &random), Ok(None));
        assert_eq!(both.reseal(&sealed, "elsewhere", &random), Err(SealError::NotAuthentic));
        assert_eq!(new.reseal(&sealed, "place", &random), Err(SealError::NotAuthentic));
    }

    fn sealed(plain: &[u8]) -> Vec<u8> {
        Sealer::new(KEY).seal(plain, "key_1", &Random::system()).unwrap()
    }

    #[test]
    fn seal_error_is_internal_and_prints_no_secret() {
        let error = Error::from(SealError::NotAuthentic);
        assert_eq!(error.code, crate::error::Code::Internal);
        assert!(error.internal.is_some_and(|text| text.contains("a different master key")));
        assert_eq!(format!("{:?}", Sealer::new(KEY)), "***");
    }

    #[test]
    fn sealed_texts_open() {
        for plain in [b"".as_slice(), b"x", b"tk_secret", &[0; 4096]] {
            assert_eq!(Sealer::new(KEY).open(&sealed(plain), "key_1").as_deref(), Ok(plain));
        }
    }

    #[test]
    fn sealing_twice_differs() {
        assert_ne!(sealed(b"same"), sealed(b"same"));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let good = sealed(b"tk_secret");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Sealer::new(KEY).open(&bad, "key_1").is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(Sealer::new(KEY).open(&good[..length], "key_1").is_err(), "{length} bytes");
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(Sealer::new(KEY).open(&longer, "key_1"), Err(SealError::NotAuthentic));
    }

    #[test]
    fn other_place_key_or_format_is_refused() {
        let good = sealed(b"tk_secret");
        for place in ["", "key_2", "key_1 ", "key_"] {
            assert_eq!(Sealer::new(KEY).open(&good, place), Err(SealError::NotAuthentic), "{place}");
        }
        assert_eq!(Sealer::new([8; 32]).open(&good, "key_1"), Err(SealError::NotAuthentic));
        assert_eq!(Sealer::new(KEY).open(&[2; 60], "key_1"), Err(SealError::UnknownFormat));
        assert_eq!(format!("{:?}", Sealer::new(KEY)), "***");
    }

    proptest::proptest! {
        #[test]
        fn opening_noise_never_panics(noise: Vec<u8>, place: String) {
            proptest::prop_assert!(Sealer::new(KEY).open(&noise, &place).is_err());
        }
    }
}
