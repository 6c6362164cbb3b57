//! Find the source lines of machine code in the debug information (DWARF) of an ELF file.
//!
//! The crate gimli decodes the entries. The file is not trusted, so this module limits the number of items that are
//! decoded. It keeps only the items that a look-up needs.

use gimli::{
    Attribute, AttributeValue, DebugInfoOffset, Dwarf, EndianSlice, LineInstruction, LineProgramHeader, LittleEndian,
    RngListIter, SectionId, Unit, UnitHeader, UnitOffset, UnitSectionOffset,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Result<T> = std::result::Result<T, Unreadable>;

/// The debug information is damaged, or too long.
struct Unreadable;

impl From<gimli::Error> for Unreadable {
    fn from(_: gimli::Error) -> Unreadable {
        Unreadable
    }
}

/// The largest number of attributes, ranges and rows of line tables that are decoded for one compilation unit.
const MAX_OF_UNIT: usize = 4 << 20;
/// The largest number of names, ranges and rows that are kept for all files of a target. Together they take at most
/// about 150 MB.
const MAX_KEPT: usize = 3 << 20;
/// The longest time for decoding the debug information of all files of a target.
const MOST_SECONDS: Duration = Duration::from_secs(3);
/// The number of decoded items after which the time is checked again.
const CHECKED: usize = 5000;
/// The largest number of bytes of the header of a line table. gimli keeps a hundred bytes for each byte of it.
const MAX_LINE_HEADER: u64 = 256 << 10;
/// The largest number of ranges that are tried for one address. Code that the linker removed can overlap other code.
const MAX_OVERLAPS: usize = 64;
/// The largest number of steps from an inlined function to the entry that has its name.
const MAX_STEPS: usize = 8;
/// The largest number of inlined functions at one address for which lines are returned.
const MAX_INLINED: usize = 32;
/// The cost of a name or a path, counted in decoded items.
const NAME_COST: usize = 8;
/// The largest number of bytes of a name, and of a path.
const MAX_TEXT: usize = 4000;

/// A line of source code. `function`: the symbol or name of an inlined function; None for the function that owns the
/// machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    pub function: Option<Vec<u8>>,
    pub file: Vec<u8>,
    pub line: u64,
}

/// A line of a source file: (number of the file in the table of its compilation unit, line number).
type LinePosition = (u64, u64);

/// A call that the compiler replaced by the code of the called function.
struct InlinedCall {
    /// The positions of the call's address ranges in the list of all ranges of the compilation unit.
    ranges: std::ops::Range<usize>,
    /// The offset of the DWARF entry that describes the called function; None if there is none.
    origin: Option<usize>,
    /// The file and the line that contain the call.
    call: LinePosition,
}

/// A run of consecutive code. `rows`: the address and the new place in the source of each change of this place, by
/// ascending address.
struct Sequence {
    start: u64,
    end: u64,
    rows: Vec<(u64, LinePosition)>,
}

/// The code of a compilation unit. `inlined`: each call comes after the calls that contain it.
struct Code {
    sequences: Vec<Sequence>,
    inlined: Vec<InlinedCall>,
    ranges: Vec<(u64, u64)>,
}

/// The remaining budget for decoding the files of a target: CPU time, and a number of items that are kept.
pub struct Budget {
    time: Duration,
    kept: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { time: MOST_SECONDS, kept: MAX_KEPT }
    }
}

/// The work of one look-up, counted in decoded items.
struct Effort<'a> {
    budget: &'a mut Budget,
    began: Instant,
    left: usize,
}

impl Effort<'_> {
    fn new(budget: &mut Budget) -> Effort<'_> {
        Effort { budget, began: Instant::now(), left: MAX_OF_UNIT }
    }

    /// Count `count` decoded items. Fails if they exceed the limit, or if the time is up.
    fn take(&mut self, count: usize) -> Result<()> {
        let before = self.left;
        self.left = self.left.checked_sub(count).ok_or(Unreadable)?;
        match before / CHECKED == self.left / CHECKED {
            true => Ok(()),
            false => self.check(),
        }
    }

    /// Count items that are decoded and also kept in memory. Fails if they exceed a limit, or if the time is up.
    fn keep(&mut self, count: usize) -> Result<()> {
        self.budget.kept = self.budget.kept.checked_sub(count).ok_or(Unreadable)?;
        self.take(count)
    }

    fn check(&self) -> Result<()> {
        if self.began.elapsed() < self.budget.time {
            Ok(())
        } else {
            Err(Unreadable)
        }
    }
}

