//! Prove that containers of C++ are what they look like. Each proof follows all links of a container, and checks that
//! its parts agree and that it has as many nodes as it says.

use super::capacity::ItemOrder;
use super::finding::{TreeForm, LIBSTDCXX_TREE};
use super::kinds::{Family, UNKNOWN};
use super::search_input::SearchInput;
use crate::allocators::block::Block;
use crate::bits::Bits;
use crate::by_address::Addresses;
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::reader::Reader;

/// The number of links that all proofs together may follow for each block of the target, in addition to FIRST_LINKS.
const LINKS_FOR_EACH: u64 = 16;
/// The number of links that all proofs together may follow in a target of any size.
const FIRST_LINKS: u64 = 1 << 16;
/// The size in bytes of a node of a std::deque with small items. Items that are smaller than this share a node; each
/// larger item has a node of its own.
const DEQUE_BYTES: u64 = 512;
/// The size in bytes of a block of a std::deque of libc++, which has as many items as fit. Items of SPLIT_LARGEST bytes
/// or more have larger blocks, with 16 items each.
const SPLIT_BYTES: u64 = 4 << 10;
const SPLIT_LARGEST: u64 = 256;
const RED: u32 = 0;
/// The smallest number of nodes that can show that their last word is no field. This is shown if more than one node in
/// MOST_ODD has a number there that is not an address.
const FEW_NODES: usize = 4;
const MOST_ODD: usize = 20;

