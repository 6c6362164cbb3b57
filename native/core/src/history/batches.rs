//! Read the blocks of a snapshot in batches. Each batch has plain columns, from which tables such as Parquet files are
//! written.

use super::columns::{BlockColumns, ColumnReader};
use crate::graph::Graph;
use gdbheap_access::error::{Error, Result};
use std::sync::Arc;

/// For each block of a snapshot, how many bytes it retains; 0 for a block that is not in the graph. The order is that
/// of the blocks.
pub struct RetainedBytes(Vec<u64>);

/// Consecutive blocks of one store, as columns of little-endian numbers.
///
/// - `addresses`: the address of each block, 8 bytes a row.
/// - `objects`: the address of the object in each block, 8 bytes a row. Empty if `BatchForm::objects` is false.
/// - `sizes`: the size of each block, 8 bytes a row.
/// - `kinds`: the number of the object's type, 4 bytes a row. 0 stands for a block without a living object.
/// - `retained`: how many bytes each block retains, 8 bytes a row. Empty if they were not requested.
#[derive(Default)]
pub struct BlockBatch {
    pub store: usize,
    /// The index, among the blocks of all stores, of the batch's first block. Blocks that the batch leaves out count as
    /// well.
    pub first: usize,
    pub count: usize,
    pub addresses: Vec<u8>,
    pub objects: Vec<u8>,
    pub sizes: Vec<u8>,
    pub kinds: Vec<u8>,
    pub retained: Vec<u8>,
}

/// The request for batches.
///
/// - `most`: the largest number of rows of a batch.
/// - `objects`: whether to leave out blocks without a living object, and to include the addresses of objects.
/// - `retained`: the retained bytes to include; None for no such column.
#[derive(Clone, Default)]
pub struct BatchForm {
    pub most: usize,
    pub objects: bool,
    pub retained: Option<Arc<RetainedBytes>>,
}

/// A reader of batches that goes through the blocks of a snapshot once, store after store.
pub struct BlockBatches {
    columns: Arc<BlockColumns>,
    reader: ColumnReader,
    form: BatchForm,
    store: usize,
    /// The number of blocks of the store `store` that were not read yet.
    left: u64,
}

impl BlockBatches {
    /// Begin at the first block. Fails if the columns contradict each other, or lack the data that `form` requests.
    pub fn new(columns: Arc<BlockColumns>, form: BatchForm) -> Result<BlockBatches> {
        let (reader, left) = (ColumnReader::new(&columns)?, columns.counts.first().copied().unwrap_or(0));
        let is_short =
            form.retained.as_ref().is_some_and(|retained| retained.0.len() as u64 != columns.counts.iter().sum());
        if is_short || (form.objects && columns.offsets.len() != columns.kinds.len() / 2) {
            return Err(Error::invalid("that is not known of these blocks"));
        }
        Ok(BlockBatches { columns, reader, form, store: 0, left })
    }

    /// Return the next batch, which may have no rows; None after the last batch.
    pub fn read(&mut self) -> Result<Option<BlockBatch>> {
        while self.left == 0 {
            self.store += 1;
            match self.columns.counts.get(self.store) {
                Some(count) => self.left = *count,
                None => return Ok(None),
            }
        }
        let wanted = self.left.min(self.form.most.max(1) as u64);
        let mut batch = BlockBatch { store: self.store, first: self.reader.place, ..BlockBatch::default() };
        for _ in 0..wanted {
            let place = self.reader.place;
            let Some(row) = self.reader.read(&self.columns)? else { break };
            if row.kind == 0 && self.form.objects {
                continue;
            }
            batch.addresses.extend_from_slice(&row.address.to_le_bytes());
            batch.sizes.extend_from_slice(&row.size.to_le_bytes());
            batch.kinds.extend_from_slice(&u32::from(row.kind).to_le_bytes());
            if self.form.objects {
                let object = row.address.wrapping_add(self.columns.offsets[place].into());
                batch.objects.extend_from_slice(&object.to_le_bytes());
            }
            if let Some(retained) = &self.form.retained {
                batch.retained.extend_from_slice(&retained.0[place].to_le_bytes());
            }
            batch.count += 1;
        }
        self.left -= wanted;
        Ok(Some(batch))
    }
}

impl BlockColumns {
    /// Return the bytes that each block retains. `graph`: the graph of the same blocks; `by_node`: for each node of the
    /// graph, the bytes that it retains.
    pub fn retained(&self, graph: &Graph, by_node: &[u64]) -> Result<RetainedBytes> {
        let of = |node: u32| by_node.get(node as usize).copied().unwrap_or(0);
        let mut found = Vec::with_capacity(self.count()?);
        self.show(|row| found.push(graph.find(row.address).map_or(0, of)))?;
        Ok(RetainedBytes(found))
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::{columns, rows, Random};
    use super::{BatchForm, BlockBatches, RetainedBytes};
    use gdbheap_access::bytes::u64_at;
    use std::sync::Arc;

    #[test]
    fn batches_are_all_rows() {
        for seed in 1..40 {
            let mut random = Random(seed);
            let made = rows(&mut random, seed * 13 % 200);
            let mut all = columns(&made, 7);
            let cut = random.below(made.len() as u64 + 1);
            all.counts = vec![cut, 0, made.len() as u64 - cut];
            let retained = Some(Arc::new(RetainedBytes(made.iter().map(|row| row.size + 1).collect())));
            let objects = seed % 2 == 0;
            let form = BatchForm { most: 1 + seed as usize % 11, objects, retained };
            let mut batches = BlockBatches::new(Arc::new(all), form).unwrap();
            let mut found = Vec::new();
            while let Some(batch) = batches.read().unwrap() {
                assert_eq!(batch.store, if (batch.first as u64) < cut { 0 } else { 2 });
                for row in 0..batch.count {
                    let kind = u32::from_le_bytes(batch.kinds[4 * row..4 * row + 4].try_into().unwrap());
                    let numbers =
                        [&batch.addresses, &batch.sizes, &batch.retained].map(|column| u64_at(column, 8 * row));
                    found.push((numbers, kind));
                }
            }
            let wanted = made.iter().filter(|row| !objects || row.kind != 0);
            let wanted: Vec<_> =
                wanted.map(|row| ([row.address, row.size, row.size + 1], u32::from(row.kind))).collect();
            assert_eq!(found, wanted, "seed {seed}");
        }
    }
}
