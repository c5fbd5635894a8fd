//! The second copy of a request that was sent twice arrives at the store of the model.

use super::rules::Rules;
use super::storing::{self, Asked};
use super::world::{Message, Violated, World};

impl World {
    /// The copy arrives, and the store executes it. The reply reaches no flight.
    pub(super) fn deliver(&self, rules: &Rules, next: &mut Vec<Self>) -> Result<(), Violated> {
        let Some(message) = self.copy else { return Ok(()) };
        if message == Message::Invalidate && self.is_order_open() {
            return Ok(());
        }
        let mut world = self.clone();
        world.copy = None;
        match message {
            Message::Acquire { id, process, accept, seen } => {
                let asked = storing::ask(rules, &mut world.store, (id, process), accept, seen);
                if let Asked::Granted { .. } = asked {
                    // The flight may have released its lease by now. This one lapses.
                    let of_it = world.flights.iter_mut().filter(|flight| flight.id == id);
                    of_it.for_each(|flight| flight.is_release_lost = true);
                }
            }
            Message::Commit { id, lease, draft, seen } => {
                storing::store(rules, &mut world, (id, seen), lease, draft)?;
            }
            Message::Report { id, lease, before } => {
                storing::report(rules, &mut world.store, id, lease, before)?;
            }
            Message::Release { id } => storing::give_up(&mut world.store, id),
            Message::Invalidate => world.invalidate(rules),
            Message::Clear { version } => world.clear(version),
        }
        next.push(world);
        Ok(())
    }
}
