//! Compressed streams: files of consecutive zstd or lz4 frames, as the command-line tools zstd and lz4 write them.
//!
//! The memory needed is bounded for any file. A zstd window may have at most 128 MiB, the default limit of the zstd
//! tool. An lz4 block may have at most 4 MiB, the limit of its format. The time of one read is bounded too: a long run
//! of frames without content, such as terabytes of a sparse file, is an error.
#![forbid(unsafe_code)]

use gdbheap_access::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const WINDOW_LOG: u32 = 27;
const BUFFER: usize = 256 << 10;
/// After this many compressed bytes without any output, reading fails. This is half a zstd window, and more than any
/// tool writes between two frames.
const IDLE: u64 = 64 << 20;

/// A file with two positions: the current position of reading, and the position at which the last output was produced.
struct TrackedFile {
    file: File,
    position: Arc<AtomicU64>,
    fruitful: Arc<AtomicU64>,
}

impl Read for TrackedFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        let before = self.position.fetch_add(count as u64, Ordering::Relaxed);
        if before - self.fruitful.load(Ordering::Relaxed) > IDLE {
            return Err(std::io::Error::other("too many bytes of it hold nothing"));
        }
        Ok(count)
    }
}

type Source = BufReader<TrackedFile>;

/// A source that reports the end of the file as an error. Without it, the lz4 decoder would take a file that is cut
/// between two blocks for a complete frame.
struct EndlessSource(Source);

impl Read for EndlessSource {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(std::io::Error::other("it ends in the middle")),
            count => Ok(count),
        }
    }
}

type FrameReader = lz4_flex::frame::FrameDecoder<EndlessSource>;

enum Decoder {
    Zstd(Box<zstd::stream::read::Decoder<'static, Source>>),
    /// The decoder of the current lz4 frame; None after the last frame.
    Lz4(Option<Box<FrameReader>>),
}

impl Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Decoder::Zstd(decoder) => decoder.read(buffer),
            Decoder::Lz4(decoder) => loop {
                let Some(frame) = decoder else { return Ok(0) };
                let count = frame.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                // Another frame may follow. It needs a new decoder, because its block size may differ.
                let rest = frame.get_mut().0.fill_buf().map(|rest| !rest.is_empty())?;
                *decoder = decoder.take().filter(|_| rest).map(|frame| Box::new(FrameReader::new(frame.into_inner())));
            },
        }
    }
}

/// A compressed file that is read as its original bytes.
pub struct Unpacker {
    decoder: Decoder,
    position: Arc<AtomicU64>,
    fruitful: Arc<AtomicU64>,
    /// The error that ended decompression.
    failure: Option<String>,
}

impl Unpacker {
    /// Open a compressed file. `kind` is "zstd" or "lz4".
    pub fn open(path: &str, kind: &str) -> Result<Unpacker> {
        let (position, fruitful) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let file = TrackedFile { file: File::open(path)?, position: position.clone(), fruitful: fruitful.clone() };
        let source = BufReader::with_capacity(BUFFER, file);
        let decoder = match kind {
            "zstd" => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
                decoder.window_log_max(WINDOW_LOG)?;
                Decoder::Zstd(Box::new(decoder))
            }
            "lz4" => Decoder::Lz4(Some(Box::new(FrameReader::new(EndlessSource(source))))),
            _ => return Err(Error::invalid("neither zstd nor lz4")),
        };
        Ok(Unpacker { decoder, position, fruitful, failure: None })
    }

    /// Return how many bytes of the compressed file were read.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Return at most `size` original bytes; none at the end of the file. If the file is damaged or cut off, this call
    /// returns the bytes before the damage, and the next call returns the error.
    pub fn read(&mut self, size: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let mut count = 0;
        while count < size && self.failure.is_none() {
            match self.decoder.read(&mut bytes[count..]) {
                Ok(0) => break,
                Ok(more) => {
                    count += more;
                    self.fruitful.store(self.position(), Ordering::Relaxed);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => self.failure = Some(error.to_string()),
            }
        }
        bytes.truncate(count);
        match &self.failure {
            Some(failure) if count == 0 => Err(Error::Invalid(failure.clone())),
            _ => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn unpacked(packed: &[u8], kind: &str, name: &str) -> (Vec<u8>, bool) {
        let path = std::env::temp_dir().join(format!("gdbheap-{name}-{}", std::process::id()));
        File::create(&path).unwrap().write_all(packed).unwrap();
        let mut unpacker = Unpacker::open(path.to_str().unwrap(), kind).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut all = Vec::new();
        loop {
            match unpacker.read(1000) {
                Ok(bytes) if bytes.is_empty() => return (all, true),
                Ok(bytes) => all.extend(bytes),
                Err(_) => return (all, false),
            }
        }
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_cut_is_seen() {
        let bytes: Vec<u8> = (0..100_000).map(|number: u32| (number.wrapping_mul(number) >> 7) as u8).collect();
        for kind in ["lz4", "zstd"] {
            let pack = |bytes: &[u8]| if kind == "lz4" { lz4(bytes) } else { zstd::encode_all(bytes, 1).unwrap() };
            let (one, two) = (pack(&bytes), pack(b"two"));
            let packed = [one.as_slice(), pack(b"").as_slice(), two.as_slice()].concat();
            let ends = [one.len(), packed.len() - two.len(), packed.len()];
            for size in (one.len() - 20..=packed.len()).chain((10..one.len()).step_by(997)) {
                let (found, whole) = unpacked(&packed[..size], kind, &format!("{kind}-cut"));
                assert_eq!(whole, ends.contains(&size), "{kind}: {size} of {}", packed.len());
                assert!([bytes.as_slice(), b"two"].concat().starts_with(&found));
            }
        }
    }

    /// Check a skippable frame of 4 GiB in a sparse file. A reader that waits for output would read all of it.
    #[test]
    fn frames_without_contents() {
        let path = std::env::temp_dir().join(format!("gdbheap-idle-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff]).unwrap();
        file.set_len(1 << 32).unwrap();
        let mut unpacker = Unpacker::open(path.to_str().unwrap(), "zstd").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(unpacker.read(1000).is_err());
        assert!(unpacker.position() < 2 * IDLE);
    }

    #[test]
    fn frames_follow_frames() {
        let bytes: Vec<u8> = (0..1 << 20).map(|number: u32| (number.wrapping_mul(number) >> 7) as u8).collect();
        let (one, two) = bytes.split_at(300_000);
        for kind in ["lz4", "zstd"] {
            let pack = |bytes: &[u8]| if kind == "lz4" { lz4(bytes) } else { zstd::encode_all(bytes, 1).unwrap() };
            let packed = [pack(one), pack(two)].concat();
            assert_eq!(unpacked(&packed, kind, kind), (bytes.clone(), true));
            let (found, whole) = unpacked(&packed[..packed.len() - 100], kind, kind);
            assert!(!whole && found.len() >= 300_000 && bytes.starts_with(&found), "{kind}: {}", found.len());
        }
    }
}
