//! The descriptions of a wallet's movements for customers.

/// The rest of the key of the single movement that represents all usage before the ledger existed.
const BEFORE_THE_LEDGER: &str = "before-the-ledger";

/// Returns the subject of a movement (docs/contract/billing.md#kinds-of-movements): its idempotency key
/// without the kind at the beginning and the movement's id at the end. Returns `None` if nothing is left.
pub fn reference<'a>(kind: &str, idempotency_key: &'a str, id: &str) -> Option<&'a str> {
    let rest = idempotency_key.strip_prefix(kind)?.strip_prefix(':')?;
    if rest == id || rest == BEFORE_THE_LEDGER {
        return None;
    }
    let owner = rest.strip_suffix(id).and_then(|before| before.strip_suffix(':')).unwrap_or(rest);
    match kind {
        // The rest is a refund or a dispute, and the credit that it was taken from.
        "payment" => owner.split(':').next(),
        // Amounts that are too small to be paid are written off for a month.
        "write_off" => owner.strip_prefix("dust:").or(Some(owner)),
        _ => Some(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_owner_in_the_key() {
        let cases = [
            ("usage", "usage:ltx_1", None),
            ("usage", "usage:before-the-ledger", None),
            ("credit", "credit:payment 1", Some("payment 1")),
            ("credit", "credit:a:b", Some("a:b")),
            ("credit", "credit:dust:2026-01", Some("dust:2026-01")),
            // The id of another movement isn't removed.
            ("credit", "credit:credit_1:ltx_2", Some("credit_1:ltx_2")),
            // Taken back.
            ("credit", "credit:credit_1:ltx_1", Some("credit_1")),
            ("credit_expiry", "credit_expiry:credit_1:ltx_1", Some("credit_1")),
            ("discount", "discount:2026-01", Some("2026-01")),
            // Of a credit note.
            ("discount", "discount:ltx_1", None),
            ("payment", "payment:invoice_1", Some("invoice_1")),
            ("payment", "payment:payment_1", Some("payment_1")),
            ("payment", "payment:payment_1:refund_2:credit_3", Some("payment_1")),
            ("void", "void:invoice_1", Some("invoice_1")),
            ("void", "void:invoice_1:ltx_1", Some("invoice_1")),
            ("write_off", "write_off:invoice_1", Some("invoice_1")),
            ("write_off", "write_off:credit_1:ltx_1", Some("credit_1")),
            ("write_off", "write_off:dust:2026-01", Some("2026-01")),
            // Keys that the service doesn't create.
            ("usage", "credit:payment 1", None),
            ("usage", "usages:x", None),
            ("usage", "", None),
        ];
        for (kind, key, due) in cases {
            assert_eq!(reference(kind, key, "ltx_1"), due, "{kind} {key}");
        }
    }
}
