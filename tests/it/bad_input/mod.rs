//! Nonsense is refused where it is given, by a message that helps and gives nothing away.

mod keys;
mod redis_options;
mod settings;