impl Drop for Effort<'_> {
    fn drop(&mut self) {
        self.budget.time = self.budget.time.saturating_sub(self.began.elapsed());
    }
}

/// The source lines of one ELF file, read from its debug information (DWARF). `T`: the bytes of a section.
pub struct SourceLines<T> {
    sections: HashMap<String, T>,
    /// (start, end, offset of the compilation unit) of each range of code, ascending.
    ranges: Vec<(u64, u64, usize)>,
    /// The offsets of all compilation units, ascending.
    starts: Vec<usize>,
    known: HashMap<usize, Option<Arc<Code>>>,
    /// The names of functions, by the offsets of their entries.
    names: HashMap<usize, Option<Vec<u8>>>,
    /// The paths of files, by unit and number.
    paths: HashMap<(usize, u64), Vec<u8>>,
}

impl<T: AsRef<[u8]>> SourceLines<T> {
    /// Find the code of each compilation unit. `sections`: the contents of the sections, by name, such as
    /// `.debug_info`. A missing section counts as empty.
    pub fn new(sections: HashMap<String, T>, budget: &mut Budget) -> SourceLines<T> {
        let (mut ranges, mut starts) = (Vec::new(), Vec::new());
        let mut lines = SourceLines {
            sections,
            ranges: Vec::new(),
            starts: Vec::new(),
            known: HashMap::new(),
            names: HashMap::new(),
            paths: HashMap::new(),
        };
        // Lines that were found before damage, or before the budget was used up, are kept.
        let _ = lines.find_code(&mut ranges, &mut starts, &mut Effort::new(budget));
        ranges.sort_unstable();
        (lines.ranges, lines.starts) = (ranges, starts);
        lines
    }

    /// Return the lines to which the code at a linked address belongs, innermost first: those in inlined functions, then
    /// that of the function that owns the code. Empty if they are unknown, or if the budget is used up.
    pub fn find(&mut self, address: u64, budget: &mut Budget) -> Vec<SourceLine> {
        let mut effort = Effort::new(budget);
        for offset in self.units_at(address) {
            if effort.check().is_err() {
                break;
            }
            if !self.known.contains_key(&offset) {
                let code = self.read(offset, &mut effort).ok().map(Arc::new);
                self.known.insert(offset, code);
            }
            let Some(Some(code)) = self.known.get(&offset).cloned() else { continue };
            if let Ok(found @ [_, ..]) = self.lines(&code, offset, address, &mut effort).as_deref() {
                return found.to_vec();
            }
        }
        Vec::new()
    }

