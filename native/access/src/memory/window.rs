//! A moving window over a space. It turns many small reads into a few large ones. The window grows while the caller
//! reads forwards. After a jump, such as that over the contents of a large block, it is small again.
#![forbid(unsafe_code)]

use crate::error::MissingByte;
use crate::machine::SMALLEST_PAGE;
use crate::memory::space::Space;

const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 256 << 10;

pub struct Window<'a> {
    space: &'a Space,
    limit: u64,
    start: u64,
    size: usize,
    step: usize,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Create a window that never reads at or beyond `limit`.
    #[inline]
    pub fn new(space: &'a Space, limit: u64) -> Window<'a> {
        Window { space, limit, start: 0, size: 0, step: SMALLEST, buffer: Vec::new() }
    }

    /// Return the size of the target's pages, in bytes.
    #[inline]
    pub fn page(&self) -> u64 {
        self.space.machine.page.bytes()
    }

    /// Return the bytes [address, address + size). `size` should be small.
    #[inline]
    pub fn bytes(&mut self, address: u64, size: usize) -> Result<&[u8], MissingByte> {
        let offset = address.wrapping_sub(self.start);
        if offset.saturating_add(size as u64) > self.size as u64 {
            self.load(address, size)?;
            return Ok(&self.buffer[..size]);
        }
        Ok(&self.buffer[offset as usize..offset as usize + size])
    }

    /// Return the bytes from `address` to the end of the window, without reading.
    #[inline]
    pub fn rest(&self, address: u64) -> &[u8] {
        let offset = address.wrapping_sub(self.start).min(self.size as u64);
        &self.buffer[offset as usize..self.size]
    }

    /// Return the bytes from `address` to the first absent byte, at most `size` bytes.
    #[inline]
    pub fn available(&mut self, address: u64, size: usize) -> &[u8] {
        let size = size.min(self.limit.saturating_sub(address) as usize);
        if self.bytes(address, size).is_ok() {
            let offset = (address - self.start) as usize;
            return &self.buffer[offset..offset + size];
        }
        let offset = address.wrapping_sub(self.start);
        match offset < self.size as u64 {
            true => &self.buffer[offset as usize..self.size],
            false => &[],
        }
    }

    #[cold]
    fn load(&mut self, address: u64, size: usize) -> Result<(), MissingByte> {
        let sequential = address.wrapping_sub(self.start) <= (self.size + SMALLEST) as u64;
        self.step = if sequential { (self.step * 2).min(LARGEST) } else { SMALLEST };
        // Read whole pages: a window that ends inside a page would read that page twice.
        let end = (address | (SMALLEST_PAGE - 1)).saturating_add(1).saturating_add(self.step as u64 - SMALLEST as u64);
        let end = end.max(address.saturating_add(size as u64)).min(self.limit);
        let wanted = end.saturating_sub(address) as usize;
        if self.buffer.len() < wanted {
            self.buffer.resize(LARGEST.max(wanted), 0);
        }
        self.start = address;
        self.size = self.space.fill(address, &mut self.buffer[..wanted]);
        if self.size < size {
            return Err(MissingByte(address.wrapping_add(self.size as u64)));
        }
        Ok(())
    }
}
