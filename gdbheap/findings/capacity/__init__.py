"""The finding ``capacity``: containers of C++ and Rust with much unused capacity."""
