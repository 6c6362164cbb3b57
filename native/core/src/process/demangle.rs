//! Names of functions and classes as their programmers wrote them.
#![forbid(unsafe_code)]

use cpp_demangle::{DemangleOptions, Symbol};

/// `17h`, 16 digits and `E` end a name of Rust's older form.
const HASH: usize = 20;

/// The name behind a linker's symbol of C++ or Rust, without parameters, result and hash; None for any other symbol.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.starts_with("_R") || is_rust(symbol) {
        return rustc_demangle::try_demangle(symbol).ok().map(|name| format!("{name:#}"));
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    let options = DemangleOptions::new().no_params().no_return_type().hide_expression_literal_types();
    Symbol::new(symbol).ok()?.demangle_with_options(&options).ok()
}

/// The class behind the name in a `type_info`, which is a mangled type, with a star before it where the class has no name
/// that other objects may know; None where it is none.
pub fn demangle_class(mangled: &[u8]) -> Option<String> {
    let mangled = mangled.strip_prefix(b"*").unwrap_or(mangled);
    // Other letters begin types that have no vtable, and St alone is a namespace.
    let is_class = mangled.first().is_some_and(|first| first.is_ascii_digit() || b"NSZ".contains(first));
    if !is_class
        || mangled == b"St"
        || !mangled.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(byte))
    {
        return None;
    }
    let symbol = [b"_ZTS", mangled].concat();
    let told = Symbol::new(&symbol).ok()?.demangle_with_options(&DemangleOptions::new()).ok()?;
    told.strip_prefix("typeinfo name for ").map(str::to_owned)
}

fn is_rust(symbol: &str) -> bool {
    let Some(end) = symbol.len().checked_sub(HASH).and_then(|at| symbol.get(at..)) else { return false };
    let digits = end.strip_prefix("17h").and_then(|rest| rest.strip_suffix('E'));
    symbol.starts_with("_ZN") && digits.is_some_and(|found| found.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::{demangle, demangle_class};

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
