//! The rule that finds the account of a user who signs in with a provider. The rule is pure.
//!
//! The issuer and the subject identify a user. An e-mail address alone isn't enough: a provider may claim it
//! for any user, and someone else may have created the account with this address.

use sign_on::settings::{Link, Provision};

/// The facts about a user who has signed in with a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// `true` if an account is connected to this user of the provider.
    pub is_connected: bool,
    /// The provider's claim about the user's address.
    pub email: EmailClaim,
    /// The account that has this address.
    pub account: AccountWithAddress,
    /// `true` if the provider is authoritative for the address.
    pub is_spoken_for: bool,
    /// `true` if the address is in one of the provider's domains.
    pub is_in_domains: bool,
    /// `true` if the address has an open invitation.
    pub is_invited: bool,
    pub link: Link,
    pub provision: Provision,
}

/// A provider's claim about an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmailClaim {
    Verified,
    Unverified,
    Absent,
}

/// The account that has an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountWithAddress {
    None,
    /// The account's address was never verified, so anyone may have registered it.
    Unverified,
    Verified {
        /// `true` if the account is connected to another user of the same provider.
        has_other_connection: bool,
    },
}

/// The decision about a sign-on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Sign in to the connected account.
    SignIn,
    /// Connect the account with the address, and sign in to it.
    Connect,
    /// Connect the account with the address after the user has signed in to it with another method.
    Confirm,
    /// Connect the account with the address after the user has verified the address.
    ProveMailbox,
    /// Create an account.
    Create,
    /// Refuse the sign-on.
    Refuse,
}

/// Decides which account a sign-on opens.
pub fn decide(facts: &Facts) -> Decision {
    if facts.is_connected {
        return Decision::SignIn;
    }
    // Anyone can claim an unverified address, so it must not open an account or reveal that the account
    // exists.
    if facts.email != EmailClaim::Verified {
        return Decision::Refuse;
    }
    match facts.account {
        AccountWithAddress::Unverified => Decision::ProveMailbox,
        AccountWithAddress::Verified { has_other_connection } => {
            let is_sure = facts.is_spoken_for && !has_other_connection;
            if facts.link == Link::VerifiedEmail && is_sure { Decision::Connect } else { Decision::Confirm }
        }
        AccountWithAddress::None => {
            let is_welcome = match facts.provision {
                Provision::None => false,
                Provision::Invited => facts.is_invited,
                Provision::Domain => facts.is_in_domains,
                Provision::Any => true,
            };
            if is_welcome { Decision::Create } else { Decision::Refuse }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has these columns: the connection, the e-mail address, the account with the address, and the
    /// outcome for each of the [`OPTIONS`].
    const TABLE: &str = "
        known    verified    none        sign_in  sign_in  sign_in  sign_in
        known    verified    unverified  sign_in  sign_in  sign_in  sign_in
        known    verified    verified    sign_in  sign_in  sign_in  sign_in
        known    unverified  none        sign_in  sign_in  sign_in  sign_in
        known    unverified  unverified  sign_in  sign_in  sign_in  sign_in
        known    unverified  verified    sign_in  sign_in  sign_in  sign_in
        known    absent      none        sign_in  sign_in  sign_in  sign_in
        known    absent      unverified  sign_in  sign_in  sign_in  sign_in
        known    absent      verified    sign_in  sign_in  sign_in  sign_in
        unknown  verified    none        refuse   create   create   refuse
        unknown  verified    unverified  prove    prove    prove    prove
        unknown  verified    verified    confirm  confirm  connect  confirm
        unknown  unverified  none        refuse   refuse   refuse   refuse
        unknown  unverified  unverified  refuse   refuse   refuse   refuse
        unknown  unverified  verified    refuse   refuse   refuse   refuse
        unknown  absent      none        refuse   refuse   refuse   refuse
        unknown  absent      unverified  refuse   refuse   refuse   refuse
        unknown  absent      verified    refuse   refuse   refuse   refuse
    ";

    /// Link, provision, and whether the provider is authoritative for the address and the address is in its
    /// domains.
    const OPTIONS: [(Link, Provision, bool); 4] = [
        (Link::Confirm, Provision::None, true),
        (Link::Confirm, Provision::Any, false),
        (Link::VerifiedEmail, Provision::Domain, true),
        (Link::VerifiedEmail, Provision::Invited, false),
    ];

    fn word(decision: Decision) -> &'static str {
        match decision {
            Decision::SignIn => "sign_in",
            Decision::Connect => "connect",
            Decision::Confirm => "confirm",
            Decision::ProveMailbox => "prove",
            Decision::Create => "create",
            Decision::Refuse => "refuse",
        }
    }

    #[test]
    fn table_of_linking() {
        let mut cases = 0;
        for row in TABLE.trim().lines() {
            let words: Vec<_> = row.split_whitespace().collect();
            let [connected, email, account, expected @ ..] = words.as_slice() else { panic!("{row}") };
            let email = match *email {
                "verified" => EmailClaim::Verified,
                "unverified" => EmailClaim::Unverified,
                _ => EmailClaim::Absent,
            };
            let account = match *account {
                "none" => AccountWithAddress::None,
                "unverified" => AccountWithAddress::Unverified,
                _ => AccountWithAddress::Verified { has_other_connection: false },
            };
            assert_eq!(expected.len(), OPTIONS.len(), "{row}");
            for (expected, (link, provision, is_spoken_for)) in expected.iter().zip(OPTIONS) {
                let facts = Facts {
                    is_connected: *connected == "known",
                    email,
                    account,
                    is_spoken_for,
                    is_in_domains: is_spoken_for,
                    is_invited: false,
                    link,
                    provision,
                };
                assert_eq!(word(decide(&facts)), *expected, "{facts:?}");
                cases += 1;
            }
        }
        assert_eq!(cases, 72);
    }

    #[test]
    fn a_second_person_of_a_provider_has_to_confirm() {
        let facts = Facts {
            is_connected: false,
            email: EmailClaim::Verified,
            account: AccountWithAddress::Verified { has_other_connection: true },
            is_spoken_for: true,
            is_in_domains: true,
            is_invited: true,
            link: Link::VerifiedEmail,
            provision: Provision::Any,
        };
        assert_eq!(decide(&facts), Decision::Confirm);
        let account = AccountWithAddress::Verified { has_other_connection: false };
        assert_eq!(decide(&Facts { account, ..facts }), Decision::Connect);
    }

    #[test]
    fn an_invitation_makes_an_account_for_a_verified_address_only() {
        let facts = Facts {
            is_connected: false,
            email: EmailClaim::Verified,
            account: AccountWithAddress::None,
            is_spoken_for: false,
            is_in_domains: false,
            is_invited: true,
            link: Link::Confirm,
            provision: Provision::Invited,
        };
        assert_eq!(decide(&facts), Decision::Create);
        assert_eq!(decide(&Facts { email: EmailClaim::Unverified, ..facts }), Decision::Refuse);
        assert_eq!(decide(&Facts { provision: Provision::Domain, ..facts }), Decision::Refuse);
        assert_eq!(decide(&Facts { provision: Provision::None, ..facts }), Decision::Refuse);
    }
}
