//! Events for webhooks about API keys that expire soon.

use crate::Keys;
use crate::store::api_keys::endings;
use events::data::ApiKeyExpiring;
use kernel::clock::DAY_MS;
use kernel::error::Error;

/// The time before its expiry from which a key counts as expiring soon.
const SOON_MS: i64 = 7 * DAY_MS;
/// Maximum number of keys per read.
const MAX_AT_ONCE: i64 = 100;

/// Notifies webhooks of every key that expires within a week, once per key even with several replicas.
/// Returns the number of keys. The caller must have checked the clock.
///
/// # Errors
/// The database fails.
pub async fn announce_due(keys: &Keys) -> Result<u64, Error> {
    let now = keys.clock.now();
    let ends = (now, now.plus_ms(SOON_MS));
    let mut announced = 0;
    loop {
        let due = endings::not_announced(&mut keys.db.read().await?, ends, MAX_AT_ONCE).await?;
        if due.is_empty() {
            return Ok(announced);
        }
        for key in due {
            let mut tx = keys.db.write().await?;
            let is_first = endings::set_announced(&mut tx, key.id, now).await?;
            if is_first {
                let expiring = ApiKeyExpiring {
                    organization_id: key.organization_id,
                    project_id: key.project_id,
                    api_key_id: key.id,
                    expires_at: key.expires_at,
                };
                events::emit(&mut tx, &expiring, now, &keys.random).await?;
            }
            tx.commit().await?;
            announced += u64::from(is_first);
        }
    }
}
