//! denrei
