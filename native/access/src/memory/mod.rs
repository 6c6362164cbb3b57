//! The bytes of a target: where they are, which pages are present, and how they are read.

pub(crate) mod capture;
pub(crate) mod gate;
pub(crate) mod holes;
pub mod own;
pub mod pages;
pub mod prefetch;
pub mod reader;
pub(crate) mod recent;
pub mod sharing;
pub mod space;
pub mod window;
pub mod words;

pub use capture::Room;
pub use gate::Gate;
pub use holes::data_of;
pub use pages::{Pages, Run, PRESENT, SWAPPED, ZERO};
pub use sharing::{sharing, PageSharing};
pub use space::{Backing, Mapping, MappingKind, Segment, Source, Space};
pub use words::{
    count_pointers, find_initial, find_led_back, find_places, find_pointer, find_pointer_runs, words_at, LedBack,
    OwnedRange, WordTest,
};
