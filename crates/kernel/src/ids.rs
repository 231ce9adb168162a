//! Identifiers: TypeIDs, a type prefix and a `UUIDv7` in base32 (`org_01h…`; TypeID specification 0.3, RFC
//! 9562).
//!
//! Ids of different kinds are different types. A malformed id is parsed as `None`, and treated like an
//! unknown id.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::clock::Time;
use crate::random::Random;

/// The type of object that an id identifies.
pub trait Kind: Send + Sync + 'static {
    /// The part before the underscore.
    const PREFIX: &'static str;
}

/// The types of objects that have ids.
pub mod kind {
    use super::Kind;

    /// A user's account.
    pub enum User {}
    /// An organization.
    pub enum Organization {}
    /// A connection of an account with a provider.
    pub enum Connection {}
    /// A project of an organization.
    pub enum Project {}
    /// An API key of a project.
    pub enum ApiKey {}
    /// An invitation into an organization.
    pub enum Invitation {}
    /// A login session.
    pub enum Session {}
    /// A passkey of a user.
    pub enum Passkey {}
    /// A request to this service.
    pub enum Request {}
    /// An access or refresh token.
    pub enum Token {}
    /// An e-mail in the outbox.
    pub enum Mail {}
    /// An entry of the audit trail.
    pub enum Audit {}
    /// A movement of money.
    pub enum LedgerTransaction {}
    /// A credit of an organization.
    pub enum Credit {}
    /// Money reserved for a call.
    pub enum Reservation {}
    /// A model call through the gateway.
    pub enum ModelCall {}
    /// An invoice.
    pub enum Invoice {}
    /// A credit note.
    pub enum CreditNote {}
    /// A budget of an organization.
    pub enum Budget {}
    /// An endpoint that receives events.
    pub enum Webhook {}
    /// An event for webhooks.
    pub enum Event {}
    /// A delivery of an event to a webhook.
    pub enum Delivery {}
    /// A payment of an organization.
    pub enum Payment {}
    /// A refund of a payment.
    pub enum Refund {}

    impl Kind for User {
        const PREFIX: &'static str = "user";
    }
    impl Kind for Organization {
        const PREFIX: &'static str = "org";
    }
    impl Kind for Project {
        const PREFIX: &'static str = "proj";
    }
    impl Kind for ApiKey {
        const PREFIX: &'static str = "key";
    }
    impl Kind for Invitation {
        const PREFIX: &'static str = "inv";
    }
    impl Kind for Session {
        const PREFIX: &'static str = "sess";
    }
    impl Kind for Passkey {
        const PREFIX: &'static str = "passkey";
    }
    impl Kind for Request {
        const PREFIX: &'static str = "req";
    }
    impl Kind for Token {
        const PREFIX: &'static str = "jti";
    }
    impl Kind for Mail {
        const PREFIX: &'static str = "mail";
    }
    impl Kind for Audit {
        const PREFIX: &'static str = "audit";
    }
    impl Kind for Connection {
        const PREFIX: &'static str = "con";
    }
    impl Kind for LedgerTransaction {
        const PREFIX: &'static str = "ltx";
    }
    impl Kind for Credit {
        const PREFIX: &'static str = "credit";
    }
    impl Kind for Reservation {
        const PREFIX: &'static str = "res";
    }
    impl Kind for ModelCall {
        const PREFIX: &'static str = "call";
    }
    impl Kind for Invoice {
        const PREFIX: &'static str = "invoice";
    }
    impl Kind for CreditNote {
        const PREFIX: &'static str = "credit_note";
    }
    impl Kind for Budget {
        const PREFIX: &'static str = "budget";
    }
    impl Kind for Webhook {
        const PREFIX: &'static str = "webhook";
    }
    impl Kind for Event {
        const PREFIX: &'static str = "event";
    }
    impl Kind for Delivery {
        const PREFIX: &'static str = "delivery";
    }
    impl Kind for Payment {
        const PREFIX: &'static str = "payment";
    }
    impl Kind for Refund {
        const PREFIX: &'static str = "refund";
    }
}

