//! What the fuzz targets do with an input. Plain functions, so that the test that replays the corpus runs them too.
pub mod codec;
pub mod feedback;
pub mod forwarding;
pub mod http2;
pub mod proxy_protocol;
pub mod rules;
