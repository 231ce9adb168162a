//! The net and tax parts of a payment. Money that is returned to the payer is split in the payment's
//! proportion.
//!
//! Parts are rounded by their running total, so that they always add up to the whole.

/// A payment's net amount and tax, and the returned parts of both, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// The credited amount; more than 0.
    pub net: i64,
    /// The tax paid on top; 0 or more.
    pub tax: i64,
    /// The net part of the returned amount.
    pub returned_net: i64,
    /// The tax part of the returned amount.
    pub returned_tax: i64,
}

impl Shares {
    /// Returns the net part of an amount that is returned now.
    ///
    /// The new total of returned net parts is the payment's net proportion of the total returned, rounded
    /// down. When the whole payment has been returned, so has all of its net amount.
    pub fn net_of(&self, amount: i64) -> i64 {
        let returned = self.returned_net.saturating_add(self.returned_tax).saturating_add(amount);
        let part = i128::from(self.net) * i128::from(returned) / self.total().max(1);
        let net = part - i128::from(self.returned_net);
        i64::try_from(net).unwrap_or(i64::MAX).clamp(0, amount.max(0))
    }

    /// Returns the net part of a previously returned amount that is paid again. `net` and `tax` are the parts
    /// of the refund or dispute that the amount belongs to. The result is at most `net`, its tax at most
    /// `tax`, and an amount of `net + tax` has exactly these parts.
    ///
    /// The result is derived from the total that stays with the payer, as in [`Self::net_of`].
    pub fn net_back(&self, amount: i64, (net, tax): (i64, i64)) -> i64 {
        let returned = self.returned_net.saturating_add(self.returned_tax).saturating_sub(amount);
        let part = i128::from(self.net) * i128::from(returned) / self.total().max(1);
        let back = i64::try_from(i128::from(self.returned_net) - part).unwrap_or(i64::MAX);
        back.clamp(amount.saturating_sub(tax).max(0), net.min(amount).max(0))
    }

    /// Returns the amount to send back for a net part, including its tax. The amount is rounded up to a
    /// multiple of `step`, unless too little tax remains. For the net part that completes the net amount,
    /// everything that remains is sent back.
    pub fn amount_of(&self, net: i64, step: i64) -> i64 {
        if self.tax == 0 {
            return net;
        }
        let (whole, step) = (self.total(), i128::from(step.max(1)));
        let returned_net = i128::from(self.returned_net) + i128::from(net);
        let sum = if returned_net >= i128::from(self.net) {
            whole
        } else {
            let divisor = i128::from(self.net).max(1);
            let least = (returned_net * whole + divisor - 1) / divisor;
            let most = (returned_net + i128::from(self.tax)) / step * step;
            ((least + step - 1) / step * step).min(most)
        };
        let amount = sum - i128::from(self.returned_net) - i128::from(self.returned_tax);
        i64::try_from(amount).unwrap_or(net).max(net)
    }

