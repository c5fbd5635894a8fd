//! The attribute macros of [bellwether](https://docs.rs/bellwether).
