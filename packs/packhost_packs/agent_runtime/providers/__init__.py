"""Provider adapters: each turns a turn into a request and a reply into content, without any I/O."""
