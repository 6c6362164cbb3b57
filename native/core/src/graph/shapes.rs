//! Where references lie: in an object according to its type, in a buffer according to its owner's fields.

use crate::python::types::{Kind, Types};

/// How to read the objects of all types that have a base with one of these names. `opaque`: so many first bytes of the
/// object hold no references except those that are listed here; -1: all fields of that base do not.
#[derive(Clone, Debug)]
pub struct Form {
    pub names: Vec<String>,
    pub opaque: i64,
    /// Offsets of single references in the opaque part.
    pub fields: Vec<u64>,
    /// Offsets of words after the opaque part that are no references.
    pub skipped: Vec<u64>,
    /// The offset of an array of references, which has as many as `ob_size` says; -1: none.
    pub items: i64,
    /// The offset of a frame that is part of the object; -1: none.
    pub frame: i64,
    /// The offset of a signed byte: if its value is `frame_gone` or higher, the frame is gone. 0: there is no such
    /// byte.
    pub frame_state: u64,
    pub frame_gone: i8,
    /// The offset of a word: the frame is part of the object only if the word points to it. 0: it always is.
    pub frame_pointer: u64,
    /// The offset of a table inside the object; -1: none. It is in use while the word at `table_pointer` points to it.
    /// `table_mask`: the offset of the number of its entries minus one; `table_step`: the size of an entry;
    /// `table_first`: the offset of the key in an entry; `table_words`: the number of keys and values in an entry.
    pub table: i64,
    pub table_pointer: u64,
    pub table_mask: u64,
    pub table_step: u64,
    pub table_first: u64,
    pub table_words: u64,
    /// Such an object (a PyCapsule) only passes on an address: the memory to which its C words point belongs to other
    /// objects, which refer to it too.
    pub is_handle: bool,
}

/// Offsets of a frame's fields, counted from its beginning.
#[derive(Clone, Debug)]
pub struct FrameLayout {
    pub fields: Vec<u64>,
    pub code: u64,
    pub locals: u64,
    /// The offset of the number of locals and values on the stack: an int (negative while the frame runs), or the
    /// address after them if `top_is_pointer`.
    pub top: u64,
    pub top_is_pointer: bool,
    /// The offset of a byte that is zero unless the frame runs; 0: there is none. It is needed because a pointer `top`
    /// is NULL both while the frame runs and when it is done.
    pub executing: u64,
    /// The offset of the pointer to where the stack begins, up to 3.10. In 3.10 `top` counts only the values on the
    /// stack. 0: since 3.11 `top` counts the locals too.
    pub stack: u64,
    /// The offset of the number of locals in a code object; 0: they end where the stack begins.
    pub code_locals: u64,
    /// Bits of a reference that are not part of the address.
    pub tags: u64,
}

/// The layout of the keys of a dict.
#[derive(Clone, Debug)]
pub struct KeysLayout {
    /// These three are offsets; -1 if this release has no such field.
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
    /// The distance from an object with a managed dict to the word that points to the dict; 0: the release has no such
    /// objects.
    pub managed_dict: i64,
    /// The flag of types whose objects have their attribute values after their fields; 0: the release has no such
    /// types.
    pub flag_inline_values: u64,
    /// Names of C types in which all words that point to objects are references.
    pub closed: Vec<String>,
    /// Names of C types: in any type written in C with one of them as a base, all words that point to objects are
    /// references.
    pub closed_families: Vec<String>,
    /// The addresses of the interpreters' states: a block of C code that contains one has free lists.
    pub interpreters: Vec<u64>,
}

/// The contents of a buffer. LEAF: no references. ITEMS: as many references as the owner says. KEYS: the keys of a
/// dict. PREFIXED, HEADED, SPLIT: attribute values, after a prefix, after a header, or without either. SET: the table
/// of a set. TABLE: entries of hash, key and value. DEQUE, OLD_DEQUE: items of a deque, in Python 3 and in Python 2.
/// STATE: the state of a module; the mark has its size. NUMBERS: numbers, which prove nothing even if they look like
/// references. ANYTHING, and any other number: every word that looks like a reference.
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
/// References after a word with their capacity.
pub(crate) const COUNTED: u32 = 12;
pub(crate) const STATE: u32 = 13;
pub(crate) const NUMBERS: u32 = 14;

/// Combine the contents of a buffer and a number (such as that of its items) in one word, its mark. The mark 0 is that
/// of a block that no object claims.
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
    /// The words at the offsets [from, to) are read. Words from `certain` on are either references or no addresses at
    /// all.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) certain: u64,
    /// Words that are not references: the list of weak references, and words that claims describe.
    pub(crate) skipped: Vec<u64>,
    /// The bytes of an item, for C types of variable size.
    pub(crate) item: u64,
    /// For an object of variable size, the distance of its pointer to a dict from its end (0: none), and (`item_at`)
    /// the address of the size of its items.
    pub(crate) dict_before_end: u64,
    pub(crate) item_at: u64,
    pub(crate) basic: u64,
    pub(crate) inline_at: u64,
    pub(crate) managed: bool,
    /// Whether instances hold a reference to their type.
    pub(crate) holds_type: bool,
    pub(crate) is_handle: bool,
    /// Whether objects of this type have no references except to their own buffers.
    pub(crate) is_bare: bool,
    pub(crate) is_leaf: bool,
    /// Whether the type could be read; if not, any word of an object may be a reference.
    pub(crate) is_known: bool,
}

impl Shape {
    /// Make the shape for a type that could not be read.
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
        // Items whose size is no multiple of eight, like the code of a pattern, are not words.
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

/// Return whether all words that point to objects are references in the part of an object that C code defines: the
/// type's nearest base written in C must be in `closed`, or have a base in `closed_families`.
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

/// A bit in the mark of a deque's last block: its links are stale, and no further block follows.
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
