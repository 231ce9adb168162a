//! The current request: set on the thread while the future of a request is polled.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::current_id::CurrentId;
use crate::trace::Trace;
use kernel::ids::RequestId;

thread_local! {
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// Returns the trace of the current request, if it is traced.
pub(crate) fn trace() -> Option<Arc<Trace>> {
    TRACE.try_with(|trace| trace.try_borrow().ok()?.clone()).unwrap_or_default()
}

/// A future whose current request is set while it is polled.
#[derive(Debug)]
pub struct InRequest<F> {
    id: Option<RequestId>,
    trace: Option<Arc<Trace>>,
    inner: F,
}

impl<F> InRequest<F> {
    pub fn new(id: Option<RequestId>, trace: Option<Arc<Trace>>, inner: F) -> Self {
        Self { id, trace, inner }
    }
}

impl<F: Future + Unpin> Future for InRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { id, trace, inner } = &mut *self;
        let _guard = CurrentGuard::enter(*id, trace);
        Pin::new(inner).poll(cx)
    }
}

/// Restores the previous request when it is dropped, including by a panic.
struct CurrentGuard<'a> {
    _id: CurrentId,
    /// Keeps the previous trace while its own is set.
    trace: Option<&'a mut Option<Arc<Trace>>>,
}

impl<'a> CurrentGuard<'a> {
    fn enter(id: Option<RequestId>, trace: &'a mut Option<Arc<Trace>>) -> Self {
        let trace = trace.is_some().then_some(trace);
        let mut guard = Self { _id: CurrentId::enter(id), trace };
        guard.swap();
        guard
    }

    fn swap(&mut self) {
        if let Some(own) = &mut self.trace {
            // An error means that the thread is ending. In that case, nothing is swapped.
            TRACE.try_with(|trace| std::mem::swap(&mut *trace.borrow_mut(), own)).unwrap_or_default();
        }
    }
}

impl Drop for CurrentGuard<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;

    use super::*;
    use crate::current_id::request_id;

    #[tokio::test]
    async fn request_is_current_inside_its_future_only() {
        let [one, two] = [1, 2].map(|bits| RequestId::from_parts(kernel::clock::Time::from_unix_ms(0), bits));
        let seen = |id| {
            InRequest::new(
                Some(id),
                None,
                Box::pin(async move {
                    let before = request_id();
                    tokio::task::yield_now().await;
                    (before, request_id())
                }),
            )
        };
        let (first, second) = tokio::join!(seen(one), seen(two));
        assert_eq!((first, second), ((Some(one), Some(one)), (Some(two), Some(two))));
        assert_eq!(request_id(), None);
        let outer = InRequest::new(Some(one), None, Box::pin(async { (seen(two).await.1, request_id()) }));
        assert_eq!(outer.await, (Some(two), Some(one)));
        let panics = InRequest::new(Some(one), None, Box::pin(async { panic!("on purpose") }));
        assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
        assert_eq!(request_id(), None);
    }
}
