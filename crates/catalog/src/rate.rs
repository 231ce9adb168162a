//! The price of a number of tokens.

use super::Price;
use kernel::money::Pico;

/// Maximum price of one call: 1,000,000 of the currency. A daily row then has room for thousands of the most
/// expensive ones.
pub const MAX_CALL_PRICE: Pico = Pico::from_units(1_000_000_000_000_000_000);

/// Returns the list price of these tokens, in pico of the currency.
///
/// `None` if a count is negative, or if the sum exceeds 64 bits, in which the databases store an amount: such
/// usage is refused, never truncated.
pub fn rate(price: &Price, prompt_tokens: i64, completion_tokens: i64) -> Option<Pico> {
    if prompt_tokens < 0 || completion_tokens < 0 {
        return None;
    }
    let prompt = price.prompt.checked_mul(prompt_tokens)?;
    let completion = price.completion.checked_mul(completion_tokens)?;
    let amount = prompt.checked_add(completion)?;
    amount.to_i64().map(|_| amount)
}
