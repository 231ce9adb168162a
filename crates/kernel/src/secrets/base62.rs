//! Base62: digits, upper and lower case letters, in ASCII order.

use super::SECRET_BYTES;

pub const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The number of base62 characters for 256 bits: 62^43 is slightly more than 2^256.
pub const SECRET_CHARS: usize = 43;

/// Encodes a big-endian number of 256 bits as 43 base62 characters, padded with `0` on the left.
pub fn encode(mut number: [u8; SECRET_BYTES]) -> String {
    let mut characters = [b'0'; SECRET_CHARS];
    for slot in characters.iter_mut().rev() {
        // This is a long division by 62, whose remainder is the next digit from the right.
        let mut remainder: u32 = 0;
        for byte in &mut number {
            let dividend = remainder * 256 + u32::from(*byte);
            *byte = u8::try_from(dividend / 62).unwrap_or(0);
            remainder = dividend % 62;
        }
        *slot = digit(remainder);
    }
    characters.into_iter().map(char::from).collect()
}

/// Returns the digit for a value below 62.
pub fn digit(value: u32) -> u8 {
    usize::try_from(value).ok().and_then(|v| ALPHABET.get(v)).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn encode_keeps_the_order_of_numbers(a: [u8; 32], b: [u8; 32]) {
            proptest::prop_assert_eq!(a.cmp(&b), encode(a).cmp(&encode(b)));
        }
    }
}
