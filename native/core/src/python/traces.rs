//! Read the hash tables of tracemalloc (`_Py_hashtable_t`): how many blocks each traceback allocated, and the bytes of
//! these blocks.

use gdbheap_access::bytes::{u64_at, words};
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::HashMap;

/// The number of buckets, and of entries in the lists of buckets, that are read at once.
const AT_ONCE: usize = 16 << 10;
/// The largest number of tracebacks that are counted: more than any program has lines.
const MAX_TRACEBACKS: usize = 1 << 22;
const HEAD: usize = 16;
const TRACE: usize = 16;

/// A hash table of tracemalloc.
/// - `buckets`: the address of its buckets.
/// - `count`: the number of buckets.
/// - `entries`: how many entries it has, according to its head.
/// - `key`: up to 3.8, the size of a key in bytes; the trace itself follows the key. 0: an entry has a key of one word
///   and a pointer to the trace.
#[derive(Clone, Debug)]
pub struct TraceTable {
    pub buckets: u64,
    pub count: u64,
    pub entries: u64,
    pub key: u64,
}

/// The number and the bytes of the blocks that one traceback allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracebackSum {
    pub traceback: u64,
    pub count: u64,
    pub bytes: u64,
}

/// The content of hash tables, by traceback. `entries`: how many entries were counted. Entries that are in a wrong
/// bucket or point nowhere do not count.
#[derive(Debug, Default)]
pub struct Traces {
    pub rows: Vec<TracebackSum>,
    pub entries: u64,
}

#[derive(Default)]
struct TraceCounter {
    rows: HashMap<u64, (u64, u64)>,
    entries: u64,
}

impl TraceCounter {
    fn add(&mut self, size: u64, traceback: u64) {
        if self.rows.len() >= MAX_TRACEBACKS && !self.rows.contains_key(&traceback) {
            return;
        }
        let row = self.rows.entry(traceback).or_default();
        *row = (row.0 + 1, row.1.wrapping_add(size));
        self.entries += 1;
    }

    /// Count the traces in some linked lists of a hash table. `heads`: for each list, (its bucket, the address of its
    /// first entry). At most `left` entries are read, so that a damaged list cannot go on for ever.
    fn lists(
        &mut self,
        space: &Space,
        table: &TraceTable,
        mut heads: Vec<(u64, u64)>,
        left: &mut u64,
        control: &Control<'_>,
    ) -> std::result::Result<(), Cancellation> {
        let inline = table.key > 0;
        let size = HEAD + if inline { table.key as usize + TRACE } else { 16 };
        while !heads.is_empty() && *left > 0 {
            heads.truncate((*left).min(usize::MAX as u64) as usize);
            *left -= heads.len() as u64;
            let addresses: Vec<u64> = heads.iter().map(|(_, address)| *address).collect();
            let mut raw = vec![0; addresses.len() * size];
            let good = space.many(&addresses, size, &mut raw);
            let (mut next, mut traces) = (Vec::new(), Vec::new());
            for (((bucket, _), entry), good) in heads.iter().zip(raw.chunks_exact(size)).zip(good) {
                if !good || u64_at(entry, 8) & (table.count - 1) != *bucket {
                    continue;
                }
                if u64_at(entry, 0) != 0 {
                    next.push((*bucket, u64_at(entry, 0)));
                }
                match inline {
                    true => self.add(u64_at(entry, size - TRACE), u64_at(entry, size - 8)),
                    false => traces.push(u64_at(entry, 24)),
                }
            }
            self.pointed(space, &traces);
            control.advance((addresses.len() * size) as u64)?;
            heads = next;
        }
        Ok(())
    }

    fn pointed(&mut self, space: &Space, traces: &[u64]) {
        let mut raw = vec![0; traces.len() * TRACE];
        let good = space.many(traces, TRACE, &mut raw);
        for (trace, _) in raw.chunks_exact(TRACE).zip(good).filter(|(_, good)| *good) {
            self.add(u64_at(trace, 0), u64_at(trace, 8));
        }
    }

    fn table(
        &mut self,
        space: &Space,
        table: &TraceTable,
        control: &Control<'_>,
    ) -> std::result::Result<(), Cancellation> {
        let mut left = table.entries;
        let mut bytes = vec![0; AT_ONCE * 8];
        for first in (0..table.count).step_by(AT_ONCE) {
            if left == 0 {
                break;
            }
            let size = (table.count - first).min(AT_ONCE as u64) as usize * 8;
            let got = space.fill(table.buckets.wrapping_add(8 * first), &mut bytes[..size]);
            let heads = words(&bytes[..got]).into_iter().zip(first..);
            let heads: Vec<_> = heads.filter(|(head, _)| *head != 0).map(|(head, bucket)| (bucket, head)).collect();
            self.lists(space, table, heads, &mut left, control)?;
            control.advance(size as u64)?;
            if got < size {
                break;
            }
        }
        Ok(())
    }
}

/// Read hash tables. The rows are in the order of the tracebacks' addresses. A table is skipped if its number of
/// buckets is not a power of two.
pub fn count_traces(watcher: &dyn Watcher, space: &Space, tables: &[TraceTable]) -> Result<Traces> {
    let found = space.task(watcher, None).alone(|control| {
        let mut counting = TraceCounter::default();
        for table in tables.iter().filter(|table| table.count.is_power_of_two()) {
            counting.table(space, table, control)?;
        }
        Ok(counting)
    })?;
    let row = |(traceback, (count, bytes))| TracebackSum { traceback, count, bytes };
    let mut rows: Vec<TracebackSum> = found.rows.into_iter().map(row).collect();
    rows.sort_unstable_by_key(|row| row.traceback);
    Ok(Traces { rows, entries: found.entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::Source;
    use gdbheap_access::testing::NoWatcher;

    /// A fake memory that consists of these words, from 0x10000 on.
    struct WordSource(Vec<u64>);

    const START: u64 = 0x10000;

    impl Source for WordSource {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
            let from = (address - START) as usize;
            let got = bytes.len().saturating_sub(from).min(buffer.len());
            buffer[..got].copy_from_slice(&bytes[from..from + got]);
            got
        }
    }

    fn space(words: Vec<u64>) -> Space {
        let end = START + 8 * words.len() as u64;
        Space::for_remote(
            Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).unwrap(),
            &[(START, end)],
            Box::new(WordSource(words)),
        )
        .unwrap()
    }

    #[test]
    fn a_list_that_leads_to_itself_ends() {
        // There are two buckets. The list of the second bucket is an entry that links to itself: next, hash, key,
        // trace. The trace follows.
        let at = |index: u64| START + 8 * index;
        let words = vec![0, at(2), at(2), 1, 0x5000, at(6), 24, 0x7000];
        let table = TraceTable { buckets: START, count: 2, entries: 3, key: 0 };
        let found = count_traces(&NoWatcher, &space(words), &[table]).unwrap();
        assert_eq!(found.rows, [TracebackSum { traceback: 0x7000, count: 3, bytes: 72 }]);
    }

    #[test]
    fn an_entry_of_another_bucket_is_none() {
        let at = |index: u64| START + 8 * index;
        let words = vec![at(2), 0, 0, 1, 0x5000, 24, 0x7000, 0];
        let table = TraceTable { buckets: START, count: 2, entries: 3, key: 8 };
        assert_eq!(count_traces(&NoWatcher, &space(words), &[table]).unwrap().entries, 0);
    }
}
