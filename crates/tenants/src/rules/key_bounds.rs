//! Bounds of the API keys that another API key creates.

use crate::rules::allowed_ips::AllowedIps;
use kernel::clock::Time;
use kernel::error::{Code, Error};

/// The restrictions of a key that is created, changed or rotated by another API key: the addresses, the rate
/// limit and the expiry.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    pub allowed_ips: Option<&'a AllowedIps>,
    /// The maximum number of requests per minute.
    pub rate_limit: Option<i64>,
    pub expires_at: Option<Time>,
}

impl Bounds<'_> {
    /// Checks that these bounds don't exceed the bounds of the calling key.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller` with the first field that exceeds the bounds.
    pub fn check_within(&self, caller: &Bounds<'_>) -> Result<(), Error> {
        let within_addresses = match (self.allowed_ips, caller.allowed_ips) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(callers)) => own.is_within(callers),
        };
        if !within_addresses {
            let message =
                "This API key has restricted addresses: `restrictions.allowed_ips` can't contain others.";
            return Err(exceeds("restrictions.allowed_ips", message.to_owned()));
        }
        if let Some(max_rate) = caller.rate_limit
            && self.rate_limit.is_none_or(|rate| rate > max_rate)
        {
            let message = format!(
                "`restrictions.rate_limit` must be at most {max_rate}, the limit of the calling API key."
            );
            return Err(exceeds("restrictions.rate_limit", message));
        }
        if let Some(latest) = caller.expires_at
            && self.expires_at.is_none_or(|at| at > latest)
        {
            let message =
                format!("`expires_at` can't be later than {latest}, when the calling API key expires.");
            return Err(exceeds("expires_at", message));
        }
        Ok(())
    }
}

fn exceeds(param: &'static str, message: String) -> Error {
    Error::new(Code::KeyExceedsCaller).param(param).message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_key_stay_within_those_of_its_caller() {
        let ips = |texts: &[&str]| AllowedIps::parse(texts, "allowed_ips").unwrap();
        let (wide, narrow, other) =
            (ips(&["10.0.0.0/8"]), ips(&["10.1.0.0/16", "10.2.3.4"]), ips(&["192.0.2.1"]));
        let free = Bounds { allowed_ips: None, rate_limit: None, expires_at: None };
        let at = |ms| Some(Time::from_unix_ms(ms));
        let cases = [
            (free, free, None),
            (Bounds { allowed_ips: Some(&other), rate_limit: Some(9), expires_at: at(9) }, free, None),
            (free, Bounds { allowed_ips: Some(&wide), ..free }, Some("restrictions.allowed_ips")),
            (
                Bounds { allowed_ips: Some(&narrow), ..free },
                Bounds { allowed_ips: Some(&wide), ..free },
                None,
            ),
            (
                Bounds { allowed_ips: Some(&wide), ..free },
                Bounds { allowed_ips: Some(&narrow), ..free },
                Some("restrictions.allowed_ips"),
            ),
            (free, Bounds { rate_limit: Some(5), ..free }, Some("restrictions.rate_limit")),
            (
                Bounds { rate_limit: Some(6), ..free },
                Bounds { rate_limit: Some(5), ..free },
                Some("restrictions.rate_limit"),
            ),
            (Bounds { rate_limit: Some(5), ..free }, Bounds { rate_limit: Some(5), ..free }, None),
            (free, Bounds { expires_at: at(5), ..free }, Some("expires_at")),
            (Bounds { expires_at: at(6), ..free }, Bounds { expires_at: at(5), ..free }, Some("expires_at")),
            (Bounds { expires_at: at(5), ..free }, Bounds { expires_at: at(5), ..free }, None),
        ];
        for (own, caller, expected) in cases {
            let found = own.check_within(&caller).err().map(|error| error.param.unwrap().into_owned());
            assert_eq!(found.as_deref(), expected, "{own:?} {caller:?}");
        }
    }
}
