//! Recordings of raw events: format, writer, reader, blanking of content.
