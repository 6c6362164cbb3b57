//! The header before each stub: a mark of gdbheap, the patched address, the size of the stub, and the original bytes.
#![forbid(unsafe_code)]

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gdbheap\x01");
pub(crate) const ADDRESS_AT: usize = 8;
pub(crate) const SIZE_AT: usize = 16;
pub(crate) const ORIGINAL_SIZE_AT: usize = 18;
pub(crate) const ORIGINAL_AT: usize = 19;
pub(crate) const HEADER: usize = 48;

pub(crate) fn write_header(stub: &mut [u8], address: u64, original: &[u8]) {
    let size = stub.len() as u16;
    stub[..ADDRESS_AT].copy_from_slice(&MAGIC.to_le_bytes());
    stub[ADDRESS_AT..SIZE_AT].copy_from_slice(&address.to_le_bytes());
    stub[SIZE_AT..ORIGINAL_SIZE_AT].copy_from_slice(&size.to_le_bytes());
    stub[ORIGINAL_SIZE_AT] = original.len() as u8;
    stub[ORIGINAL_AT..ORIGINAL_AT + original.len()].copy_from_slice(original);
}
