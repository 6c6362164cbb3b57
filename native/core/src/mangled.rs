//! Check in one pass whether a mangled C++ name is well formed (Itanium C++ ABI, 5.1).
//!
//! `cpp_demangle` tries one production after the other, each from the beginning. For 79 bytes that fit no production it
//! takes seconds, and a few more bytes double the time. For well-formed names it takes linear time, so only these are
//! passed to it. Constructs that compilers hardly ever write (new, delete, constraints, modules, construction vtables)
//! count as malformed. Of 589,186 names in Debian's libraries (including those of LLVM, Arrow and gRPC), 381 contain
//! such a construct.
#![forbid(unsafe_code)]

/// The largest depth of nested productions: the default `recursion_limit` of `cpp_demangle`.
const DEPTH: u32 = 96;
/// The largest number of conversion operators in one name. The limit is needed because `cpp_demangle` reads the
/// arguments of each of them twice.
const CONVERSIONS: u32 = 4;
const UNARY: [&[u8]; 14] =
    [b"ps", b"ng", b"ad", b"de", b"co", b"nt", b"pp", b"mm", b"te", b"sz", b"az", b"nx", b"sp", b"tw"];
const BINARY: [&[u8]; 32] = [
    b"pl", b"mi", b"ml", b"dv", b"rm", b"an", b"or", b"eo", b"aS", b"pL", b"mI", b"mL", b"dV", b"rM", b"aN", b"oR",
    b"eO", b"ls", b"rs", b"lS", b"rS", b"eq", b"ne", b"lt", b"gt", b"le", b"ge", b"ss", b"aa", b"oo", b"cm", b"ix",
];
/// Operators that may be names of functions but do not occur in expressions. The binary operators, and eight of the
/// unary ones, may be names of functions too.
const FUNCTIONS: [&[u8]; 8] = [b"nw", b"na", b"dl", b"da", b"cl", b"pm", b"pt", b"qu"];

/// Return whether `symbol` is the mangled name of a function, an object, a vtable or a `type_info`. A suffix that the
/// compiler adds after the first dot is allowed.
pub(super) fn is_mangled(symbol: &[u8]) -> bool {
    let Some(rest) = symbol.strip_prefix(b"_Z") else { return false };
    let mut name = Name { rest, depth: 0, known: 0, conversions: 0, converts: false };
    name.encoding().is_some() && matches!(name.rest.first(), None | Some(b'.'))
}

/// The kind of a component of a nested name (`N…E`). The kind decides which component may follow it.
#[derive(Clone, Copy, PartialEq)]
enum NamePart {
    Name,
    Arguments,
    /// A dependent part, such as a template parameter. No name ends with such a part.
    Dependent,
}

/// The part of a name that was not consumed yet. Each method consumes one production; it returns None if the name is
/// not well formed.
struct Name<'a> {
    rest: &'a [u8],
    depth: u32,
    /// The number of parts of the name to which a substitution may refer so far.
    known: usize,
    conversions: u32,
    /// Whether the target type of a conversion operator is being read. Template arguments after a template parameter
    /// then belong to the operator, not to the type.
    converts: bool,
}

