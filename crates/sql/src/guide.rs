//! Guide: let the database say what has changed.
//!
//! | page | read it to |
//! |---|---|
//! | [`database`] | record changes in PostgreSQL, MariaDB or MySQL, in the writer's transaction or by triggers, and apply them |

bellwether::guide_pages! { database }
