//! The id of the current request, on each thread.

use std::cell::Cell;

use kernel::ids::RequestId;

thread_local! {
    static REQUEST: Cell<Option<RequestId>> = const { Cell::new(None) };
}

/// Returns the id of the current request, or of the request that caused the current work.
pub fn request_id() -> Option<RequestId> {
    // An error means that the thread is ending.
    REQUEST.try_with(Cell::get).unwrap_or_default()
}

/// Calls `f` as part of this request.
pub(crate) fn with_request_id<T>(id: RequestId, f: impl FnOnce() -> T) -> T {
    let _id = CurrentId::enter(Some(id));
    f()
}

/// The current id. Restores the previous one when it is dropped, including by a panic.
pub(crate) struct CurrentId {
    previous: Option<RequestId>,
}

impl CurrentId {
    pub(crate) fn enter(id: Option<RequestId>) -> Self {
        Self { previous: REQUEST.try_with(|request| request.replace(id)).unwrap_or_default() }
    }
}

impl Drop for CurrentId {
    fn drop(&mut self) {
        REQUEST.try_with(|request| request.set(self.previous)).unwrap_or_default();
    }
}
