//! A cache of recently read pages of a stopped process, because following pointers reads most pages again and again.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;

pub(crate) const SIZE: u64 = 4 << 10;
const SHARDS: u64 = 32;
/// The number of pages of each shard of the cache; all shards together have 16 MiB. This cache is only used if there
/// was too little memory for a copy of the process.
const PAGES_OF_SHARD: usize = 128;

type Shard = Mutex<HashMap<u64, Box<[u8]>>>;

#[derive(Default)]
pub(crate) struct RecentPages {
    shards: [Shard; SHARDS as usize],
}

impl RecentPages {
    /// Fill `buffer` with the bytes at `address`. Return false if the bytes are not all in one page, or if `read`
    /// cannot fill that page.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8], read: impl FnOnce(u64, &mut [u8]) -> usize) -> bool {
        let (start, offset) = (address - address % SIZE, (address % SIZE) as usize);
        let Some(range) = offset.checked_add(buffer.len()).filter(|end| *end <= SIZE as usize).map(|end| offset..end)
        else {
            return false;
        };
        let shard = &self.shards[(start / SIZE % SHARDS) as usize];
        if let Some(page) = lock(shard).get(&start) {
            buffer.copy_from_slice(&page[range]);
            return true;
        }
        let mut page = vec![0; SIZE as usize].into_boxed_slice();
        if read(start, &mut page) < page.len() {
            return false;
        }
        buffer.copy_from_slice(&page[range]);
        let mut pages = lock(shard);
        if pages.len() >= PAGES_OF_SHARD {
            pages.clear();
        }
        pages.insert(start, page);
        true
    }
}

fn lock(shard: &Shard) -> std::sync::MutexGuard<'_, HashMap<u64, Box<[u8]>>> {
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_page_is_read_once() {
        let (recent, reads) = (RecentPages::default(), Cell::new(0));
        let read = |start: u64, page: &mut [u8]| {
            reads.set(reads.get() + 1);
            page.fill((start / SIZE) as u8);
            page.len()
        };
        let mut buffer = [0; 8];
        for address in [SIZE, SIZE + 8, 2 * SIZE - 8, 3 * SIZE + 16] {
            assert!(recent.fill(address, &mut buffer, read) && buffer == [(address / SIZE) as u8; 8]);
        }
        assert_eq!(reads.get(), 2);
        assert!(!recent.fill(2 * SIZE - 4, &mut buffer, read), "it is in two pages");
        assert!(!recent.fill(9 * SIZE, &mut buffer, |_, _| 100), "the page is not there");
    }
}
