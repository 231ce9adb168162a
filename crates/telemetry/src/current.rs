//! The request at hand: set on the thread while a request's future is polled, and only then.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::trace::Trace;
use kernel::ids::RequestId;

thread_local! {
    static REQUEST: Cell<Option<RequestId>> = const { Cell::new(None) };
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// The id of the request that is being answered here, or whose consequences are being seen to.
pub fn request_id() -> Option<RequestId> {
    // A thread that ends has none.
    REQUEST.try_with(Cell::get).unwrap_or_default()
}

/// Its trace, if it is traced.
pub(crate) fn trace() -> Option<Arc<Trace>> {
    TRACE.try_with(|trace| trace.try_borrow().ok()?.clone()).unwrap_or_default()
}

/// A future that belongs to a request.
#[derive(Debug)]
pub struct InRequest<F> {
    id: Option<RequestId>,
    trace: Option<Arc<Trace>>,
    inner: F,
}

impl<F> InRequest<F> {
    /// Work for this request.
    pub fn new(id: Option<RequestId>, trace: Option<Arc<Trace>>, inner: F) -> Self {
        Self { id, trace, inner }
    }
}

impl<F: Future + Unpin> Future for InRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { id, trace, inner } = &mut *self;
        let _entered = Entered::enter(*id, trace);
        Pin::new(inner).poll(cx)
    }
}

/// Puts back what was there before, also when the future panics.
struct Entered<'a> {
    before: Option<RequestId>,
    /// Its place while the trace is on the thread.
    trace: Option<&'a mut Option<Arc<Trace>>>,
}

impl<'a> Entered<'a> {
    fn enter(id: Option<RequestId>, trace: &'a mut Option<Arc<Trace>>) -> Self {
        let before = REQUEST.try_with(|request| request.replace(id)).unwrap_or_default();
        let trace = trace.is_some().then_some(trace);
        let mut entered = Self { before, trace };
        entered.exchange();
        entered
    }

    fn exchange(&mut self) {
        if let Some(place) = &mut self.trace {
            // A thread that ends keeps none, and then the place stays as it is.
            TRACE.try_with(|trace| std::mem::swap(&mut *trace.borrow_mut(), place)).unwrap_or_default();
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.exchange();
        REQUEST.try_with(|request| request.set(self.before)).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_request_is_known_inside_and_nowhere_else() {
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
