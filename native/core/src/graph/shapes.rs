//! Find out where references are: in an object, according to its type; in a buffer, according to the fields of its
//! owner.

use crate::python::types::{Kind, Types};

/// The rule for reading the objects of some types: all types that have a base with one of these `names`. The first
/// `opaque` bytes of an object contain only the references that other fields of this rule describe. If `opaque` is -1,
/// this holds for all fields of that base.
#[derive(Clone, Debug)]
pub struct Form {
    pub names: Vec<String>,
    pub opaque: i64,
    /// The offsets in bytes of single references in the opaque part of the object.
    pub fields: Vec<u64>,
    /// The offsets of words after the opaque part that are not references.
    pub skipped: Vec<u64>,
    /// The offset in bytes of an array of references, whose length is `ob_size`; -1: no array.
    pub items: i64,
    /// The offset in bytes of a frame that is part of the object; -1: no frame.
    pub frame: i64,
    /// The offset of a signed byte with the state of the frame; 0: the object has no such byte.
    pub frame_state: u64,
    /// The frame is gone if the byte at `frame_state` has this value or a larger one.
    pub frame_gone: i8,
    /// The offset of a word. The frame is part of the object only if this word points to the frame. 0: the frame is
    /// always part of the object.
    pub frame_pointer: u64,
    /// The offset of a table inside the object; -1: no table.
    pub table: i64,
    /// The offset of a pointer. The table is in use while this pointer points to it.
    pub table_pointer: u64,
    /// The offset of the number of the table's entries, minus one.
    pub table_mask: u64,
    /// The size in bytes of each entry of the table in the object.
    pub table_step: u64,
    /// The offset of the key in an entry of the table in the object.
    pub table_first: u64,
    /// The number of words in an entry that are references: 1 in a set (the key), 2 in a dict (key and value).
    pub table_words: u64,
    /// Whether the objects are handles, such as PyCapsules: they only contain the address of some memory. Other objects
    /// own this memory and refer to it too.
    pub is_handle: bool,
}

/// The offsets in bytes of the fields of a frame, counted from the frame's beginning.
#[derive(Clone, Debug)]
pub struct FrameLayout {
    pub fields: Vec<u64>,
    pub code: u64,
    pub locals: u64,
    /// The offset of an int: how many locals and values on the stack the frame has. The int is negative while the frame
    /// runs.
    pub top: u64,
    /// Whether the field at `top` is instead a pointer: to the place after the locals and the values on the stack.
    pub top_is_pointer: bool,
    /// The offset of a byte that is zero unless the frame runs; 0: no such byte. Only this byte distinguishes a running
    /// frame from one that is done, if the pointer at `top` is NULL.
    pub executing: u64,
    /// The offset of the pointer to the start of the stack, up to 3.10; 0 in later releases. In 3.10 the number at
    /// `top` does not include the locals; later it does.
    pub stack: u64,
    /// The offset of the number of locals in a code object; 0: the locals end where the stack begins.
    pub code_locals: u64,
    /// The low bits of a reference that are a tag and not part of the address.
    pub tags: u64,
}

/// The layout of the keys of a dict: offsets of fields. `kind`, `log2_index_bytes` and `size` are -1 if this release
/// has no such field.
#[derive(Clone, Debug)]
pub struct KeysLayout {
    pub kind: i64,
    pub log2_index_bytes: i64,
    pub size: i64,
    pub entries: u64,
    pub indices: u64,
}

#[derive(Clone, Debug)]
pub struct GraphLayout {
    pub ob_size: u64,
    /// The offset in bytes of the key in an entry of a set's table.
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
    /// The names of C types in which all words that point to objects are references.
    pub closed: Vec<String>,
    /// The names of base types. In any type that is written in C and has one of them as a base, all words that point to
    /// objects are references.
    pub closed_families: Vec<String>,
    /// The addresses of the interpreters' states. A block of C code that contains such a state has free lists.
    pub interpreters: Vec<u64>,
}

/// The kind of contents of a buffer, which says where the references in the buffer are.
/// - LEAF: no references.
/// - ITEMS: adjacent references, whose number the owner knows.
/// - KEYS: the keys of a dict.
/// - PREFIXED, HEADED, SPLIT: attribute values, after a prefix, after a header, or without either of these.
/// - SET: the table of a set.
/// - TABLE: entries of hash, key and value.
/// - DEQUE, OLD_DEQUE: items of a deque, in Python 3 and in Python 2.
/// - STATE: the state of a module, whose size is in the mark.
/// - NUMBERS: numbers. They prove nothing even if they look like references.
/// - ANYTHING, and any other value: every word that looks like a reference.
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
/// A kind of contents of a buffer: a word with the capacity, then references.
pub(crate) const COUNTED: u32 = 12;
pub(crate) const STATE: u32 = 13;
pub(crate) const NUMBERS: u32 = 14;