pub(crate) struct Prover<'a> {
    look: &'a SearchInput<'a>,
    pub(crate) reader: Reader<'a>,
    /// The parts of blocks that contain no items, according to the containers to which the blocks belong.
    pub(crate) dead: Vec<(u64, u64)>,
    /// The parts of blocks of std::deques that certainly contain no items, because the iterators of the deque say so.
    pub(crate) vacant: Vec<(u64, u64)>,
    seen: Bits,
    /// The addresses of the bucket arrays that were read. If one is read again, its words count as followed links, so
    /// that the time stays bounded.
    scanned: Addresses,
    /// The number of links that may still be followed. The limit makes the time of all proofs proportional to the size
    /// of the target.
    left: u64,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(look: &'a SearchInput<'a>) -> Prover<'a> {
        let blocks = look.ids.count() as u64;
        let (reader, seen) = (Reader::large(look.heaps.space), Bits::new(blocks));
        Prover {
            look,
            reader,
            seen,
            dead: Vec::new(),
            vacant: Vec::new(),
            scanned: Addresses::default(),
            left: blocks.saturating_mul(LINKS_FOR_EACH).saturating_add(FIRST_LINKS),
        }
    }

    /// Count one more link; None if too many links were followed.
    fn step(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// Return the number of the block that begins at `address`; None if there is no such block, or if its kind is
    /// already known.
    fn unknown(&self, address: u64) -> Option<u32> {
        self.unknown_block(address).map(|(id, _)| id)
    }

    /// Return the block that begins at `address`, and its number; None if there is no such block, or if its kind is
    /// already known.
    fn unknown_block(&self, address: u64) -> Option<(u32, Block)> {
        self.look.block_from(address).filter(|(id, _)| self.look.kind(*id) == UNKNOWN)
    }

    fn set_all(&self, ids: &[u32], family: Family) {
        let kind = self.look.number(family, "");
        ids.iter().for_each(|id| self.look.set_kind(*id, kind));
    }

    /// Classify the nodes of a container. The same number of bytes was requested for all of them. Bytes after the
    /// largest request that fits all nodes were added by malloc and are older than the node: record these bytes in
    /// `dead`.
    fn name_nodes(&mut self, nodes: &[(u32, Block)], family: Family) {
        let kind = self.look.number(family, "");
        let (mut least, mut most, mut largest) = (0, u64::MAX, 0);
        for (id, block) in nodes {
            self.look.set_kind(*id, kind);
            let (low, high) = self.look.requests(block, true);
            (least, most, largest) = (low.max(least), high.min(most), high.max(largest));
        }
        if least > most || most == largest {
            return;
        }
        let from = self.end_of_fields(nodes, most);
        let larger = nodes.iter().filter(|(_, block)| block.end - block.address > most);
        self.dead.extend(larger.map(|(_, block)| (block.address + from, block.end)));
    }

    /// Return the offset at which the last field of a container's nodes ends. The smallest blocks of nodes have `most`
    /// bytes. The last word of such a block may lie after the requested bytes. This last word is not a field if some
    /// nodes have a number there that is not an address.
    fn end_of_fields(&mut self, nodes: &[(u32, Block)], most: u64) -> u64 {
        let smallest = nodes.iter().find(|(_, block)| block.end - block.address == most);
        let (least, _) = smallest.map_or((most, most), |(_, block)| self.look.requests(block, false));
        let (last, (low, high)) = (most.saturating_sub(8), self.look.bounds);
        if nodes.len() < FEW_NODES || least > last {
            return most;
        }
        let mut odd = 0;
        for (_, block) in nodes {
            let word = self.reader.word(block.address + last).unwrap_or(0);
            let is_plain = word == 0 || !(low..=high).contains(&word) && self.look.heaps.space.covers(word, 1);
            odd += usize::from(!is_plain && self.look.block_with(word).is_none_or(|(_, found)| found.address != word));
        }
        if odd * MOST_ODD > nodes.len() {
            last
        } else {
            most
        }
    }

    /// Prove the tree with this header, and classify its nodes. The tree must have as many nodes as it says, links that
    /// are consistent in both directions, and its first node among the nodes. None if it is not a tree.
    pub(crate) fn tree(&mut self, header: u64, form: TreeForm) -> Option<()> {
        let is_libstdcxx = form == LIBSTDCXX_TREE;
        let (root, leftmost, count) = match is_libstdcxx {
            true => (self.link(header, 8)?, self.link(header, 16)?, self.link(header, 32)?),
            false => (self.link(header, 0)?, self.reader.word(header.checked_sub(8)?)?, self.link(header, 8)?),
        };
        let mut nodes = Vec::new();
        let mut waiting = vec![(root, header)];
        let mut first = None;
        while let Some((node, above)) = waiting.pop() {
            self.step()?;
            nodes.push(self.unknown_block(node)?);
            if nodes.len() as u64 > count || self.link(node, form.parent)? != above {
                return None;
            }
            if is_libstdcxx && self.link(node, 0)? as u32 > 1 {
                return None;
            }
            let (left, right) = (self.link(node, form.left)?, self.link(node, form.right)?);
            if left != 0 && left == right {
                return None;
            }
            if left == 0 && node == leftmost {
                first = Some(node);
            }
            waiting.extend([left, right].into_iter().filter(|child| *child != 0).map(|child| (child, node)));
        }
        if nodes.len() as u64 != count || first.is_none() {
            return None;
        }
        if is_libstdcxx && self.link(header, 0)? as u32 != RED {
            return None;
        }
        self.name_nodes(&nodes, Family::Map);
        Some(())
    }

    fn link(&mut self, address: u64, offset: u64) -> Option<u64> {
        self.reader.word(address.checked_add(offset)?)
    }

    /// Prove the std::list whose ring of links contains this block, and classify its nodes. One element of the ring
    /// must be the header, which contains the number of the other elements. None if it is not a list.
    pub(crate) fn ring(&mut self, id: u32, block: u64) -> Option<()> {
        if self.seen.get(u64::from(id)) {
            return None;
        }
        let (mut nodes, mut outside, mut at) = (Vec::new(), None, block);
        loop {
            self.step()?;
            match self.unknown_block(at) {
                Some((id, _)) if self.seen.get(u64::from(id)) => return None,
                Some((id, block)) => {
                    self.seen.set(u64::from(id));
                    nodes.push((id, block));
                }
                None if outside.is_some() => return None,
                None => outside = Some(at),
            }
            let next = self.link(at, 0).filter(|next| *next > LOWEST)?;
            if self.link(next, 8)? != at {
                return None;
            }
            at = next;
            if at == block {
                break;
            }
        }
        let header = match outside {
            Some(header) => (self.link(header, 16)? == nodes.len() as u64).then_some(header)?,
            None => self.header_among(&nodes)?,
        };
        nodes.retain(|(_, block)| block.address != header);
        self.name_nodes(&nodes, Family::List);
        Some(())
    }

    /// Return the only block in a ring that contains the number of the other elements; None if there is no such block,
    /// or several.
    fn header_among(&mut self, nodes: &[(u32, Block)]) -> Option<u64> {
        let others = nodes.len() as u64 - 1;
        let mut found = None;
        for (_, block) in nodes {
            if self.link(block.address, 16) == Some(others) && found.replace(block.address).is_some() {
                return None;
            }
        }
        found
    }

    /// Prove a hash table, and classify its blocks; None if it is not proven. The chain of the table must have as many
    /// nodes as the table says. Each bucket must point to the node of the chain before its own first node, and the
    /// bucket of the chain's first node must point to the table's own link.
    pub(crate) fn table(&mut self, table: u64) -> Option<()> {
        let [buckets, bucket_count, first, count, load] = self.reader.words::<5>(table)?;
        let load = f32::from_bits(load as u32);
        if !(load > 0.0 && load <= 1024.0) {
            return None;
        }
        let array = match buckets == table + 48 {
            true => None,
            false => Some((self.unknown(buckets)?, self.look.block_from(buckets)?.1)),
        };
        let (mut nodes, mut places, mut at) = (Vec::new(), Addresses::default(), first);
        for _ in 0..count {
            self.step()?;
            nodes.push(self.unknown_block(at)?);
            places.insert(at);
            at = self.link(at, 0)?;
        }
        if at != 0 || places.len() as u64 != count {
            return None;
        }
        let own = table + 16;
        let mut of_first = 0;
        // All arrays together are no larger than the target, so an array costs links only if it is read again.
        let is_again = !self.scanned.insert(buckets);
        for place in 0..bucket_count {
            if is_again {
                self.step()?;
            }
            match self.link(buckets, place.checked_mul(8)?)? {
                0 => (),
                before if before == own => of_first += 1,
                before if places.contains(&before) => (),
                _ => return None,
            }
        }
        if of_first != u32::from(count > 0) {
            return None;
        }
        if let Some((id, block)) = array {
            self.set_all(&[id], Family::Buckets);
            self.look.fill(id, &block, bucket_count.saturating_mul(8), count.saturating_mul(8), ItemOrder::Scattered);
        }
        self.name_nodes(&nodes, Family::Unordered);
        Some(())
    }

    /// Prove a std::deque of libstdc++; None if it is not proven. Both of its iterators must agree with its array of
    /// pointers, and each pointer between the iterators must be the address of a block.
    pub(crate) fn deque(&mut self, deque: u64) -> Option<()> {
        let [map, places, from @ ..] = self.reader.words::<6>(deque)?;
        let to = self.reader.words::<4>(deque.checked_add(48)?)?;
        let [_, first, last, start] = from;
        let [_, to_first, to_last, finish] = to;
        let bytes = last.checked_sub(first).filter(|bytes| *bytes > 0)?;
        let is_inside = |[cur, first, last, _]: [u64; 4]| first <= cur && cur < last;
        let end = places.checked_mul(8).and_then(|size| map.checked_add(size))?;
        let fits = is_inside(from) && is_inside(to) && to_last.checked_sub(to_first) == Some(bytes);
        if !fits || start < map || finish < start || finish >= end || (start - map) % 8 != 0 || (finish - map) % 8 != 0
        {
            return None;
        }
        // Small items share a node, as many as fit. A larger item has a node of its own.
        if bytes < DEQUE_BYTES / 2 + 1 || (start == finish && from[0] > to[0]) {
            return None;
        }
        if self.reader.word(start)? != first || self.reader.word(finish)? != to_first {
            return None;
        }
        let mut nodes = Vec::new();
        for at in (start..=finish).step_by(8) {
            self.step()?;
            let node = self.reader.word(at)?;
            let (id, block) = self.look.block_from(node)?;
            let is_new = self.look.kind(id) == UNKNOWN || self.is_object(id);
            if !is_new || !self.look.fits(&block, bytes) {
                return None;
            }
            nodes.push(id);
        }
        let (id, (_, block)) = (self.unknown(map)?, self.look.block_from(map)?);
        self.set_all(&[id], Family::DequeMap);
        self.set_all(&nodes, Family::Deque);
        // A deque does not clear the pointers to nodes that it freed, and a new array of pointers is not cleared either.
        let parts = [(first, from[0]), (to[0], to_last), (map, start), (finish + 8, block.end)];
        self.vacant.extend(parts.into_iter().filter(|(start, end)| start < end));
        Some(())
    }

    /// Prove a std::deque of libc++; None if it is not proven. All used pointers of its array must point to blocks, and
    /// the size of these blocks must be the one that libc++ requests.
    pub(crate) fn split_deque(&mut self, deque: u64) -> Option<()> {
        let [array, begin, end, limit, first, count] = self.reader.words::<6>(deque)?;
        let (map, block) = self.look.block_from(array)?;
        let places = (end.checked_sub(begin)?) / 8;
        let in_order = array <= begin && begin < end && end <= limit && (begin | end | limit) % 8 == 0;
        if !in_order || self.look.kind(map) != UNKNOWN || !self.look.fits(&block, limit - array) {
            return None;
        }
        // A node has at most 4096 items (of one byte each), and at least 16 items of any size.
        if first.checked_add(count)? > places.checked_mul(SPLIT_BYTES)? {
            return None;
        }
        let (mut nodes, mut sizes) = (Vec::new(), (u64::MAX, 0));
        for at in (begin..end).step_by(8) {
            self.step()?;
            let node = self.reader.word(at)?;
            let (id, block) = self.look.block_from(node)?;
            if self.look.kind(id) != UNKNOWN && !self.is_object(id) {
                return None;
            }
            let usable = block.end - block.address;
            sizes = (usable.min(sizes.0), usable.max(sizes.1));
            nodes.push(id);
        }
        // The sizes of these chunks may differ by a remainder that was too small for a chunk of its own.
        if sizes.0 <= SPLIT_BYTES - SPLIT_LARGEST || sizes.1 - sizes.0 > 16 {
            return None;
        }
        self.set_all(&[map], Family::DequeMap);
        self.set_all(&nodes, Family::Deque);
        self.vacant.extend([(array, begin), (end, block.end)].into_iter().filter(|(start, end)| start < end));
        Some(())
    }

    /// Return whether the block begins with an object that has a vtable. An array of such objects begins in the same
    /// way.
    pub(crate) fn is_object(&self, id: u32) -> bool {
        self.look.is_of(id, Family::Object)
    }
}