impl<'a> Name<'a> {
    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    /// Consume `prefix` if the rest of the name begins with it. Return whether it did.
    fn has(&mut self, prefix: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn has_one_of(&mut self, prefixes: &[&[u8]]) -> bool {
        prefixes.iter().any(|prefix| self.has(prefix))
    }

    fn expect(&mut self, prefix: &[u8]) -> Option<()> {
        self.has(prefix).then_some(())
    }

    fn skip(&mut self, is_part: impl Fn(&u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        let (skipped, rest) = self.rest.split_at(end);
        self.rest = rest;
        skipped
    }

    fn digits(&mut self) -> &'a [u8] {
        self.skip(u8::is_ascii_digit)
    }

    fn nested(&mut self, take: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth += 1;
        let found = if self.depth < DEPTH { take(self) } else { None };
        self.depth -= 1;
        found
    }

    /// Consume any number of productions of one kind, and then `end`; None if one of them is wrong.
    fn until(&mut self, end: &[u8], mut take: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        while !self.has(end) {
            take(self)?;
        }
        Some(())
    }

    fn encoding(&mut self) -> Option<()> {
        self.nested(|name| match name.peek() {
            b'T' | b'G' => name.special(),
            _ => {
                name.name()?;
                while !matches!(name.peek(), 0 | b'E' | b'.') {
                    name.kind()?;
                }
                Some(())
            }
        })
    }

    fn special(&mut self) -> Option<()> {
        if self.has_one_of(&[b"TV", b"TT", b"TI", b"TS"]) {
            return self.kind();
        }
        if self.has_one_of(&[b"GTt", b"GTn"]) {
            return self.encoding();
        }
        if self.has_one_of(&[b"GV", b"TH", b"TW"]) {
            return self.name();
        }
        let count = if self.has(b"Tc") { 2 } else { usize::from(self.has(b"T")) };
        (count > 0).then_some(())?;
        (0..count).try_for_each(|_| self.call_offset())?;
        self.encoding()
    }

    fn call_offset(&mut self) -> Option<()> {
        let numbers = if self.has(b"h") { 1 } else { self.expect(b"v").map(|()| 2)? };
        (0..numbers).try_for_each(|_| {
            self.has(b"n");
            (!self.digits().is_empty()).then_some(())?;
            self.expect(b"_")
        })
    }

    fn name(&mut self) -> Option<()> {
        match self.peek() {
            b'N' => return self.nested_name(),
            b'Z' => return self.local_name(),
            b'S' if !self.rest.starts_with(b"St") => {
                self.substitution()?;
                return self.arguments();
            }
            _ => {
                self.has(b"St");
                self.unqualified()?;
            }
        }
        if self.peek() != b'I' {
            return Some(());
        }
        self.known += 1;
        self.arguments()
    }

    fn nested_name(&mut self) -> Option<()> {
        self.expect(b"N")?;
        self.skip(|byte| b"rVK".contains(byte));
        self.skip(|byte| b"RO".contains(byte));
        let mut last = self.first_part()?;
        while !self.has(b"E") {
            last = self.next_part(last)?;
        }
        (last != NamePart::Dependent).then_some(())
    }

    fn first_part(&mut self) -> Option<NamePart> {
        if self.peek() != b'S' {
            return self.next_part(NamePart::Arguments);
        }
        if !self.has(b"St") {
            self.substitution()?;
        }
        Some(NamePart::Dependent)
    }

    /// Consume a part of a nested name, and return its kind; None if it is wrong. `last`: the part before it.
    /// Substitutions may refer to every part but the last one.
    fn next_part(&mut self, last: NamePart) -> Option<NamePart> {
        let part = if self.peek() == b'T' {
            self.parameter()?;
            NamePart::Dependent
        } else if self.has_one_of(&[b"Dt", b"DT"]) {
            self.expression()?;
            self.expect(b"E")?;
            NamePart::Dependent
        } else if self.peek() == b'I' && last != NamePart::Arguments {
            self.arguments()?;
            NamePart::Arguments
        } else {
            self.unqualified()?;
            NamePart::Name
        };
        self.known += usize::from(self.peek() != b'E');
        // A data member prefix. It precedes a closure type (a lambda in the initializer of a member).
        self.has(b"M");
        Some(part)
    }

    fn local_name(&mut self) -> Option<()> {
        self.expect(b"Z")?;
        self.encoding()?;
        self.expect(b"E")?;
        if self.has(b"d") {
            self.digits();
            self.expect(b"_")?;
        } else if self.has(b"s") {
            return self.discriminator();
        }
        self.nested(Self::name)?;
        self.discriminator()
    }

    fn discriminator(&mut self) -> Option<()> {
        if self.has(b"__") {
            (!self.digits().is_empty()).then_some(())?;
            return self.expect(b"_");
        }
        if self.has(b"_") {
            let (digit, rest) = self.rest.split_first()?;
            self.rest = rest;
            return digit.is_ascii_digit().then_some(());
        }
        Some(())
    }

    fn unqualified(&mut self) -> Option<()> {
        self.has(b"L");
        match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'C' | b'D' => self.constructor()?,
            b'U' => self.unnamed()?,
            _ => self.operator()?,
        }
        while self.has(b"B") {
            self.source_name()?;
        }
        Some(())
    }

    fn source_name(&mut self) -> Option<()> {
        let size: usize = std::str::from_utf8(self.digits()).ok()?.parse().ok()?;
        self.rest = self.rest.get(size..)?;
        (size > 0).then_some(())
    }

