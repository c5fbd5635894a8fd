//! How long a decoded value is.

/// About how many bytes of memory the decoded value of an entry takes, by the number of its codec: as many as the
/// encoded one, unless that is compressed. For stores that hold both, and know no codec.
pub fn decoded_len(codec: u8, encoded: &[u8]) -> usize {
    #[cfg(feature = "lz4")]
    if let Some(len) = super::compressed::plain_len(codec, encoded) {
        return len;
    }
    _ = codec;
    encoded.len()
}
