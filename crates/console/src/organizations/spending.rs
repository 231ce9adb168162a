//! The amount that an organization can spend, its parts, and the reasons why a figure is negative.

use billing::limits::Limits;
use billing::summary::Summary;
use billing::wallets::Wallet;
use kernel::money::Nano;

use crate::show;

/// The amount that an organization can spend, and its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spending {
    pub wallet: Wallet,
    /// The amount by which the balance may currently go below zero.
    pub credit_limit: Nano,
    /// The balance and the credit limit, minus the reserved amount.
    pub spendable: Nano,
    /// The amount that is due on unpaid invoices; `None` if the user may not see invoices.
    due: Option<Nano>,
}

impl From<&Summary> for Spending {
    fn from(summary: &Summary) -> Self {
        Self {
            wallet: summary.wallet.clone(),
            credit_limit: summary.credit_limit,
            spendable: summary.spendable,
            due: Some(summary.due),
        }
    }
}

impl From<&Limits> for Spending {
    fn from(limits: &Limits) -> Self {
        Self {
            wallet: limits.wallet.clone(),
            credit_limit: limits.credit_limit,
            spendable: limits.spendable,
            due: None,
        }
    }
}

impl Spending {
    /// Returns a sentence for each negative figure.
    pub fn reasons(&self) -> Vec<String> {
        let balance = Balance {
            posted: self.wallet.posted.units(),
            reserved: self.wallet.reserved.units(),
            credit_limit: self.credit_limit.units(),
            due: self.due.map(Nano::units),
            currency: &self.wallet.currency,
        };
        [balance.debt(), balance.excess()].into_iter().flatten().collect()
    }
}

/// The parts of the amount that can be spent, in nano.
#[derive(Clone, Copy, Debug)]
struct Balance<'a> {
    posted: i128,
    reserved: i128,
    credit_limit: i128,
    due: Option<i128>,
    currency: &'a str,
}

impl Balance<'_> {
    fn words(self, nano: i128) -> String {
        show::owed(Nano::from_units(nano), self.currency).into_parts().0
    }

    /// Returns the reason why the balance is negative.
    fn debt(self) -> Option<String> {
        let debt = -self.posted;
        if debt <= 0 {
            return None;
        }
        let reason = match self.due {
            None => format!("usage of {} isn’t paid yet", self.words(debt)),
            Some(0) => format!("{} isn’t invoiced yet", self.words(debt)),
            Some(due) if due < debt => {
                format!("{} is due on unpaid invoices, and the rest isn’t invoiced yet", self.words(due))
            }
            Some(due) => format!("{} is due on unpaid invoices", self.words(due)),
        };
        Some(format!("The balance is negative: {reason}."))
    }

    /// Returns the reason why the amount that can be spent is negative.
    fn excess(self) -> Option<String> {
        let covered = self.posted + self.credit_limit;
        let reason = if covered >= self.reserved {
            return None;
        } else if covered >= 0 {
            format!(
                "calls in progress reserve {}, which is more than the balance and the credit limit cover",
                self.words(self.reserved)
            )
        } else if self.credit_limit == 0 {
            "no credit limit covers a negative balance".to_owned()
        } else {
            format!(
                "the balance is {} below the credit limit. A lower limit, usage reported late, a refund or \
                 an expired credit can cause this",
                self.words(-covered)
            )
        };
        Some(format!("The amount that can be spent is negative: {reason}."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(posted: &str, reserved: &str, credit_limit: &str, due: Option<&str>) -> Balance<'static> {
        let [posted, reserved, credit_limit] = [posted, reserved, credit_limit].map(units);
        Balance { posted, reserved, credit_limit, due: due.map(units), currency: "USD" }
    }

    fn units(text: &str) -> i128 {
        Nano::parse(text).unwrap().units()
    }

    #[test]
    fn negative_balance_has_its_reason() {
        let cases = [
            ("0", Some("0"), ""),
            ("10", None, ""),
            ("-5.001", Some("0"), "5.01 USD isn’t invoiced yet"),
            ("-5.001", None, "usage of 5.01 USD isn’t paid yet"),
            ("-5.001", Some("2"), "2.00 USD is due on unpaid invoices, and the rest isn’t invoiced yet"),
            ("-5.001", Some("5.001"), "5.01 USD is due on unpaid invoices"),
        ];
        for (posted, due, reason) in cases {
            let expected = (!reason.is_empty()).then(|| format!("The balance is negative: {reason}."));
            assert_eq!(balance(posted, "0", "100", due).debt(), expected, "{posted} {due:?}");
        }
    }

    #[test]
    fn negative_amount_that_can_be_spent_has_its_reason() {
        let reserved =
            "calls in progress reserve 4.50 USD, which is more than the balance and the credit limit cover";
        let below = "the balance is 0.001 USD below the credit limit. A lower limit, usage reported late, a refund \
                     or an expired credit can cause this";
        let cases = [
            ("10", "10", "0", ""),
            ("-5.001", "0", "5.001", ""),
            ("3", "4.5", "1", reserved),
            ("-5.001", "0", "0", "no credit limit covers a negative balance"),
            ("-5.001", "9", "5", below),
        ];
        for (posted, pending, limit, reason) in cases {
            let expected =
                (!reason.is_empty()).then(|| format!("The amount that can be spent is negative: {reason}."));
            assert_eq!(
                balance(posted, pending, limit, None).excess(),
                expected,
                "{posted} {pending} {limit}"
            );
        }
    }
}