    fn dwarf(&self) -> Dwarf<Bytes<'_>> {
        let section = |id: SectionId| self.sections.get(id.name()).map_or(&[][..], AsRef::as_ref);
        Dwarf::load(|id| Ok::<_, gimli::Error>(EndianSlice::new(section(id), LittleEndian))).unwrap_or_default()
    }

    /// Return the compilation units with code at an address, the likeliest first.
    fn units_at(&self, address: u64) -> Vec<usize> {
        let end = self.ranges.partition_point(|range| range.0 <= address);
        let near = self.ranges[..end].iter().rev().take(MAX_OVERLAPS);
        near.filter(|range| address < range.1).map(|range| range.2).collect()
    }

    /// Parse a unit, unless the header of its line table is too long.
    fn unit<'a>(&'a self, dwarf: &Dwarf<Bytes<'a>>, header: UnitHeader<Bytes<'a>>) -> Result<Unit<Bytes<'a>>> {
        let abbreviations = dwarf.abbreviations(&header)?;
        let mut entries = header.entries_raw(&abbreviations, None)?;
        for specification in entries.read_abbreviation()?.map_or(&[][..], |form| form.attributes()) {
            let attribute = entries.read_attribute(*specification)?;
            if attribute.name() == gimli::DW_AT_stmt_list {
                let lines = self.sections.get(".debug_line").map_or(&[][..], AsRef::as_ref);
                let place = match attribute.value() {
                    AttributeValue::DebugLineRef(offset) => offset.0,
                    _ => return Err(Unreadable),
                };
                if line_header(lines, place).is_none_or(|size| size > MAX_LINE_HEADER) {
                    return Err(Unreadable);
                }
            }
        }
        Ok(Unit::new_with_abbreviations(dwarf, header, abbreviations)?)
    }

    /// Decode the headers of all compilation units. Append the ranges of their code to `ranges`, and their offsets to
    /// `starts`.
    fn find_code(
        &self,
        ranges: &mut Vec<(u64, u64, usize)>,
        starts: &mut Vec<usize>,
        effort: &mut Effort<'_>,
    ) -> Result<()> {
        let dwarf = self.dwarf();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let UnitSectionOffset::DebugInfoOffset(DebugInfoOffset(offset)) = header.offset() else { continue };
            effort.keep(1)?;
            effort.check()?;
            starts.push(offset);
            let Ok(unit) = self.unit(&dwarf, header) else { continue };
            let (mut entries, mut code) = (unit.entries_raw(None)?, EntryCode::default());
            for specification in entries.read_abbreviation()?.map_or(&[][..], |form| form.attributes()) {
                code.read(&dwarf, &unit, &entries.read_attribute(*specification)?)?;
            }
            code.each_range(&dwarf, &unit, effort, |start, end| ranges.push((start, end, offset)))?;
        }
        Ok(())
    }

    fn read(&self, offset: usize, effort: &mut Effort<'_>) -> Result<Code> {
        let dwarf = self.dwarf();
        let unit = self.unit(&dwarf, header(&dwarf, offset)?)?;
        let sequences = sequences(&unit, effort)?;
        // If the inlined calls cannot be read, the lines are still right.
        let (mut inlined, mut ranges) = (Vec::new(), Vec::new());
        let _ = find_inlined(&dwarf, &unit, &mut inlined, &mut ranges, effort);
        Ok(Code { sequences, inlined, ranges })
    }

    fn lines(&mut self, code: &Code, offset: usize, address: u64, effort: &mut Effort<'_>) -> Result<Vec<SourceLine>> {
        let end = code.sequences.partition_point(|sequence| sequence.start <= address);
        let mut near = code.sequences[..end].iter().rev().take(MAX_OVERLAPS);
        let Some(sequence) = near.find(|sequence| address < sequence.end) else { return Ok(Vec::new()) };
        let Some(index) = sequence.rows.partition_point(|row| row.0 <= address).checked_sub(1) else {
            return Ok(Vec::new());
        };
        let is_here = |one: &&InlinedCall| {
            code.ranges[one.ranges.clone()].iter().any(|range| range.0 <= address && address < range.1)
        };
        let (mut place, mut found) = (sequence.rows[index].1, Vec::new());
        for one in code.inlined.iter().rev().filter(is_here).take(MAX_INLINED) {
            effort.check()?;
            let Some(name) = one.origin.and_then(|origin| self.name_of(origin, effort)) else { continue };
            found.push(SourceLine { function: Some(name), file: self.path_of(offset, place.0, effort), line: place.1 });
            place = one.call;
        }
        found.push(SourceLine { function: None, file: self.path_of(offset, place.0, effort), line: place.1 });
        Ok(found)
    }

    fn name_of(&mut self, origin: usize, effort: &mut Effort<'_>) -> Option<Vec<u8>> {
        if !self.names.contains_key(&origin) {
            let name = effort.keep(NAME_COST).and_then(|()| self.name(&self.dwarf(), origin, effort)).ok().flatten();
            self.names.insert(origin, name);
        }
        self.names[&origin].clone()
    }

    fn path_of(&mut self, offset: usize, number: u64, effort: &mut Effort<'_>) -> Vec<u8> {
        if !self.paths.contains_key(&(offset, number)) {
            let dwarf = self.dwarf();
            let header = effort.keep(NAME_COST).and_then(|()| header(&dwarf, offset));
            let unit = header.and_then(|header| self.unit(&dwarf, header));
            let path = unit.ok().and_then(|unit| path(&dwarf, &unit, number)).unwrap_or_default();
            self.paths.insert((offset, number), path);
        }
        self.paths[&(offset, number)].clone()
    }

    /// Return the linker's symbol of the function with the entry at `offset`, else its name; None if it has neither.
    fn name(&self, dwarf: &Dwarf<Bytes<'_>>, mut offset: usize, effort: &mut Effort<'_>) -> Result<Option<Vec<u8>>> {
        for _ in 0..MAX_STEPS {
            effort.check()?;
            let Some(index) = self.starts.partition_point(|start| *start <= offset).checked_sub(1) else { break };
            let start = self.starts[index];
            let unit = self.unit(dwarf, header(dwarf, start)?)?;
            let entry = unit.entry(UnitOffset(offset - start))?;
            for name in [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name, gimli::DW_AT_name] {
                if let Some(text) = entry.attr_value(name)?.and_then(|value| text(dwarf, &unit, value)) {
                    return Ok(Some(text.to_vec()));
                }
            }
            let mut origin = None;
            for name in [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification] {
                origin = origin.or(entry.attr_value(name)?.and_then(|value| absolute(&unit, value)));
            }
            let Some(next) = origin else { break };
            offset = next;
        }
        Ok(None)
    }
}

