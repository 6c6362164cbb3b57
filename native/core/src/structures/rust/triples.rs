//! Weigh the evidence for triples: three words that may be a Vec or a String or, with a fourth word, a VecDeque. The
//! evidence comes from the numbers in these words, and from the bytes of the block to which they point.

use gdbheap_access::memory::reader::Reader;

/// The order in which the words of a Vec lie in memory. rustc chooses it, so all Vecs of a program have the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WordOrder {
    /// The order is capacity, pointer, length.
    CapFirst,
    /// The order is pointer, capacity, length.
    PointerFirst,
}

/// The amount of evidence, in bits, above which a coincidence is ruled out.
pub(crate) const SURE: f32 = 14.0;
/// The evidence, in bits, that a buffer needs to count as text if it may instead contain items of several bytes. There
/// are many such buffers, so each needs much evidence: if one random buffer in a thousand looks like text, a thousand
/// of a million buffers are wrongly taken for text.
const SURE_AMONG_VECS: f32 = 12.0;
/// The evidence for text, in bits, that one character gives. Characters that random bytes seldom form give more.
/// - letters, digits and other characters of names: a quarter of all byte values.
/// - other ASCII characters: a third of all byte values can be printed.
/// - all others: few pairs of other bytes are valid UTF-8.
const BITS: [f32; 3] = [1.9, 1.4, 4.0];
/// The largest number of bytes of a buffer that are read to decide whether they are text.
pub(crate) const SAMPLE: usize = 64;

/// The three words of a possible Vec, and the block to which they point.
#[derive(Clone, Debug)]
pub(crate) struct Triple {
    pub(crate) order: WordOrder,
    /// The address of the word that is the pointer.
    pub(crate) at: u64,
    pub(crate) id: u32,
    pub(crate) block: u64,
    pub(crate) cap: u64,
    pub(crate) len: u64,
    /// The word after the three words, which is the length of a VecDeque; all ones if it cannot be read.
    pub(crate) next: u64,
    /// The length that a word near the triple states if the triple belongs to another container, such as a VecDeque or
    /// BufReader; zero if no word fits.
    pub(crate) other: u64,
    /// The field in which the pointer lies, as `candidates::field` encodes it.
    pub(crate) field: u64,
    pub(crate) on_stack: bool,
    /// The smallest number of bytes that may have been requested for the block.
    pub(crate) low: u64,
    /// The largest number of bytes that may have been requested for the block, which is all that the block can contain.
    pub(crate) usable: u64,
    pub(crate) is_text: bool,
    /// The evidence, in bits, that is needed to prove that the buffer is text.
    pub(crate) wanted: f32,
    /// The evidence, in bits, that the words are a Vec and not chance numbers.
    pub(crate) bits: f32,
    /// The evidence, in bits, that the bytes of the buffer are text and not random bytes.
    pub(crate) text_bits: f32,
    /// The content of the buffer, if other triples at the same place in other items or structs prove it.
    pub(crate) proven: Option<TripleShape>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TripleShape {
    Text,
    Items,
}

impl Triple {
    /// Make a triple for a block for which between `low` and `high` bytes were requested; None if the words cannot be a
    /// Vec.
    pub(crate) fn new(order: WordOrder, cap: u64, len: u64, (low, high): (u64, u64)) -> Option<Triple> {
        if cap == 0 || len > cap || cap > high {
            return None;
        }
        if !may_be_size(least(low, cap), high / cap) {
            return None;
        }
        let fits = bits_of(cap) - bits_of(high - low + 1);
        Some(Triple {
            order,
            at: 0,
            id: 0,
            block: 0,
            cap,
            len,
            next: u64::MAX,
            other: 0,
            field: 0,
            on_stack: false,
            low,
            usable: high,
            is_text: false,
            wanted: SURE,
            bits: fits.max(0.0) + bits_of_lengths(cap, len),
            text_bits: 0.0,
            proven: None,
        })
    }

    /// Return the smallest possible size of an item in bytes: the smallest possible request divided by the capacity.
    pub(crate) fn least(&self) -> u64 {
        least(self.low, self.cap)
    }

    /// Return the largest possible size of an item in bytes: the usable size of the block divided by the capacity.
    pub(crate) fn most(&self) -> u64 {
        self.usable / self.cap
    }

    /// Return the length that the word after the triple states if the triple belongs to a VecDeque; None if the word
    /// could not be read.
    pub(crate) fn next(&self) -> Option<u64> {
        Some(self.next).filter(|next| *next != u64::MAX)
    }

    /// Read the first bytes of the block, and decide whether they are text.
    pub(crate) fn judge(&mut self, reader: &mut Reader<'_>) {
        let mut bytes = [0; SAMPLE];
        let got = reader.fill(self.block, &mut bytes[..(self.usable as usize).min(SAMPLE)]);
        self.judge_text(&bytes[..got]);
    }

    /// Decide whether `bytes`, the first bytes of the block, are text.
    fn judge_text(&mut self, bytes: &[u8]) {
        let wanted = (self.len as usize).min(SAMPLE);
        if self.least() > 1 || wanted == 0 {
            return;
        }
        if let Some(letters) = bytes.get(..wanted).and_then(letters) {
            self.is_text = true;
            let is_exact = self.cap == self.len && self.most() == 1;
            self.text_bits = letters + if is_exact { bits_of(self.cap) } else { 0.0 };
        }
    }

