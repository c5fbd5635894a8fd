//! `BodyBudget`: how many bytes all bodies take together that are read before they are passed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes all bodies take together that are read before they are passed on. Clones share one
/// budget.
#[derive(Clone, Debug)]
pub struct BodyBudget(Arc<AtomicUsize>);

/// What one body takes of a [`BodyBudget`]. Dropping it gives that back.
#[derive(Debug)]
pub struct BudgetShare {
    budget: BodyBudget,
    taken: usize,
}

impl BodyBudget {
    /// A budget of so many bytes.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(most)))
    }

    /// The share of one body, which takes nothing yet.
    pub fn share(&self) -> BudgetShare {
        BudgetShare { budget: self.clone(), taken: 0 }
    }
}

impl BudgetShare {
    /// Takes what is missing to so many bytes. Returns whether the budget has that.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.taken);
        let left = &self.budget.0;
        let taken = left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(missing));
        if taken.is_ok() {
            self.taken += missing;
        }
        taken.is_ok()
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_while_the_budget_lasts_and_gives_back_what_it_took() {
        let budget = BodyBudget::new(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow_to(4) && one.grow_to(6) && one.grow_to(5) && other.grow_to(4));
        assert!(!one.grow_to(7) && !other.grow_to(5));
        drop(one);
        assert!(other.grow_to(10));
    }
}
