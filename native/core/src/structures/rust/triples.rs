//! Three words that may be a Vec's, a String's, or, with a fourth, a VecDeque's: how much they say of the block that they
//! lead to.

use gdbheap_access::memory::reader::Reader;

/// How rustc has ordered a Vec's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Capacity, pointer, length.
    CapFirst,
    /// Pointer, capacity, length.
    PointerFirst,
}

/// Surprise, in bits, from which on a coincidence is not believed in.
pub(crate) const SURE: f32 = 14.0;
/// The same where items of more bytes would fit as well, beyond what so many such buffers make likely: of a million with
/// random bytes a thousand look like a text as others do once in a thousand times.
const SURE_AMONG_VECS: f32 = 12.0;
/// What a character says: a quarter of all bytes are letters, digits and what stands among them in names, a third can be
/// printed, and few pairs of others are one of UTF-8.
const BITS: [f32; 3] = [1.9, 1.4, 4.0];
/// Bytes of a text that are looked at to judge it.
pub(crate) const SAMPLE: usize = 64;

/// The words of what may be a Vec, and the block that they lead to.
#[derive(Clone, Debug)]
pub(crate) struct Triple {
    pub(crate) order: Order,
    /// Where the pointer stands.
    pub(crate) at: u64,
    pub(crate) id: u32,
    pub(crate) block: u64,
    pub(crate) cap: u64,
    pub(crate) len: u64,
    /// The word behind them, a VecDeque's length; all ones where there is none.
    pub(crate) next: u64,
    /// What a word beside them would be as the length of another container, such as a VecDeque or BufReader: zero where none
    /// fits.
    pub(crate) other: u64,
    /// The field that it is, as of `candidates::field`.
    pub(crate) field: u64,
    pub(crate) on_stack: bool,
    /// The fewest bytes that may have been asked for, and the most: what the block can hold.
    pub(crate) low: u64,
    pub(crate) usable: u64,
    pub(crate) is_text: bool,
    /// How many bits a text has to say for itself.
    pub(crate) wanted: f32,
    /// How unlikely it is that other words look so, and that other bytes look like a text.
    pub(crate) bits: f32,
    pub(crate) text_bits: f32,
    /// What lies around it says that it is.
    pub(crate) proven: Option<Shape>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Text,
    Items,
}

impl Triple {
    /// What these may be if the block was asked for with `low` to `high` bytes; None where they are no Vec's.
    pub(crate) fn new(order: Order, cap: u64, len: u64, (low, high): (u64, u64)) -> Option<Triple> {
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

    /// The least size that an item can have.
    pub(crate) fn least(&self) -> u64 {
        least(self.low, self.cap)
    }

    /// The largest one.
    pub(crate) fn most(&self) -> u64 {
        self.usable / self.cap
    }

    /// What a VecDeque would have as its length.
    pub(crate) fn next(&self) -> Option<u64> {
        Some(self.next).filter(|next| *next != u64::MAX)
    }

    /// Reads what the block begins with, and takes it into account.
    pub(crate) fn judge(&mut self, reader: &mut Reader<'_>) {
        let mut bytes = [0; SAMPLE];
        let got = reader.fill(self.block, &mut bytes[..(self.usable as usize).min(SAMPLE)]);
        self.judge_text(&bytes[..got]);
    }

    /// Takes into account what the block begins with.
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

    /// Whether these may be bytes, of a text or not, but also items of more bytes.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.least() == 1 && self.most() > 1 && self.len > 0
    }

    /// Takes into account that the block is one of `others` of which the same could be said.
    pub(crate) fn judge_among(&mut self, others: usize) {
        if self.is_ambiguous() {
            self.wanted = SURE_AMONG_VECS + bits_of(others as u64);
        }
    }

    /// What the buffer is, as far as that is certain.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match self.proven {
            None if self.text_bits >= self.wanted => Some(Shape::Text),
            None if self.bits >= SURE => Some(Shape::Items),
            proven => proven,
        }
    }

    pub(crate) fn prove(&mut self, shape: Shape) {
        self.proven.get_or_insert(shape);
    }

    /// Where items of that size are: `length` of them from the one at place `first` on, around the end.
    pub(crate) fn items(&self, stride: u64, first: u64, length: u64) -> Vec<u64> {
        (0..length).map(|item| self.block + (first + item) % self.cap * stride).collect()
    }

    /// Whether the four words may be a VecDeque's: the length comes behind the place of the first item.
    pub(crate) fn may_be_deque(&self) -> bool {
        match self.order {
            Order::CapFirst => self.len < self.cap && self.next().is_some_and(|length| length <= self.cap),
            // Both ends before the pointer, as 1.66 and older have them; the capacity is a power of two.
            Order::PointerFirst => self.cap.is_power_of_two(),
        }
    }
}

fn least(low: u64, cap: u64) -> u64 {
    low.div_ceil(cap).max(1)
}

fn bits_of(number: u64) -> f32 {
    (number.max(1) as f32).log2()
}

/// A length that is the capacity, or fills more than half of one that was doubled again and again.
fn bits_of_lengths(cap: u64, len: u64) -> f32 {
    match cap {
        _ if len == cap => bits_of(cap),
        _ if cap.is_power_of_two() && len > cap / 2 => (bits_of(cap) - 3.0).max(0.0),
        _ => 0.0,
    }
}

/// Whether one of these is the size of a type: nearly all are 1, 2, or multiples of 4.
pub(crate) fn may_be_size(least: u64, most: u64) -> bool {
    least <= most && (least <= 2 || most / 4 * 4 >= least)
}

/// How many bits the characters say; None where one is no text's. The end may cut the last in two.
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
        let triple = |cap, len, requests| Triple::new(Order::CapFirst, cap, len, requests);
        assert!(triple(0, 0, (1, 24)).is_none() && triple(5, 6, (1, 24)).is_none() && triple(25, 6, (1, 24)).is_none());
        let few = triple(4, 3, (89, 104)).unwrap();
        assert!((few.least(), few.most()) == (23, 26) && few.shape().is_none());
        // 1024 items of eight bytes, of which no other number near it makes the block.
        assert!(triple(1024, 1000, (8185, 8200)).unwrap().bits >= 10.0);
        assert!(triple(1025, 1000, (8185, 8200)).unwrap().bits < 10.0);
        assert!(triple(1100, 1000, (8185, 8200)).is_none());
    }

    /// Eleven items of two random bytes, as one run in a hundred made them: half of them look like a text.
    #[test]
    fn texts_among_others() {
        let judged = |others| {
            let mut triple = Triple::new(Order::CapFirst, 16, 11, (9, 40)).unwrap();
            triple.judge_text(b"TF9W(^\n<VlE\x33\x48");
            triple.judge_among(others);
            triple.shape()
        };
        assert_eq!((judged(1), judged(1000)), (Some(Shape::Text), None));
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