/// Return the length of the header of the line table at `place`; None if no line table is there.
fn line_header(bytes: &[u8], place: usize) -> Option<u64> {
    let number = |at: usize, size: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
        Some(u64::from_le_bytes(word))
    };
    let (start, size) = if number(place, 4)? == 0xffff_ffff { (place.checked_add(12)?, 8) } else { (place + 4, 4) };
    // Since version 5 the sizes of addresses and of segments are before the length.
    let sizes = if number(start, 2)? >= 5 { 2 } else { 0 };
    number(start + 2 + sizes, size)
}

/// The attributes of a DWARF entry that say where its code is: either `low` and `high`, or a `list` of ranges.
#[derive(Default)]
struct EntryCode<'a> {
    low: Option<u64>,
    high: Option<AttributeValue<Bytes<'a>>>,
    list: Option<RngListIter<Bytes<'a>>>,
}

impl<'a> EntryCode<'a> {
    /// Store an attribute if it says where the code is.
    fn read(&mut self, dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>, one: &Attribute<Bytes<'a>>) -> Result<()> {
        match one.name() {
            gimli::DW_AT_low_pc => self.low = dwarf.attr_address(unit, one.value())?,
            gimli::DW_AT_high_pc => self.high = Some(one.value()),
            gimli::DW_AT_ranges => self.list = dwarf.attr_ranges(unit, one.value())?,
            _ => (),
        }
        Ok(())
    }

    /// Call `add` for each range. Each entry of a list is counted, even if it has no range.
    fn each_range(
        self,
        dwarf: &Dwarf<Bytes<'a>>,
        unit: &Unit<Bytes<'a>>,
        effort: &mut Effort<'_>,
        mut add: impl FnMut(u64, u64),
    ) -> Result<()> {
        if let (Some(low), Some(high)) = (self.low, self.high) {
            let end = dwarf.attr_address(unit, high)?.or(high.udata_value().and_then(|size| low.checked_add(size)));
            if let Some(end) = end.filter(|end| low < *end) {
                effort.keep(1)?;
                add(low, end);
            }
        }
        let Some(mut list) = self.list else { return Ok(()) };
        while let Some(entry) = list.next_raw()? {
            effort.take(1)?;
            if let Some(range) = list.convert_raw(entry)? {
                effort.keep(1)?;
                if range.begin < range.end {
                    add(range.begin, range.end);
                }
            }
        }
        Ok(())
    }
}

fn header<'a>(dwarf: &Dwarf<Bytes<'a>>, offset: usize) -> Result<UnitHeader<Bytes<'a>>> {
    Ok(dwarf.debug_info.header_from_offset(DebugInfoOffset(offset))?)
}

/// Return the string of an attribute; None if the attribute has none, or if the string has more than MAX_TEXT bytes.
fn text<'a>(dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>, value: AttributeValue<Bytes<'a>>) -> Option<&'a [u8]> {
    dwarf.attr_string(unit, value).ok().map(|text| text.slice()).filter(|text| text.len() <= MAX_TEXT)
}

