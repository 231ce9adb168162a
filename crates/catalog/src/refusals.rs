//! The operator's event for a catalog file that was refused at a reload
//! (docs/contract/webhooks.md#events-of-the-operator).
//!
//! The same mistakes are announced only once, no matter how often and by how many servers the file is read.

use events::operator::{self, CatalogRefused};
use events::{EventType, announcements};
use kernel::error::Error;

use crate::{CatalogError, Catalogs};

/// Maximum number of mistakes in an event, and maximum length of each in characters.
const MAX_MESSAGES: usize = 10;
const MAX_MESSAGE_CHARS: usize = 300;

/// Sends the mistakes of a file to the installation's webhooks, unless they were already sent.
///
/// # Errors
/// The database fails.
pub(crate) async fn announce(catalogs: &Catalogs, refused: &CatalogError) -> Result<(), Error> {
    let problems: Vec<&str> = refused.problems.iter().map(String::as_str).collect();
    let (current, subject) = (&catalogs.current, announcements::subject(&problems));
    let announced = current.announced_refusal();
    if announced.as_deref() == Some(&*subject) {
        return Ok(());
    }
    let of = EventType::CatalogRefused;
    if !operator::has_receivers(&mut catalogs.db().read().await?, of).await? {
        return Ok(());
    }
    let now = catalogs.clock.now();
    let mut tx = catalogs.db().write().await?;
    announcements::lock(&mut tx).await?;
    if let Some(announced) = announced {
        // The earlier mistakes were replaced by others.
        announcements::forget(&mut tx, of, &announced).await?;
    }
    if announcements::announce(&mut tx, of, &subject, now).await? {
        operator::emit(&mut tx, &event(refused), now, &catalogs.random).await?;
    }
    tx.commit().await?;
    current.set_announced_refusal(Some(subject));
    Ok(())
}

/// Forgets the announced refusal of this server's file, which is now accepted.
///
/// # Errors
/// The database fails.
pub(crate) async fn forget(catalogs: &Catalogs) -> Result<(), Error> {
    let Some(announced) = catalogs.current.announced_refusal() else { return Ok(()) };
    let mut tx = catalogs.db().write().await?;
    announcements::lock(&mut tx).await?;
    announcements::forget(&mut tx, EventType::CatalogRefused, &announced).await?;
    tx.commit().await?;
    catalogs.current.set_announced_refusal(None);
    Ok(())
}

/// Returns the event for a refusal, with shortened messages.
fn event(refused: &CatalogError) -> CatalogRefused {
    let shortened = |text: &String| -> String { text.chars().take(MAX_MESSAGE_CHARS).collect() };
    CatalogRefused {
        mistakes: refused.problems.len(),
        messages: refused.problems.iter().take(MAX_MESSAGES).map(shortened).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_the_first_mistakes_shortened() {
        let problems: Vec<String> = (0..12).map(|line| format!("{line} {}", "ä".repeat(400))).collect();
        let event = event(&CatalogError { problems });
        assert_eq!((event.mistakes, event.messages.len()), (12, 10));
        assert_eq!(event.messages[9], format!("9 {}", "ä".repeat(298)));
    }
}
