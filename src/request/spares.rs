//! What a worker keeps to use again: as much of it as has been needed lately.
//!
//! It lets go of what nobody has needed from one [`Spares::trim`] to the next. It refuses to make anything.

/// Things that were used before and are free now.
#[derive(Debug)]
pub struct Spares<T> {
    free: Vec<T>,
    /// How many of them nobody has needed since the last [`Self::trim`].
    unneeded: usize,
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self { free: Vec::new(), unneeded: 0 }
    }
}

impl<T> Spares<T> {
    /// The one that was used last.
    pub fn take(&mut self) -> Option<T> {
        let spare = self.free.pop();
        self.unneeded = self.unneeded.min(self.free.len());
        spare
    }

    /// Whether there is room for one more below `max`.
    pub fn has_room(&self, max: usize) -> bool {
        self.free.len() < max
    }

    /// Keeps one.
    pub fn put(&mut self, spare: T) {
        self.free.push(spare);
    }

    /// Lets go of those that nobody has needed since the last time, but for `least`.
    pub fn trim(&mut self, least: usize) {
        let surplus = self.unneeded.saturating_sub(least);
        // Those at the bottom have been free for the longest time.
        self.free.drain(..surplus);
        self.unneeded = self.free.len();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_needed_between_two_trims_stays_and_the_rest_goes() {
        let mut spares = Spares::default();
        (0..10).for_each(|number| spares.put(number));
        spares.trim(0);
        assert_eq!(spares.len(), 10, "they were needed until a moment ago");
        let taken: Vec<i32> = (0..6).filter_map(|_| spares.take()).collect();
        assert_eq!(taken, [9, 8, 7, 6, 5, 4]);
        taken.into_iter().for_each(|spare| spares.put(spare));
        spares.trim(0);
        assert_eq!(spares.len(), 6, "four were never taken");
        spares.trim(2);
        assert_eq!(spares.len(), 2);
        spares.trim(2);
        assert_eq!(spares.len(), 2);
        spares.trim(0);
        assert!(spares.is_empty() && spares.take().is_none());
    }
}