fn sequences(unit: &Unit<Bytes<'_>>, effort: &mut Effort<'_>) -> Result<Vec<Sequence>> {
    let Some(program) = unit.line_program.clone() else { return Ok(Vec::new()) };
    check_instructions(program.header(), effort)?;
    let (mut found, mut rows) = (Vec::new(), program.rows());
    let mut open: Vec<(u64, LinePosition)> = Vec::new();
    while let Some((_, row)) = rows.next_row()? {
        effort.keep(1)?;
        if !row.end_sequence() {
            open.push((row.address(), (row.file_index(), row.line().map_or(0, Into::into))));
            continue;
        }
        let rows = std::mem::take(&mut open);
        if let Some(start) = rows.first().map(|first| first.0) {
            found.push(Sequence { start, end: row.address(), rows });
        }
    }
    found.sort_unstable_by_key(|sequence| sequence.start);
    Ok(found)
}

/// Fail if the instructions of a line table add files (DW_LNE_define_file), or if the time is up. gimli keeps a hundred
/// bytes for each added file, and no compiler adds files: they are in the header.
fn check_instructions(header: &LineProgramHeader<Bytes<'_>>, effort: &Effort<'_>) -> Result<()> {
    let (mut instructions, mut count) = (header.instructions(), 0);
    while let Some(instruction) = instructions.next_instruction(header)? {
        count += 1;
        if matches!(instruction, LineInstruction::DefineFile(_)) {
            return Err(Unreadable);
        }
        if count % CHECKED == 0 {
            effort.check()?;
        }
    }
    Ok(())
}

fn find_inlined<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    inlined: &mut Vec<InlinedCall>,
    ranges: &mut Vec<(u64, u64)>,
    effort: &mut Effort<'_>,
) -> Result<()> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let Some(form) = entries.read_abbreviation()? else { continue };
        effort.take(1 + form.attributes().len())?;
        if form.tag() != gimli::DW_TAG_inlined_subroutine {
            entries.skip_attributes(form.attributes())?;
            continue;
        }
        let (mut code, mut origin, mut call) = (EntryCode::default(), None, (0, 0));
        for specification in form.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            match attribute.name() {
                gimli::DW_AT_abstract_origin => origin = absolute(unit, attribute.value()),
                gimli::DW_AT_call_file => call.0 = number(&attribute.value()),
                gimli::DW_AT_call_line => call.1 = number(&attribute.value()),
                _ => code.read(dwarf, unit, &attribute)?,
            }
        }
        let first = ranges.len();
        code.each_range(dwarf, unit, effort, |start, end| ranges.push((start, end)))?;
        effort.keep(2)?;
        inlined.push(InlinedCall { ranges: first..ranges.len(), origin, call });
    }
    Ok(())
}

fn number(value: &AttributeValue<Bytes<'_>>) -> u64 {
    match value {
        AttributeValue::FileIndex(number) => *number,
        value => value.udata_value().unwrap_or(0),
    }
}

/// Return the offset, in bytes from the start of `.debug_info`, of the entry to which an attribute refers; None if it
/// refers to none.
fn absolute(unit: &Unit<Bytes<'_>>, value: AttributeValue<Bytes<'_>>) -> Option<usize> {
    match value {
        AttributeValue::UnitRef(offset) => Some(offset.to_debug_info_offset(&unit.header)?.0),
        AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => Some(offset),
        _ => None,
    }
}

/// Return the path of a file of a unit; None if the unit has no such file.
fn path(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>, number: u64) -> Option<Vec<u8>> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let folder = file.directory(header).and_then(|value| text(dwarf, unit, value));
    let own = unit.comp_dir.map(|folder| folder.slice()).filter(|folder| folder.len() <= MAX_TEXT);
    let mut path = Vec::new();
    for part in [own.unwrap_or_default(), folder.unwrap_or_default(), text(dwarf, unit, file.path_name())?] {
        if part.starts_with(b"/") {
            path.clear();
        } else if !path.is_empty() && !part.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    (path.len() <= MAX_TEXT).then_some(path)
}
