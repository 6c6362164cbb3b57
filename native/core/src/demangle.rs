//! Demangle C++ and Rust symbols into the names that programmers wrote.
#![forbid(unsafe_code)]

use crate::mangled::is_mangled;
use cpp_demangle::{DemangleOptions, Symbol};
use std::fmt::Write;

/// The largest length of a symbol that is demangled. The longest of 800,000 symbols in Debian's libraries has 2,306
/// bytes.
const LONGEST_SYMBOL: usize = 4 << 10;
/// The largest length of a name that demangling may produce. Each part of a symbol may stand for two copies of the part
/// before it, so 457 bytes can become gigabytes.
const LONGEST_NAME: usize = 4 << 10;
/// The length in characters of the end of a Rust symbol in the older (legacy) form: `17h`, 16 digits and `E`.
const HASH: usize = 20;

/// A name of at most LONGEST_NAME bytes.
#[derive(Default)]
struct BoundedName(String);

impl Write for BoundedName {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > LONGEST_NAME {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Demangle a C++ or Rust symbol, without parameters, result type and hash. Return None for any other symbol, for a
/// symbol that is too long, and for one whose name would be too long.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > LONGEST_SYMBOL {
        return None;
    }
    if symbol.starts_with("_R") || is_rust(symbol) {
        let mut name = BoundedName::default();
        write!(name, "{:#}", rustc_demangle::try_demangle(symbol).ok()?).ok()?;
        return Some(name.0);
    }
    of_cxx(symbol.as_bytes(), DemangleOptions::new().no_params().no_return_type().hide_expression_literal_types())
}

fn of_cxx(symbol: &[u8], options: DemangleOptions) -> Option<String> {
    if symbol.len() > LONGEST_SYMBOL || !is_mangled(symbol) {
        return None;
    }
    let mut name = BoundedName::default();
    Symbol::new(symbol).ok()?.structured_demangle(&mut name, &options).ok()?;
    Some(name.0)
}

/// Demangle the class name in a C++ `type_info`. The name is a mangled type, preceded by a star if the class has
/// internal linkage. None if the name does not belong to a class.
pub fn demangle_class(mangled: &[u8]) -> Option<String> {
    let mangled = mangled.strip_prefix(b"*").unwrap_or(mangled);
    // Types that begin with other letters have no vtable. `St` alone is a namespace.
    let is_class = mangled.first().is_some_and(|first| first.is_ascii_digit() || b"NSZ".contains(first));
    if !is_class
        || mangled == b"St"
        || !mangled.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(byte))
    {
        return None;
    }
    let symbol = [b"_ZTS", mangled].concat();
    let told = of_cxx(&symbol, DemangleOptions::new())?;
    told.strip_prefix("typeinfo name for ").map(str::to_owned)
}

