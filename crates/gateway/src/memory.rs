//! The memory for requests and answers, and its bounds.

use kernel::shares::{Holder, SharedBound};

/// Minimum length of a body that is parsed on a separate thread.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// The maximum number of bytes of requests whose answers haven't begun, and of answers that aren't written
/// yet.
pub(crate) const MAX_MEMORY_BYTES: usize = 256 << 20;

/// The minimum growth of a large buffer.
const MIN_GROWTH: usize = 256 << 10;

/// Returns `true` if a holder can get this much memory while no other holder has any.
pub(crate) fn can_have(holder: Holder, bytes: usize) -> bool {
    SharedBound::new(MAX_MEMORY_BYTES).none(holder).grow_to(bytes)
}

/// Returns the capacity to which a large buffer of this length grows. It grows in small steps, because the
/// whole capacity counts as memory.
pub(crate) const fn grown(length: usize) -> usize {
    let more = length / 16;
    length + if more < MIN_GROWTH { MIN_GROWTH } else { more }
}
