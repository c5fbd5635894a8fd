use std::marker::PhantomData;

#[derive(Default)]
pub(crate) struct RedisRequest<'a>(PhantomData<&'a ()>);

/// The reply is the number of the connection.
pub(crate) struct Replied {
    pub(crate) value: usize,
    pub(crate) is_repeated: bool,
}
