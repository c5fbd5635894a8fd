pub(crate) use bellwether::Key;
pub(crate) use bellwether::store::Digest;
