//! Read the settings in GDBHEAP_STACKS, which gdbheap/tracing/stack_settings.py writes: `524288 3.9:8,8,16,…`. The
//! first number is the average number of bytes between two recorded stacks. For each release of Python, the offsets of
//! fields in its structures follow.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

const NAME: &core::ffi::CStr = c"GDBHEAP_STACKS";
const MAX_RELEASES: usize = 16;

/// The offsets of fields, in bytes, in the order of the environment variable; -1 if a release has no such field.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Layout {
    pub(super) interp_tstates: i32,
    pub(super) ts_next: i32,
    pub(super) ts_interp: i32,
    pub(super) ts_frame: i32,
    pub(super) ts_cframe: i32,
    pub(super) cf_frame: i32,
    pub(super) thread_id: i32,
    pub(super) f_code: i32,
    pub(super) f_back: i32,
    pub(super) f_previous: i32,
    pub(super) f_instruction: i32,
    pub(super) f_lasti: i32,
    pub(super) f_lasti_unit: i32,
    pub(super) f_owner: i32,
    pub(super) f_is_entry: i32,
    pub(super) f_tags: i32,
    pub(super) co_code: i32,
    pub(super) co_name: i32,
    pub(super) co_qualname: i32,
    pub(super) co_filename: i32,
    pub(super) co_firstlineno: i32,
    pub(super) co_linetable: i32,
    pub(super) co_lnotab: i32,
    pub(super) sizeof_ascii: i32,
    pub(super) sizeof_compact: i32,
    pub(super) unicode_state: i32,
    pub(super) unicode_length: i32,
    pub(super) bytes_data: i32,
}

const FIELDS: usize = core::mem::size_of::<Layout>() / 4;

/// The offsets of fields in one release of Python. `number`: the release (0x0309 is 3.9). `fields`: the offsets in the
/// order of `Layout`.
#[derive(Clone, Copy)]
struct Release {
    number: u32,
    fields: [i32; FIELDS],
}

struct Releases(UnsafeCell<[Release; MAX_RELEASES]>);
// SAFETY: written once, by the first call of the program, before MEAN says that stacks are recorded.
unsafe impl Sync for Releases {}
static RELEASES: Releases = Releases(UnsafeCell::new([Release { number: 0, fields: [-1; FIELDS] }; MAX_RELEASES]));
/// The average number of bytes between two stacks, plus one. 0 means that the environment was not read yet. It is read
/// only once, because the program may change it later.
static MEAN: AtomicU64 = AtomicU64::new(0);

/// Return the average number of bytes between two recorded stacks; 0 if no stacks are recorded. The caller has the
/// lock.
pub(super) fn mean() -> u64 {
    if MEAN.load(Ordering::Acquire) == 0 {
        MEAN.store(read().wrapping_add(1), Ordering::Release);
    }
    MEAN.load(Ordering::Acquire) - 1
}

fn read() -> u64 {
    // SAFETY: the environment exists before any constructor.
    let text = unsafe {
        let found = libc::getenv(NAME.as_ptr());
        if found.is_null() {
            return 0;
        }
        core::ffi::CStr::from_ptr(found).to_bytes()
    };
    let mut words = text.split(|byte| *byte == b' ');
    let Some(mean) = words.next().and_then(number).filter(|mean| (1..1 << 48).contains(mean)) else { return 0 };
    // SAFETY: nothing reads the releases yet.
    let releases = unsafe { &mut *RELEASES.0.get() };
    for (place, word) in releases.iter_mut().zip(words) {
        if let Some(found) = release(word) {
            *place = found;
        }
    }
    mean as u64
}

fn release(word: &[u8]) -> Option<Release> {
    let colon = word.iter().position(|byte| *byte == b':')?;
    let name = word.get(..colon)?;
    let dot = name.iter().position(|byte| *byte == b'.')?;
    let (major, minor) = (number(name.get(..dot)?)?, number(name.get(dot + 1..)?)?);
    let mut fields = [-1; FIELDS];
    for (field, text) in fields.iter_mut().zip(word.get(colon + 1..)?.split(|byte| *byte == b',')) {
        *field = i32::try_from(number(text)?).ok()?;
    }
    Some(Release { number: (major << 8 | minor) as u32, fields })
}

fn number(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text.split_first()? {
        (b'-', rest) => (-1, rest),
        _ => (1, text),
    };
    let value = digits
        .iter()
        .try_fold(0i64, |value, digit| value.checked_mul(10)?.checked_add(char::from(*digit).to_digit(10)?.into()))?;
    Some(sign * value)
}

/// Return the layout of a release; None if the settings do not contain the release.
pub(super) fn layout_of(release: u32) -> Option<&'static Layout> {
    // SAFETY: the releases no longer change once stacks are recorded.
    let releases = unsafe { &*RELEASES.0.get() };
    let found = releases.iter().find(|one| one.number == release && release != 0)?;
    // SAFETY: the named fields are the same numbers in the same order (`repr(C)`).
    Some(unsafe { &*(found.fields.as_ptr() as *const Layout) })
}
