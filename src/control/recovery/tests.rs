//! Steps over real sockets and programs.
