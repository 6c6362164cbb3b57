//! Sets of small numbers, stored as bits: `Bits`, and `SharedBits` for several threads.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

#[inline]
pub(crate) fn get(words: &[u64], index: u64) -> bool {
    words.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[inline]
pub(crate) fn set(words: &mut [u64], index: u64) {
    if let Some(word) = words.get_mut((index / 64) as usize) {
        *word |= 1 << (index % 64);
    }
}

/// Return the largest member at or below `index`; None if there is none.
pub(crate) fn last_at(words: &[u64], index: u64) -> Option<u64> {
    let top = (index / 64) as usize;
    let word = words.get(top)? & (u64::MAX >> (63 - index % 64));
    if word != 0 {
        return Some(top as u64 * 64 + 63 - u64::from(word.leading_zeros()));
    }
    let below = words[..top].iter().rposition(|word| *word != 0)?;
    Some(below as u64 * 64 + 63 - u64::from(words[below].leading_zeros()))
}

/// Return the members of the set, in ascending order.
pub(crate) fn members(words: &[u64]) -> impl Iterator<Item = u64> + '_ {
    words.iter().enumerate().flat_map(|(index, word)| members_of(*word).map(move |bit| index as u64 * 64 + bit))
}

/// Return the indices of the bits that are set in a word, ascending.
pub(crate) fn members_of(mut left: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
        left &= left - 1;
        Some(bit)
    })
}

/// Remove the members in [from, to) from the set.
pub(crate) fn clear_range(words: &mut [u64], from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let next = to.min((at / 64 + 1) * 64);
        if let Some(word) = words.get_mut((at / 64) as usize) {
            let kept = u64::MAX.checked_shl((next - at) as u32).unwrap_or(0);
            *word &= !(!kept << (at % 64));
        }
        at = next;
    }
}

#[derive(Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(size: u64) -> Bits {
        Bits { words: vec![0; size.div_ceil(64) as usize] }
    }

    /// Make a set from the words of its bitmap. Each word has the bits for 64 numbers.
    pub(crate) fn of(words: Vec<u64>) -> Bits {
        Bits { words }
    }

    /// Return whether the set has a member in [from, to).
    pub(crate) fn any(&self, from: u64, to: u64) -> bool {
        (from..to).any(|index| self.get(index))
    }

    /// Return whether `size` bits fit into memory. The size comes from the target, so it may be absurdly large.
    pub(crate) fn fits(size: u64) -> bool {
        Vec::<u64>::new().try_reserve_exact(size.div_ceil(64) as usize).is_ok()
    }

    pub(crate) fn set(&mut self, index: u64) {
        set(&mut self.words, index);
    }

    /// Return the words of the set's bitmap, each with the bits for 64 numbers.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn clear(&mut self, index: u64) {
        if let Some(word) = self.words.get_mut((index / 64) as usize) {
            *word &= !(1 << (index % 64));
        }
    }

    pub(crate) fn get(&self, index: u64) -> bool {
        get(&self.words, index)
    }

    /// Return the largest member at or below `index`; None if there is none.
    pub(crate) fn last_at(&self, index: u64) -> Option<u64> {
        last_at(&self.words, index)
    }

    /// Return the smallest member at or above `index`; None if there is none.
    pub(crate) fn first_from(&self, index: u64) -> Option<u64> {
        let bottom = (index / 64) as usize;
        let word = self.words.get(bottom)? & (u64::MAX << (index % 64));
        if word != 0 {
            return Some(bottom as u64 * 64 + u64::from(word.trailing_zeros()));
        }
        let above = bottom + 1 + self.words[bottom + 1..].iter().position(|word| *word != 0)?;
        Some(above as u64 * 64 + u64::from(self.words[above].trailing_zeros()))
    }
}

/// A set of small numbers that several threads may change at the same time.
pub(crate) struct SharedBits {
    words: Vec<AtomicU64>,
}

impl SharedBits {
    /// Make a set whose members must be below `size`; None if memory does not suffice.
    pub(crate) fn new(size: u64) -> Option<SharedBits> {
        let mut words = Vec::new();
        words.try_reserve_exact(size.div_ceil(64) as usize).ok()?;
        words.resize_with(size.div_ceil(64) as usize, AtomicU64::default);
        Some(SharedBits { words })
    }

    /// Add a member. Return true only to the first of all threads that add the same member.
    pub(crate) fn claim(&self, index: u64) -> bool {
        let Some(word) = self.words.get((index / 64) as usize) else { return false };
        let bit = 1 << (index % 64);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn get(&self, index: u64) -> bool {
        self.words.get((index / 64) as usize).is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 == 1)
    }

    /// Add the members in `bits`, which is a part of a bitmap. Its first word is added to the word that contains the
    /// bit of `index`. Two threads must not add to the same words at the same time.
    pub(crate) fn put(&self, index: u64, bits: &[u64]) {
        for (word, bits) in self.words.iter().skip((index / 64) as usize).zip(bits) {
            if *bits != 0 {
                word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
            }
        }
    }

    /// Return the words of the set's bitmap, each with the bits for 64 numbers.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Return the members of this set that the other set contains too, ascending.
    pub(crate) fn common<'a>(&'a self, other: &'a SharedBits) -> impl Iterator<Item = u64> + 'a {
        self.joined(other, |one, two| one & two)
    }

    /// Return the members of this set that the other set does not contain, ascending.
    pub(crate) fn without<'a>(&'a self, other: &'a SharedBits) -> impl Iterator<Item = u64> + 'a {
        self.joined(other, |one, two| one & !two)
    }

    /// Return the members of this set that are in neither of the two other sets, ascending.
    pub(crate) fn in_neither(&self, one: &SharedBits, other: &SharedBits) -> Vec<u64> {
        let mut found = Vec::new();
        let load = |set: &SharedBits, index: usize| set.words.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        for index in 0..self.words.len() {
            let mut left = load(self, index) & !(load(one, index) | load(other, index));
            while left != 0 {
                found.push(index as u64 * 64 + u64::from(left.trailing_zeros()));
                left &= left - 1;
            }
        }
        found
    }

    fn joined<'a>(&'a self, other: &'a SharedBits, join: fn(u64, u64) -> u64) -> impl Iterator<Item = u64> + 'a {
        self.words.iter().zip(&other.words).enumerate().flat_map(move |(index, (one, two))| {
            let mut word = join(one.load(Ordering::Relaxed), two.load(Ordering::Relaxed));
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| u64::from(word.trailing_zeros()))?;
                word &= word - 1;
                Some(index as u64 * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_agree_with_a_plain_set() {
        let members = [0u64, 1, 63, 64, 200, 511];
        let mut bits = Bits::new(512);
        members.iter().for_each(|member| bits.set(*member));
        for index in 0..512 {
            assert_eq!(bits.get(index), members.contains(&index));
            assert_eq!(bits.last_at(index), members.iter().copied().filter(|m| *m <= index).max());
            assert_eq!(bits.first_from(index), members.iter().copied().filter(|m| *m >= index).min());
        }
    }
}
