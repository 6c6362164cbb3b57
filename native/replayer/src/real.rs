//! The tested allocator: the next definition of each of its functions, in another object.

use core::ffi::{c_char, c_int, c_void, CStr};

pub(crate) type Address = *mut c_void;

/// glibc's figures for all its arenas together (mallinfo(3)).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Mallinfo2 {
    pub(crate) arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    pub(crate) hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    pub(crate) uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Real {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> Address,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> Address,
    pub(crate) realloc: unsafe extern "C" fn(Address, usize) -> Address,
    pub(crate) free: unsafe extern "C" fn(Address),
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> Address,
    pub(crate) usable: unsafe extern "C" fn(Address) -> usize,
    /// Functions of glibc's malloc. Each is None if the tested allocator is another library.
    pub(crate) mallopt: Option<unsafe extern "C" fn(c_int, c_int) -> c_int>,
    pub(crate) trim: Option<unsafe extern "C" fn(usize) -> c_int>,
    pub(crate) mallinfo2: Option<unsafe extern "C" fn() -> Mallinfo2>,
    /// The path of the object that the functions come from.
    pub(crate) file: *const c_char,
}

fn next(name: &CStr) -> Address {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Return the load address and the path of the shared object that contains `function`; null and "" if there is none.
fn object_of(function: Address) -> (Address, *const c_char) {
    // SAFETY: zeros are valid, and the call fills them in; the name lives as long as the object.
    unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        match libc::dladdr(function, &mut found) {
            0 => (core::ptr::null_mut(), c"".as_ptr()),
            _ => (found.dli_fbase, found.dli_fname),
        }
    }
}

/// Look up the functions of the tested allocator; None if some of them are missing.
pub(crate) fn look_up() -> Option<Real> {
    let (base, file) = object_of(next(c"malloc"));
    let required = |name: &CStr| Some(next(name)).filter(|found| !found.is_null());
    let own = |name: &CStr| required(name).filter(|found| object_of(*found).0 == base);
    // SAFETY: each name is that of a function of this type (malloc(3), posix_memalign(3), mallopt(3), mallinfo(3)).
    unsafe {
        Some(Real {
            malloc: core::mem::transmute::<Address, unsafe extern "C" fn(usize) -> Address>(required(c"malloc")?),
            calloc: core::mem::transmute::<Address, unsafe extern "C" fn(usize, usize) -> Address>(required(
                c"calloc",
            )?),
            realloc: core::mem::transmute::<Address, unsafe extern "C" fn(Address, usize) -> Address>(required(
                c"realloc",
            )?),
            free: core::mem::transmute::<Address, unsafe extern "C" fn(Address)>(required(c"free")?),
            memalign: core::mem::transmute::<Address, unsafe extern "C" fn(usize, usize) -> Address>(
                own(c"memalign").or_else(|| own(c"aligned_alloc"))?,
            ),
            usable: core::mem::transmute::<Address, unsafe extern "C" fn(Address) -> usize>(own(
                c"malloc_usable_size",
            )?),
            mallopt: own(c"mallopt")
                .filter(|_| own(c"mallinfo2").is_some())
                .map(|found| core::mem::transmute::<Address, unsafe extern "C" fn(c_int, c_int) -> c_int>(found)),
            trim: own(c"malloc_trim")
                .filter(|_| own(c"mallinfo2").is_some())
                .map(|found| core::mem::transmute::<Address, unsafe extern "C" fn(usize) -> c_int>(found)),
            mallinfo2: own(c"__libc_malloc")
                .and_then(|_| own(c"mallinfo2"))
                .map(|found| core::mem::transmute::<Address, unsafe extern "C" fn() -> Mallinfo2>(found)),
            file,
        })
    }
}
