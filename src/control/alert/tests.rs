//! Alerts to real servers.