    /// Return whether the items may be single bytes, but may also be larger.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.least() == 1 && self.most() > 1 && self.len > 0
    }

    /// If the triple is ambiguous, raise the evidence that its buffer needs to count as text. More evidence is needed
    /// because, by chance, one of `others` such buffers may look like text.
    pub(crate) fn judge_among(&mut self, others: usize) {
        if self.is_ambiguous() {
            self.wanted = SURE_AMONG_VECS + bits_of(others as u64);
        }
    }

    /// Return the content of the buffer, text or items; None if the content is not certain.
    pub(crate) fn shape(&self) -> Option<TripleShape> {
        match self.proven {
            None if self.text_bits >= self.wanted => Some(TripleShape::Text),
            None if self.bits >= SURE => Some(TripleShape::Items),
            proven => proven,
        }
    }

    pub(crate) fn prove(&mut self, shape: TripleShape) {
        self.proven.get_or_insert(shape);
    }

    /// Return the addresses of items of the size `stride`: `length` items, beginning with the index `first`. After the
    /// last item of the buffer, continue with its first one.
    pub(crate) fn items(&self, stride: u64, first: u64, length: u64) -> Vec<u64> {
        (0..length).map(|item| self.block + (first + item) % self.cap * stride).collect()
    }

    /// Return whether the four words may be a VecDeque, in which the length follows the index of the first item.
    pub(crate) fn may_be_deque(&self) -> bool {
        match self.order {
            WordOrder::CapFirst => self.len < self.cap && self.next().is_some_and(|length| length <= self.cap),
            // In 1.66 and older, the indices of both ends precede the pointer, and the capacity is a power of two.
            WordOrder::PointerFirst => self.cap.is_power_of_two(),
        }
    }
}

fn least(low: u64, cap: u64) -> u64 {
    low.div_ceil(cap).max(1)
}

fn bits_of(number: u64) -> f32 {
    (number.max(1) as f32).log2()
}

/// Return the evidence, in bits, that two numbers give for a Vec: the length equals the capacity, or it fills more than
/// half of a capacity that was doubled repeatedly.
fn bits_of_lengths(cap: u64, len: u64) -> f32 {
    match cap {
        _ if len == cap => bits_of(cap),
        _ if cap.is_power_of_two() && len > cap / 2 => (bits_of(cap) - 3.0).max(0.0),
        _ => 0.0,
    }
}

/// Return whether one of the sizes from `least` to `most` bytes may be the size of a type. Nearly all types have 1 or 2
/// bytes, or a multiple of 4 bytes.
pub(crate) fn may_be_size(least: u64, most: u64) -> bool {
    least <= most && (least <= 2 || most / 4 * 4 >= least)
}

/// Return the evidence, in bits, that these bytes are text; None if one of the characters cannot occur in text. The
/// last character may be cut off at the end of the sample.
pub(crate) fn letters(bytes: &[u8]) -> Option<f32> {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && bytes.len() - error.valid_up_to() < 4 && bytes.len() == SAMPLE => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\n' | '\r' | '\u{1b}');
    let bits = |letter: char| match letter {
        _ if letter.is_ascii_alphanumeric() || " _-./:".contains(letter) => BITS[0],
        _ if letter.is_ascii() => BITS[1],
        _ => BITS[2],
    };
    whole.chars().all(is_plain).then(|| whole.chars().map(bits).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_say() {
        let triple = |cap, len, requests| Triple::new(WordOrder::CapFirst, cap, len, requests);
        assert!(triple(0, 0, (1, 24)).is_none() && triple(5, 6, (1, 24)).is_none() && triple(25, 6, (1, 24)).is_none());
        let few = triple(4, 3, (89, 104)).unwrap();
        assert!((few.least(), few.most()) == (23, 26) && few.shape().is_none());
        // These are 1024 items of eight bytes: hardly any other number near 1024 fits the size of the block.
        assert!(triple(1024, 1000, (8185, 8200)).unwrap().bits >= 10.0);
        assert!(triple(1025, 1000, (8185, 8200)).unwrap().bits < 10.0);
        assert!(triple(1100, 1000, (8185, 8200)).is_none());
    }

    /// Check eleven items of two random bytes, as one run in a hundred made them: half of them look like text.
    #[test]
    fn texts_among_others() {
        let judged = |others| {
            let mut triple = Triple::new(WordOrder::CapFirst, 16, 11, (9, 40)).unwrap();
            triple.judge_text(b"TF9W(^\n<VlE\x33\x48");
            triple.judge_among(others);
            triple.shape()
        };
        assert_eq!((judged(1), judged(1000)), (Some(TripleShape::Text), None));
    }

    #[test]
    fn texts() {
        let bits = letters("gr\u{fc}n!\n".as_bytes()).unwrap();
        assert!((bits - (3.0 * BITS[0] + 2.0 * BITS[1] + BITS[2])).abs() < 0.01);
        assert_eq!(letters(b"\xff\xfe"), None);
        assert_eq!(letters(b"a\0b"), None);
        assert_eq!(letters(&[&[b'a'; SAMPLE - 1][..], &[0xc3]].concat()), letters(&[b'a'; SAMPLE - 1]));
        assert_eq!(letters(b"abc\xc3"), None);
    }
}
