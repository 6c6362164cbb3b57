//! Which pages a process has alone, and which it has together with others.
#![forbid(unsafe_code)]

use crate::bytes::u64_at;
use crate::error::Result;
use crate::machine::PageSize;
use crate::memory::pages::ENTRY_PRESENT;
use crate::work::Watcher;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Of an entry of pagemap: no other process maps the page (Documentation/admin-guide/mm/pagemap.rst; Linux 4.2).
const ENTRY_EXCLUSIVE: u64 = 1 << 56;
const ENTRIES_AT_ONCE: u64 = 8 << 10;

/// Pages of private memory that are there, ascending: those that no other process has, and the others.
#[derive(Default)]
pub struct Sharing {
    pub own: Vec<u64>,
    pub shared: Vec<u64>,
}

/// Who shares the pages of `ranges`, by a `pagemap` file.
pub fn sharing(watcher: &dyn Watcher, path: &str, ranges: &[(u64, u64)], page: PageSize) -> Result<Sharing> {
    let (file, mut found) = (File::open(path)?, Sharing::default());
    let mut bytes = vec![0; 8 * ENTRIES_AT_ONCE as usize];
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            watcher.check()?;
            let wanted = page.number(end - at).min(ENTRIES_AT_ONCE) as usize;
            let got = file.read_at(&mut bytes[..8 * wanted], 8 * page.number(at))? / 8;
            for place in 0..got {
                let (entry, address) = (u64_at(&bytes, 8 * place), at + place as u64 * page.bytes());
                if entry & ENTRY_PRESENT != 0 {
                    let side = if entry & ENTRY_EXCLUSIVE != 0 { &mut found.own } else { &mut found.shared };
                    side.push(address);
                }
            }
            if got == 0 {
                break;
            }
            at += got as u64 * page.bytes();
        }
    }
    Ok(found)
}
