//! Conditions of prices, and the prices that may apply to a call
//! (docs/contract/models.md#conditions-of-a-price).

/// The number of minutes in a week, which begins on Monday.
const WEEK: i64 = 7 * 24 * 60;
/// The minute of the week at which unix time begins, on a Thursday.
const FIRST: i64 = 3 * 24 * 60;
/// The tiers that an answer can have.
const TIERS: [&str; 4] = ["default", "flex", "priority", "batch"];

/// The conditions under which a price applies. A price without conditions applies where no other price with
/// the same start applies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    tier: Option<String>,
    /// The prompt has more tokens than this.
    above: Option<i128>,
    /// Ranges of minutes of the week; the second minute is exclusive.
    hours: Option<Vec<(i64, i64)>>,
}

impl Conditions {
    /// Parses stored conditions, such as `tier:flex above:200000 hours:0-360,1440-1800`.
    pub fn parse(text: &str) -> Result<Self, db::Error> {
        let wrong = || db::Error::Internal(format!("the conditions of a price are {text:?}"));
        let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
        let mut conditions = Self::default();
        for word in text.split_whitespace() {
            match word.split_once(':').ok_or_else(wrong)? {
                ("tier", tier) => conditions.tier = Some(tier.to_owned()),
                ("above", tokens) => conditions.above = Some(number(tokens)?.into()),
                ("hours", spans) => {
                    let span = |span: &str| {
                        let (start, end) = span.split_once('-').ok_or_else(wrong)?;
                        Ok((number(start)?, number(end)?))
                    };
                    conditions.hours = Some(spans.split(',').map(span).collect::<Result<_, db::Error>>()?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(conditions)
    }

    /// Returns `true` if a call with this tier and prompt in a minute of unix time meets the conditions.
    fn hold(&self, tier: &str, prompt: i128, minute: i64) -> bool {
        let of_week = (minute + FIRST).rem_euclid(WEEK);
        self.tier.as_deref().is_none_or(|own| own == tier)
            && self.above.is_none_or(|above| prompt > above)
            && self
                .hours
                .as_ref()
                .is_none_or(|hours| hours.iter().any(|(start, end)| (*start..*end).contains(&of_week)))
    }

    /// Returns the rank of the price. If a call meets the conditions of several prices, the highest rank
    /// applies.
    fn rank(&self) -> (bool, Option<i128>, bool) {
        (self.tier.is_some(), self.above, self.hours.is_some())
    }
}

/// Returns `true` if this price may have applied to calls. `others` are the conditions of the other prices
/// with the same start. `prompts` are the lowest and the highest number of tokens in the calls' prompts;
/// `None` if they aren't known.
///
/// The tier of an answer isn't stored, so any tier is possible.
pub fn is_possible(
    conditions: &Conditions,
    others: &[&Conditions],
    prompts: Option<(i128, i128)>,
    minute: i64,
) -> bool {
    let is_chosen = |tier: &str, prompt: i128| {
        conditions.hold(tier, prompt, minute)
            && !others
                .iter()
                .any(|other| other.hold(tier, prompt, minute) && other.rank() > conditions.rank())
    };
    let may_have = |prompt: i128| TIERS.iter().any(|tier| is_chosen(tier, prompt));
    match prompts {
        // The price is then possible for all numbers in between, because a price applies to a single range of
        // numbers of tokens.
        Some((fewest, most)) => may_have(fewest) && may_have(most),
        None => {
            let least = others.iter().chain([&conditions]).filter_map(|other| other.above);
            least.map(|above| above + 1).chain([0]).any(may_have)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 1970-01-05, in minutes of unix time.
    const MONDAY: i64 = 4 * 24 * 60;

    #[test]
    fn conditions_are_read_as_they_are_stored() {
        let conditions = Conditions::parse("tier:flex above:200 hours:0-360,1440-1500").unwrap();
        assert!(conditions.hold("flex", 201, MONDAY) && conditions.hold("flex", 201, MONDAY + 1_499));
        for (tier, prompt, minute) in [
            ("batch", 201, MONDAY),
            ("flex", 200, MONDAY),
            ("flex", 201, MONDAY + 360),
            ("flex", 201, MONDAY - 1),
        ] {
            assert!(!conditions.hold(tier, prompt, minute), "{tier} {prompt} {minute}");
        }
        for wrong in ["tier", "above:x", "hours:1", "hours:a-b", "plan:free"] {
            assert!(Conditions::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn price_is_possible_if_no_other_one_comes_before_it() {
        let parse = |text: &str| Conditions::parse(text).unwrap();
        let [base, long, longer, night, flex] =
            ["", "above:100", "above:1000", "hours:0-360", "tier:flex above:500"].map(parse);
        let all = [&base, &long, &longer, &night, &flex];
        let is =
            |of: &Conditions, prompts: Option<(i128, i128)>, minute| is_possible(of, &all, prompts, minute);
        let (noon, midnight) = (MONDAY + 720, MONDAY);
        assert!(is(&base, Some((0, 100)), noon) && !is(&base, Some((0, 101)), noon));
        assert!(!is(&base, Some((0, 0)), midnight) && is(&night, Some((0, 100)), midnight));
        assert!(!is(&night, Some((0, 100)), noon) && !is(&night, Some((101, 101)), midnight));
        assert!(is(&long, Some((101, 1_000)), noon) && !is(&long, Some((101, 1_001)), noon));
        assert!(is(&longer, Some((1_001, 9_999)), midnight));
        assert!(is(&flex, Some((501, 9_999)), noon) && !is(&flex, Some((500, 501)), noon));
        // Without the size of the prompt, every price that some prompt can have is accepted.
        assert!(is(&base, None, noon) && is(&longer, None, noon) && is(&flex, None, midnight));
        assert!(!is(&night, None, noon) && !is(&base, None, midnight));
    }
}
