use std::marker::PhantomData;

#[derive(Default)]
pub(crate) struct RedisRequest<'a>(PhantomData<&'a ()>);

/// The reply is the number of the connection.
pub(crate) struct Replied {
    pub(crate) value: usize,
    pub(crate) is_repeated: bool,
}

impl RedisRequest<'_> {
    pub(crate) fn command(
        _command: &str,
        _names: [Vec<u8>; 0],
        _args: [Vec<u8>; 0],
        _doing: &str,
    ) -> Self {
        Self::default()
    }

    pub(crate) fn urgent(self) -> Self {
        self
    }
}