/// The id of a user's account, `user_…`.
pub type UserId = Id<kind::User>;
/// The id of an organization, `org_…`.
pub type OrganizationId = Id<kind::Organization>;
/// The id of a project, `proj_…`.
pub type ProjectId = Id<kind::Project>;
/// The id of an API key, `key_…`. It stays the same when the key is rotated.
pub type ApiKeyId = Id<kind::ApiKey>;
/// The id of an invitation into an organization, `inv_…`.
pub type InvitationId = Id<kind::Invitation>;
/// The id of a login session, `sess_…`, which is the `sid` of its tokens.
pub type SessionId = Id<kind::Session>;
/// The id of a passkey, `passkey_…`, which differs from the id of its credential.
pub type PasskeyId = Id<kind::Passkey>;
/// The id of a connection of an account with a provider, `con_…`.
pub type ConnectionId = Id<kind::Connection>;
/// The id of a request to this service, `req_…`, which is sent in the header `x-request-id`.
pub type RequestId = Id<kind::Request>;

/// The id of an access or refresh token, `jti_…`.
pub type TokenId = Id<kind::Token>;
/// The id of an e-mail in the outbox, `mail_…`.
pub type MailId = Id<kind::Mail>;
/// The id of an entry of the audit trail, `audit_…`.
pub type AuditId = Id<kind::Audit>;
/// The id of a movement of money, `ltx_…`.
pub type LedgerTransactionId = Id<kind::LedgerTransaction>;
/// The id of a credit, `credit_…`.
pub type CreditId = Id<kind::Credit>;
/// The id of a reservation of money for a call, `res_…`.
pub type ReservationId = Id<kind::Reservation>;
/// The id of a model call through the gateway, `call_…`, which is sent in the header `x-tollkeeper-call-id`.
/// It is also the id of the call's usage event.
pub type ModelCallId = Id<kind::ModelCall>;
/// The id of an invoice, `invoice_…`, which differs from its number.
pub type InvoiceId = Id<kind::Invoice>;
/// The id of a credit note, `credit_note_…`.
pub type CreditNoteId = Id<kind::CreditNote>;
/// The id of a budget, `budget_…`.
pub type BudgetId = Id<kind::Budget>;
/// The id of an endpoint that receives events, `webhook_…`.
pub type WebhookId = Id<kind::Webhook>;
/// The id of an event for webhooks, `event_…`, which is the header `webhook-id` of each of its deliveries.
pub type EventId = Id<kind::Event>;
/// The id of a delivery of an event to a webhook, `delivery_…`.
pub type DeliveryId = Id<kind::Delivery>;
/// The id of a payment, `payment_…`.
pub type PaymentId = Id<kind::Payment>;
/// The id of a refund of a payment, `refund_…`.
pub type RefundId = Id<kind::Refund>;

/// The caller of a model, to which usage is attributed: an API key, or a user with an access token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallerId {
    /// An API key.
    ApiKey(ApiKeyId),
    /// A user.
    User(UserId),
}

impl CallerId {
    /// Parses the id of an API key or a user.
    pub fn parse(text: &str) -> Option<Self> {
        ApiKeyId::parse(text).map(Self::ApiKey).or_else(|| UserId::parse(text).map(Self::User))
    }

    /// Returns the time at which the key or the account was created.
    pub fn created_at(self) -> Time {
        match self {
            Self::ApiKey(id) => id.created_at(),
            Self::User(id) => id.created_at(),
        }
    }

    /// Returns the id as text, without allocating.
    pub fn short_text(self) -> IdText {
        match self {
            Self::ApiKey(id) => id.short_text(),
            Self::User(id) => id.short_text(),
        }
    }
}

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks each index")]
const fn digits() -> [u8; 256] {
    let mut digits = [255; 256];
    let mut digit: u8 = 0;
    while digit < 32 {
        digits[ALPHABET[digit as usize] as usize] = digit;
        digit += 1;
    }
    digits
}

