//! Loaders in the OpenTelemetry context of the request that began the load.

use opentelemetry::Context;
use opentelemetry::context::{FutureExt, WithContext};

/// A function for [`Cache::get_or_load`](bellwether::Cache::get_or_load) that runs in the context in
/// which this is called.
///
/// If the load of another caller answers, that load runs in the context of that caller.
pub fn in_current_context<F, L>(load: F) -> impl FnOnce() -> WithContext<L>
where
    F: FnOnce() -> L,
{
    let context = Context::current();
    move || {
        let _attached = context.clone().attach();
        load().with_context(context)
    }
}

/// A function for [`Cache::get_or_load_many`](bellwether::Cache::get_or_load_many) that runs in the
/// context in which this is called.
pub fn batch_in_current_context<P, F, L>(load: F) -> impl FnOnce(Vec<P>) -> WithContext<L> + Clone
where
    F: FnOnce(Vec<P>) -> L + Clone,
{
    let context = Context::current();
    move |parts| {
        let _attached = context.clone().attach();
        load(parts).with_context(context)
    }
}
