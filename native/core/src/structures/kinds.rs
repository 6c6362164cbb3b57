//! The kinds that a block can have: a family, such as std::map node, together with a class name. Each kind that occurs
//! has a number.

use std::collections::HashMap;

/// The kind of a block that nothing classified.
pub(crate) const UNKNOWN: u32 = 0;

/// The family of a block's kind, such as a known container or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// An object that has a vtable, or an object that is known by the pointers to it.
    Object,
    /// A block that std::make_shared made. It contains an object and the control block of its std::shared_ptrs.
    MakeShared,
    /// A block of std::make_shared whose object was destroyed. Only std::weak_ptrs keep its memory allocated.
    Destroyed,
    /// The control block of the std::shared_ptrs to an object. The object lies in another block.
    SharedPtr,
    /// A block to which the caller has given a name.
    Named,
    String,
    Vector,
    /// A node of a std::map or std::set, or of a std::multimap or std::multiset.
    Map,
    List,
    /// A node of a std::unordered_map or std::unordered_set. `Buckets`: the array of buckets of such a container.
    Unordered,
    Buckets,
    /// A block with items of a std::deque. `DequeMap`: the array of pointers to such blocks.
    Deque,
    DequeMap,
    /// The bytes of a Rust String, or of a Vec<u8> that contains text.
    RustString,
    RustVec,
    RustDeque,
    /// The items of a Vec or a VecDeque: the words of the holder fit both.
    RustVecOrDeque,
    /// The single block of a hashbrown table, with slots and control bytes.
    RustTable,
    /// A node of a BTreeMap or BTreeSet.
    RustTree,
    /// The object of a Box<dyn Trait>.
    RustBox,
    /// The object of an Arc<dyn Trait> or Rc<dyn Trait>, with its counts.
    RustCounted,
    /// The object of a Box, or the object of an Arc or Rc: it is unknown which of these it is.
    RustObject,
    /// The value of an Arc or Rc, together with its two reference counts.
    RustShared,
    /// The block of a channel. `RustMessages`: a block with messages of the channel.
    RustChannel,
    RustMessages,
}

impl Family {
    /// Return whether the holder of a block of this family points to the middle of the block. In a hashbrown table the
    /// slots precede the control bytes, to which the holder points.
    pub fn is_held_inside(self) -> bool {
        self == Family::RustTable
    }

    /// Return the name of the family that is used in results.
    pub fn name(self) -> &'static str {
        match self {
            Family::Object => "object",
            Family::MakeShared => "make_shared",
            Family::Destroyed => "destroyed",
            Family::SharedPtr => "shared_ptr",
            Family::Named => "named",
            Family::String => "string",
            Family::Vector => "vector",
            Family::Map => "map",
            Family::List => "list",
            Family::Unordered => "unordered",
            Family::Buckets => "buckets",
            Family::Deque => "deque",
            Family::DequeMap => "deque map",
            Family::RustString => "rust string",
            Family::RustVec => "rust vec",
            Family::RustDeque => "rust deque",
            Family::RustVecOrDeque => "rust vec or deque",
            Family::RustTable => "rust table",
            Family::RustTree => "rust tree",
            Family::RustBox => "rust box",
            Family::RustCounted => "rust counted",
            Family::RustObject => "rust object",
            Family::RustShared => "rust shared",
            Family::RustChannel => "rust channel",
            Family::RustMessages => "rust messages",
        }
    }
}

/// A kind, with the number of its blocks and their bytes, headers included. `class` is empty if the class is unknown.
#[derive(Clone, Debug)]
pub struct KindRow {
    pub family: &'static str,
    pub class: String,
    pub count: u64,
    pub bytes: u64,
}

/// The kinds that occur, as (family, class). The number of a kind is its index in `rows` plus one.
#[derive(Default)]
pub(crate) struct Kinds {
    pub(crate) rows: Vec<(Family, String)>,
    numbers: HashMap<(Family, String), u32>,
    /// The numbers of the kinds that have no class. They are looked up most often: nearly all blocks of containers have
    /// such a kind.
    plain: HashMap<Family, u32>,
}

impl Kinds {
    pub(crate) fn number(&mut self, family: Family, class: &str) -> u32 {
        if let Some(number) = self.plain.get(&family).filter(|_| class.is_empty()) {
            return *number;
        }
        let next = self.rows.len() as u32 + 1;
        let number = *self.numbers.entry((family, class.to_owned())).or_insert(next);
        if number == next {
            self.rows.push((family, class.to_owned()));
        }
        if class.is_empty() {
            self.plain.insert(family, number);
        }
        number
    }

    pub(crate) fn row(&self, number: u32) -> Option<&(Family, String)> {
        self.rows.get((number as usize).checked_sub(1)?)
    }
}
