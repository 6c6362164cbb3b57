//! Where the references of an object lie, by its type, and those of a buffer, by its owner's fields.

use crate::python::types::{Kind, Types};

/// Types with a base of one of these names. `opaque`: bytes of the object that hold no references except those listed
/// here (-1: all of that base's fields).
#[derive(Clone, Debug)]
pub struct Form {
    pub names: Vec<String>,
    pub opaque: i64,
    /// Offsets of single references in the opaque part.
    pub fields: Vec<u64>,
    /// Offsets of words outside it that hold none.
    pub skipped: Vec<u64>,
    /// The offset of as many references as `ob_size` says; -1: none.
    pub items: i64,
    /// The offset of a frame that is part of the object; -1: none.
    pub frame: i64,
    /// The offset of a signed byte: from the value `frame_gone` on the frame is gone; 0: there is no such byte.
    pub frame_state: u64,
    pub frame_gone: i8,
    /// The frame is the object's own only if this word points to it; 0: always.
    pub frame_pointer: u64,
    /// A table inside the object, in use while the word at `table_pointer` points to it: its offset, the distance of
    /// its entries, the offset of the key in an entry, and the number of keys and values in an entry; -1: none.
    pub table: i64,
    pub table_pointer: u64,
    pub table_mask: u64,
    pub table_step: u64,
    pub table_first: u64,
    pub table_words: u64,
    /// Such an object only passes an address on: what its C words refer to belongs to others that refer to it too.
    pub is_handle: bool,
}

/// Offsets of a frame's fields, counted from its beginning.
#[derive(Clone, Debug)]
pub struct FrameLayout {
    pub fields: Vec<u64>,
    pub code: u64,
    pub locals: u64,
    /// The number of locals and values on the stack: an int (negative while the frame runs), or the address after them.
    pub top: u64,
    pub top_is_pointer: bool,
    /// A byte that is zero unless the frame runs; 0: there is none. A pointer `top` is NULL while the frame runs and
    /// when it is done.
    pub executing: u64,
    /// Since 3.10 the count is that of the stack alone, which begins where this word points; 0: the count includes the
    /// locals.
    pub stack: u64,
    /// The offset of the number of locals in a code object; 0: they end where the stack begins.
    pub code_locals: u64,
    /// Bits of a reference that are not part of the address.
    pub tags: u64,
}

/// The layout of the keys of a dict.
#[derive(Clone, Debug)]
pub struct KeysLayout {
    /// Offsets; -1 if this release has no such field.
    pub kind: i64,
    pub log2_index_bytes: i64,
    pub size: i64,
    pub entries: u64,
    pub indices: u64,
}

#[derive(Clone, Debug)]
pub struct GraphLayout {
    pub ob_size: u64,
    /// The offset of the key in an entry of a set's table.
    pub set_key: u64,
    pub tp_weaklistoffset: u64,
    pub tp_dictoffset: u64,
    pub sizeof_type: u64,
    pub forms: Vec<Form>,
    pub frame: Option<FrameLayout>,
    pub keys: Option<KeysLayout>,
    pub flag_heap_type: u64,
    pub flag_managed_dict: u64,
    /// The distance from an object with a managed dict to the word that points to it; 0: there are no such objects.
    pub managed_dict: i64,
    /// A flag of types whose objects have the values of their attributes after their fields; 0: there are none.
    pub flag_inline_values: u64,
    /// C types in which all words that point to objects are references.
    pub closed: Vec<String>,
    /// The same for any type written in C that has one of these as a base.
    pub closed_families: Vec<String>,
    /// The addresses of the interpreters' states: a block of C code that contains one has free lists.
    pub interpreters: Vec<u64>,
}