    fn total(&self) -> i128 {
        i128::from(self.net) + i128::from(self.tax)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(net: i64, tax: i64) -> Shares {
        Shares { net, tax, returned_net: 0, returned_tax: 0 }
    }

    /// Books amounts one after the other and returns their net parts.
    fn nets(mut shares: Shares, amounts: &[i64]) -> Vec<i64> {
        let mut nets = Vec::new();
        for amount in amounts {
            let net = shares.net_of(*amount);
            shares.returned_net += net;
            shares.returned_tax += amount - net;
            nets.push(net);
        }
        nets
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        // 19 %: 10.00 and 1.90. 100 / 1.19 = 84.03, 200 / 1.19 = 168.06, the rest: 1000 - 168.
        assert_eq!(nets(shares(1_000, 190), &[100, 100, 990]), [84, 84, 832]);
        // 8.875 %: 20.00 and 1.78 (1.775). 2000 x 726 / 2178 = 666.67, 2000 x 1452 / 2178 = 1333.33.
        assert_eq!(nets(shares(2_000, 178), &[726, 726, 726]), [666, 667, 667]);
        // Without a minor unit, 10 %: 999 and 99. 999 x 366 / 1098 = 333 each.
        assert_eq!(nets(shares(999, 99), &[366, 366, 366]), [333, 333, 333]);
        // Units: 3 net and 1 tax. Running totals: 0.75, 1.5, 2.25, 3.
        assert_eq!(nets(shares(3, 1), &[1, 1, 1, 1]), [0, 1, 1, 1]);
        // Without tax, each part is entirely net.
        assert_eq!(nets(shares(2_500, 0), &[300, 1, 2_199]), [300, 1, 2_199]);
        // A bank takes more than was paid: the same proportion applies.
        assert_eq!(nets(shares(1_000, 190), &[1_190, 119]), [1_000, 100]);
    }

    #[test]
    fn whole_is_reached_after_parts_came_back_too() {
        // 1.00 and 0.19: of 10, 10, and 10 the net parts are 8, 8, and 9. The first 10 are paid again, so 17
        // of the remaining 20 are net.
        let mut left = shares(100, 19);
        assert_eq!(nets(left, &[10, 10, 10]), [8, 8, 9]);
        (left.returned_net, left.returned_tax) = (17, 3);
        // 100 x 30 / 119 = 25.2, of which 17 were already returned.
        assert_eq!(nets(left, &[10, 89]), [8, 75]);
    }

    #[test]
    fn net_part_that_comes_back_leads_to_the_rest() {
        // 100.00 and 19.00: 47.60 were refunded (40.00 and 7.60), then all was disputed (100.00 and 19.00).
        let all = Shares { returned_net: 14_000, returned_tax: 2_660, ..shares(10_000, 1_900) };
        // 47.60 come back: 166.60 - 47.60 is the whole payment.
        assert_eq!(all.net_back(4_760, (10_000, 1_900)), 4_000);
        // All of the dispute comes back.
        assert_eq!(all.net_back(11_900, (10_000, 1_900)), 10_000);
        // 1.00 and 0.19, all of it disputed, comes back in parts: 100 x 109 / 119 = 91.6, 100 x 99 / 119 =
        // 83.2.
        let all = Shares { returned_net: 100, returned_tax: 19, ..shares(100, 19) };
        assert_eq!(all.net_back(10, (100, 19)), 9);
        let rest = Shares { returned_net: 91, returned_tax: 18, ..all };
        assert_eq!(rest.net_back(10, (91, 18)), 8);
        assert_eq!(Shares { returned_net: 83, returned_tax: 16, ..all }.net_back(99, (83, 16)), 83);
        // The movement was rounded differently than the total: a dispute returns the parts that it took.
        let other = Shares { returned_net: 17, returned_tax: 3, ..shares(100, 19) };
        assert_eq!(other.net_back(10, (9, 1)), 9);
    }

    #[test]
    fn amount_of_a_net_part_has_it() {
        // 5.00 of 10.00 with 1.90: 500 x 1.19 = 595.
        assert_eq!(shares(1_000, 190).amount_of(500, 1), 595);
        // 3.33 of it: 396.27, rounded up; the rest: 1190 - 397.
        assert_eq!(shares(1_000, 190).amount_of(333, 1), 397);
        let rest = Shares { returned_net: 333, returned_tax: 64, ..shares(1_000, 190) };
        assert_eq!(rest.amount_of(667, 1), 793);
        // In steps of 10: 1.230 of 12.300 with 1.850 of tax, 1415 rounded up.
        assert_eq!(shares(12_300, 1_850).amount_of(1_230, 10), 1_420);
        assert_eq!(shares(12_300, 1_850).amount_of(12_300, 10), 14_150);
        // 10 were returned, 8 of them net (8.69). Of the remaining 12.292, 12.290 can be returned: 1.848 of
        // 1.850 tax remain, so the tax is rounded down.
        let odd = Shares { returned_net: 8, returned_tax: 2, ..shares(12_300, 1_850) };
        assert_eq!(odd.amount_of(12_290, 10), 14_130);
        assert_eq!(shares(2_500, 0).amount_of(1_234, 1), 1_234);
    }

    #[test]
    fn every_sequence_keeps_within_net_and_tax() {
        for (net, tax) in [(1, 1), (7, 1), (100, 19), (101, 9), (5, 5), (3, 7), (50, 0)] {
            for step in 1..9 {
                let mut left = shares(net, tax);
                while left.returned_net + left.returned_tax < net + tax {
                    let amount = step.min(net + tax - left.returned_net - left.returned_tax);
                    let part = left.net_of(amount);
                    assert!((0..=amount).contains(&part));
                    left.returned_net += part;
                    left.returned_tax += amount - part;
                    assert!(left.returned_net <= net && left.returned_tax <= tax, "{left:?}");
                }
                assert_eq!((left.returned_net, left.returned_tax), (net, tax));
                let mut left = shares(net, tax);
                while left.returned_net < net {
                    let part = step.min(net - left.returned_net);
                    let amount = left.amount_of(part, 1);
                    assert!(amount >= part);
                    assert_eq!(left.net_of(amount), part, "{left:?} {amount}");
                    left.returned_net += part;
                    left.returned_tax += amount - part;
                }
                assert_eq!((left.returned_net, left.returned_tax), (net, tax));
            }
        }
    }
}