/// Combine the kind of contents of a buffer and a number (such as the number of its items) in one word, the mark of the
/// buffer. The mark 0 belongs to blocks that no object claims.
pub(crate) fn mark(contents: u32, number: u64) -> u32 {
    contents << 28 | number.min(MOST) as u32
}

pub(crate) const MOST: u64 = (1 << 28) - 1;

/// The rule for reading the objects of one type. All offsets are counted from the start of the object.
#[derive(Clone)]
pub(crate) struct ObjectShape {
    /// The number by which all workers know the type.
    pub(crate) number: u32,
    pub(crate) form: Option<usize>,
    /// The offset of the first word that is read as a possible reference. The offset `to` is the end. From the offset
    /// `certain` on, a word that points to a block is certainly a reference.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) certain: u64,
    /// The offsets of words that are not read as references: the list of weak references, pointers to owned buffers,
    /// and the words that the type's `Form` names.
    pub(crate) skipped: Vec<u64>,
    /// The size of an item in bytes, for C types of variable size.
    pub(crate) item: u64,
    /// For objects of variable size, the distance from the end of the object back to its pointer to a dict; 0 if it has no
    /// such pointer.
    pub(crate) dict_before_end: u64,
    /// For objects of variable size, the address of the field `tp_itemsize` of their type.
    pub(crate) item_at: u64,
    pub(crate) basic: u64,
    pub(crate) inline_at: u64,
    pub(crate) managed: bool,
    /// Whether the objects of the type hold a reference to it.
    pub(crate) holds_type: bool,
    pub(crate) is_handle: bool,
    /// Whether objects of this type have no references except to their own buffers.
    pub(crate) is_bare: bool,
    pub(crate) is_leaf: bool,
    /// Whether the type could be read. If not, any word of an object may be a reference.
    pub(crate) is_known: bool,
}

impl ObjectShape {
    /// Make the shape for a type that could not be read.
    fn unknown(number: u32) -> ObjectShape {
        ObjectShape {
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

pub(crate) fn shape_of(types: &Types<'_>, layout: &GraphLayout, kind: &Kind, number: u32) -> ObjectShape {
    known_shape(types, layout, kind, number).unwrap_or_else(|| ObjectShape::unknown(number))
}

fn known_shape(types: &Types<'_>, layout: &GraphLayout, kind: &Kind, number: u32) -> Option<ObjectShape> {
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
    let mut shape = ObjectShape {
        number,
        form: found.map(|(form, _)| form),
        from,
        to: basic,
        certain: if closed { 0 } else { kind.extent },
        skipped,
        // If the size of items is not a multiple of eight, the items are no words, as in the code of a regular
        // expression.
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

/// Return the rule for the objects of a type: (its index in `layout.forms`, the base to which the rule belongs). The
/// nearest base with a rule is used. Only bases that are written in C count, because a program's own class may have any
/// name. Heap types that were made in C are recognized by their `tp_dealloc`.
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

/// Return whether all words that point to objects are references, in the part of an object that C code defines. For
/// this, the type's nearest base that is written in C must be in `closed`, or have a base in `closed_families`.
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

/// A bit in the mark of the last block of a deque. It says that the links of the block are stale, and that no further
/// block follows.
pub(crate) const LAST_OF_DEQUE: u64 = 1 << 16;

/// The layout of a deque's block: the number of items that fit into it, the offset of the first item, and the offset of
/// the link to the next block.
pub(crate) struct DequeBlock {
    pub(crate) room: u64,
    pub(crate) items: u64,
    pub(crate) right: u64,
}

/// Return the layout of a deque's block. In Python 2 both links follow the items, the right link first. In Python 3 the
/// left link precedes the items.
pub(crate) fn deque_block(contents: u32) -> DequeBlock {
    match contents {
        OLD_DEQUE => DequeBlock { room: 62, items: 0, right: 8 * 62 },
        _ => DequeBlock { room: 64, items: 8, right: 8 * 65 },
    }
}
