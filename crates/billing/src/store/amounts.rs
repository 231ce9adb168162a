//! Amounts in two columns: whole units of the currency, and pico.

use kernel::money::Pico;

/// The number of picos per whole unit of the currency. Amounts are stored and summed in two parts, so that
/// they stay exact if they exceed 64 bits of pico.
pub(super) const PICO_PER_WHOLE: i128 = 1_000_000_000_000;
/// Maximum number of picos in a row without whole units, positive or negative.
pub(super) const MAX_PICO: i128 = 4_000_000_000_000_000_000;

/// Returns the amount that is stored in two columns.
pub(super) fn whole_and_rest(whole: i64, rest_pico: i64) -> Pico {
    Pico::from_units(i128::from(whole) * PICO_PER_WHOLE + i128::from(rest_pico))
}

/// Returns the stored form of an amount: whole units of the currency, and pico.
pub(super) fn stored_amount(amount: Pico) -> Result<(i64, i64), db::Error> {
    let units = amount.units();
    let (whole, pico) = match (-MAX_PICO..=MAX_PICO).contains(&units) {
        true => (0, units),
        false => (units / PICO_PER_WHOLE, units % PICO_PER_WHOLE),
    };
    let part = |part| {
        i64::try_from(part).map_err(|_| db::Error::Internal(format!("{amount} doesn't fit in 64 bits")))
    };
    Ok((part(whole)?, part(pico)?))
}
