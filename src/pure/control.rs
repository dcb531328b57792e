//! The control core: outcomes, check results, ticks and orders in, effects out. No clock, no socket.