    fn constructor(&mut self) -> Option<()> {
        let inherits = self.has(b"CI");
        if !inherits && !self.has_one_of(&[b"C", b"D"]) {
            return None;
        }
        (self.skip(|byte| (b'0'..=b'5').contains(byte)).len() == 1).then_some(())?;
        if inherits {
            self.kind()
        } else {
            Some(())
        }
    }

    fn unnamed(&mut self) -> Option<()> {
        if self.has(b"Ul") {
            self.kind()?;
            self.until(b"E", Self::kind)?;
        } else {
            self.expect(b"Ut")?;
        }
        self.digits();
        self.expect(b"_")
    }

    fn operator(&mut self) -> Option<()> {
        if self.has(b"cv") {
            self.conversions += 1;
            (self.conversions <= CONVERSIONS).then_some(())?;
            let converts = std::mem::replace(&mut self.converts, true);
            self.kind()?;
            self.converts = converts;
            return Some(());
        }
        if self.has(b"li") {
            return self.source_name();
        }
        (self.has_one_of(&UNARY[..8]) || self.has_one_of(&BINARY) || self.has_one_of(&FUNCTIONS)).then_some(())
    }

    fn substitution(&mut self) -> Option<()> {
        if self.has_one_of(&[b"Sa", b"Sb", b"Ss", b"Si", b"So", b"Sd"]) {
            return Some(());
        }
        self.expect(b"S")?;
        let digits = self.skip(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        self.expect(b"_")?;
        let number = std::str::from_utf8(digits).ok().filter(|digits| !digits.is_empty());
        let place = number.map_or(Some(0), |digits| usize::from_str_radix(digits, 36).ok()?.checked_add(1))?;
        (place < self.known).then_some(())
    }

    fn parameter(&mut self) -> Option<()> {
        self.expect(b"T")?;
        self.digits();
        self.expect(b"_")
    }

    fn arguments_if_any(&mut self) -> Option<()> {
        if self.peek() == b'I' {
            self.arguments()
        } else {
            Some(())
        }
    }

    fn arguments(&mut self) -> Option<()> {
        self.expect(b"I")?;
        self.argument()?;
        self.nested(|name| name.until(b"E", Self::argument))
    }

    fn argument(&mut self) -> Option<()> {
        if self.has(b"X") {
            self.expression()?;
            return self.expect(b"E");
        }
        match self.peek() {
            b'L' => self.literal(),
            b'J' => self.nested(|name| name.expect(b"J").and_then(|()| name.until(b"E", Self::argument))),
            _ => self.kind(),
        }
    }

    fn literal(&mut self) -> Option<()> {
        self.expect(b"L")?;
        if self.has(b"_Z") {
            self.encoding()?;
        } else {
            self.kind()?;
            self.skip(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
        }
        self.expect(b"E")
    }

    /// Consume a type; None if it is wrong. Substitutions do not refer to types with a code of one letter, or to types
    /// that are substitutions themselves.
    fn kind(&mut self) -> Option<()> {
        if self.is_builtin() {
            return Some(());
        }
        if self.peek() == b'S' && !self.rest.starts_with(b"St") {
            let before = *self.rest.get(1)?;
            self.substitution()?;
            if self.peek() != b'I' {
                return (before != b't').then_some(());
            }
            self.arguments()?;
        } else {
            self.nested(Self::new_kind)?;
        }
        self.known += 1;
        Some(())
    }

    fn is_builtin(&mut self) -> bool {
        let long: [&[u8]; 10] = [b"Dd", b"De", b"Df", b"Dh", b"Di", b"Ds", b"Du", b"Da", b"Dc", b"Dn"];
        let short = b"vwbcahstijlmxynofdegz".contains(&self.peek());
        self.rest = &self.rest[usize::from(short)..];
        short || self.has_one_of(&long)
    }

    fn new_kind(&mut self) -> Option<()> {
        match self.peek() {
            b'r' | b'V' | b'K' => {
                self.skip(|byte| b"rVK".contains(byte));
                let is_function = self.peek() == b'F' || self.rest.starts_with(b"DoF");
                if is_function {
                    self.function()
                } else {
                    self.kind()
                }
            }
            b'P' | b'R' | b'O' => {
                self.rest = &self.rest[1..];
                self.kind()
            }
            b'C' => self.expect(b"C").and_then(|()| self.is_builtin().then_some(())),
            b'0'..=b'9' | b'N' | b'Z' | b'S' => self.name(),
            b'A' => self.array(),
            b'D' => self.longer_kind(),
            b'F' => self.function(),
            b'M' => self.expect(b"M").and_then(|()| self.kind()).and_then(|()| self.kind()),
            b'T' => self.parameter_or_template(),
            b'U' => {
                self.expect(b"U")?;
                self.source_name()?;
                self.arguments_if_any()?;
                self.kind()
            }
            b'u' => self.expect(b"u").and_then(|()| self.source_name()),
            _ => None,
        }
    }

    fn parameter_or_template(&mut self) -> Option<()> {
        self.parameter()?;
        if self.converts || self.peek() != b'I' {
            return Some(());
        }
        self.known += 1;
        self.arguments()
    }

    fn array(&mut self) -> Option<()> {
        self.expect(b"A")?;
        if self.digits().is_empty() && self.peek() != b'_' {
            self.expression()?;
        }
        self.expect(b"_")?;
        self.kind()
    }

    /// Consume a type whose code has two letters; None if it is wrong.
    fn longer_kind(&mut self) -> Option<()> {
        if self.has_one_of(&[b"Dt", b"DT"]) {
            self.expression()?;
            return self.expect(b"E");
        }
        if self.has(b"Dp") {
            return self.kind();
        }
        if self.has(b"Dv") {
            return self.digits().first().and_then(|_| self.expect(b"_")).and_then(|()| self.kind());
        }
        if self.has(b"DF") {
            return self.digits().first().and_then(|_| self.has_one_of(&[b"_", b"b", b"x"]).then_some(()));
        }
        self.function()
    }

    fn function(&mut self) -> Option<()> {
        self.has(b"Do");
        self.expect(b"F")?;
        self.has(b"Y");
        self.kind()?;
        while !self.has_one_of(&[b"E", b"RE", b"OE"]) {
            self.kind()?;
        }
        Some(())
    }

    fn expression(&mut self) -> Option<()> {
        self.nested(|name| match name.peek() {
            b'T' => name.parameter(),
            b'L' => name.literal(),
            b'0'..=b'9' => name.simple_name(),
            _ => name.operation(),
        })
    }

    fn operation(&mut self) -> Option<()> {
        if self.has(b"fp") {
            self.skip(|byte| b"rVK".contains(byte));
            self.digits();
            return self.expect(b"_");
        }
        if self.has(b"sr") {
            return self.member();
        }
        if self.has_one_of(&[b"cl", b"il"]) {
            return self.until(b"E", Self::expression);
        }
        if self.has(b"tl") {
            self.kind()?;
            return self.until(b"E", Self::expression);
        }
        if self.has(b"cv") {
            self.kind()?;
            return if self.has(b"_") { self.until(b"E", Self::expression) } else { self.expression() };
        }
        if self.has_one_of(&[b"ti", b"st", b"at"]) {
            return self.kind();
        }
        if self.has_one_of(&[b"dc", b"sc", b"cc", b"rc"]) {
            self.kind()?;
            return self.expression();
        }
        if self.has_one_of(&[b"dt", b"pt"]) {
            self.expression()?;
            return self.simple_name();
        }
        if self.has(b"sZ") {
            return self.expression();
        }
        self.arithmetic()
    }

    /// Consume the name of a member of a class or namespace that depends on template arguments; None if it is wrong.
    fn member(&mut self) -> Option<()> {
        match self.peek() {
            b'0'..=b'9' => self.until(b"E", Self::simple_name)?,
            b'T' => {
                self.parameter()?;
                self.arguments_if_any()?;
                self.known += 1;
            }
            b'D' => self.kind()?,
            b'S' => self.substitution()?,
            _ => return None,
        }
        self.simple_name()
    }

    fn simple_name(&mut self) -> Option<()> {
        self.source_name()?;
        self.arguments_if_any()
    }

    fn arithmetic(&mut self) -> Option<()> {
        if self.has_one_of(&[b"pp_", b"mm_"]) || self.has_one_of(&UNARY) {
            return self.expression();
        }
        if self.has_one_of(&BINARY) || self.has(b"ds") {
            self.expression()?;
            return self.expression();
        }
        self.expect(b"qu")?;
        (0..3).try_for_each(|_| self.expression())
    }
}