/// The contents of a buffer: no references; as many as its owner says; a dict's keys; values after a prefix; values
/// after a header; values alone; a set's table; a table of hash, key and value; a deque's items; the items of Python
/// 2's deque; a module's state, whose bytes are in the mark; numbers, which prove nothing even if they look like
/// references. Any other number (the caller uses 10): every word that looks like a reference.
pub(crate) const LEAF: u32 = 1;
pub(crate) const ITEMS: u32 = 2;
pub(crate) const KEYS: u32 = 3;
pub(crate) const PREFIXED: u32 = 4;
pub(crate) const HEADED: u32 = 5;
pub(crate) const SPLIT: u32 = 6;
pub(crate) const SET: u32 = 7;
pub(crate) const TABLE: u32 = 8;
pub(crate) const DEQUE: u32 = 9;
pub(crate) const ANYTHING: u32 = 10;
pub(crate) const OLD_DEQUE: u32 = 11;
/// Items after their capacity.
pub(crate) const COUNTED: u32 = 12;
pub(crate) const STATE: u32 = 13;
pub(crate) const NUMBERS: u32 = 14;

/// Combine the contents of a block and their number in one word. The word 0 means an unclaimed block.
pub(crate) fn mark(contents: u32, number: u64) -> u32 {
    contents << 28 | number.min(MOST) as u32
}

pub(crate) const MOST: u64 = (1 << 28) - 1;

/// How to read the objects of one type. All offsets are from the start of the object.
#[derive(Clone)]
pub(crate) struct Shape {
    /// The number by which all workers know the type.
    pub(crate) number: u32,
    pub(crate) form: Option<usize>,
    /// Words in [from, to) are read; those from `certain` on are surely references, or not addresses at all.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) certain: u64,
    /// Words that are not references: the list of weak references, and words that claims describe.
    pub(crate) skipped: Vec<u64>,
    /// The bytes of an item, for C types of variable size.
    pub(crate) item: u64,
    /// The distance of the dict of an object of variable size from its end, and the address of the size of an item.
    pub(crate) dict_before_end: u64,
    pub(crate) item_at: u64,
    pub(crate) basic: u64,
    pub(crate) inline_at: u64,
    pub(crate) managed: bool,
    /// Whether instances hold a reference to their type.
    pub(crate) holds_type: bool,
    pub(crate) is_handle: bool,
    /// Whether there are no references except to owned buffers.
    pub(crate) is_bare: bool,
    pub(crate) is_leaf: bool,
    /// Whether the type could be read; if not, any word of an object may be a reference.
    pub(crate) is_known: bool,
}

impl Shape {
    /// Make the shape for a type that is cut off.
    fn unknown(number: u32) -> Shape {
        Shape {
            number,
            form: None,
            from: 0,
            to: 0,
            certain: 0,
            skipped: Vec::new(),
            item: 0,
            dict_before_end: 0,
            item_at: 0,
            basic: 0,
            inline_at: 0,
            managed: false,
            holds_type: false,
            is_handle: false,
            is_bare: false,
            is_leaf: false,
            is_known: false,
        }
    }
}

pub(crate) fn shape_of(types: &Types<'_>, layout: &GraphLayout, kind: &Kind, number: u32) -> Shape {
    known_shape(types, layout, kind, number).unwrap_or_else(|| Shape::unknown(number))
}

