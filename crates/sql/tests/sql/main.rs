//! ChangeLog that a PostgreSQL records, and what becomes of them in a Redis.

mod backlogs;
mod changes;
mod crashes;
mod failures;
mod figures;
mod followers;
mod keys;
mod mysql;
mod place;
mod triggers;
