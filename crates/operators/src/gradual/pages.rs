//! A column of state by number: pages of elements that stay where they are.
//!
//! **Invariant:** all pages but the last are full. Only the first is ever moved, while it is
//! smaller than a page; it stands apart, so that a small column is a vector and costs what a vector
//! costs.
//!
//! Elements are not removed one by one. State that ends is overwritten when its number is used
//! again.

use std::ops::{Index, IndexMut};

/// This many elements are in a page, as a power of two; in tests of operators few, so that they
/// have several pages.
const PAGE_BITS: u32 = if cfg!(test) { 4 } else { 13 };
const PAGE: usize = 1 << PAGE_BITS;

/// Elements that are numbered from 0.
#[derive(Clone, Debug)]
pub(crate) struct Pages<T> {
    first: Vec<T>,
    others: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { first: Vec::new(), others: Vec::new(), len: 0 }
    }
}

impl<T> Pages<T> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The element with this number, if there is one.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&T> {
        match self.first.get(number) {
            // Below a page there is no other page with it.
            None => {
                self.others.get((number >> PAGE_BITS).wrapping_sub(1))?.get(number & (PAGE - 1))
            }
            found => found,
        }
    }

    /// Adds the next one.
    #[inline(always)]
    pub fn push(&mut self, element: T) {
        self.page_with_room().push(element);
        self.len += 1;
    }

    /// The page that the next element belongs to.
    #[inline(always)]
    fn page_with_room(&mut self) -> &mut Vec<T> {
        let page = self.len >> PAGE_BITS;
        if page == 0 {
            &mut self.first
        } else {
            if page > self.others.len() {
                self.add_page();
            }
            &mut self.others[page - 1]
        }
    }

    #[cold]
    #[inline(never)]
    fn add_page(&mut self) {
        self.others.push(Vec::with_capacity(PAGE));
    }

    /// Puts the element with this number in its place, or adds it as the next.
    ///
    /// # Panics
    /// If there are fewer before it.
    #[inline(always)]
    pub fn put(&mut self, number: usize, element: T) {
        if number == self.len { self.push(element) } else { self[number] = element }
    }

    /// Adds elements until there are this many.
    #[inline]
    pub fn grow_with(&mut self, len: usize, mut make: impl FnMut() -> T) {
        while self.len < len {
            let more = (len - self.len).min(PAGE - (self.len & (PAGE - 1)));
            let page = self.page_with_room();
            page.resize_with(page.len() + more, &mut make);
            self.len += more;
        }
    }

    /// Adds copies of an element until there are this many.
    #[inline]
    pub fn grow(&mut self, len: usize, element: T)
    where
        T: Clone,
    {
        self.grow_with(len, || element.clone());
    }

    /// Makes room for this many more in the first page; others have their memory at once.
    pub fn reserve(&mut self, more: usize) {
        if self.len < PAGE {
            self.first.reserve(more.min(PAGE - self.len));
        }
    }

    /// All in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.others.iter().flatten())
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(self.others.iter_mut().flatten())
    }

    /// Drops all and keeps the memory for others.
    pub fn clear(&mut self) {
        self.first.clear();
        self.others.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }

    /// For how many there is memory.
    pub fn capacity(&self) -> usize {
        self.first.capacity() + self.others.iter().map(Vec::capacity).sum::<usize>()
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.capacity() * size_of::<T>() + self.others.capacity() * size_of::<Vec<T>>()
    }
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, number: usize) -> &T {
        match self.first.get(number) {
            None => &self.others[(number >> PAGE_BITS).wrapping_sub(1)][number & (PAGE - 1)],
            Some(found) => found,
        }
    }
}

impl<T> IndexMut<usize> for Pages<T> {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut T {
        match self.first.get_mut(number) {
            None => &mut self.others[(number >> PAGE_BITS).wrapping_sub(1)][number & (PAGE - 1)],
            Some(found) => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_stays_where_it_is() {
        let mut pages = Pages::default();
        let mut vector = Vec::new();
        for number in 0..3 * PAGE + 5 {
            pages.put(number, number);
            vector.push(number);
        }
        let addresses = |pages: &Pages<usize>| -> Vec<*const usize> {
            (0..3 * PAGE + 5).map(|number| std::ptr::from_ref(&pages[number])).collect()
        };
        let before = addresses(&pages);
        pages.grow(10 * PAGE, 7);
        assert!(before[..] == addresses(&pages)[..]);
        vector.resize(10 * PAGE, 7);
        assert!(pages.iter().eq(&vector));
        assert_eq!(
            (pages.len(), pages.get(10 * PAGE - 1), pages.get(10 * PAGE)),
            (10 * PAGE, Some(&7), None)
        );
        // Fewer than there are is no change.
        pages.grow(3, 1);
        assert_eq!((pages.len(), pages[3]), (10 * PAGE, 3));
    }

    #[test]
    fn memory_is_kept_for_others() {
        let mut pages = Pages::default();
        pages.grow(PAGE + 1, 1u64);
        let bytes = pages.bytes();
        assert!(bytes >= (PAGE + 1) * 8);
        pages.clear();
        assert_eq!((pages.len(), pages.get(0), pages.iter().count()), (0, None, 0));
        (0..=PAGE as u64).for_each(|number| pages.push(number));
        assert!(pages.iter().copied().eq(0..=PAGE as u64));
        assert_eq!(pages.bytes(), bytes);
    }

    #[test]
    fn a_little_takes_little() {
        let mut pages = Pages::default();
        pages.push(1u8);
        assert!(pages.bytes() < 256);
    }
}