fn known_shape(types: &Types<'_>, layout: &GraphLayout, kind: &Kind, number: u32) -> Option<Shape> {
    let known = types.layout;
    let word = |address: u64, offset: u64| types.space.word(address.wrapping_add(offset)).ok();
    let basic = word(kind.address, known.tp_basicsize)?;
    let weak = word(kind.address, layout.tp_weaklistoffset)?;
    let dict = word(kind.address, layout.tp_dictoffset)? as i64;
    let item = word(kind.address, known.tp_itemsize)?;
    let found = form_of(types, layout, kind.address);
    let form = found.map(|(form, _)| &layout.forms[form]);
    let from = match (form, found) {
        (Some(form), Some((_, base))) if form.opaque < 0 => word(base, known.tp_basicsize)?,
        (Some(form), _) => form.opaque as u64,
        _ => known.head(),
    };
    let mut skipped: Vec<u64> = kind.claims.iter().map(|claim| (claim.at as u64).wrapping_sub(kind.pre)).collect();
    skipped.push(weak);
    skipped.extend(form.iter().flat_map(|form| form.skipped.iter().copied()));
    let closed = kind.extent == 0 || is_closed(types, layout, kind.address);
    let heap_type = kind.flags & layout.flag_heap_type != 0;
    let managed = layout.managed_dict != 0 && kind.flags & layout.flag_managed_dict != 0;
    let inline = layout.flag_inline_values != 0 && kind.flags & layout.flag_inline_values != 0;
    let mut shape = Shape {
        number,
        form: found.map(|(form, _)| form),
        from,
        to: basic,
        certain: if closed { 0 } else { kind.extent },
        skipped,
        // Items of other sizes, like the code of a pattern, are not words.
        item: if closed || item % 8 != 0 { 0 } else { item },
        dict_before_end: if dict < 0 && !managed { dict.unsigned_abs() } else { 0 },
        item_at: kind.address.wrapping_add(known.tp_itemsize),
        basic,
        inline_at: if inline { basic } else { 0 },
        managed,
        holds_type: heap_type,
        is_handle: form.is_some_and(|form| form.is_handle),
        is_bare: false,
        is_leaf: false,
        is_known: true,
    };
    let plain = form.is_some_and(|form| form.items < 0 && form.frame < 0 && form.table < 0 && form.fields.is_empty());
    shape.is_bare =
        plain && shape.from >= shape.to && !shape.managed && !inline && !heap_type && shape.dict_before_end == 0;
    shape.is_leaf = shape.is_bare && kind.claims.is_empty();
    Some(shape)
}

/// Return the form of the nearest base that has one, and that base. Only types in C count, because a program's classes
/// may have any name. Types that an extension made at run time are heap types too, but have a tp_dealloc of their own.
fn form_of(types: &Types<'_>, layout: &GraphLayout, kind: u64) -> Option<(usize, u64)> {
    let known = types.layout;
    let field = |address: u64, offset: u64| types.space.word(address.wrapping_add(offset));
    let is_made_in_c = |base: u64| {
        let dealloc = field(base, known.tp_dealloc);
        known.class_dealloc != 0 && dealloc.is_ok_and(|own| own != known.class_dealloc)
    };
    let is_static = |base: u64| field(base, known.tp_flags).is_ok_and(|flags| flags & layout.flag_heap_type == 0);
    let in_c = |(base, _): &(u64, Vec<u8>)| is_static(*base) || is_made_in_c(*base);
    types.bases(kind).into_iter().filter(in_c).find_map(|(base, name)| {
        let named = |form: &Form| form.names.iter().any(|own| own.as_bytes() == name);
        layout.forms.iter().position(named).map(|form| (form, base))
    })
}

/// Return whether the nearest base that is written in C is one whose fields are known.
fn is_closed(types: &Types<'_>, layout: &GraphLayout, kind: u64) -> bool {
    let dealloc = |address: u64| types.space.word(address.wrapping_add(types.layout.tp_dealloc));
    let bases = types.bases(kind);
    let nearest = bases.iter().position(|(base, _)| dealloc(*base).is_ok_and(|own| own != types.layout.class_dealloc));
    let among = |names: &[String], name: &[u8]| names.iter().any(|own| own.as_bytes() == name);
    nearest.is_some_and(|place| {
        among(&layout.closed, &bases[place].1)
            || bases[place..].iter().any(|(_, name)| among(&layout.closed_families, name))
    })
}

/// In the mark of a deque's block: its links are stale, and lead to no further block.
pub(crate) const LAST_OF_DEQUE: u64 = 1 << 16;

/// The layout of a deque's block: how many items fit, where they begin, and the offset of the link to the next block.
pub(crate) struct DequeBlock {
    pub(crate) room: u64,
    pub(crate) items: u64,
    pub(crate) right: u64,
}

/// Return the layout of a deque's block. Python 2's blocks have both links after their items, the right one first;
/// later ones have the left link before them.
pub(crate) fn deque_block(contents: u32) -> DequeBlock {
    match contents {
        OLD_DEQUE => DequeBlock { room: 62, items: 0, right: 8 * 62 },
        _ => DequeBlock { room: 64, items: 8, right: 8 * 65 },
    }
}