/// An identifier of kind `K`.
pub struct Id<K> {
    uuid: u128,
    kind: PhantomData<fn() -> K>,
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The value of each byte as a digit; 255 for bytes outside the alphabet.
const DIGITS: [u8; 256] = digits();
const SUFFIX_LEN: usize = 26;

impl<K: Kind> Id<K> {
    /// Returns a new id: 48 bits of `now` in milliseconds, so that ids sort by age, and 74 random bits.
    pub fn new(now: Time, random: &Random) -> Self {
        Self::from_parts(now, u128::from_be_bytes(random.bytes()))
    }

    /// Returns the `UUIDv7` with this time and these random bits (RFC 9562, section 5.7).
    pub fn from_parts(now: Time, random: u128) -> Self {
        let ms = u128::try_from(now.unix_ms()).unwrap_or(0) & 0xffff_ffff_ffff;
        let rand_a = (random >> 64) & 0x0fff;
        let rand_b = random & 0x3fff_ffff_ffff_ffff;
        let uuid = (ms << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b;
        Self { uuid, kind: PhantomData }
    }

    /// Parses the canonical form of an id. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let suffix = text.strip_prefix(K::PREFIX)?.strip_prefix('_')?.as_bytes();
        let suffix: &[u8; SUFFIX_LEN] = suffix.try_into().ok()?;
        let (top, rest) = suffix.split_at_checked(SUFFIX_LEN - 2 * WORD_LEN)?;
        let (middle, low) = rest.split_at_checked(WORD_LEN)?;
        // 26 characters have 130 bits, so the first character may use only three of its five bits.
        let top = read_word(top).filter(|top| *top <= 0xff)?;
        let (middle, low) = (read_word(middle)?, read_word(low)?);
        let uuid = (u128::from(top) << (2 * WORD_BITS)) | (u128::from(middle) << WORD_BITS) | u128::from(low);
        Some(Self { uuid, kind: PhantomData })
    }

    /// Returns the time of creation, which the id contains.
    pub fn created_at(self) -> Time {
        // The upper 48 bits always fit.
        Time::from_unix_ms(i64::try_from(self.uuid >> 80).unwrap_or(i64::MAX))
    }

    /// Returns the id as a number, for maps in memory.
    pub const fn as_u128(self) -> u128 {
        self.uuid
    }
}

/// The number of characters that are read and written as one `u64`, because 128 bits don't fit in a register.
const WORD_LEN: usize = 12;
const WORD_BITS: u32 = 60;

fn read_word(characters: &[u8]) -> Option<u64> {
    let (mut word, mut all) = (0, 0);
    for character in characters {
        let digit = DIGITS.get(usize::from(*character)).copied().unwrap_or(u8::MAX);
        all |= digit;
        word = (word << 5) | u64::from(digit & 31);
    }
    (all < 32).then_some(word)
}

fn write_word(characters: &mut [u8], word: u128) {
    let mut rest = u64::try_from(word & ((1 << WORD_BITS) - 1)).unwrap_or(0);
    for character in characters.iter_mut().rev() {
        *character =
            usize::try_from(rest & 31).ok().and_then(|digit| ALPHABET.get(digit)).copied().unwrap_or(b'0');
        rest >>= 5;
    }
}

impl<K: Kind> Id<K> {
    /// Returns the id as text, faster than `to_string`.
    pub fn text(self) -> String {
        self.short_text().as_str().to_owned()
    }