fn is_rust(symbol: &str) -> bool {
    let Some(end) = symbol.len().checked_sub(HASH).and_then(|at| symbol.get(at..)) else { return false };
    let digits = end.strip_prefix("17h").and_then(|rest| rest.strip_suffix('E'));
    symbol.starts_with("_ZN") && digits.is_some_and(|found| found.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::{demangle, demangle_class, LONGEST_NAME, LONGEST_SYMBOL};

    fn place(number: usize) -> String {
        match number {
            0 => "S_".to_owned(),
            1..=36 => format!("S{}_", b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number - 1] as char),
            _ => unreachable!(),
        }
    }

    /// Return a symbol with `T<A>` and `count` further types, each of which contains the previous type twice.
    fn doubled(count: usize) -> String {
        let each = |number: usize| format!("S_I{0}{0}E", place(number));
        format!("1TI1A{}E", (1..=count).map(each).collect::<String>())
    }

    #[test]
    fn names_that_double_stay_as_they_are() {
        assert!(demangle_class(doubled(5).as_bytes()).is_some_and(|name| name.starts_with("T<A, T<A, A>, T<T<A, A>")));
        for count in 12..36 {
            assert_eq!(demangle_class(doubled(count).as_bytes()), None);
            assert_eq!(demangle(&format!("_Z1f{}v", &doubled(count)[2..])), None);
        }
        // A Rust symbol of the same kind: tuples, each of which contains the previous tuple twice.
        let tuples: String = (0..30).fold("TjjE".to_owned(), |inner, _| format!("T{inner}B7_E"));
        assert!(demangle(&format!("_RINvC1a1f{tuples}E")).is_none_or(|name| name.len() <= LONGEST_NAME));
        let long = "a".repeat(LONGEST_SYMBOL);
        assert_eq!(demangle(&format!("_Z{}{long}", long.len())), None);
    }

    /// Check that names which would not end are not demangled. cpp_demangle alone takes seconds for each of them: it
    /// tries every meaning of each part before it gives up.
    #[test]
    fn names_that_do_not_end_stay_as_they_are() {
        for (prefix, part, suffix) in [
            ("_Z1fI", "ILSa", "D1D1D1D1D1EGR"),
            ("_ZTSO", "AnwL", "K_K_K_K_gs"),
            ("_Z1fIX", "nwT_", ""),
            ("_ZTS1AI", "SaISt1A", "XngsrS_IiE1aIiEEE"),
            ("_ZTSSaI", "LSaI", "LUlvE_0E"),
            ("_Z", "cvT_IXL_Z", "1fv"),
        ] {
            for count in [1, 12, 20, 40, 400] {
                let ends = ["", "0EE", "EE", "EEEv"].map(|end| end.repeat(count));
                for end in ends {
                    let name = demangle(&format!("{prefix}{}{suffix}{end}", part.repeat(count)));
                    assert!(name.is_none_or(|name| count == 1 && name.starts_with("operator f")), "{part} {count}");
                }
            }
        }
    }

    #[test]
    fn depth_is_bounded() {
        for part in ["P", "K", "A1_", "N1AI", "1AI", "1AIJ", "1AIXadL_Z", "Z1fI", "DTcl", "M1A", "FP", "NUl"] {
            for count in [90, 1000] {
                let nested = part.repeat(count);
                assert_eq!(demangle_class(format!("1TI{nested}").as_bytes()), None);
                assert_eq!(demangle(&format!("_Z1fI{nested}i{}", "E".repeat(count))), None);
            }
        }
        for part in ["R", "T", "A", "INtC1a1b", "FR", "NvNv"] {
            let name = demangle(&format!("_RINvC1a1f{}", part.repeat(1000)));
            assert!(name.is_none_or(|name| name.len() <= LONGEST_NAME));
        }
    }

    #[test]
    fn names_of_both_languages() {
        let told = |symbol: &str| demangle(symbol).unwrap_or_default();
        assert_eq!(told("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(told("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(told("_ZNSt6vectorIiSaIiEE9push_backEOi"), "std::vector<int, std::allocator<int> >::push_back");
        assert_eq!(told("_Z3addii"), "add");
        for symbol in ["malloc", "_Z", "_ZN", "_R", "", "\u{e9}\u{e9}17h0123456789abcdefE"] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn names_of_classes() {
        let told = |mangled: &str| demangle_class(mangled.as_bytes()).unwrap_or_default();
        assert_eq!(told("5Plain"), "Plain");
        assert_eq!(told("N6shapes6CircleE"), "shapes::Circle");
        assert_eq!(told("St9exception"), "std::exception");
        assert_eq!(told("*N12_GLOBAL__N_15LocalE"), "(anonymous namespace)::Local");
        assert_eq!(told("6HolderISt6vectorIiSaIiEELi3EE"), "Holder<std::vector<int, std::allocator<int> >, 3>");
        for mangled in ["", "*", "St", "99Short", "hello world", "N0E", "i", "5Pl", "\u{e9}t\u{e9}"] {
            assert_eq!(demangle_class(mangled.as_bytes()), None, "{mangled}");
        }
    }
}
