//! `pointsman check`.