    /// Returns the id as text, without allocating.
    pub fn short_text(self) -> IdText {
        const { assert!(K::PREFIX.len() + 1 + SUFFIX_LEN <= MAX_TEXT_LEN, "the prefix is too long") };
        let prefix = K::PREFIX.as_bytes();
        let mut bytes = [b'_'; MAX_TEXT_LEN];
        if let Some(start) = bytes.get_mut(..prefix.len()) {
            start.copy_from_slice(prefix);
        }
        if let Some(suffix) = bytes.get_mut(prefix.len() + 1..prefix.len() + 1 + SUFFIX_LEN) {
            let (top, rest) = suffix.split_at_mut(SUFFIX_LEN - 2 * WORD_LEN);
            let (middle, low) = rest.split_at_mut(WORD_LEN);
            write_word(top, self.uuid >> (2 * WORD_BITS));
            write_word(middle, self.uuid >> WORD_BITS);
            write_word(low, self.uuid);
        }
        IdText { length: u8::try_from(prefix.len() + 1 + SUFFIX_LEN).unwrap_or(0), bytes }
    }
}

/// Maximum length of the text of an id.
const MAX_TEXT_LEN: usize = 38;

/// The text of an id, on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdText {
    length: u8,
    bytes: [u8; MAX_TEXT_LEN],
}

impl IdText {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Debug for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<K: Kind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short_text().as_str())
    }
}

impl<K: Kind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.uuid == other.uuid
    }
}
impl<K> Eq for Id<K> {}
/// Orders ids by age, which is also their order as strings.
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uuid.cmp(&other.uuid)
    }
}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> std::hash::Hash for Id<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.uuid.hash(state);
    }
}

impl<K: Kind> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.short_text().as_str())
    }
}

impl<K: Kind> JsonSchema for Id<K> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Id_{}", K::PREFIX).into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let example = format!("{}_01kfz3v9xee8tb2m6h0q5w7r4n", K::PREFIX);
        json_schema!({"type": "string", "examples": [example]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip() {
        let random = Random::system();
        for unix_ms in [0, 1_700_000_000_000, 253_402_300_799_999] {
            let id = UserId::new(Time::from_unix_ms(unix_ms), &random);
            let text = id.to_string();
            assert_eq!(UserId::parse(&text), Some(id), "{text}");
            assert_eq!((id.short_text().as_str(), id.text()), (&*text, text.clone()));
            assert_eq!(id.created_at().unix_ms(), unix_ms);
            assert_eq!(CallerId::parse(&text), Some(CallerId::User(id)));
            assert_eq!(CallerId::User(id).short_text().as_str(), text);
            assert_eq!(OrganizationId::parse(&text), None);
        }
    }

    #[test]
    fn example_of_the_typeid_specification() {
        // TypeID specification: 0188bac7-4afa-78aa-bc3b-bd1eef28d881 is 01h2xcejqtf2nbrexx3vqjhp41.
        let id = UserId { uuid: 0x0188_bac7_4afa_78aa_bc3b_bd1e_ef28_d881, kind: PhantomData };
        assert_eq!(id.to_string(), "user_01h2xcejqtf2nbrexx3vqjhp41");
    }

    #[test]
    fn ids_sort_by_age() {
        let random = Random::system();
        let older = ProjectId::new(Time::from_unix_ms(1_700_000_000_000), &random).to_string();
        let newer = ProjectId::new(Time::from_unix_ms(1_700_000_000_001), &random).to_string();
        assert!(older < newer);
    }

    #[test]
    fn only_canonical_ids_parse() {
        for bad in [
            "",
            "user_",
            "user",
            "01h2xcejqtf2nbrexx3vqjhp41",
            "user_01H2XCEJQTF2NBREXX3VQJHP41",
            "user_81h2xcejqtf2nbrexx3vqjhp41",
            "user_01h2xcejqtf2nbrexx3vqjhp4",
            "user_01h2xcejqtf2nbrexx3vqjhp4l",
            "user_01h2xcejqtf2nbrexx3vqjhp41 ",
            "user_\u{e9}1h2xcejqtf2nbrexx3vqjhp4",
        ] {
            assert_eq!(UserId::parse(bad), None, "{bad}");
        }
    }
}
