//! What a worker keeps to use again: as much of it as has been needed lately.
//!
//! Little by little it lets go of what nobody has needed from one [`Spares::trim`] to the next. It refuses to make anything.

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

    /// Keeps one, where it is one of at most `max`.
    pub fn put(&mut self, spare: T, max: usize) {
        if self.free.len() < max {
            self.free.push(spare);
        }
    }

    /// Lets go of a quarter of those that nobody has needed since the last time, `least` of them left out. To give a crowd's
    /// back at once would stop the worker, and the next crowd may be on its way.
    pub fn trim(&mut self, least: usize) {
        let surplus = self.unneeded.saturating_sub(least).div_ceil(4);
        // Those at the bottom have been free for the longest time.
        self.free.drain(..surplus);
        self.unneeded = self.free.len();
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_needed_between_two_trims_stays_and_the_rest_goes() {
        let mut spares = Spares::default();
        (0..11).for_each(|number| spares.put(number, 10));
        spares.trim(0);
        assert_eq!(spares.len(), 10, "they were needed until a moment ago");
        let taken: Vec<i32> = (0..6).filter_map(|_| spares.take()).collect();
        assert_eq!(taken, [9, 8, 7, 6, 5, 4]);
        taken.into_iter().for_each(|spare| spares.put(spare, 10));
        spares.trim(0);
        assert_eq!(spares.len(), 9, "four were never taken");
        (0..9).for_each(|_| spares.trim(2));
        assert_eq!(spares.len(), 2);
        (0..2).for_each(|_| spares.trim(0));
        assert!(spares.take().is_none());
    }
}
