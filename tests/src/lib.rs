//! What the live tests share: scripted servers, load clients, engine set-up.
