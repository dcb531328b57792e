//! The agent: what runs beside a server, measures it, says how it is, and starts it anew when a signed order or its own
//! look at the services asks for it. One thread. It uses base and pure and nothing else of the product, and it refuses to
//! decide what becomes of its server.

mod agent_loop;
pub mod cli;
mod contact;
mod given_file;
mod liveness;
mod measure;
mod own_check;
mod pulse;
mod readiness;
mod services;
mod speaker;
mod state_log;
